//! Counts at old revisions: right whichever way they are found, by the log or by the keys.

use revstore_engine::{Engine, KeyRange, ManualClock, Range, Revision};

const KEYS: usize = 3000;

fn key(number: usize) -> String {
    format!("k{number:05}")
}

/// A store of [`KEYS`] keys, of which every third is deleted and every sixth comes back, while others
/// come and go: 8,000 revisions behind the first.
fn store() -> (Engine, Revision) {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for number in 0..KEYS {
        engine.put(key(number), "").expect("a legal put");
    }
    let then = engine.current_revision();
    for number in (0..KEYS).step_by(3) {
        engine.delete(&KeyRange::one(key(number)));
    }
    for number in (0..KEYS).step_by(6) {
        engine.put(key(number), "").expect("a legal put");
    }
    while engine.current_revision().0 < then.0 + 8000 {
        engine.put("z", "").expect("a legal put");
        engine.delete(&KeyRange::one("z"));
    }
    (engine, then)
}

/// Counts two ways that do not walk the same: alone, and beside all the keys.
fn check(engine: &Engine, keys: KeyRange, at: Revision, expected: usize) {
    let range = Range::of(keys).at(at);
    let counted = engine
        .range(&range.clone().count_only())
        .expect("a kept revision")
        .count;
    let page = engine
        .range(&range.clone().limit(1))
        .expect("a kept revision");
    let all = engine.range(&range).expect("a kept revision").kvs.len();
    let case = format!("{range:?}");
    assert_eq!(
        (counted, page.count, all),
        (expected, expected, expected),
        "{case}"
    );
}

#[test]
fn rg_21_counts_of_the_past_are_right_near_and_far() {
    let (engine, then) = store();
    let now = engine.current_revision();
    let some = |from, to| KeyRange::within(key(from), key(to));
    for (keys, at_first, at_last) in [
        // More keys than it takes to walk the log, fewer, and very few.
        (KeyRange::all(), KEYS, KEYS - KEYS / 6),
        (some(0, 600), 600, 500),
        (some(6, 12), 6, 5),
        (KeyRange::prefix("z"), 0, 0),
        (some(12, 6), 0, 0),
    ] {
        check(&engine, keys.clone(), then, at_first);
        check(&engine, keys.clone(), now, at_last);
        // Just behind the last change of these keys, where only "z" comes and goes since.
        let behind = Revision(then.0 + i64::try_from(KEYS / 3 + KEYS / 6).unwrap());
        check(&engine, keys, behind, at_last);
    }
    let with_z = Revision(now.0 - 1);
    check(&engine, KeyRange::prefix("z"), with_z, 1);
}
