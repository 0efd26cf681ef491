//! A consistency check of a store: reads all keys, events and leases in several ways and compares
//! them.

use std::collections::BTreeMap;

use bytes::Bytes;
use revstore_engine::{
    Engine, KeyRange, KeyValue, LeaseId, Range, Revision, WatchOptions, WatchResponse,
};

/// The maximum number of revisions that are read as a whole, from the oldest on. A script creates
/// fewer revisions.
const REVISIONS_READ_MAX: usize = 100;

/// The key-value pairs at one revision, by key.
type Pairs = BTreeMap<Bytes, KeyValue>;

/// Checks a store that has no concurrent writers.
pub(crate) fn check(engine: &Engine) {
    let current = engine.current_revision();
    let oldest = engine
        .compacted_revision()
        .unwrap_or(Revision::FIRST)
        .max(Revision::FIRST);
    check_keys(engine, &at(engine, current));
    // The events, applied to the pairs at the oldest readable revision, give the pairs at every
    // later revision.
    let mut pairs = at(engine, oldest);
    let mut revisions = BTreeMap::<Revision, Vec<KeyValue>>::new();
    for event in events(engine, oldest.next()) {
        revisions
            .entry(event.mod_revision())
            .or_default()
            .push(event);
    }
    for (step, (revision, events)) in revisions.into_iter().enumerate() {
        assert_eq!(
            revision.0,
            oldest.0 + 1 + i64::try_from(step).unwrap(),
            "I1"
        );
        for (sub, event) in events.into_iter().enumerate() {
            assert_eq!(event.position().sub as usize, sub, "I1");
            let key = event.key_bytes();
            let previous = pairs.remove(&key);
            if event.is_tombstone() {
                assert!(previous.is_some(), "a deletion of an absent key: {event:?}");
                continue;
            }
            let (created, version) = previous.map_or((revision, 0), |previous| {
                (previous.create_revision(), previous.version())
            });
            assert_eq!(
                (event.create_revision(), event.version()),
                (created, version + 1),
                "DM-3"
            );
            pairs.insert(key, event);
        }
        if step < REVISIONS_READ_MAX {
            assert_eq!(pairs, at(engine, revision), "at {revision}");
        }
    }
    assert_eq!(pairs, at(engine, current), "the pairs after all events");
    check_accepts_writes(engine);
}

/// Returns all pairs at `revision`.
fn at(engine: &Engine, revision: Revision) -> Pairs {
    let all = Range::of(KeyRange::all()).at(revision);
    let found = engine.range(&all).unwrap();
    assert!(
        found.kvs.is_sorted_by(|a, b| a.key() < b.key()),
        "{found:?}"
    );
    assert_eq!(found.count, found.kvs.len());
    let counted = engine.range(&all.count_only()).unwrap();
    assert_eq!(counted.count, found.kvs.len());
    found
        .kvs
        .into_iter()
        .map(|kv| (kv.key_bytes(), kv))
        .collect()
}

/// Returns all events from revision `from` on.
fn events(engine: &Engine, from: Revision) -> Vec<KeyValue> {
    let mut stream = engine.watch_stream();
    stream
        .watch(WatchOptions::of(KeyRange::all()).from(from))
        .unwrap();
    let mut received = Vec::new();
    while let Some(response) = stream.try_next() {
        match response {
            WatchResponse::Events { events, .. } => {
                received.extend(events.iter().map(|event| event.kv.clone()));
            }
            other => panic!("expected events, got {other:?}"),
        }
    }
    assert!(
        received.is_sorted_by(|a, b| a.position() < b.position()),
        "I5"
    );
    received
}

/// Checks that each pair is found by its key, and each attached key by its lease.
fn check_keys(engine: &Engine, pairs: &Pairs) {
    let mut attached = BTreeMap::<LeaseId, Vec<Bytes>>::new();
    for (key, kv) in pairs {
        assert!(!key.is_empty(), "DM-9");
        assert_eq!(engine.get(key).as_ref(), Some(kv));
        if let Some(lease) = kv.lease() {
            attached.entry(lease).or_default().push(key.clone());
        }
    }
    for lease in engine.leases() {
        let status = engine.lease(lease, true).unwrap();
        assert_eq!(
            status.keys,
            attached.remove(&lease).unwrap_or_default(),
            "{lease}"
        );
    }
    assert_eq!(
        attached,
        BTreeMap::new(),
        "keys attached to leases that do not exist"
    );
}

/// Checks that the store accepts a write and returns it.
fn check_accepts_writes(engine: &Engine) {
    let before = engine.current_revision();
    let after = engine.put("\u{10ffff}", "").unwrap().revision;
    assert_eq!(after, before.next(), "I1");
    assert_eq!(engine.get("\u{10ffff}").unwrap().mod_revision(), after);
}
