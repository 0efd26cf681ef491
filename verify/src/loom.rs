//! The backend under `--cfg loom`.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::{panic, process};

use loom::model::Builder;
use tracing::Level;

use crate::explore::{Backend, Failure, Limits, Payload, Program, Report, SEED, catch};
use crate::options::{Options, variable};

pub(crate) use loom::future::block_on;
pub(crate) use loom::{sync, thread};

pub(crate) const BACKEND: Backend = Backend::Loom;

/// The default number of steps. A call of the engine takes a few dozen.
const STEPS: u32 = 100_000;
/// The bound of preemptions of an exploration without one: more than an execution has.
///
/// Loom without a bound explores less. For a store to an atomic it considers only the last access of
/// any thread, so a load of the same thread hides the load of another one, and loom does not try the
/// store before that load. (The current revision of the engine is such an atomic.) With a bound, it
/// tries further switches of threads at each point that it considers, which cover this.
const PREEMPTIONS: usize = u8::MAX as usize;
/// The number of threads of an execution besides its first: loom explores five.
const THREADS_MAX: usize = loom::MAX_THREADS - 1;

pub(crate) fn run(options: &Options, program: &Program) -> Result<Report, (Failure, Payload)> {
    // Reads loom's variables.
    let mut builder = Builder::new();
    assert!(
        builder.checkpoint_file.is_none(),
        "LOOM_CHECKPOINT_FILE is not supported: a failure is repeated with REVSTORE_VERIFY_REPLAY"
    );
    let permutations = builder.max_permutations.take();
    let executions = options
        .executions_max()
        .or_else(|| permutations.map(|max| max as u64));
    let limits = Limits::new(executions, options.duration.or(builder.max_duration.take()));
    let preemptions = options.preemptions.map(usize::from);
    let preemptions = preemptions.or(builder.preemption_bound);
    builder.preemption_bound = Some(preemptions.unwrap_or(PREEMPTIONS));
    if std::env::var_os("LOOM_MAX_BRANCHES").is_none() || options.steps.is_some() {
        builder.max_branches = options.steps.unwrap_or(STEPS) as usize;
    }
    // Loom would compare the bounds, and write the checkpoint, only at multiples of this number.
    builder.checkpoint_interval = usize::MAX;
    match variable::<NonZeroU64>("REVSTORE_VERIFY_REPLAY", "the number of an execution") {
        None => check(&builder, program, 1, move |done| limits.admit(done)),
        Some(execution) => replay(builder, program, execution.get()),
    }
}

/// The end of an exploration by its limits. Loom itself has no exact ones.
struct Stop;

/// Explores while `admit` returns `true` for the number of executions that are done.
fn check(
    builder: &Builder,
    program: &Program,
    first: u64,
    admit: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Result<Report, (Failure, Payload)> {
    let done = Arc::new(AtomicU64::new(0));
    let (program, count) = (program.clone(), done.clone());
    let model = move || {
        let done = count.load(Ordering::Relaxed);
        if !admit(done) {
            // Not a panic of the program: the hook does not report it.
            panic::resume_unwind(Box::new(Stop));
        }
        THREADS.set(0);
        RUNNING.set(Some(first + done));
        PANICKED.set(false);
        SEED.set(Some(0));
        program();
        count.store(done + 1, Ordering::Relaxed);
    };
    let executions = || done.load(Ordering::Relaxed);
    report_aborts();
    let explored = catch(
        || builder.check(model),
        || {
            let execution = first + executions();
            (execution, Some(execution.to_string()))
        },
    );
    RUNNING.set(None);
    let complete = explored.is_ok();
    match explored {
        Err((failure, payload)) if !payload.is::<Stop>() => return Err((failure, payload)),
        _ => {}
    }
    Ok(Report {
        backend: BACKEND,
        executions: executions(),
        complete,
        seed: None,
    })
}

/// Repeats one execution and writes its steps to standard error.
///
/// Loom explores the same executions in the same order each time. So those before it run again,
/// without the trace, and the last of them leaves its position in a file.
fn replay(
    mut builder: Builder,
    program: &Program,
    execution: u64,
) -> Result<Report, (Failure, Payload)> {
    struct Removed(PathBuf);
    impl Drop for Removed {
        fn drop(&mut self) {
            // There is no file if the exploration has fewer executions.
            let _ = std::fs::remove_file(&self.0);
        }
    }
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("revstore-verify-{}-{number}.json", process::id());
    let file = Removed(std::env::temp_dir().join(name));
    builder.checkpoint_file = Some(file.0.clone());
    builder.checkpoint_interval = usize::try_from(execution).unwrap_or(usize::MAX);
    let before = check(&builder, program, 1, move |done| done < execution - 1)?;
    if before.complete {
        eprintln!(
            "revstore-verify: there is no execution {execution}: the exploration has {}",
            before.executions
        );
        return Ok(before);
    }
    builder.checkpoint_interval = usize::MAX;
    builder.location = true;
    let trace = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(std::io::stderr)
        .without_time()
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(trace, || {
        check(&builder, program, execution, |done| done == 0)
    })
}

/// Names the execution whose panic ends the process, once for all explorations.
///
/// When all threads wait, the panic of loom unwinds a stack with objects of loom. They may panic,
/// too, and then the process ends before the exploration can return its failure.
fn report_aborts() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            previous(panic);
            let Some(execution) = RUNNING.get() else {
                return;
            };
            if PANICKED.replace(true) {
                eprintln!(
                    "revstore-verify: in execution {execution} with loom, which \
                     REVSTORE_VERIFY_REPLAY={execution} repeats"
                );
            }
        }));
    });
}

thread_local! {
    /// The execution that runs on this thread.
    static RUNNING: Cell<Option<u64>> = const { Cell::new(None) };
    /// Whether a thread of that execution has panicked.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
    /// The number of threads that this execution has started. Loom runs all of them on one thread
    /// of the system.
    static THREADS: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn spawn<F, T>(closure: F) -> thread::JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    THREADS.set(THREADS.get() + 1);
    assert!(
        THREADS.get() <= THREADS_MAX,
        "an execution started more than {THREADS_MAX} threads: loom does not explore more"
    );
    thread::spawn(closure)
}
