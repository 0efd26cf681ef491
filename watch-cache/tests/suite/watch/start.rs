//! T-28, T-29, T-35, T-36, T-54: where watches start.

use revstore_watch_cache::{Scope, WatchOptions};

use super::select;
use crate::support::{Fixture, Side, config, from, namespace, on_both, pod, short_window};

// Shows WC-305.
#[test]
fn t_28_after_a_compaction_a_watch_from_0_starts_and_one_from_before_needs_the_window() {
    on_both(|fixture, store, side| {
        let a = fixture.put_pod("ns/a");
        let b = fixture.put_pod("ns/b");
        fixture.wait_until_fresh();
        let from_zero = || fixture.watch(store, &Scope::All, &from("0")).words(2);
        let expected = [format!("ADDED ns/a@{a}"), format!("ADDED ns/b@{b}")];
        assert_eq!(from_zero(), expected);
        let newest = fixture.put_elsewhere();
        fixture.compact(newest);
        assert_eq!(from_zero(), expected);
        if side == Side::Raw {
            let mut gone = fixture.watch(store, &Scope::All, &from(a));
            assert_eq!(
                gone.words(2),
                [
                    "ERROR 410 The resourceVersion for the provided watch is too old.",
                    "end"
                ]
            );
        } else {
            // WC-314: the window still contains the events.
            let mut resumed = fixture.watch(store, &Scope::All, &from(a));
            assert_eq!(resumed.word(), format!("ADDED ns/b@{b}"));
        }
    });
}

// Shows WC-106 and WC-311.
#[test]
fn t_28_a_watch_that_needs_a_compacted_previous_version_is_410() {
    on_both(|fixture, store, side| {
        if side == Side::Cached {
            // The window contains the previous versions.
            return;
        }
        let too_old = [
            "ERROR 410 The resourceVersion for the provided watch is too old.",
            "end",
        ];
        // Each change is exactly at the compacted revision, so the watch itself can start.
        let from_before = |changed: i64, labels: &str| {
            fixture.compact(changed);
            let options = select(from(changed - 1), labels, "");
            fixture.watch(store, &Scope::All, &options)
        };
        fixture.put("ns/a", pod("ns/a", "web", ""));
        let left = fixture.put("ns/a", pod("ns/a", "db", ""));
        let mut selected = from_before(left, "app=web");
        assert_eq!(selected.words(2), too_old, "it leaves the selector");
        let updated = fixture.put("ns/a", pod("ns/a", "db", "n1"));
        assert_eq!(from_before(updated, "").words(2), too_old, "it is updated");
        let deleted = fixture.delete("ns/a");
        assert_eq!(from_before(deleted, "").words(2), too_old, "it is deleted");
        // A new object has no previous version.
        let created = fixture.put("ns/a", pod("ns/a", "web", ""));
        let mut events = from_before(created, "app=web");
        assert_eq!(events.word(), format!("ADDED ns/a@{created}"));
    });
}

// Shows WC-114.
#[test]
fn t_28_and_t_54_a_start_before_the_window_is_410_with_both_revisions() {
    let config = config().window(short_window(3));
    let fixture = Fixture::with(config, |builder| builder);
    let start = fixture.put_pod("ns/a");
    let mut slow = fixture.watch(&fixture.pods, &Scope::All, &from(start));
    let mut elsewhere = fixture.watch(&fixture.pods, &namespace("other"), &from(start));
    for _ in 0..10 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    let oldest = fixture.current() - 3;
    let too_old =
        |requested: i64| format!("ERROR 410 too old resource version: {requested} ({oldest})");
    let mut early = fixture.watch(&fixture.pods, &Scope::All, &from(start));
    assert_eq!(early.words(2), [too_old(start), "end".into()]);
    assert_eq!(slow.words(2), [too_old(start), "end".into()], "WC-124");
    let mut just = fixture.watch(&fixture.pods, &Scope::All, &from(oldest));
    assert_eq!(
        just.word(),
        format!("MODIFIED ns/a@{}", oldest + 1),
        "WC-313"
    );
    // No event that matches the other watch was evicted, so that watch continues.
    let made = fixture.put_pod("other/x");
    assert_eq!(elsewhere.word(), format!("ADDED other/x@{made}"));
    let metrics = fixture.pods.metrics();
    assert_eq!(
        (metrics.terminated_watchers, metrics.expired_window),
        (1, 2)
    );
}

// Shows WC-311.
#[test]
fn t_29_starts_are_exclusive() {
    on_both(|fixture, store, _| {
        let first = fixture.put_pod("ns/a");
        let elsewhere = fixture.put_elsewhere();
        let third = fixture.put_pod("ns/a");
        fixture.wait_until_fresh();
        for (start, expected) in [
            (
                first - 1,
                vec![
                    format!("ADDED ns/a@{first}"),
                    format!("MODIFIED ns/a@{third}"),
                ],
            ),
            (first, vec![format!("MODIFIED ns/a@{third}")]),
            (elsewhere, vec![format!("MODIFIED ns/a@{third}")]),
        ] {
            let mut events = fixture.watch(store, &Scope::All, &from(start));
            assert_eq!(events.words(expected.len()), expected, "after {start}");
        }
        let mut none = fixture.watch(store, &Scope::All, &from(third));
        let fourth = fixture.put_pod("ns/b");
        assert_eq!(none.word(), format!("ADDED ns/b@{fourth}"));
    });
}

// Shows WC-301, WC-310, WC-312 and WC-326.
#[test]
fn t_35_and_t_36_each_row_of_the_watch_table_starts_with_its_state() {
    on_both(|fixture, store, _| {
        for bookmarks in [false, true] {
            for (version, initial) in [
                ("", Some(true)),
                ("", Some(false)),
                ("", None),
                ("0", Some(true)),
                ("0", Some(false)),
                ("0", None),
                ("before", Some(true)),
                ("before", Some(false)),
                ("before", None),
                ("current", Some(true)),
                ("current", Some(false)),
                ("current", None),
            ] {
                // Each row uses its own namespace.
                let name = format!("ns{}", fixture.current());
                let [key_a, key_b] = ["a", "b"].map(|pod| format!("{name}/{pod}"));
                let before = fixture.current();
                let (a, b) = (fixture.put_pod(&key_a), fixture.put_pod(&key_b));
                let current = fixture.put_elsewhere();
                fixture.wait_until_fresh();
                let version = match version {
                    "before" => before.to_string(),
                    "current" => current.to_string(),
                    other => other.to_owned(),
                };
                let state = [format!("ADDED {key_a}@{a}"), format!("ADDED {key_b}@{b}")];
                let legacy = initial.is_none() && matches!(version.as_str(), "" | "0");
                let has_state = initial == Some(true) || legacy;
                let replays = !has_state && version == before.to_string();
                let expected = if has_state || replays {
                    &state[..]
                } else {
                    &[]
                };
                let options = from(&version)
                    .resource_version_match(initial.map_or("", |_| "NotOlderThan"))
                    .send_initial_events(initial)
                    .allow_bookmarks(bookmarks);
                let row = format!("{version:?} {initial:?} bookmarks {bookmarks}");
                let mut events = fixture.watch(store, &namespace(&name), &options);
                assert_eq!(events.words(expected.len()), expected, "{row}");
                if bookmarks && has_state {
                    // T-36: the revision of the store, which a write of another resource created.
                    assert_eq!(
                        events.word(),
                        format!("BOOKMARK@{} end", fixture.current()),
                        "{row}"
                    );
                }
                let next = fixture.put_pod(&key_a);
                let mut word = events.word();
                while word.starts_with("BOOKMARK") {
                    assert!(
                        !word.ends_with("end"),
                        "there is one such bookmark (WC-325)"
                    );
                    word = events.word();
                }
                assert_eq!(word, format!("MODIFIED {key_a}@{next}"), "{row}");
            }
        }
    });
}

#[test]
fn t_36_named_watch_lists_end_with_the_global_revision() {
    on_both(|fixture, store, _| {
        let a = fixture.put_pod("ns/a");
        fixture.put_pod("ns/b");
        let elsewhere = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        let options = select(WatchOptions::default(), "", "metadata.name=a")
            .resource_version_match("NotOlderThan")
            .send_initial_events(true)
            .allow_bookmarks(true);
        let mut events = fixture.watch(store, &Scope::All, &options);
        assert_eq!(
            events.words(2),
            [
                format!("ADDED ns/a@{a}"),
                format!("BOOKMARK@{elsewhere} end")
            ]
        );
    });
}
