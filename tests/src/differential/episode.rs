//! Episodes: running one, and many.

use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::differential::generate::{Generator, Operation};
use crate::differential::pair::{Difference, Pair, Stop};
use crate::differential::shrink;
use crate::scenario::text::{Answer, Scenario, Step};

/// Operations of one episode. More would meet more history, fewer shrink sooner.
const EPISODE: u64 = 1000;

/// Operations between two signs of life of a long run.
const REPORT_EVERY: u64 = 50_000;

/// Operations between two looks at what the watches told.
const SETTLE_EVERY: usize = 24;

/// Two servers that differ, in as few operations as could be found.
#[derive(Debug)]
pub struct Finding {
    /// The seed of the episode.
    pub seed: u64,
    /// The operations; the last one shows the difference.
    pub operations: Vec<Operation>,
    /// What it shows.
    pub difference: Difference,
}

/// How a run of episodes ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Operations that ran on both servers without a difference.
    pub operations: u64,
    /// The differences, at most one for each episode.
    pub findings: Vec<Finding>,
    /// What else stopped an episode.
    pub broken: Vec<String>,
}

impl Finding {
    /// The operations as a scenario, with what was expected of the last.
    pub fn scenario(&self) -> Scenario {
        let mut steps: Vec<_> = self
            .operations
            .iter()
            .map(|o| Step::new(o.request()))
            .collect();
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        let answer = |stream: &str, text| Answer {
            stream: Some(stream.to_owned()),
            lines: lines(text),
        };
        if let Some(last) = steps.last_mut() {
            let Difference { etcd, ours } = &self.difference;
            last.answers = vec![answer("etcd", etcd), answer("ours", ours)];
        }
        Scenario {
            name: format!("seed_{}", self.seed),
            clauses: vec!["-".to_owned()],
            steps,
        }
    }
}

/// Runs episodes of about as many operations as asked for in total, beginning with `seed`, on some
/// threads; stops at the first difference.
///
/// # Errors
/// When etcd does not start.
pub fn run(seed: u64, operations: u64, threads: usize) -> io::Result<Outcome> {
    let outcome = Mutex::new(Outcome::default());
    let next = AtomicU64::new(0);
    let episodes = operations.div_ceil(EPISODE);
    let lock = || outcome.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let work = || -> io::Result<()> {
            loop {
                // Relaxed: each number is taken once, which is all that matters.
                let episode = next.fetch_add(1, Ordering::Relaxed);
                if episode >= episodes || !lock().findings.is_empty() {
                    return Ok(());
                }
                one(
                    seed + episode,
                    EPISODE.min(operations - episode * EPISODE),
                    &outcome,
                )?;
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    Ok(outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn one(seed: u64, operations: u64, outcome: &Mutex<Outcome>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (ran, stop) = runtime.block_on(generate(seed, operations))?;
    let lock = || outcome.lock().unwrap_or_else(PoisonError::into_inner);
    match stop {
        None => {
            let mut outcome = lock();
            let before = outcome.operations / REPORT_EVERY;
            outcome.operations += ran.len() as u64;
            if outcome.operations / REPORT_EVERY > before {
                let _ = writeln!(io::stderr(), "{} operations so far", outcome.operations);
            }
        }
        Some(Stop::Broken(why)) => lock().broken.push(format!("seed {seed}: {why}")),
        Some(Stop::Differ(difference)) => {
            // Making it small takes a while, and may be interrupted.
            let Difference { etcd, ours } = &difference;
            let last = ran.last().map(|operation| operation.request().to_string());
            let last = last.unwrap_or_default();
            let length = ran.len();
            let _ = writeln!(
                io::stderr(),
                "seed {seed} differs after {length} operations:\n{last}{etcd}\n--- ours:\n{ours}"
            );
            let (operations, difference) = shrink::shrink(ran, difference, |operations| {
                runtime.block_on(repeat(operations))
            })?;
            lock().findings.push(Finding {
                seed,
                operations,
                difference,
            });
        }
    }
    Ok(())
}

/// Runs a fresh episode; returns its operations and why it stopped before its end.
async fn generate(seed: u64, operations: u64) -> io::Result<(Vec<Operation>, Option<Stop>)> {
    let mut pair = Pair::fresh()?;
    let mut generator = Generator::new(seed);
    let mut ran = Vec::new();
    while (ran.len() as u64) < operations {
        let operation = generator.operation(pair.view());
        ran.push(operation);
        if let Err(stop) = apply(&mut pair, &ran).await {
            return Ok((ran, Some(stop)));
        }
    }
    let end = pair.settle().await;
    Ok((ran, end.err()))
}

/// Runs operations again; returns how many it took to differ, and how.
async fn repeat(operations: &[Operation]) -> io::Result<Option<(usize, Difference)>> {
    let mut pair = Pair::fresh()?;
    for at in 1..=operations.len() {
        match apply(&mut pair, &operations[..at]).await {
            Ok(()) => {}
            Err(Stop::Differ(difference)) => return Ok(Some((at, difference))),
            // Another matter than the one that is being made small.
            Err(Stop::Broken(_)) => return Ok(None),
        }
    }
    Ok(match pair.settle().await {
        Err(Stop::Differ(difference)) => Some((operations.len(), difference)),
        _ => None,
    })
}

/// Carries out the last of some operations.
async fn apply(pair: &mut Pair, operations: &[Operation]) -> Result<(), Stop> {
    if let Some(operation) = operations.last() {
        pair.apply(operation).await?;
    }
    if operations.len().is_multiple_of(SETTLE_EVERY) {
        pair.settle().await?;
    }
    Ok(())
}
