//! Automatic compaction, with a manual clock.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use revstore_engine::{AutoCompaction, AutoCompactionStep, Engine, ManualClock, Revision};

const MINUTE: Duration = Duration::from_secs(60);

fn engine(policy: AutoCompaction) -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let builder = Engine::builder().clock(clock.clone());
    (builder.auto_compaction(policy).build(), clock)
}

fn put(engine: &Engine, times: usize) {
    for _ in 0..times {
        engine.put("k", "v").expect("a put");
    }
}

fn compacted(engine: &Engine) -> Option<i64> {
    engine.compacted_revision().map(|revision| revision.0)
}

#[test]
fn ac_4_periodic_mode_keeps_one_period_of_history() {
    let policy = AutoCompaction::Periodic {
        period: 10 * MINUTE,
    };
    let (engine, clock) = engine(policy);
    for minute in 1..=9 {
        put(&engine, 1);
        clock.advance(MINUTE);
        assert_eq!(compacted(&engine), None, "after {minute} minutes");
    }
    clock.advance(MINUTE);
    assert_eq!(
        compacted(&engine),
        Some(2),
        "the oldest sample is one period old"
    );
    for minute in 11..=19 {
        put(&engine, 1);
        clock.advance(MINUTE);
        assert_eq!(compacted(&engine), Some(2), "after {minute} minutes");
    }
    clock.advance(MINUTE);
    assert_eq!(
        compacted(&engine),
        Some(10),
        "one compaction per period, at the revision of one period ago"
    );
}

#[test]
fn ac_6_revision_mode_compacts_at_current_minus_keep() {
    let every = 5 * MINUTE;
    let (engine, clock) = engine(AutoCompaction::Revisions { keep: 10, every });
    put(&engine, 8);
    clock.advance(every);
    assert_eq!(
        compacted(&engine),
        None,
        "there are fewer than 10 revisions below 9"
    );
    put(&engine, 12);
    clock.advance(4 * MINUTE);
    assert_eq!(compacted(&engine), None);
    clock.advance(MINUTE);
    assert_eq!(compacted(&engine), Some(11));
}

#[test]
fn ac_5_the_policy_continues_after_checks_without_anything_to_compact() {
    let every = 5 * MINUTE;
    let (engine, clock) = engine(AutoCompaction::Revisions { keep: 10, every });
    put(&engine, 20);
    for _ in 0..3 {
        clock.advance(every);
        assert_eq!(compacted(&engine), Some(11));
    }
    // A client compacts at a higher revision than the policy decides on.
    engine.compact(Revision(15)).expect("a kept revision").run();
    put(&engine, 1);
    clock.advance(every);
    assert_eq!(compacted(&engine), Some(15));
    put(&engine, 10);
    clock.advance(every);
    assert_eq!(compacted(&engine), Some(22));
}

#[test]
fn ac_7_a_check_can_be_requested() {
    let every = 5 * MINUTE;
    let (engine, clock) = engine(AutoCompaction::Revisions { keep: 10, every });
    put(&engine, 20);
    engine.auto_compact();
    assert_eq!(compacted(&engine), Some(11));
    put(&engine, 1);
    clock.advance(every);
    assert_eq!(
        compacted(&engine),
        Some(12),
        "the next check is one interval later"
    );
}

#[test]
fn size_mode_compacts_until_the_history_is_within_the_limit() {
    const VALUE_BYTES: usize = 10_000;
    const BYTES_MAX: u64 = 100_000;
    let every = 5 * MINUTE;
    let (engine, clock) = engine(AutoCompaction::Size {
        bytes_max: BYTES_MAX,
        every,
    });
    let put = |key: &'static str| engine.put(key, vec![b'v'; VALUE_BYTES]).expect("a put");
    for _ in 0..8 {
        put("k");
    }
    clock.advance(every);
    assert_eq!(compacted(&engine), None, "the history is below the limit");
    for _ in 0..12 {
        put("k");
    }
    assert!(engine.history_bytes() > 2 * BYTES_MAX);
    clock.advance(every);
    let kept = engine.history_bytes();
    let one_less = BYTES_MAX - 2 * VALUE_BYTES as u64;
    assert!((one_less..=BYTES_MAX).contains(&kept), "{kept} bytes");
    assert!(
        compacted(&engine).is_some_and(|revision| revision < 20),
        "not higher than necessary"
    );
    // Live keys are kept, even if they take more than the limit.
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "l"] {
        put(key);
        put(key);
    }
    clock.advance(every);
    assert_eq!(engine.stats().keys, 12);
    assert_eq!(engine.get("a").map(|kv| kv.version()), Some(2));
    assert_eq!(compacted(&engine), Some(engine.current_revision().0));
}

#[test]
fn the_steps_of_compactions_are_reported_to_one_reader() {
    let policy = AutoCompaction::Revisions {
        keep: 1,
        every: MINUTE,
    };
    let (engine, clock) = engine(policy);
    put(&engine, 2);
    clock.advance(MINUTE);
    let mut compactions = engine.auto_compactions().expect("no reader yet");
    assert!(engine.auto_compactions().is_none());
    let mut context = Context::from_waker(Waker::noop());
    let mut next = || compactions.poll_step(&mut context);
    // Nothing of the time before.
    assert!(next().is_pending());
    put(&engine, 1);
    clock.advance(MINUTE);
    let step = |revision, took| {
        Poll::Ready(AutoCompactionStep {
            policy,
            revision: Revision(revision),
            took,
        })
    };
    assert_eq!(next(), step(3, None));
    assert_eq!(next(), step(3, Some(Duration::ZERO)));
    // AC-5: the revision is compacted already.
    clock.advance(MINUTE);
    assert!(next().is_pending());
    engine.compact(Revision(4)).expect("a kept revision").run();
    assert!(next().is_pending());
    // The oldest steps are dropped.
    for _ in 0..40 {
        put(&engine, 1);
        engine.auto_compact();
    }
    for revision in 12..=43 {
        assert_eq!(next(), step(revision, None));
        assert_eq!(next(), step(revision, Some(Duration::ZERO)));
    }
    assert!(next().is_pending());
    drop(compactions);
    put(&engine, 1);
    clock.advance(MINUTE);
    let mut compactions = engine.auto_compactions().expect("no reader any more");
    let mut context = Context::from_waker(Waker::noop());
    assert!(compactions.poll_step(&mut context).is_pending());
    assert!(Engine::builder().build().auto_compactions().is_none());
}
