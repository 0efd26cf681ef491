//! Counts at old revisions, which the engine computes from the log or from the keys.

use revstore_engine::{Engine, KeyRange, ManualClock, Range, Revision};

const KEYS: usize = 3000;

fn key(number: usize) -> String {
    format!("k{number:05}")
}

/// Returns a store of [`KEYS`] keys and the revision at which it has them. In the 8,000 revisions
/// after that one, every third key is deleted, every sixth is created again, and another key is
/// written and deleted many times.
fn store() -> (Engine, Revision) {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for number in 0..KEYS {
        engine.put(key(number), "").expect("a valid put");
    }
    let filled = engine.current_revision();
    for number in (0..KEYS).step_by(3) {
        engine
            .delete(&KeyRange::one(key(number)))
            .expect("a store that accepts writes");
    }
    for number in (0..KEYS).step_by(6) {
        engine.put(key(number), "").expect("a valid put");
    }
    while engine.current_revision().0 < filled.0 + 8000 {
        engine.put("z", "").expect("a valid put");
        engine
            .delete(&KeyRange::one("z"))
            .expect("a store that accepts writes");
    }
    (engine, filled)
}

/// Checks a count without keys, the count of a page, and the number of all keys. The engine
/// computes the three differently.
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
fn rg_21_counts_at_near_and_far_revisions_are_correct() {
    let (engine, filled) = store();
    let current = engine.current_revision();
    let some = |from, to| KeyRange::within(key(from), key(to));
    for (keys, at_first, at_last) in [
        // The log records after the revision are fewer than all keys, and more than a few keys.
        (KeyRange::all(), KEYS, KEYS - KEYS / 6),
        (some(0, 600), 600, 500),
        (some(6, 12), 6, 5),
        (KeyRange::prefix("z"), 0, 0),
        (some(12, 6), 0, 0),
    ] {
        check(&engine, keys.clone(), filled, at_first);
        check(&engine, keys.clone(), current, at_last);
        // After the last change of these keys; later changes are of "z" only.
        let last_change = Revision(filled.0 + i64::try_from(KEYS / 3 + KEYS / 6).unwrap());
        check(&engine, keys, last_change, at_last);
    }
    let with_z = Revision(current.0 - 1);
    check(&engine, KeyRange::prefix("z"), with_z, 1);
}
