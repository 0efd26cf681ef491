use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::thread;

use proptest::prelude::*;
use revstore_engine::{DueWork, Engine, LeaseId};

use super::*;

type Callback = Box<dyn Fn(&Timers) + Send + Sync>;

/// Timers that record at which time they ran.
struct Timers {
    clock: ControlClock,
    due: Mutex<BTreeSet<(Duration, u32)>>,
    ran: Mutex<Vec<(u32, Duration)>>,
    on_run: Option<Callback>,
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timers")
    }
}

impl Timers {
    fn on(clock: &ControlClock, on_run: Option<Callback>) -> Arc<Self> {
        let timers = Arc::new(Self {
            clock: clock.clone(),
            due: Mutex::default(),
            ran: Mutex::default(),
            on_run,
        });
        let timed: Arc<dyn Timed> = timers.clone();
        clock.follow(Arc::downgrade(&timed));
        timers
    }

    fn add(&self, id: u32, due: Duration) {
        self.due.lock().insert((due, id));
        self.clock.recheck();
    }

    fn take_ran(&self) -> Vec<(u32, Duration)> {
        std::mem::take(&mut *self.ran.lock())
    }
}

impl Timed for Timers {
    fn next_due(&self) -> Option<Duration> {
        self.due.lock().first().map(|(due, _)| *due)
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        loop {
            let first = {
                let mut due = self.due.lock();
                let first = due.first().copied().filter(|(due, _)| *due <= now);
                first.inspect(|first| assert!(due.remove(first)))
            };
            let Some((_, id)) = first else { break };
            self.ran.lock().push((id, self.clock.now()));
        }
        if let Some(on_run) = &self.on_run {
            on_run(&self);
        }
    }

    fn pending(&self, max: usize) -> PendingWork {
        let due = self.due.lock();
        let work = due.iter().map(|(due, id)| DueWork {
            due: *due,
            kind: "timer",
            id: id.to_string(),
        });
        let mut pending = PendingWork {
            work: work.collect(),
            more: 0,
        };
        pending.truncate(max);
        pending
    }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64),
    Advance(u64),
    ToNext,
    Switch(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..50_u64).prop_map(Step::Add),
        (0..30_u64).prop_map(Step::Advance),
        Just(Step::ToNext),
        any::<bool>().prop_map(Step::Switch),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// The model: a sorted list of timers and a number. While the mode is auto, an activity that never ends keeps
    /// the time.
    #[test]
    fn the_clock_is_a_number_with_a_sorted_list_of_timers(steps in steps()) {
        #[derive(Debug)]
        struct Always;
        impl Activity for Always {
            fn busy_for(&self, _: Duration) -> Option<Duration> {
                Some(Duration::from_secs(60))
            }
        }
        let activity: Arc<dyn Activity> = Arc::new(Always);
        let clock = ControlClock::new(ClockMode::Manual);
        clock.set_activity(Arc::downgrade(&activity));
        // Two objects, whose timers must still run in one order.
        let timers = [Timers::on(&clock, None), Timers::on(&clock, None)];
        let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
        let mut now = 0;
        for (id, step) in (0_u32..).zip(steps) {
            let mut expected = Vec::new();
            let target = match step {
                Step::Add(due) => {
                    // Also in the past: it is due at once, and runs at the next advance.
                    timers[id as usize % 2].add(id, millis(due));
                    model.insert((due, id));
                    None
                }
                Step::Advance(by) => {
                    clock.advance(millis(by)).unwrap();
                    Some(now + by)
                }
                Step::ToNext => {
                    let overdue = model.first().is_some_and(|(due, _)| *due <= now);
                    let next = model.iter().find(|(due, _)| *due > now).map(|(due, _)| *due);
                    match (clock.advance_to_next(), next) {
                        (Ok(reached), Some(next)) => prop_assert_eq!(reached, millis(next)),
                        (Err(AdvanceError::NothingPending), None) => {}
                        other => prop_assert!(false, "{:?}, overdue {}", other, overdue),
                    }
                    Some(next.unwrap_or(now))
                }
                Step::Switch(auto) => {
                    let mode = if auto { ClockMode::Auto } else { ClockMode::Manual };
                    prop_assert_eq!(clock.set_mode(mode), millis(now));
                    Some(now)
                }
            };
            if let Some(target) = target {
                while let Some((due, id)) = model.pop_first() {
                    if due > target {
                        model.insert((due, id));
                        break;
                    }
                    expected.push((id, millis(due.max(now))));
                }
                now = now.max(target);
            }
            let mut ran: Vec<_> = timers.iter().flat_map(|timers| timers.take_ran()).collect();
            ran.sort_by_key(|(id, at)| (*at, *id));
            expected.sort_by_key(|(id, at)| (*at, *id));
            prop_assert_eq!(ran, expected);
            prop_assert_eq!(clock.time(), millis(now));
            let listed = clock.pending(usize::MAX).work.into_iter().map(|it| it.due);
            let left: Vec<_> = model.iter().map(|(due, _)| millis(*due)).collect();
            prop_assert_eq!(listed.collect::<Vec<_>>(), left);
        }
    }
}

#[test]
fn work_of_several_objects_runs_in_the_order_of_its_due_times() {
    let clock = ControlClock::new(ClockMode::Manual);
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = |name: &'static str| -> Callback {
        let order = order.clone();
        Box::new(move |timers| order.lock().push((name, timers.clock.time())))
    };
    let (a, b) = (
        Timers::on(&clock, Some(log("a"))),
        Timers::on(&clock, Some(log("b"))),
    );
    a.add(1, millis(30));
    b.add(2, millis(20));
    a.add(3, millis(10));
    clock.advance(millis(100)).unwrap();
    let expected = [("a", millis(10)), ("b", millis(20)), ("a", millis(30))];
    assert_eq!(*order.lock(), expected);
}

#[test]
fn an_advance_from_due_work_is_an_error_and_changes_nothing() {
    let clock = ControlClock::new(ClockMode::Manual);
    let errors = Arc::new(Mutex::new(Vec::new()));
    let timers = {
        let errors = errors.clone();
        let callback = move |timers: &Timers| {
            let clock = &timers.clock;
            errors
                .lock()
                .push((clock.advance(millis(5)), clock.advance_to_next()));
            // A change of the mode is permitted, and does not wait.
            clock.set_mode(ClockMode::Manual);
        };
        Timers::on(&clock, Some(Box::new(callback)))
    };
    timers.add(1, millis(10));
    assert_eq!(clock.advance(millis(20)), Ok(millis(20)));
    let reentrant = Err(AdvanceError::Reentrant);
    assert_eq!(*errors.lock(), [(reentrant, reentrant)]);
    assert_eq!(
        clock.advance(millis(1)),
        Ok(millis(21)),
        "the clock is free again"
    );
}

/// Time once ran on from the switch, and the second timer saw more than its own time.
#[test]
fn a_switch_to_running_time_during_an_advance_takes_effect_after_it() {
    let clock = ControlClock::new(ClockMode::Manual);
    let timers = Timers::on(
        &clock,
        Some(Box::new(|timers: &Timers| {
            timers.clock.set_mode(ClockMode::System);
        })),
    );
    timers.add(1, millis(10));
    timers.add(2, Duration::from_secs(3_600));
    clock.advance(Duration::from_secs(7_200)).unwrap();
    let expected = [(1, millis(10)), (2, Duration::from_secs(3_600))];
    assert_eq!(timers.take_ran(), expected);
    assert_eq!(clock.mode(), ClockMode::System);
    assert!(clock.time() >= Duration::from_secs(7_200));
}

#[test]
fn a_panic_of_due_work_leaves_the_clock_usable() {
    let clock = ControlClock::new(ClockMode::Manual);
    let timers = Timers::on(
        &clock,
        Some(Box::new(|timers: &Timers| {
            assert!(timers.clock.time() > millis(10), "the first timer panics");
        })),
    );
    timers.add(1, millis(10));
    timers.add(2, millis(20));
    let advance = || clock.advance(millis(30));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(advance)).unwrap_err();
    assert_eq!(clock.time(), millis(10));
    assert_eq!(clock.advance(millis(30)), Ok(millis(40)));
    assert_eq!(timers.take_ran(), [(1, millis(10)), (2, millis(20))]);
}

#[test]
fn advances_of_several_threads_add_up() {
    const THREADS: u64 = 4;
    const ADVANCES: u64 = 50;
    let clock = ControlClock::new(ClockMode::Manual);
    let timers = Timers::on(&clock, None);
    for id in 0..100 {
        timers.add(id, millis(u64::from(id)));
    }
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ADVANCES {
                    clock.advance(millis(1)).unwrap();
                }
            });
        }
    });
    assert_eq!(clock.time(), millis(THREADS * ADVANCES));
    let expected = (0..100).map(|id| (id, millis(u64::from(id))));
    assert_eq!(timers.take_ran(), expected.collect::<Vec<_>>());
}

#[test]
fn huge_durations_saturate() {
    let clock = ControlClock::new(ClockMode::Manual);
    let engine = Engine::builder().clock(clock.clone()).build();
    let longest = engine
        .grant(None, revstore_engine::LEASE_TTL_MAX_SECONDS)
        .unwrap();
    assert_eq!(clock.advance(Duration::MAX), Ok(TIME_MAX));
    assert!(engine.leases().is_empty(), "{longest:?} has expired");
    assert_eq!(clock.advance(Duration::MAX), Ok(TIME_MAX));
    // At its last time the clock stands still, and nothing is due any more.
    engine.grant(None, 10).unwrap();
    assert_eq!(clock.advance(Duration::MAX), Ok(TIME_MAX));
    assert_eq!(engine.leases().len(), 1);
    assert_eq!(clock.advance_to_next(), Err(AdvanceError::NothingPending));
    for mode in [ClockMode::System, ClockMode::Auto] {
        clock.set_mode(mode);
        assert_eq!(clock.time(), TIME_MAX);
    }
    let beyond = ControlClock::starting_at(ClockMode::System, Duration::MAX);
    assert_eq!(beyond.time(), TIME_MAX);
}

#[test]
fn an_advance_over_endless_work_ends_with_an_error() {
    let clock = ControlClock::new(ClockMode::Manual);
    let count = Arc::new(AtomicUsize::new(0));
    let timers = {
        let count = count.clone();
        let callback = move |timers: &Timers| {
            count.fetch_add(1, Ordering::Relaxed);
            let due = timers.clock.time() + Duration::from_nanos(1);
            timers.due.lock().insert((due, 0));
        };
        Timers::on(&clock, Some(Box::new(callback)))
    };
    timers.add(0, Duration::ZERO);
    let drive = clock.shared().drive().unwrap();
    // 1,000 instants, the first of them at zero.
    let reached = Duration::from_nanos(999);
    let error = drive.run_until(millis(1), 1_000).unwrap_err();
    assert_eq!(error, AdvanceError::TooManyInstants { reached });
    let reached_later = AdvanceError::TooManyInstants {
        reached: Duration::from_secs(1_439_982_000),
    };
    assert_eq!(
        reached_later.to_string(),
        format!("stopped at 399995h0m0s after {ADVANCE_INSTANTS_MAX} due times")
    );
    drop(drive);
    assert_eq!(count.load(Ordering::Relaxed), 1_000);
    assert_eq!(clock.time(), reached);
    assert_eq!(
        clock.advance(Duration::from_nanos(5)),
        Ok(Duration::from_nanos(1_004))
    );
    assert_eq!(
        count.load(Ordering::Relaxed),
        1_005,
        "no instant was passed without its work"
    );
}

#[test]
fn work_that_is_due_is_done_when_the_mode_changes() {
    let clock = ControlClock::new(ClockMode::Manual);
    let timers = Timers::on(&clock, None);
    clock.advance(millis(10)).unwrap();
    timers.add(1, millis(5));
    assert_eq!(timers.take_ran(), [], "manual time does nothing on its own");
    clock.set_mode(ClockMode::System);
    assert_eq!(timers.take_ran().len(), 1);
    let at = clock.set_mode(ClockMode::Manual);
    assert!(at >= millis(10));
    assert_eq!(clock.time(), at, "manual time stands still");
    assert_eq!(clock.time(), at);
}

/// Returns timers that report their ids.
fn reporting(clock: &ControlClock) -> (Arc<Timers>, mpsc::Receiver<Duration>) {
    let (sender, receiver) = mpsc::channel();
    let callback = move |timers: &Timers| {
        let _ = sender.send(timers.clock.time());
    };
    (Timers::on(clock, Some(Box::new(callback))), receiver)
}

#[test]
fn running_time_does_due_work() {
    let clock = ControlClock::new(ClockMode::System);
    let (timers, ran) = reporting(&clock);
    timers.add(1, clock.time() + millis(5));
    let at = ran.recv().unwrap();
    assert!(at >= millis(5));
    // An advance of running time does not wait either.
    timers.add(2, clock.time() + Duration::from_secs(3_600));
    clock.advance(Duration::from_secs(3_600)).unwrap();
    assert!(ran.try_recv().is_ok());
}

#[test]
fn auto_time_jumps_from_one_due_time_to_the_next_while_nothing_happens() {
    let clock = ControlClock::new(ClockMode::Auto);
    clock.set_idle(millis(1));
    let (timers, ran) = reporting(&clock);
    let hour = Duration::from_secs(3_600);
    timers.add(2, 2 * hour);
    timers.add(1, hour);
    assert_eq!((ran.recv(), ran.recv()), (Ok(hour), Ok(2 * hour)));
    // Nothing is due: time stands still until something is.
    timers.add(3, 3 * hour);
    assert_eq!(ran.recv(), Ok(3 * hour));
}

#[test]
fn auto_time_waits_for_the_end_of_activity() {
    #[derive(Debug)]
    struct Busy(Mutex<bool>, mpsc::SyncSender<()>);
    impl Activity for Busy {
        fn busy_for(&self, _: Duration) -> Option<Duration> {
            let is_busy = *self.0.lock();
            let _ = self.1.try_send(());
            is_busy.then_some(Duration::from_micros(100))
        }
    }
    let (asked, questions) = mpsc::sync_channel(1);
    let busy = Arc::new(Busy(Mutex::new(true), asked));
    let activity: Arc<dyn Activity> = busy.clone();
    let clock = ControlClock::new(ClockMode::Auto);
    clock.set_activity(Arc::downgrade(&activity));
    clock.set_idle(Duration::ZERO);
    let (timers, ran) = reporting(&clock);
    timers.add(1, millis(1));
    for _ in 0..5 {
        questions.recv().unwrap();
    }
    assert!(ran.try_recv().is_err());
    assert_eq!(clock.time(), Duration::ZERO);
    *busy.0.lock() = false;
    assert_eq!(ran.recv(), Ok(millis(1)));
}

/// Automatic time once jumped over a request that had arrived during an advance.
#[test]
fn auto_time_waits_for_what_began_while_it_waited_for_an_advance() {
    #[derive(Debug)]
    struct Busy(Mutex<bool>, mpsc::Sender<bool>);
    impl Activity for Busy {
        fn busy_for(&self, _: Duration) -> Option<Duration> {
            let is_busy = *self.0.lock();
            let _ = self.1.send(is_busy);
            is_busy.then_some(Duration::from_micros(100))
        }
    }
    let clock = ControlClock::new(ClockMode::Manual);
    clock.set_idle(Duration::ZERO);
    let (asked, questions) = mpsc::channel();
    let busy = Arc::new(Busy(Mutex::new(false), asked));
    let activity: Arc<dyn Activity> = busy.clone();
    clock.set_activity(Arc::downgrade(&activity));
    let timers = Timers::on(&clock, None);
    timers.add(1, millis(1));
    // Held as by an advance, during which the mode changes.
    let drive = clock.shared().drive().unwrap();
    clock.set_mode(ClockMode::Auto);
    assert_eq!(questions.recv(), Ok(false), "nothing is under way");
    *busy.0.lock() = true;
    drop(drive);
    while questions.recv() == Ok(false) {}
    assert_eq!((clock.time(), timers.take_ran()), (Duration::ZERO, vec![]));
}

#[test]
fn the_end_of_an_advance_is_a_use_of_the_clock() {
    let clock = ControlClock::new(ClockMode::Manual);
    assert_eq!(clock.shared().used.load(Ordering::Relaxed), 0);
    clock.advance(millis(1)).unwrap();
    assert_ne!(clock.shared().used.load(Ordering::Relaxed), 0);
}

#[test]
fn a_copy_has_the_mode_the_time_and_the_idle_time_and_no_followers() {
    let clock = ControlClock::new(ClockMode::Manual);
    let timers = Timers::on(&clock, None);
    clock.set_idle(Duration::from_secs(3_600));
    clock.advance(millis(7)).unwrap();
    clock.set_mode(ClockMode::Auto);
    let copy = clock.copy();
    assert_eq!((copy.mode(), copy.time()), (ClockMode::Auto, millis(7)));
    let idle = copy.shared().state.lock().idle;
    assert_eq!(idle, Duration::from_secs(3_600));
    timers.add(1, millis(8));
    copy.advance(millis(10)).unwrap();
    assert_eq!((clock.time(), timers.take_ran()), (millis(7), vec![]));
}

#[test]
fn the_list_of_a_million_leases_is_bounded() {
    const LEASES: i64 = 1_000_000;
    let clock = ControlClock::new(ClockMode::Manual);
    let engine = Engine::builder().clock(clock.clone()).build();
    for id in 1..=LEASES {
        engine.grant(LeaseId::new(id), 10 + id % 1_000).unwrap();
    }
    let pending = clock.pending(1_000);
    assert_eq!(pending.work.len(), 1_000);
    assert_eq!(pending.more, LEASES as u64 - 1_000);
    let first = &pending.work[0];
    assert_eq!((first.kind, first.due), ("lease", Duration::from_secs(10)));
    assert_eq!(first.id, format!("{:016x}", 1_000));
}

#[test]
fn the_thread_ends_with_the_last_clone() {
    let clock = ControlClock::new(ClockMode::System);
    let shared = Arc::downgrade(&clock.handle.0);
    drop(clock.clone());
    assert!(!shared.upgrade().unwrap().state.lock().closed);
    drop(clock);
    // Either the thread has ended, or it sees that it must.
    assert!(
        shared
            .upgrade()
            .is_none_or(|shared| shared.state.lock().closed)
    );
}

/// Work that a thread does when it is woken.
#[derive(Debug)]
struct Task {
    due: Mutex<Vec<Duration>>,
    is_settled: AtomicBool,
    wake: mpsc::Sender<()>,
}

impl Timed for Task {
    fn next_due(&self) -> Option<Duration> {
        self.due.lock().first().copied()
    }

    fn run_due(self: Arc<Self>) {
        self.due.lock().remove(0);
        self.is_settled.store(false, Ordering::Release);
        // An error means that nobody does the work.
        let _ = self.wake.send(());
    }

    fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }
}

#[test]
fn an_advance_waits_for_the_tasks_of_a_server_but_not_for_ever() {
    #[derive(Debug)]
    struct Server;
    impl Activity for Server {
        fn busy_for(&self, _: Duration) -> Option<Duration> {
            None
        }
    }
    let clock = ControlClock::new(ClockMode::Manual);
    let server: Arc<dyn Activity> = Arc::new(Server);
    clock.set_activity(Arc::downgrade(&server));
    let (wake, woken) = mpsc::channel();
    let due: Vec<_> = (1..=20).map(millis).collect();
    let task = Arc::new(Task {
        due: Mutex::new(due.clone()),
        is_settled: AtomicBool::new(true),
        wake,
    });
    let timed: Arc<dyn Timed> = task.clone();
    clock.follow(Arc::downgrade(&timed));
    let worker = {
        let (clock, task) = (clock.clone(), task.clone());
        thread::spawn(move || {
            let mut seen = Vec::new();
            for () in woken.iter().take(20) {
                seen.push(clock.time());
                task.is_settled.store(true, Ordering::Release);
            }
            seen
        })
    };
    clock.advance(millis(50)).unwrap();
    assert_eq!(worker.join().unwrap(), due);
    // Nobody does the work any longer: the advance goes on without it.
    task.due.lock().extend([millis(60), millis(70), millis(80)]);
    assert_eq!(clock.advance(millis(50)).unwrap(), millis(100));
    assert!(task.due.lock().is_empty());
}
