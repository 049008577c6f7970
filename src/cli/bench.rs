//! `bench`: how fast this machine lets operations through.

use super::arguments::{Bench, Global};
use super::output;
use super::{Exit, Failure};
use crate::bench::{self, BenchError, Case, Figure, Plan, Told};
use crate::config;
use crate::jitter::Seed;
use std::path::PathBuf;

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Store(error) => error.into(),
            BenchError::Database(_)
            | BenchError::Folder(_)
            | BenchError::Cut
            | BenchError::Silent => Self::new(Exit::Failed, error),
        }
    }
}

pub(super) async fn bench(global: &Global, command: &Bench) -> Result<Exit, Failure> {
    if let Some(file) = &command.beside_file {
        bench::commit_beside(file, command.beside, |line| {
            // A reader that is gone ends the process soon.
            output::print(line).ok();
        })
        .await?;
        return Ok(Exit::Done);
    }
    // The built-in configuration: what is measured does not depend on the user's.
    let request = config::Request { file: None, set: Vec::new(), environment: Vec::new() };
    let rules = config::load(&request)?.settings.rules(Seed::draw());
    let plan = Plan {
        folder: folder(command),
        rounds: command.rounds.max(1),
        operations: command.operations.max(64),
        finished: command.finished,
        beside: command.beside,
        pending: command.pending,
    };
    let out = global.output();
    out.hint(&format!("measuring in {}; this takes a minute or more", plan.folder.display()));
    let mut told = Ok(());
    bench::run(&plan, &rules, |figure| {
        let lines = match &figure {
            Told::Begins(case) => return out.hint(&format!("measuring {case}")),
            Told::Case(case) => lines(case),
            Told::Figure(figure) => line(figure),
        };
        let printed = out.result(&figure, &lines);
        if told.is_ok() {
            told = printed;
        }
    })
    .await?;
    told?;
    Ok(Exit::Done)
}

/// A folder of its own below the one that was given.
fn folder(command: &Bench) -> PathBuf {
    command.folder.join(format!("handoff-bench-{}", std::process::id()))
}

fn line(figure: &Figure) -> String {
    let Figure { case, unit, value, p99, samples, pending, fdatasync_ms_median } = figure;
    let mut line = format!("{case}: {value:.2} {unit}");
    if let Some(p99) = p99 {
        line.push_str(&format!(" at the median of {samples}, 99 % below {p99:.1}"));
    }
    if *pending > 0 {
        line.push_str(&format!(", with {pending} pending"));
    }
    format!("{line}\n  a synced write took {fdatasync_ms_median:.2} ms")
}

fn lines(case: &Case) -> String {
    let mut lines = vec![format!("{}: {:.0} a second", case.case, case.per_second)];
    if let Some(rate) = case.raw_two_transactions_per_second {
        let ratio = case.per_second / rate;
        lines.push(format!("  {ratio:.1} times SQLite with two transactions each ({rate:.0})"));
    }
    if let Some(rate) = case.raw_group_commit_per_second {
        let ratio = case.per_second / rate;
        lines.push(format!("  {ratio:.2} of SQLite in groups of 64 ({rate:.0})"));
    }
    if let (Some((median, p99, longest)), Some(failed)) = (case.beside_ms, case.beside_failed) {
        lines.push(format!(
            "  another process's commits: median {median:.1} ms, 99 % below {p99:.1} ms, \
             longest {longest:.1} ms, {failed} failed"
        ));
    }
    let (slowest, fastest) = case.spread;
    lines.push(match case.rounds {
        1 => format!("  one round of {}", case.operations),
        rounds => {
            format!("  {slowest:.0} to {fastest:.0} in {rounds} rounds of {}", case.operations)
        }
    });
    if let Some(last) = lines.last_mut() {
        last.push_str(&format!("; a synced write took {:.2} ms", case.fdatasync_ms_median));
    }
    lines.join("\n")
}
