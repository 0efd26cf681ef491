//! The compaction of a store by several users.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use revstore_engine::{Engine, KeyRange, ManualClock, Revision};
use revstore_watch_cache::source::{Compactor, EngineSource};

const INTERVAL: Duration = Duration::from_secs(300);

/// Compactors over one engine, and the manual clock of all.
struct Fixture {
    engine: Engine,
    clock: ManualClock,
    running: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Fixture {
    fn new(compactors: usize) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let mut fixture = Self {
            engine,
            clock,
            running: Vec::new(),
        };
        for _ in 0..compactors {
            fixture.start();
        }
        fixture
    }

    fn start(&mut self) {
        let source = Arc::new(EngineSource::new(self.engine.clone()));
        let clock = Arc::new(self.clock.clone());
        let compactor = Compactor::new(source, clock, INTERVAL);
        self.running.push(Box::pin(compactor.run()));
        self.poll();
    }

    /// Lets each compactor do what is due.
    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for running in &mut self.running {
            assert!(running.as_mut().poll(&mut context).is_pending());
        }
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.poll();
    }

    /// Returns how often the turn was taken.
    fn turns(&self) -> i64 {
        self.engine
            .get("compact_rev_key")
            .map_or(0, |key| key.version())
    }

    fn compacted(&self) -> Option<Revision> {
        self.engine.compacted_revision()
    }
}

#[test]
fn of_several_compactors_one_compacts_in_each_interval() {
    let mut fixture = Fixture::new(3);
    fixture.engine.put("a", "1").unwrap();
    fixture.pass(INTERVAL.saturating_sub(Duration::from_millis(1)));
    assert_eq!((fixture.turns(), fixture.compacted()), (0, None));
    // The first turn only records the revision 3, which it has itself.
    fixture.pass(Duration::from_millis(1));
    assert_eq!((fixture.turns(), fixture.compacted()), (1, None));
    assert_eq!(fixture.engine.current_revision(), Revision(3));
    for _ in 0..4 {
        fixture.engine.put("a", "2").unwrap();
    }
    fixture.pass(INTERVAL);
    assert_eq!(
        (fixture.turns(), fixture.compacted()),
        (2, Some(Revision(3)))
    );
    let value = fixture.engine.get("compact_rev_key").unwrap();
    assert_eq!(value.value(), b"3");
    // The revision after the second turn.
    fixture.pass(INTERVAL);
    assert_eq!(
        (fixture.turns(), fixture.compacted()),
        (3, Some(Revision(8)))
    );
}

#[test]
fn a_compactor_takes_over_from_one_that_is_gone() {
    let mut fixture = Fixture::new(1);
    for _ in 0..3 {
        fixture.pass(INTERVAL);
    }
    let before = fixture.compacted();
    assert_eq!(fixture.turns(), 3);
    fixture.start();
    drop(fixture.running.remove(0));
    fixture.engine.put("a", "1").unwrap();
    // The new one learns the number of turns, and has the next one.
    fixture.pass(INTERVAL);
    assert_eq!((fixture.turns(), fixture.compacted()), (3, before));
    let known = fixture.engine.current_revision();
    fixture.pass(INTERVAL);
    assert_eq!((fixture.turns(), fixture.compacted()), (4, Some(known)));
}

#[test]
fn a_key_that_is_deleted_and_a_later_compaction_do_not_stop_it() {
    let mut fixture = Fixture::new(1);
    fixture.pass(INTERVAL);
    fixture.pass(INTERVAL);
    fixture
        .engine
        .delete(&KeyRange::one("compact_rev_key"))
        .unwrap();
    fixture.pass(INTERVAL);
    assert_eq!(fixture.turns(), 0);
    let current = fixture.engine.put("a", "1").unwrap().revision;
    drop(fixture.engine.compact(current).unwrap());
    fixture.pass(INTERVAL);
    assert_eq!((fixture.turns(), fixture.compacted()), (1, Some(current)));
    let recorded = fixture.engine.current_revision();
    fixture.pass(INTERVAL);
    assert_eq!((fixture.turns(), fixture.compacted()), (2, Some(recorded)));
}
