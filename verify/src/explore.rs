//! Explorations and their results.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend;
use crate::options::Options;

/// What runs the threads of a model. The cfg of the build chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Loom explores all interleavings: `--cfg loom`.
    Loom,
    /// Shuttle chooses interleavings at random: `--cfg shuttle`.
    Shuttle,
    /// The system runs the threads, as in production: no cfg.
    Threads,
}

impl Backend {
    /// The backend of this build.
    pub const CURRENT: Self = backend::BACKEND;
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loom => "loom",
            Self::Shuttle => "shuttle",
            Self::Threads => "threads of the system",
        })
    }
}

/// The result of an exploration in which no execution failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The backend that ran the executions.
    pub backend: Backend,
    /// The number of executions that ran.
    pub executions: u64,
    /// Whether every interleaving within the bound of preemptions ran. Only loom can know it, and
    /// only if neither `executions` nor `duration` ended the exploration.
    pub complete: bool,
    /// The seed of the first execution, under shuttle.
    pub seed: Option<u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.executions == 1 { "" } else { "s" };
        write!(f, "{} execution{s} with {}", self.executions, self.backend)?;
        if self.complete {
            f.write_str(", all interleavings within the bounds")?;
        }
        match self.seed {
            Some(seed) => write!(f, ", first seed {seed}"),
            None => Ok(()),
        }
    }
}

/// An execution that failed. Its text says how to repeat the execution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The backend that ran the execution.
    pub backend: Backend,
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The message of the panic that ended it.
    pub message: String,
    /// The value of `REVSTORE_VERIFY_REPLAY` that repeats the execution, or `None` if threads of
    /// the system ran it: their schedule is not known.
    pub replay: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            backend,
            execution,
            message,
            replay,
        } = self;
        write!(f, "execution {execution} with {backend} failed: {message}")?;
        let test = std::thread::current();
        let test = test.name().filter(|name| *name != "main");
        let test = test.unwrap_or("TEST");
        match (replay, backend) {
            (Some(replay), backend) => write!(
                f,
                "\nrepeat it: REVSTORE_VERIFY_REPLAY={replay} RUSTFLAGS=\"--cfg {backend}\" \
                 cargo test {test}"
            ),
            (None, _) => write!(
                f,
                "\nfind an execution that can be repeated: RUSTFLAGS=\"--cfg loom\" cargo test \
                 {test}, or the same with shuttle"
            ),
        }
    }
}

impl std::error::Error for Failure {}

/// Runs a program many times, each time with another interleaving of its threads.
///
/// The program is one execution of a model: it creates an engine, runs threads with
/// [`race`](crate::race), [`thread::spawn`](crate::thread::spawn), and checks assertions. It has no
/// state outside of itself and does the same in each execution, except for what the interleaving
/// changes; it does not read the time of the system, and random choices follow from [`seed`].
///
/// The cfg of the build chooses what runs the threads; the [documentation of the crate](crate) says
/// how. Cost: a model with two or three threads takes 0.3 to 0.5 ms per execution under loom and
/// 0.05 ms under shuttle, in an optimized build.
///
/// # Panics
/// With the panic of the first execution that fails, after its number and the way to repeat it were
/// written to standard error. An execution fails if one of its threads panics, if it exceeds
/// [`steps`](Options::steps) and, under a model checker, if all its threads wait. Also if it is
/// called in an exploration, or a variable of the environment is not valid.
///
/// ```
/// use revstore_engine::{Engine, ManualClock};
/// use revstore_verify::{Options, explore, race};
///
/// let report = explore(&Options::new(), || {
///     let engine = Engine::builder().clock(ManualClock::new()).build();
///     let put = |key: &'static str| {
///         let engine = engine.clone();
///         move || engine.put(key, "value").unwrap().revision
///     };
///     let [one, other] = race([put("a"), put("b")]);
///     assert_ne!(one, other, "two transactions have one revision");
/// });
/// assert!(report.executions > 1);
/// ```
pub fn explore(options: &Options, program: impl Fn() + Send + Sync + 'static) -> Report {
    match run(options, &(Arc::new(program) as Program)) {
        Ok(report) => report,
        Err((failure, payload)) => {
            eprintln!("revstore-verify: {failure}");
            resume_unwind(payload)
        }
    }
}

/// As [`explore`], but returns the failure. Use it to show that a model detects a bug: write the
/// model with the bug first.
///
/// # Errors
/// If an execution fails.
///
/// # Panics
/// If it is called in an exploration, or a variable of the environment is not valid.
pub fn try_explore(
    options: &Options,
    program: impl Fn() + Send + Sync + 'static,
) -> Result<Report, Failure> {
    run(options, &(Arc::new(program) as Program)).map_err(|(failure, _)| failure)
}

/// Returns a number that determines the random choices of an execution, for programs that choose
/// their calls at random. Under shuttle it is the seed of the execution, so that the variable that
/// repeats the execution also repeats the choices. With threads of the system it is the number of
/// executions before this one. Under loom it is always 0, because its executions must not differ.
///
/// # Panics
/// If it is called outside of an exploration, or by a thread that the program has started: pass the
/// number to it.
///
/// ```
/// use revstore_engine::{Engine, ManualClock};
/// use revstore_verify::{Options, explore, race, seed};
///
/// explore(&Options::new().preemptions(2).executions(100), || {
///     let engine = Engine::builder().clock(ManualClock::new()).build();
///     let seed = seed();
///     race([0, 1, 2].map(|thread| {
///         let engine = engine.clone();
///         let key = format!("key {}", (seed + thread) % 2);
///         move || engine.put(key, "value").unwrap()
///     }));
///     assert_eq!(engine.current_revision().0, 4);
/// });
/// ```
pub fn seed() -> u64 {
    let seed = SEED.get();
    seed.expect("`seed` is called by the thread that runs the program of an exploration")
}

/// The panic that ended an execution.
pub(crate) type Payload = Box<dyn Any + Send>;
/// A program, which each execution calls once.
pub(crate) type Program = Arc<dyn Fn() + Send + Sync>;

thread_local! {
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
    /// The result of [`seed`] in the execution that runs.
    pub(crate) static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs an exploration on this thread, which has no other one.
fn run(options: &Options, program: &Program) -> Result<Report, (Failure, Payload)> {
    struct Exploring;
    impl Drop for Exploring {
        fn drop(&mut self) {
            EXPLORING.set(false);
            SEED.set(None);
        }
    }
    assert!(
        !EXPLORING.replace(true),
        "`explore` is called in an exploration"
    );
    let _exploring = Exploring;
    backend::run(options, program)
}

/// Runs a call that may panic, and makes its panic a failure.
pub(crate) fn catch<T>(
    call: impl FnOnce() -> T,
    failed: impl FnOnce() -> (u64, Option<String>),
) -> Result<T, (Failure, Payload)> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let (execution, replay) = failed();
        let failure = Failure {
            backend: Backend::CURRENT,
            execution,
            message: text.unwrap_or("a panic without a text").to_owned(),
            replay,
        };
        (failure, payload)
    })
}

/// Decides whether another execution starts.
pub(crate) struct Limits {
    executions: Option<u64>,
    duration: Option<Duration>,
    started: Instant,
}

impl Limits {
    pub(crate) fn new(executions: Option<u64>, duration: Option<Duration>) -> Self {
        Self {
            executions,
            duration,
            started: Instant::now(),
        }
    }

    /// Returns whether an execution may start after `done` others.
    pub(crate) fn admit(&self, done: u64) -> bool {
        let within = self.executions.is_none_or(|max| done < max)
            && self.duration.is_none_or(|max| self.started.elapsed() < max);
        done == 0 || within
    }
}
