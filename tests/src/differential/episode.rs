//! Runs episodes, on one or several threads.

use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::differential::generate::{Generator, Operation};
use crate::differential::pair::{Difference, Pair, StopReason};
use crate::differential::shrink;
use crate::scenario::text::{Response, Scenario, Step};

/// The number of operations of one episode. More operations create more history, fewer are shrunk faster.
const EPISODE: u64 = 1000;

/// The number of operations between two progress messages of a long run.
const REPORT_INTERVAL: u64 = 50_000;

/// The number of operations between two comparisons of the watches.
const COMPARISON_INTERVAL: usize = 24;

/// A difference between the two servers, with the shortest sequence of operations found for it.
#[derive(Debug)]
pub struct Finding {
    /// The seed of the episode.
    pub seed: u64,
    /// The operations. The last one shows the difference.
    pub operations: Vec<Operation>,
    /// The difference.
    pub difference: Difference,
}

/// The result of a run of episodes.
#[derive(Debug, Default)]
pub struct RunReport {
    /// The number of operations that ran on both servers without a difference.
    pub operations: u64,
    /// The differences, at most one for each episode.
    pub findings: Vec<Finding>,
    /// Other failures that stopped an episode.
    pub failures: Vec<String>,
}

impl Finding {
    /// Returns the operations as a scenario. The last one has the responses of both servers.
    pub fn scenario(&self) -> Scenario {
        let mut steps: Vec<_> = self
            .operations
            .iter()
            .map(|o| Step::new(o.action()))
            .collect();
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        let response = |stream: &str, text| Response {
            stream: Some(stream.to_owned()),
            lines: lines(text),
        };
        if let Some(last) = steps.last_mut() {
            let Difference { etcd, ours } = &self.difference;
            last.responses = vec![response("etcd", etcd), response("ours", ours)];
        }
        Scenario {
            name: format!("seed_{}", self.seed),
            clauses: vec!["-".to_owned()],
            steps,
        }
    }
}

/// Runs episodes with `operations` operations in total on `threads` threads, the first one with `seed`. Stops
/// at the first difference.
///
/// # Errors
/// If etcd does not start.
pub fn run(seed: u64, operations: u64, threads: usize) -> io::Result<RunReport> {
    let report = Mutex::new(RunReport::default());
    let next = AtomicU64::new(0);
    let episodes = operations.div_ceil(EPISODE);
    let lock = || report.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let work = || -> io::Result<()> {
            loop {
                // Relaxed: the counter only returns each number once. It does not order other memory
                // accesses.
                let episode = next.fetch_add(1, Ordering::Relaxed);
                if episode >= episodes || !lock().findings.is_empty() {
                    return Ok(());
                }
                run_episode(
                    seed + episode,
                    EPISODE.min(operations - episode * EPISODE),
                    &report,
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
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn run_episode(seed: u64, operations: u64, report: &Mutex<RunReport>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (ran, stop) = runtime.block_on(generate(seed, operations))?;
    let lock = || report.lock().unwrap_or_else(PoisonError::into_inner);
    match stop {
        None => {
            let mut report = lock();
            let before = report.operations / REPORT_INTERVAL;
            report.operations += ran.len() as u64;
            if report.operations / REPORT_INTERVAL > before {
                let _ = writeln!(io::stderr(), "{} operations so far", report.operations);
            }
        }
        Some(StopReason::Failure(error)) => lock().failures.push(format!("seed {seed}: {error}")),
        Some(StopReason::Difference(difference)) => {
            // Shrinking takes a while and may be interrupted, so the difference is reported first.
            let Difference { etcd, ours } = &difference;
            let last = ran.last().map(|operation| operation.action().to_string());
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

/// Runs a new episode. Returns its operations, and the reason if it stopped before its end.
async fn generate(seed: u64, operations: u64) -> io::Result<(Vec<Operation>, Option<StopReason>)> {
    let mut pair = Pair::fresh()?;
    let mut generator = Generator::new(seed);
    let mut ran = Vec::new();
    while (ran.len() as u64) < operations {
        let operation = generator.operation(pair.state());
        ran.push(operation);
        if let Err(stop) = apply(&mut pair, &ran).await {
            return Ok((ran, Some(stop)));
        }
    }
    let end = pair.compare_deliveries().await;
    Ok((ran, end.err()))
}

/// Runs operations again. Returns the number of operations up to a difference, and the difference.
async fn repeat(operations: &[Operation]) -> io::Result<Option<(usize, Difference)>> {
    let mut pair = Pair::fresh()?;
    for at in 1..=operations.len() {
        match apply(&mut pair, &operations[..at]).await {
            Ok(()) => {}
            Err(StopReason::Difference(difference)) => return Ok(Some((at, difference))),
            // A failure is not the difference that is being shrunk.
            Err(StopReason::Failure(_)) => return Ok(None),
        }
    }
    Ok(match pair.compare_deliveries().await {
        Err(StopReason::Difference(difference)) => Some((operations.len(), difference)),
        _ => None,
    })
}

/// Runs the last of `operations`, after which the watches may be compared.
async fn apply(pair: &mut Pair, operations: &[Operation]) -> Result<(), StopReason> {
    if let Some(operation) = operations.last() {
        pair.apply(operation).await?;
    }
    if operations.len().is_multiple_of(COMPARISON_INTERVAL) {
        pair.compare_deliveries().await?;
    }
    Ok(())
}
