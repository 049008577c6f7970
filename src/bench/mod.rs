//! The bench: how fast this machine's disk lets operations through, as ratios to
//! what SQLite itself allows in the same process and sitting.
//!
//! Everything runs with `synchronous=FULL` on temporary databases. Rounds of the
//! program and of the raw loops alternate, and medians are reported: figures of
//! another machine or hour say nothing.

mod beside;
mod daemon;
mod product;
mod raw;

use crate::outbox::rules::Rules;
use crate::store::{Settings, StoreError};
use rusqlite::config::DbConfig;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

pub use beside::commit_beside;
pub use daemon::Figure;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A folder that does not exist; it is made, and removed at the end.
    pub folder: PathBuf,
    /// Alternating rounds of each case.
    pub rounds: usize,
    /// Operations that the program and the loop in groups deliver in a round.
    pub operations: usize,
    /// Finished operations that lie in the database in the last case; 0 leaves it out.
    pub finished: usize,
    /// How long another process commits beside the program; zero leaves it out.
    pub beside: Duration,
    /// Operations that are pending while a running daemon is measured; 0 leaves it out.
    pub pending: usize,
}

/// What the bench tells.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Told {
    /// This is measured now.
    Begins(&'static str),
    /// A rate beside those of SQLite alone.
    Case(Box<Case>),
    /// A figure of a running daemon.
    Figure(Figure),
}

/// What was measured in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Its name.
    pub case: &'static str,
    /// Operations a second by the program, median of the rounds.
    pub per_second: f64,
    /// By a loop with two transactions for each operation.
    pub raw_two_transactions_per_second: Option<f64>,
    /// By a loop that commits in groups of 64.
    pub raw_group_commit_per_second: Option<f64>,
    /// Slowest and fastest round of the program.
    pub spread: (f64, f64),
    /// Rounds and operations of a round.
    pub rounds: usize,
    /// Operations of a round.
    pub operations: usize,
    /// Calls under way at once.
    pub concurrency: usize,
    /// Finished operations in the database.
    pub finished: usize,
    /// Whether the planner had statistics.
    pub analysed: bool,
    /// Of a 4 KiB write and its sync, before the case.
    pub fdatasync_ms_median: f64,
    /// Commits of another process meanwhile, in milliseconds: median, 99th percentile, longest.
    pub beside_ms: Option<(f64, f64, f64)>,
    /// Commits of the other process that failed.
    pub beside_failed: Option<usize>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQLite said no.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// The deliveries ended before the measuring did.
    #[error("the deliveries ended before the other process did")]
    Cut,
    /// A daemon did not do what was waited for.
    #[error("the daemon that was to be measured does not work; see \"handoff run\" alone")]
    Silent,
    /// The disk said no.
    #[error("the bench's folder: {0}")]
    Folder(#[from] std::io::Error),
}

/// Calls under way at once, as in the receivers' default.
const CONCURRENCY: usize = 64;
/// Operations of a round of the loop with two transactions, which is much slower.
const SLOW_OPERATIONS: usize = 640;

/// Measures every case, and tells each as soon as it is known.
///
/// # Errors
///
/// [`BenchError`]; the folder is removed in any case.
pub async fn run(plan: &Plan, rules: &Rules, mut tell: impl FnMut(Told)) -> Result<(), BenchError> {
    std::fs::create_dir(&plan.folder)?;
    let measured = cases(plan, rules, &mut tell).await;
    std::fs::remove_dir_all(&plan.folder)?;
    measured
}

async fn cases(plan: &Plan, rules: &Rules, tell: &mut impl FnMut(Told)) -> Result<(), BenchError> {
    tell(Told::Begins("record"));
    tell(record(plan, rules).await?.into());
    for (name, analysed) in [("deliver", false), ("deliver_with_statistics", true)] {
        tell(Told::Begins(name));
        tell(deliver(plan, rules, name, None, analysed).await?.into());
    }
    if plan.finished > 0 {
        let name = "deliver_among_finished";
        tell(Told::Begins(name));
        let base = plan.folder.join("finished.db");
        product::record(&base, rules, 1_000_000_000, plan.finished).await?;
        raw::group_commit(&mut connection(&base)?, now())?;
        tell(deliver(plan, rules, name, Some(&base), false).await?.into());
    }
    if !plan.beside.is_zero() {
        tell(Told::Begins("deliver_beside_another_process"));
        tell(beside::measure(plan, rules).await?.into());
    }
    if plan.pending > 0 {
        daemon::measure(&plan.folder, rules, plan.pending, tell).await?;
    }
    Ok(())
}

impl From<Case> for Told {
    fn from(case: Case) -> Self {
        Self::Case(Box::new(case))
    }
}

/// Recording 64 at a time by the library, against inserts without any check.
async fn record(plan: &Plan, rules: &Rules) -> Result<Case, BenchError> {
    let mut case = Case::new("record", plan, &plan.folder)?;
    let (mut by_us, mut by_raw) = (Rates::default(), Rates::default());
    let (ours, raw) = (plan.folder.join("record.db"), plan.folder.join("record-raw.db"));
    for round in 0..plan.rounds {
        let from = round * plan.operations;
        by_us.add(plan.operations, product::record(&ours, rules, from, plan.operations).await?);
        let mut db = connection(&raw)?;
        let start = Instant::now();
        raw::record(&mut db, from, plan.operations)?;
        by_raw.add(plan.operations, start.elapsed());
    }
    case.per_second = by_us.median();
    case.spread = by_us.spread();
    case.raw_group_commit_per_second = Some(by_raw.median());
    Ok(case)
}

/// The whole path to a receiver that does nothing, against both raw loops.
async fn deliver(
    plan: &Plan,
    rules: &Rules,
    name: &'static str,
    base: Option<&Path>,
    analyse: bool,
) -> Result<Case, BenchError> {
    let mut case = Case::new(name, plan, &plan.folder)?;
    let mut rates = [Rates::default(), Rates::default(), Rates::default()];
    let files = ["ours.db", "two.db", "group.db"].map(|file| plan.folder.join(file));
    for file in &files {
        if let Some(base) = base {
            std::fs::copy(base, file)?;
        }
    }
    for round in 0..plan.rounds {
        let counts = [plan.operations, SLOW_OPERATIONS.min(plan.operations), plan.operations];
        for ((file, count), rate) in files.iter().zip(counts).zip(&mut rates) {
            if base.is_none() {
                remove(file)?;
            }
            product::record(file, rules, round * plan.operations, count).await?;
            if analyse {
                connection(file)?.execute_batch("ANALYZE")?;
            }
            let took = match file.file_stem().and_then(|stem| stem.to_str()) {
                Some("ours") => product::deliver(file, rules).await?,
                Some("two") => timed(file, raw::two_transactions)?,
                _ => timed(file, raw::group_commit)?,
            };
            rate.add(count, took);
        }
    }
    for file in &files {
        remove(file)?;
    }
    case.analysed = analyse;
    case.finished = if base.is_some() { plan.finished } else { 0 };
    case.per_second = rates[0].median();
    case.spread = rates[0].spread();
    case.raw_two_transactions_per_second = Some(rates[1].median());
    case.raw_group_commit_per_second = Some(rates[2].median());
    Ok(case)
}

impl Case {
    fn new(case: &'static str, plan: &Plan, folder: &Path) -> Result<Self, BenchError> {
        Ok(Self {
            case,
            per_second: 0.0,
            raw_two_transactions_per_second: None,
            raw_group_commit_per_second: None,
            spread: (0.0, 0.0),
            rounds: plan.rounds,
            operations: plan.operations,
            concurrency: CONCURRENCY,
            finished: 0,
            analysed: false,
            fdatasync_ms_median: fdatasync_ms_median(folder)?,
            beside_ms: None,
            beside_failed: None,
        })
    }
}

/// Rates of the rounds of one side.
#[derive(Debug, Default)]
struct Rates(Vec<f64>);

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "a count of operations, far below 2^52")]
    fn add(&mut self, count: usize, took: Duration) {
        self.0.push(count as f64 / took.as_secs_f64());
        self.0.sort_by(f64::total_cmp);
    }

    fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    fn spread(&self) -> (f64, f64) {
        let (first, last) = (self.0.first(), self.0.last());
        (first.copied().unwrap_or_default(), last.copied().unwrap_or_default())
    }
}

fn timed(
    file: &Path,
    run: impl FnOnce(&mut rusqlite::Connection, i64) -> Result<usize, rusqlite::Error>,
) -> Result<Duration, BenchError> {
    let mut db = connection(file)?;
    let start = Instant::now();
    run(&mut db, now())?;
    Ok(start.elapsed())
}

/// A connection with the same durability as the program's, and the same advantage:
/// statements are prepared once whatever is bound to them.
fn connection(file: &Path) -> Result<rusqlite::Connection, rusqlite::Error> {
    let db = rusqlite::Connection::open(file)?;
    db.busy_timeout(Duration::from_secs(5))?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(db)
}

fn now() -> i64 {
    crate::clock::wall().as_millis()
}

fn settings(file: &Path) -> Settings {
    Settings {
        url: format!("sqlite:{}", file.display()),
        busy_timeout: Duration::from_secs(5),
        explicit: true,
    }
}

/// The key and the payload of one operation of the bench, about 200 bytes.
fn sample(number: usize) -> (String, String) {
    let key = format!("harbor:create-followup:v1:case-{number}");
    let payload = format!(
        "{{\"case_id\":\"case-{number}\",\"title\":\"Call the customer about the approved \
         repair plan and agree on the day of the visit\"}}"
    );
    (key, payload)
}

fn remove(file: &Path) -> Result<(), std::io::Error> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What one synced write of a page costs here and now.
fn fdatasync_ms_median(folder: &Path) -> Result<f64, std::io::Error> {
    let path = folder.join("sync");
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    std::fs::remove_file(&path)?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
