//! Another process that commits while the program works at full rate.

use super::daemon::monotonic_ns;
use super::product::{database, open, operation, record, supervisor};
use super::{BenchError, Case, Plan, connection};
use crate::clock::{Now, wall};
use crate::outbox::rules::Rules;
use rusqlite::TransactionBehavior;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two commits of the other process.
const EVERY: Duration = Duration::from_millis(20);
/// Operations recorded before the clock starts, for each second of measuring: more
/// than are delivered meanwhile.
const RECORDED_PER_SECOND: usize = 40_000;
/// Keys of the other process begin here.
const OTHER: usize = 2_000_000_000;

/// Delivers at full rate for the plan's time while another process commits an
/// approval every 20 ms.
pub(super) async fn measure(plan: &Plan, rules: &Rules) -> Result<Case, BenchError> {
    let mut case = Case::new("deliver_beside_another_process", plan, &plan.folder)?;
    let file = plan.folder.join("beside.db");
    let seconds = usize::try_from(plan.beside.as_secs()).unwrap_or(usize::MAX);
    let recorded = seconds.saturating_add(1).saturating_mul(RECORDED_PER_SECOND);
    record(&file, rules, 0, recorded).await?;
    let store = open(&file, rules).await?;
    let mut supervisor = supervisor(&store, rules);
    let other = other(&file, plan.beside)?;
    let start = Instant::now();
    let full_rate = async {
        supervisor.turn(Now::at(wall())).await?;
        // Everything is delivered: the other process goes on beside an idle program.
        std::future::pending::<Result<(), BenchError>>().await
    };
    let output = tokio::select! {
        output = other.wait_with_output() => output?,
        failed = full_rate => return Err(failed.err().unwrap_or(BenchError::Cut)),
    };
    let took = start.elapsed();
    let delivered = sent(&file)?;
    let mut times: Vec<f64> = Vec::new();
    let mut failed = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split(' ').next().map(str::parse) {
            Some(Ok(ms)) => times.push(ms),
            Some(Err(_)) | None => failed += 1,
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len().max(1) - 1));
    let at = |share| at(share).copied().unwrap_or_default();
    let rate = f64::from(delivered) / took.as_secs_f64();
    case.per_second = rate;
    case.spread = (rate, rate);
    case.rounds = 1;
    case.operations = delivered as usize;
    case.beside_ms = Some((at(50), at(99), at(100)));
    case.beside_failed = Some(failed);
    Ok(case)
}

/// Starts the other process; its part is [`commit_beside`].
pub(super) fn other(file: &Path, lasting: Duration) -> Result<Child, std::io::Error> {
    Command::new("/proc/self/exe")
        .args(["bench", "--beside-file"])
        .arg(file)
        .arg("--beside")
        .arg(format!("{}ms", lasting.as_millis()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// How many operations the receiver has acknowledged.
fn sent(file: &Path) -> Result<u32, BenchError> {
    let count = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    Ok(connection(file)?.query_row(count, [], |row| row.get(0))?)
}

/// The other process: commits an approval every 20 ms, and tells how long each took,
/// when it was through by the monotonic clock, and its key.
///
/// # Errors
///
/// [`BenchError`] if the database cannot be opened.
pub async fn commit_beside(
    file: &Path,
    lasting: Duration,
    mut tell: impl FnMut(&str),
) -> Result<(), BenchError> {
    let mut db = connection(file)?;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + lasting;
    let mut number = OTHER;
    while Instant::now() < end {
        ticks.tick().await;
        let start = Instant::now();
        let operation = operation(number);
        let mut commit = || -> Result<(), rusqlite::Error> {
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            crate::record::record(&tx, &operation).map_err(database)?;
            tx.commit()
        };
        match commit() {
            Ok(()) => {
                let (took, through) = (start.elapsed().as_secs_f64() * 1e3, monotonic_ns());
                tell(&format!("{took:.3} {through} {}", operation.key));
            }
            Err(error) => tell(&error.to_string()),
        }
        number += 1;
    }
    Ok(())
}
