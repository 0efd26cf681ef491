//! The backend under `--cfg shuttle`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::str::FromStr;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::explore::{Backend, Failure, Limits, Payload, Program, Report, SEED, catch};
use crate::options::{Options, variable};

pub(crate) use shuttle::future::block_on;
pub(crate) use shuttle::thread::spawn;
pub(crate) use shuttle::{sync, thread};

pub(crate) const BACKEND: Backend = Backend::Shuttle;

/// The default number of executions.
const EXECUTIONS: u64 = 1_000;
/// The default number of steps.
const STEPS: u32 = 1_000_000;
/// The size of the stack of a thread, which shuttle maps: only pages that are used take memory.
const STACK_BYTES: usize = 1024 * 1024;
/// The maximum number of preemptions of an execution with few, if the options set none.
const FEW_PREEMPTIONS: u64 = 8;
/// The number of choices after which a thread is preempted, if the options bound no preemptions: it
/// may wait for another thread in a loop.
const UNFAIR_CHOICES_MAX: u64 = 10_000;
/// The length of an execution before one has run.
const FIRST_LENGTH: u64 = 256;

pub(crate) fn run(options: &Options, program: &Program) -> Result<Report, (Failure, Payload)> {
    let replay: Option<Plan> = variable("REVSTORE_VERIFY_REPLAY", "SEED or SEED:LENGTH");
    let seed = replay.map_or_else(|| first_seed(options), |plan| plan.seed);
    let executions = match replay {
        Some(_) => 1,
        None => options.executions_max().unwrap_or(EXECUTIONS),
    };
    let position = Rc::new(Cell::new(Position::default()));
    let scheduler = RandomScheduler {
        limits: Limits::new(Some(executions), options.duration),
        preemptions: options.preemptions,
        next: replay.unwrap_or(Plan { seed, length: 0 }),
        position: position.clone(),
        random: Random(seed),
        walk: Walk::Free,
        choices: 0,
        unfair: 0,
    };
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(options.steps.unwrap_or(STEPS) as usize);
    // The seed is shorter than shuttle's schedule.
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let runner = Runner::new(scheduler, config);
    let program = program.clone();
    let executions = catch(
        || runner.run(move || program()),
        || {
            let Position { started, plan } = position.get();
            (started, Some(plan.to_string()))
        },
    )?;
    Ok(Report {
        backend: BACKEND,
        executions: executions as u64,
        complete: false,
        seed: Some(seed),
    })
}

fn first_seed(options: &Options) -> u64 {
    let from_environment = || variable("REVSTORE_VERIFY_SEED", "a number");
    let any = || RandomState::new().build_hasher().finish();
    options.seed.or_else(from_environment).unwrap_or_else(any)
}

/// What determines the schedule of an execution. Its text is the value that repeats it.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    seed: u64,
    /// The number of choices of the longest execution before, among which those that preempt are
    /// selected. 0 in the first execution.
    length: u64,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, length } = self;
        write!(f, "{seed}:{length}")
    }
}

impl FromStr for Plan {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (seed, length) = text.split_once(':').unwrap_or((text, "0"));
        Ok(Self {
            seed: seed.parse()?,
            length: length.parse()?,
        })
    }
}

/// The execution that runs.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// The number of executions that have started.
    started: u64,
    plan: Plan,
}

/// Chooses the next thread at random. The plan of an execution alone determines its choices.
struct RandomScheduler {
    limits: Limits,
    preemptions: Option<u8>,
    /// The plan of the next execution.
    next: Plan,
    position: Rc<Cell<Position>>,
    random: Random,
    walk: Walk,
    /// The number of choices in this execution: steps at which more than one thread could continue.
    choices: u64,
    /// The number of choices since the last one that changed the thread.
    unfair: u64,
}

/// When a thread that could continue is preempted.
#[derive(Debug)]
enum Walk {
    /// At each choice all threads are equally likely.
    Free,
    /// At one of this many choices, on average: threads run for a while, which shows other bugs.
    Rarely(u64),
    /// At these choices only.
    At(BTreeSet<u64>),
}

impl Walk {
    /// Selects when to preempt: by the bound, or so that all kinds occur.
    fn select(random: &mut Random, preemptions: Option<u8>, length: u64) -> Self {
        let length = if length == 0 { FIRST_LENGTH } else { length };
        let count = match (preemptions, random.below(4)) {
            (Some(bound), _) => bound.into(),
            (None, 0) => return Self::Free,
            (None, 1) => return Self::Rarely(1 << (1 + random.below(7))),
            (None, _) => random.below(FEW_PREEMPTIONS + 1),
        };
        Self::At((0..count).map(|_| random.below(length)).collect())
    }
}

impl Scheduler for RandomScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        let Position { started, plan } = self.position.get();
        let longest = plan.length.max(self.choices);
        if started > 0 {
            self.next = Plan {
                seed: plan.seed.wrapping_add(1),
                length: longest,
            };
        }
        if !self.limits.admit(started) {
            return None;
        }
        self.position.set(Position {
            started: started + 1,
            plan: self.next,
        });
        SEED.set(Some(self.next.seed));
        self.random = Random(self.next.seed);
        self.walk = Walk::select(&mut self.random, self.preemptions, self.next.length);
        self.choices = 0;
        self.unfair = 0;
        Some(Schedule::new(self.next.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        if let [only] = runnable {
            return Some(only.id());
        }
        let choice = self.choices;
        self.choices += 1;
        let current = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        let leaves = match &self.walk {
            _ if is_yielding => true,
            Walk::Free => return Some(self.random.choose(runnable.iter().map(|task| task.id()))),
            Walk::Rarely(times) => self.random.below(*times) == 0,
            Walk::At(choices) => choices.contains(&choice),
        };
        let fair = self.preemptions.is_some() || self.unfair < UNFAIR_CHOICES_MAX;
        match current {
            Some(current) if fair && !leaves => {
                self.unfair += 1;
                Some(current)
            }
            left => {
                self.unfair = 0;
                let others = runnable.iter().map(|task| task.id());
                let others = others.filter(move |task| Some(*task) != left);
                Some(self.random.choose(others))
            }
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}

/// A `SplitMix64` generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns one of the tasks, of which there is at least one.
    fn choose(&mut self, tasks: impl Iterator<Item = TaskId> + Clone) -> TaskId {
        let count = tasks.clone().count() as u64;
        let index = usize::try_from(self.below(count)).expect("an index of a slice");
        tasks
            .into_iter()
            .nth(index)
            .expect("an index below the count")
    }
}
