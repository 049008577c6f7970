//! The words of the command line, and their help.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Delivers approved operations to a CRM, and never turns a lost reply into a guess.
#[derive(Debug, Parser)]
#[command(name = "handoff", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 attention needed; \
4 conflict; 65 input refused; 69 database unavailable; 75 in use by another daemon; \
78 bad configuration or a database that must not be touched.";

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Configuration file (TOML); without one, defaults hold
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override one configuration value, for example worker.poll_interval=2s
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print JSON: column names as in the tables, times in milliseconds since 1970
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print results only, no hints
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Never ask on the terminal
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon: deliver what is recorded, until stopped
    #[command(after_help = "Examples:
  handoff run                                   embedded database and simulated CRM
  handoff run --config /etc/handoff/handoff.toml
Signals: TERM or INT drains (a second one stops at once), HUP reloads, USR1 logs counts.")]
    Run,
    /// Record an approved operation
    Approve(Approve),
    /// List operations
    List(List),
    /// Show one operation with its attempts
    #[command(after_help = "Example:\n  handoff show harbor:create-followup:v1:case-104")]
    Show {
        /// Operation key
        key: String,
    },
    /// Say why an operation is where it is, and what happens next
    #[command(after_help = "Example:\n  handoff explain harbor:create-followup:v1:case-104")]
    Explain {
        /// Operation key
        key: String,
    },
    /// Counts and ages
    #[command(after_help = "Example:
  handoff status --check || echo \"somebody must look\"
With --check the exit code is 3 if anything is blocked or a receiver is held.")]
    Status {
        /// Exit with 3 if a person must look
        #[arg(long)]
        check: bool,
    },
    /// Wait until an operation is settled
    Wait(Wait),
    /// One more delivery now, under the same key
    Retry(Act),
    /// Take an operation back
    Withdraw(Withdraw),
    /// Look keys up at their receiver now, and settle the operations accordingly
    Reconcile(Reconcile),
    /// Say what you have found at the receiver under an operation's key
    Resolve(Resolve),
    /// Hold a receiver: begin nothing more there until it is resumed
    #[command(after_help = "Examples:
  handoff pause crm --reason \"the vendor migrates until noon\"
  handoff pause --all
Calls under way end as they may. A hold outlasts restarts, spends no budget, and works without
a daemon.")]
    Pause(Hold),
    /// Let a held receiver be called again, whatever holds it
    #[command(after_help = "Examples:\n  handoff resume crm\n  handoff resume --all")]
    Resume(Hold),
    /// Check the configuration without starting
    #[command(after_help = "Example:\n  handoff check --origin --config /etc/handoff/handoff.toml")]
    Check {
        /// Show every value and where it comes from
        #[arg(long)]
        origin: bool,
    },
    /// Look at receivers
    #[command(
        subcommand,
        after_help = "Example:\n  handoff receiver render harbor:create-followup:v1:case-104"
    )]
    Receiver(Receiver),
    /// Make or update the tables in a database
    Migrate(Migrate),
    /// Show a lost reply and a killed daemon, with the real parts, in ./demo-data
    #[command(after_help = "Example:\n  handoff demo")]
    Demo,
    /// Measure how fast this machine lets operations through
    Bench(Bench),
    /// Print a completion script
    #[command(after_help = "Example:\n  handoff completions bash > /etc/bash_completion.d/handoff")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// Record an approved operation.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  handoff approve create-followup --field case_id=case-104 --field title=\"Call the customer\"
  handoff approve create-followup --payload follow-up.json --as ann
Repeating the same approval changes nothing; other content under the same key exits with 4.")]
pub(crate) struct Approve {
    /// Operation type, as configured
    #[arg(value_name = "TYPE")]
    pub(crate) kind: String,
    /// A text field of the payload; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "payload")]
    pub(crate) field: Vec<String>,
    /// The payload, a JSON object: a file, or - for standard input
    #[arg(long, value_name = "FILE|-", required_unless_present = "field")]
    pub(crate) payload: Option<PathBuf>,
    /// Who approved it (your login, unless given)
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) approver: Option<String>,
    /// Do not deliver before this time (RFC 3339) or for so long (such as 2h)
    #[arg(long, value_name = "TIME|DURATION")]
    pub(crate) deliver_after: Option<String>,
}

/// List operations.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  handoff list --state blocked
  handoff list --json --limit 100")]
pub(crate) struct List {
    /// pending, sent, blocked or withdrawn
    #[arg(long)]
    pub(crate) state: Option<String>,
    /// Only this receiver
    #[arg(long)]
    pub(crate) receiver: Option<String>,
    /// Only blocked for this reason
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Only keys that begin so
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// The most recently recorded ones, at most so many
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
}

/// Wait until an operation is settled.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  handoff wait harbor:create-followup:v1:case-104 --timeout 30s
Exits with 0 if it is sent, 3 if it is blocked or withdrawn, 1 if the time is over.")]
pub(crate) struct Wait {
    /// Operation key
    pub(crate) key: String,
    /// Give up after this time (such as 30s); without it, wait for ever
    #[arg(long, value_parser = crate::config::parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

/// One more delivery now, under the same key.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  handoff retry harbor:create-followup:v1:case-104
Refused, with the reason, where the receiver's contract does not allow another delivery.")]
pub(crate) struct Act {
    /// Operation key
    pub(crate) key: String,
    /// Only if the operation still has this version
    #[arg(long, value_name = "NUMBER")]
    pub(crate) version: Option<u64>,
    /// Who acts (your login, unless given)
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Why; kept in the audit
    #[arg(long)]
    pub(crate) reason: Option<String>,
}

/// Take an operation back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  handoff withdraw harbor:create-followup:v1:case-104 --reason \"customer cancelled\"
What an earlier attempt may have done at the receiver is kept and shown.")]
pub(crate) struct Withdraw {
    /// Operation key
    pub(crate) key: String,
    /// Why; kept in the audit
    #[arg(long)]
    pub(crate) reason: String,
    /// Only if the operation still has this version
    #[arg(long, value_name = "NUMBER")]
    pub(crate) version: Option<u64>,
    /// Who acts (your login, unless given)
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) actor: Option<String>,
}

/// Look keys up at their receiver now, and settle the operations accordingly.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  handoff reconcile harbor:create-followup:v1:case-104
  handoff reconcile --receiver crm --reason ambiguous --dry-run
  handoff reconcile --all --yes
Found is sent; found with other content, or several times, stays blocked as a conflict; what
is not found stays with a person. The daemon makes the look-ups. Refused where the receiver
declares no look-up: \"handoff resolve\" then says what a person has found.")]
pub(crate) struct Reconcile {
    /// Operation keys
    #[arg(value_name = "KEY", required_unless_present_any = ["receiver", "all"])]
    pub(crate) keys: Vec<String>,
    /// Every blocked operation of this receiver
    #[arg(long, value_name = "NAME", conflicts_with_all = ["keys", "all"])]
    pub(crate) receiver: Option<String>,
    /// Every blocked operation whose receiver can be asked
    #[arg(long, conflicts_with = "keys")]
    pub(crate) all: bool,
    /// Only those blocked for this reason
    #[arg(long, conflicts_with = "keys")]
    pub(crate) reason: Option<String>,
    /// Say what would be looked up, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask whether to go on
    #[arg(long)]
    pub(crate) yes: bool,
    /// Only if the operation, the only one named, still has this version
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["receiver", "all"])]
    pub(crate) version: Option<u64>,
    /// Who acts (your login, unless given)
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) actor: Option<String>,
}

/// Say what you have found at the receiver under an operation's key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  handoff resolve harbor:create-followup:v1:case-104 --as sent --remote-id 4711 \\
    --evidence \"task 4711 in the CRM\"
  handoff resolve harbor:create-followup:v1:case-104 --as not-sent --looked-at 5m \\
    --evidence \"no task for case-104\"
Not-sent begins anew, with the same key and payload and a fresh budget: it is delivered again.
Refused if you looked while the receiver could still act on an earlier attempt.")]
pub(crate) struct Resolve {
    /// Operation key
    pub(crate) key: String,
    /// What the receiver holds
    #[arg(long = "as", value_name = "sent|not-sent", value_parser = ["sent", "not-sent"])]
    pub(crate) found: String,
    /// The receiver's id for it
    #[arg(long, value_name = "ID", required_if_eq("found", "sent"))]
    pub(crate) remote_id: Option<String>,
    /// What you have seen, and where; kept in the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) evidence: String,
    /// When you looked: a time (RFC 3339), or how long ago (such as 5m)
    #[arg(
        long,
        value_name = "TIME|DURATION",
        required_if_eq("found", "not-sent"),
        conflicts_with = "remote_id"
    )]
    pub(crate) looked_at: Option<String>,
    /// It counts although the receiver could still act when you looked
    #[arg(long, requires_all = ["looked_at", "reason"])]
    pub(crate) force: bool,
    /// Why it counts all the same; kept in the audit
    #[arg(long, requires = "force")]
    pub(crate) reason: Option<String>,
    /// Only if the operation still has this version
    #[arg(long, value_name = "NUMBER")]
    pub(crate) version: Option<u64>,
    /// Who acts (your login, unless given)
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
}

/// Hold receivers, or let them go.
#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// Receiver, as configured
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) receiver: Option<String>,
    /// Every receiver of the configuration
    #[arg(long)]
    pub(crate) all: bool,
    /// Who acts (your login, unless given)
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Why; kept in the audit and shown
    #[arg(long)]
    pub(crate) reason: Option<String>,
}

/// Look at receivers.
#[derive(Debug, Subcommand)]
pub(crate) enum Receiver {
    /// Show the request that an operation is sent as; nothing is sent, no secret is read
    #[command(
        after_help = "Example:\n  handoff receiver render harbor:create-followup:v1:case-104"
    )]
    Render {
        /// Operation key
        key: String,
    },
}

/// Make or update the tables in a database.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  handoff migrate --url sqlite:app.db     make the tables in the application's own file
  handoff migrate --print                 print the SQL instead")]
pub(crate) struct Migrate {
    /// Print the SQL, change nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// The database, instead of the configured one
    #[arg(long, value_name = "sqlite:FILE")]
    pub(crate) url: Option<String>,
}

/// Measure how fast this machine lets operations through.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  handoff bench
  handoff bench --json --finished 1000000 --pending 1000000 --folder /var/tmp
Everything is measured on temporary databases, beside plain SQLite loops that write the same
rows with the same durability. Use the ratios: the figures hold for this machine and hour.")]
pub(crate) struct Bench {
    /// Alternating rounds of each case
    #[arg(long, default_value_t = 9)]
    pub(crate) rounds: usize,
    /// Operations in a round
    #[arg(long, default_value_t = 6_400)]
    pub(crate) operations: usize,
    /// Measure also among so many finished operations
    #[arg(long, default_value_t = 0)]
    pub(crate) finished: usize,
    /// How long another process commits beside the program; 0ms leaves it out
    #[arg(long, default_value = "5s", value_parser = beside)]
    pub(crate) beside: Duration,
    /// Measure a running daemon too, with so many operations pending: its wake-up, its
    /// use of processor and memory, its recovery after a kill. Takes some minutes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) pending: usize,
    /// Where to make the temporary folder
    #[arg(long, default_value = ".")]
    pub(crate) folder: PathBuf,
    /// The other process's part
    #[arg(long, hide = true)]
    pub(crate) beside_file: Option<PathBuf>,
}

/// A duration, or none at all.
fn beside(text: &str) -> Result<Duration, String> {
    if text == "0ms" { Ok(Duration::ZERO) } else { crate::config::parse_duration(text) }
}
