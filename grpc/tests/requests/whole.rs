//! Whether a store is whole: everything is read back, in every way there is, and compared.

use std::collections::BTreeMap;

use bytes::Bytes;
use revstore_engine::{
    Engine, KeyRange, KeyValue, LeaseId, Range, Revision, WatchOptions, WatchResponse,
};

/// Revisions that are read one by one, the oldest; a script makes fewer.
const REVISIONS_MAX: usize = 100;

type Keys = BTreeMap<Bytes, KeyValue>;

/// Judges a store that nobody changes meanwhile.
pub(crate) fn check(engine: &Engine) {
    let current = engine.current_revision();
    let oldest = engine
        .compacted_revision()
        .unwrap_or(Revision::FIRST)
        .max(Revision::FIRST);
    check_keys(engine, &at(engine, current));
    // From the oldest state that can be read, events lead to every later one.
    let mut keys = at(engine, oldest);
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
            let before = keys.remove(&key);
            if event.is_tombstone() {
                assert!(before.is_some(), "a deletion of nothing: {event:?}");
                continue;
            }
            let (created, version) = before.map_or((revision, 0), |before| {
                (before.create_revision(), before.version())
            });
            assert_eq!(
                (event.create_revision(), event.version()),
                (created, version + 1),
                "DM-3"
            );
            keys.insert(key, event);
        }
        if step < REVISIONS_MAX {
            assert_eq!(keys, at(engine, revision), "at {revision}");
        }
    }
    assert_eq!(keys, at(engine, current), "what the events lead to");
    check_goes_on(engine);
}

/// All keys as of a revision.
fn at(engine: &Engine, revision: Revision) -> Keys {
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

/// All changes from a revision on.
fn events(engine: &Engine, from: Revision) -> Vec<KeyValue> {
    let mut stream = engine.watch_stream();
    stream
        .watch(WatchOptions::of(KeyRange::all()).from(from))
        .unwrap();
    let mut told = Vec::new();
    while let Some(response) = stream.try_next() {
        match response {
            WatchResponse::Events { events, .. } => {
                told.extend(events.iter().map(|event| event.kv.clone()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(told.is_sorted_by(|a, b| a.position() < b.position()), "I5");
    told
}

/// Each key is found by itself, and by the lease that it is attached to.
fn check_keys(engine: &Engine, keys: &Keys) {
    let mut attached = BTreeMap::<LeaseId, Vec<Bytes>>::new();
    for (key, kv) in keys {
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
    assert_eq!(attached, BTreeMap::new(), "keys of leases that have ended");
}

/// The store still takes a write, and gives it back.
fn check_goes_on(engine: &Engine) {
    let before = engine.current_revision();
    let after = engine.put("\u{10ffff}", "").unwrap().revision;
    assert_eq!(after, before.next(), "I1");
    assert_eq!(engine.get("\u{10ffff}").unwrap().mod_revision(), after);
}
