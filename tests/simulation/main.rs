//! Random interleavings of recordings, passes, answers, time, clock steps, faults
//! of the store and of receivers, crashes, stops, verbs and reloads. What must
//! always hold is checked after every move, from outside: by a second connection
//! to the database, and by what the receivers saw.
//!
//! The product's parts are the real ones, on a real file. A process of it is a
//! store and a supervisor; a crash drops both at any point. Time stands still
//! until it is moved, calls wait until they are spoken to, and so a run follows
//! from its seed alone.
//!
//! A run that breaks a law prints its seed and its last moves:
//!
//! * `HANDOFF_TEST_SEED=n cargo test --test simulation` repeats the run of seed n.
//! * `HANDOFF_TEST_ROUNDS=n` makes 10 × n runs; without it there are 100.
//! * `HANDOFF_TEST_LONG=1` begins at a seed drawn by chance rather than at 0.
//!
//! | file | what it is |
//! | --- | --- |
//! | `moves` | what can happen, and the quiet end of each run |
//! | `world`, `ground` | the processes, and everything round them |
//! | `application` | who records |
//! | `answers`, `receiver`, `crm` | requests, the adapter, receivers that keep their word |
//! | `lanes` | what is configured |
//! | `faulty` | the store, with faults |
//! | `laws` | what always holds |

#![cfg(feature = "daemon")]
#![expect(clippy::unwrap_used, reason = "where a rule cannot be tried, it fails there")]

mod answers;
mod application;
mod chance;
mod crm;
mod faulty;
#[path = "../it/support/fold.rs"]
mod fold;
mod ground;
mod lanes;
mod laws;
mod moves;
mod receiver;
mod rows;
mod time;
mod world;

use ground::Site;
use handoff::jitter::Seed;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use world::World;

/// Moves of one run, before its quiet end.
const MOVES: u64 = 200;
const RUNS_OF_A_ROUND: u64 = 10;
/// Without a number of rounds.
const ROUNDS: u64 = 10;
/// The end of the trace that a failure shows.
const SHOWN: usize = 100;

/// What a run leaves behind.
struct Run {
    trace: Vec<String>,
    stats: Stats,
}

/// How often each thing happened.
type Stats = BTreeMap<String, u64>;

/// What so many runs as CI makes must have met, or they prove too little.
const MET: &[&str] = &[
    "already_exists",
    "applied",
    "conflict",
    "cut off",
    "in_progress",
    "not_taken",
    "rejected",
    "timed out",
    "unauthorised",
    "unexpected",
    "unknown",
    "blocked: ambiguous",
    "blocked: budget_exhausted",
    "blocked: conflict",
    "blocked: crashed",
    "blocked: expired",
    "blocked: invalid",
    "blocked: rejected",
    "blocked: unauthorised",
    "blocked: unexpected",
    "blocked: window_closed",
    "at rest: sent",
    "at rest: withdrawn",
    "claim refused",
    "claim unknown",
    "commit unknown",
    "save refused",
    "refused",
    "slow commit",
    "locked",
    "refused by a trigger",
    "crash before a commit",
    "crash after a commit",
    "crashed",
    "stopped",
    "rebooted",
    "set back",
    "set forward",
    "set meanwhile",
    "minded",
    "minded with calls under way",
    "answered after a step",
    "crash in a minding",
    "reloaded",
    "recorded",
    "recorded again",
    "rolled back",
    "recording refused",
    "recording refused as a conflict",
    "recording in doubt",
    "retry done",
    "retry refused",
    "withdraw done",
    "late answer",
    "cut off late",
    "fenced",
    "late success",
    "repeated",
];

/// One run. If it breaks a law, it says how to repeat it, and what went before.
fn run(seed: u64) -> Run {
    let ground = OnceLock::new();
    match catch_unwind(AssertUnwindSafe(|| moves_and_end(seed, &ground))) {
        Ok(run) => run,
        Err(_) => {
            let site: Option<&Site> = ground.get();
            let trace = site.map(|site| site.look().trace.clone()).unwrap_or_default();
            let last = trace[trace.len().saturating_sub(SHOWN)..].join("\n");
            panic!("{last}\nHANDOFF_TEST_SEED={seed} repeats it");
        }
    }
}

/// Whose time goes on only when it is told to.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// A world, its moves, and its quiet end.
fn moves_and_end(seed: u64, ground: &OnceLock<Site>) -> Run {
    runtime().block_on(async {
        let mut world = World::new(seed).await;
        ground.set(world.site.clone()).ok();
        for _ in 0..MOVES {
            world.make_a_move().await;
        }
        world.end().await;
        let ground = world.site.look();
        Run { trace: ground.trace.clone(), stats: ground.stats.clone() }
    })
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// After a run that has failed no other begins.
struct Last<'a>(&'a AtomicU64);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(u64::MAX / 2, Ordering::Relaxed);
        }
    }
}

/// Makes these runs, on as many threads as there are processors.
fn run_all(first: u64, many: u64) -> Stats {
    let next = AtomicU64::new(0);
    let work = || {
        let mut stats = Stats::new();
        let _last = Last(&next);
        loop {
            let one = next.fetch_add(1, Ordering::Relaxed);
            if one >= many {
                return stats;
            }
            add(&mut stats, run(first.wrapping_add(one)).stats);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for worker in workers {
            match worker.join() {
                Ok(stats) => add(&mut all, stats),
                Err(broken) => std::panic::resume_unwind(broken),
            }
        }
        all
    })
}

fn add(all: &mut Stats, more: Stats) {
    for (what, many) in more {
        *all.entry(what).or_default() += many;
    }
}

#[test]
fn what_always_holds_holds_in_every_interleaving() {
    if let Some(seed) = number("HANDOFF_TEST_SEED") {
        run(seed);
        return;
    }
    let many = number("HANDOFF_TEST_ROUNDS").unwrap_or(ROUNDS) * RUNS_OF_A_ROUND;
    let first = match std::env::var_os("HANDOFF_TEST_LONG") {
        Some(_) => Seed::draw().0,
        None => 0,
    };
    let stats = run_all(first, many);
    println!("{many} runs from seed {first}: {stats:#?}");
    let missed: Vec<_> = MET.iter().filter(|what| !stats.contains_key(**what)).collect();
    assert!(missed.is_empty() || many < ROUNDS * RUNS_OF_A_ROUND, "never met: {missed:?}");
}

/// A stop makes several passes before anybody looks, and a clock may be set between.
#[test]
fn what_was_settled_before_a_step_of_a_clock_is_read_as_it_was_stamped() {
    runtime().block_on(async {
        let mut world = World::new(0).await;
        let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
        while rows::number(&world.site.look().db, sent) == 0 {
            world.record().await;
            world.check().await;
            world.step().await;
            answers::heal(&mut world.site.look());
            world::settle().await;
            world.step().await;
        }
        world.site.look().times.set_wall(3 * 3_600_000);
        world.step().await;
        world.check().await;
    });
}

#[test]
fn a_seed_makes_the_same_run_again() {
    for seed in 0..4 {
        let (one, other) = (run(seed), run(seed));
        let differ = one.trace.iter().zip(&other.trace).position(|(one, other)| one != other);
        if let Some(place) = differ {
            panic!("seed {seed}: {:?} and {:?}", one.trace[place], other.trace[place]);
        }
        assert_eq!(one.trace.len(), other.trace.len(), "seed {seed}");
    }
}
