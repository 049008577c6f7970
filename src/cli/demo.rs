//! `demo`: a lost reply, a repeat, and a killed daemon, told by the real parts.

use super::output::Output;
use super::{Exit, Failure};
use crate::clock::{Now, wall};
use crate::config::{self, Loaded, Request};
use crate::jitter::Seed;
use crate::outbox::key::OperationKey;
use crate::outbox::operation::Operation;
use crate::outbox::payload::Payload;
use crate::outbox::state::State;
use crate::receiver::simulated;
use crate::store::sqlite::{Access, Sqlite};
use crate::store::{Mirror, Store};
use crate::supervisor::{Parts, Supervisor};
use serde::Serialize;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

const FOLDER: &str = "demo-data";
const APP: &str = "demo-data/app.sqlite";
const CRM: &str = "demo-data/fake-crm.sqlite";
const RESULT: &str = "demo-result.json";
/// Later than any retry of the first part: its clock is turned by hand.
const LATER: Duration = Duration::from_secs(3600);
/// How long the second part waits for a process before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what a process has done.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Serialize)]
struct Story {
    fictional_business: &'static str,
    operation_key: String,
    network_calls: u32,
    steps: Vec<Told>,
}

/// What could be seen after one step.
#[derive(Serialize)]
struct Told {
    step: &'static str,
    result: String,
    crm_task_count: usize,
    attempts: u32,
    remote_id: Option<String>,
    /// Where the step is about another operation than the story's first.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_key: Option<String>,
}

impl Told {
    fn about(self, key: &OperationKey) -> Self {
        Self { operation_key: Some(key.as_str().to_owned()), ..self }
    }
}

pub(super) async fn demo(output: Output) -> Result<Exit, Failure> {
    for name in [FOLDER, RESULT] {
        if Path::new(name).exists() {
            let message = format!("{name} exists; an earlier demo is never overwritten");
            return Err(Failure::new(Exit::Failed, message)
                .hint("move it away, or run the demo in another folder"));
        }
    }
    std::fs::create_dir(FOLDER)?;
    let first = key("case-104")?;
    let second = key("case-105")?;
    let mut steps = lost_reply(&first, output).await?;
    steps.extend(killed_daemon(&second, output).await?);
    let story = Story {
        fictional_business: "Harbor Service",
        operation_key: first.as_str().to_owned(),
        network_calls: 0,
        steps,
    };
    let text = serde_json::to_string_pretty(&story).map_err(std::io::Error::from)?;
    std::fs::write(RESULT, format!("{text}\n"))?;
    super::output::print(&text)?;
    output.hint(&format!("next: look into {FOLDER}/ with any SQLite program; {RESULT} keeps this"));
    Ok(Exit::Done)
}

fn key(case: &str) -> Result<OperationKey, Failure> {
    OperationKey::new("harbor", "create-followup", 1, case)
        .map_err(|error| Failure::new(Exit::Failed, error))
}

/// The demo's configuration, with the faults of one step.
fn settings(faults: &str) -> Vec<String> {
    vec![
        format!("store.url=sqlite:{APP}"),
        format!("receivers.crm.path={CRM}"),
        "receivers.crm.timeout=1h".to_owned(),
        format!("receivers.crm.faults={faults}"),
    ]
}

fn load(faults: &str) -> Result<Loaded, Failure> {
    Ok(config::load(&Request { file: None, set: settings(faults), environment: Vec::new() })?)
}

/// First part: a reply is lost, the same action is repeated, and run again.
async fn lost_reply(key: &OperationKey, output: Output) -> Result<Vec<Told>, Failure> {
    let loaded = load(r#"[{ on = "attempt", n = 1, fault = "lose_reply" }]"#)?;
    let store = Arc::new(Sqlite::open(&loaded.settings.store, Access::Create, "demo").await?);
    record(&store, &loaded, key).await?;
    let now = Now::at(wall());
    let mut told = Vec::new();

    output.hint("1. The CRM accepts the task and its reply is lost.");
    let mut supervisor = supervisor(&store, &loaded)?;
    supervisor.turn(now).await?;
    told.push(tell("reply_lost", &store, key, None).await?);

    output.hint("2. A fresh receiver gets the same action under the same key.");
    let healthy = load("[]")?;
    let mut supervisor = self::supervisor(&store, &healthy)?;
    supervisor.turn(now.plus(LATER)).await?;
    told.push(tell("retry_same_action", &store, key, None).await?);

    output.hint("3. The worker runs again and finds nothing to do.");
    let idle = supervisor.turn(now.plus(LATER)).await?.is_idle();
    told.push(tell("run_again", &store, key, idle.then_some("idle")).await?);
    store.close().await?;
    Ok(told)
}

fn supervisor(store: &Arc<Sqlite>, loaded: &Loaded) -> Result<Supervisor, Failure> {
    let rules = loaded.settings.rules(Seed::draw());
    let parts = Parts::build(rules, &loaded.settings.receivers)?;
    Ok(Supervisor::new(Arc::clone(store) as Arc<dyn Store>, parts))
}

async fn record(store: &Sqlite, loaded: &Loaded, key: &OperationKey) -> Result<(), Failure> {
    let rules = Arc::new(loaded.settings.rules(Seed::draw()));
    store.mirror(&rules, Mirror::Replace).await?;
    let text = serde_json::json!({
        "case_id": key.subject(), "title": "Call about the approved repair plan",
    });
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error);
    let payload = Payload::parse(&text.to_string()).map_err(|error| failed(&error))?;
    let operation =
        Operation::new(key.clone(), "crm", payload, "demo").map_err(|error| failed(&error))?;
    store.record(&rules, operation).await??;
    Ok(())
}

/// Second part: the daemon is killed after the CRM has accepted, and started again.
async fn killed_daemon(key: &OperationKey, output: Output) -> Result<Vec<Told>, Failure> {
    let loaded = load("[]")?;
    let store = Sqlite::open(&loaded.settings.store, Access::Existing, "demo").await?;
    record(&store, &loaded, key).await?;
    let mut told = Vec::new();

    output.hint("4. A daemon delivers; it is killed after the CRM has accepted.");
    let mut daemon = start(r#"[{ on = "attempt", n = 1, fault = "slow", delay = "1h" }]"#)?;
    let accepted = async || {
        simulated::tasks_of(Path::new(CRM), key.as_str()).is_ok_and(|tasks| !tasks.is_empty())
    };
    until("the CRM has accepted", &mut daemon, accepted).await?;
    daemon.kill().await?;
    told.push(tell("killed_after_acceptance", &store, key, None).await?.about(key));

    output.hint("5. The daemon starts again and repeats the same action under the same key.");
    let mut daemon = start("[]")?;
    let settled = async || {
        let found = store.find(key.as_str()).await;
        found.is_ok_and(|row| row.is_some_and(|row| row.state != State::Pending))
    };
    until("the daemon has settled it", &mut daemon, settled).await?;
    stop(&mut daemon).await?;
    told.push(tell("restarted", &store, key, None).await?.about(key));
    Ok(told)
}

/// Starts this program as a daemon of its own.
fn start(faults: &str) -> Result<Child, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("run").arg("--quiet");
    for setting in settings(faults) {
        command.arg("--set").arg(setting);
    }
    // The caller's HANDOFF_ variables are not the demo's.
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.kill_on_drop(true).spawn()?)
}

async fn stop(daemon: &mut Child) -> Result<(), Failure> {
    use nix::sys::signal::{Signal, kill};
    if let Some(id) = daemon.id().and_then(|id| i32::try_from(id).ok()) {
        kill(nix::unistd::Pid::from_raw(id), Signal::SIGTERM).map_err(std::io::Error::from)?;
    }
    daemon.wait().await?;
    Ok(())
}

/// Waits until a daemon has done something.
async fn until(
    what: &str,
    daemon: &mut Child,
    mut done: impl AsyncFnMut() -> bool,
) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !done().await {
        if let Some(status) = daemon.try_wait()? {
            let message = format!("the demo's daemon ended ({status}) before {what}");
            return Err(Failure::new(Exit::Failed, message));
        }
        if Instant::now() >= deadline {
            let message = format!("waited {PATIENCE:?} in vain until {what}");
            return Err(Failure::new(Exit::Failed, message));
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// What can be seen of an operation on both sides.
async fn tell(
    step: &'static str,
    store: &Sqlite,
    key: &OperationKey,
    result: Option<&str>,
) -> Result<Told, Failure> {
    let row = store.find(key.as_str()).await?.ok_or_else(|| super::no_such_key(key.as_str()))?;
    let tasks = simulated::tasks_of(Path::new(CRM), key.as_str())
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Told {
        step,
        result: result.map_or_else(|| row.state.to_string(), str::to_owned),
        crm_task_count: tasks.len(),
        attempts: row.attempts,
        remote_id: row.remote_id,
        operation_key: None,
    })
}
