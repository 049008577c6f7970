//! The command line: one file for each group of verbs.

mod act;
mod approve;
mod arguments;
mod bench;
mod check;
mod demo;
mod exit;
mod hold;
mod migrate;
mod output;
mod receiver;
mod reconcile;
mod run;
mod show;
mod status;
mod wait;

pub use exit::{Exit, Failure};

use crate::clock::{Clock, Now};
use crate::config::{self, Loaded, Request};
use crate::jitter::Seed;
use crate::outbox::rules::Rules;
use crate::plain;
use crate::store::Store;
use crate::store::sqlite::{Access, DaemonLock, Sqlite};
use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use output::Output;
use std::process::ExitCode;
use std::sync::Arc;

/// Reads the command line, does what it says, and gives the exit code.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = arguments.global.output();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(output, &Err(Failure::from(error))),
    };
    let done = runtime.block_on(dispatch(arguments));
    // Whatever is left on other threads is no part of the answer any more.
    runtime.shutdown_background();
    end(output, &done)
}

/// Prints a failure and turns the result into an exit code.
fn end(output: Output, done: &Result<Exit, Failure>) -> ExitCode {
    let exit = match done {
        Ok(exit) => *exit,
        Err(failure) => {
            if output.json {
                let shown = serde_json::to_string(&failure.shown());
                let shown = shown.unwrap_or_else(|_| failure.message.clone());
                output::note(&plain::json(&shown));
            } else {
                output::note(&format!("error: {}", plain::lines(&failure.message)));
                if let Some(hint) = &failure.hint {
                    output::note(&format!("next: {}", plain::lines(hint)));
                }
            }
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

async fn dispatch(arguments: Arguments) -> Result<Exit, Failure> {
    let global = arguments.global;
    match arguments.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "handoff", &mut script);
            let script = String::from_utf8_lossy(&script);
            global.output().result(&serde_json::json!({ "script": script }), &script)?;
            Ok(Exit::Done)
        }
        Command::Demo => demo::demo(global.output()).await,
        Command::Bench(command) => bench::bench(&global, &command).await,
        Command::Run => run::run(&global).await,
        Command::Check { origin } => check::check(&global, origin),
        Command::Receiver(arguments::Receiver::Render { key }) => {
            receiver::render(&global, &key).await
        }
        Command::Migrate(command) => migrate::migrate(&global, &command).await,
        Command::Approve(command) => approve::approve(&global, &command).await,
        Command::List(command) => show::list(&global, &command).await,
        Command::Show { key } => show::show(&global, &key).await,
        Command::Explain { key } => show::explain(&global, &key).await,
        Command::Status { check } => status::status(&global, check).await,
        Command::Wait(command) => wait::wait(&global, &command).await,
        Command::Retry(command) => act::retry(&global, &command).await,
        Command::Withdraw(command) => act::withdraw(&global, &command).await,
        Command::Reconcile(command) => reconcile::reconcile(&global, &command).await,
        Command::Resolve(command) => act::resolve(&global, &command).await,
        Command::Pause(command) => hold::pause(&global, &command).await,
        Command::Resume(command) => hold::resume(&global, &command).await,
    }
}

/// What most commands need: the configuration and the open database.
struct Session {
    output: Output,
    rules: Arc<Rules>,
    store: Sqlite,
}

impl Session {
    /// Loads the configuration and opens the database.
    async fn open(global: &arguments::Global, access: Access) -> Result<Self, Failure> {
        let loaded = config::load(&global.request())?;
        let rules = Arc::new(loaded.settings.rules(Seed::draw()));
        Self::with(global, &loaded, rules, access).await
    }

    /// Opens the database of a configuration.
    async fn with(
        global: &arguments::Global,
        loaded: &Loaded,
        rules: Arc<Rules>,
        access: Access,
    ) -> Result<Self, Failure> {
        let store = Sqlite::open(&loaded.settings.store, access, "cli").await?;
        Ok(Self { output: global.output(), rules, store })
    }

    /// Both clocks as the daemon left them.
    async fn now(&self) -> Result<Now, Failure> {
        Ok(Clock::resume(self.store.steady_mark().await?.as_ref()).now())
    }

    /// Warns if nobody delivers what is in the database.
    fn warn_without_daemon(&self) {
        if !DaemonLock::is_held(self.store.path()) {
            self.output.warn(&format!(
                "no daemon serves {}; nothing is delivered until \"handoff run\" is started",
                self.store.path().display()
            ));
        }
    }
}

impl arguments::Global {
    fn output(&self) -> Output {
        Output { json: self.json, quiet: self.quiet }
    }

    /// Where the configuration comes from.
    fn request(&self) -> Request {
        Request {
            file: self.config.clone(),
            set: self.set.clone(),
            environment: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
        }
    }
}

/// Who acts: the name given, or the login of the calling user.
fn actor(given: Option<&str>) -> String {
    if let Some(name) = given {
        return name.to_owned();
    }
    let uid = nix::unistd::getuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => format!("os:{}", user.name),
        Ok(None) | Err(_) => format!("os:{uid}"),
    }
}

/// There is no operation of this key.
fn no_such_key(key: &str) -> Failure {
    let message = format!("there is no operation {}", output::plain(key));
    Failure::new(Exit::Failed, message).hint("\"handoff list\" shows what there is")
}
