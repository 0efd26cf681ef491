//! The serialized forms of keys, revisions and events, in JSON and in a binary format.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Debug;

use proptest::prelude::*;
use revstore_engine::{
    Engine, Event, Events, KeyRange, KeyValue, LeaseId, Op, Position, Put, Revision, Txn,
    WatchBatch, WatchId, WatchOptions,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Serializes and deserializes a value in both formats.
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value, "{json}");
    let mut binary = Vec::new();
    ciborium::into_writer(value, &mut binary).unwrap();
    let read: T = ciborium::from_reader(&binary[..]).unwrap();
    assert_eq!(&read, value);
}

fn check_json<T: Serialize + DeserializeOwned + PartialEq + Debug>(
    value: &T,
    expected: impl Into<Value>,
) {
    check(value);
    assert_eq!(serde_json::to_value(value).unwrap(), expected.into());
}

#[test]
fn numbers_are_numbers_and_bytes_are_base64_in_json() {
    check_json(&Revision(7), json!(7));
    check_json(&Revision(-1), json!(-1));
    let position = Position {
        revision: Revision(7),
        sub: u32::MAX,
    };
    check_json(&position, json!({"revision": 7, "sub": u32::MAX}));
    check_json(&LeaseId::new(i64::MIN).unwrap(), json!(i64::MIN));
    check_json(&WatchId(-1), json!(-1));
    check_json(&KeyRange::one("key"), json!({"one": "a2V5"}));
    check_json(&KeyRange::all(), json!({"from": ""}));
    check_json(
        &KeyRange::prefix(&b"a\xff"[..]),
        json!({"within": {"start": "Yf8=", "end": "Yg=="}}),
    );
}

#[test]
fn events_contain_the_versions_of_their_keys() {
    let engine = Engine::builder().build();
    let lease = engine.grant(LeaseId::new(9), 60).unwrap().id;
    let options = WatchOptions::of(KeyRange::all()).with_prev_kv();
    let mut watcher = engine.watch(options).unwrap();
    engine.put("color", "red").unwrap();
    engine
        .put_with(&Put::new("color", "").attached_to(lease))
        .unwrap();
    let other = Op::Put(Put::new("other", vec![0, 255]));
    let delete = Op::Delete(KeyRange::one("color"));
    engine.txn(&Txn::new().and_then([other, delete])).unwrap();

    let first = watcher.try_next().unwrap().unwrap();
    let red = json!({
        "key": "Y29sb3I=", "create_revision": 2, "mod_revision": 2, "sub": 0, "version": 1,
        "lease": null, "value": "cmVk",
    });
    check_json(
        &first,
        json!({"revision": 2, "events": [{"kv": red, "prev_kv": null}]}),
    );
    let second = watcher.try_next().unwrap().unwrap();
    let empty = json!({
        "key": "Y29sb3I=", "create_revision": 2, "mod_revision": 3, "sub": 0, "version": 2,
        "lease": 9, "value": "",
    });
    check_json(&second.events, json!([{"kv": empty, "prev_kv": red}]));
    let third = watcher.try_next().unwrap().unwrap();
    check(&third);
    let tombstone = json!({
        "key": "Y29sb3I=", "create_revision": 0, "mod_revision": 4, "sub": 1, "version": 0,
        "lease": null, "value": null,
    });
    check_json(&third.events[1].kv, tombstone);
    assert!(third.events[1].kv.is_tombstone());
    check(&WatchBatch {
        revision: Revision(4),
        events: Events::default(),
    });
}

/// A version of the engine, changed by one field.
fn changed(field: &str, value: Value) -> Result<KeyValue, serde_json::Error> {
    let engine = Engine::builder().build();
    engine.put("k", "1").unwrap();
    engine.put("k", "2").unwrap();
    let mut form = serde_json::to_value(engine.get("k").unwrap()).unwrap();
    form[field] = value;
    serde_json::from_value(form)
}

#[test]
fn forms_that_no_store_writes_are_refused() {
    assert!(changed("sub", json!(3)).is_ok());
    assert!(changed("lease", json!(-3)).is_ok());
    assert!(changed("version", json!(i64::MAX)).is_ok());
    for (field, value) in [
        ("key", json!("")),
        ("key", json!("a2V")),
        ("key", json!("a2V5\n")),
        ("key", json!([107])),
        ("value", json!("%")),
        ("value", json!(null)),
        ("mod_revision", json!(0)),
        ("mod_revision", json!(i64::MAX)),
        ("create_revision", json!(0)),
        ("create_revision", json!(4)),
        ("version", json!(0)),
        ("version", json!(-1)),
        ("lease", json!(0)),
        ("sub", json!(-1)),
    ] {
        let error = changed(field, value.clone());
        assert!(error.is_err(), "{field}: {value}");
    }
    let missing: Result<KeyValue, _> = serde_json::from_value(json!({"key": "aw=="}));
    assert!(missing.is_err());
    let range: Result<KeyRange, _> = serde_json::from_value(json!({"one": "aw==", "from": "aw=="}));
    assert!(range.is_err());
    // A sequence that claims to be long, and ends.
    let claimed = [
        0xa1, 0x63, b'o', b'n', b'e', 0x9b, 0, 0, 0xff, 0, 0, 0, 0, 0,
    ];
    assert!(ciborium::from_reader::<KeyRange, _>(&claimed[..]).is_err());
}

proptest! {
    #[test]
    fn versions_of_any_shape_return_unchanged(
        key in prop::collection::vec(any::<u8>(), 1..40),
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4),
        lease in prop::option::of(any::<i64>()),
        later in any::<bool>(),
    ) {
        let engine = Engine::builder().build();
        let lease = lease.and_then(LeaseId::new);
        if lease.is_some() {
            engine.grant(lease, 60).unwrap();
        }
        for value in values {
            let mut put = Put::new(key.clone(), value);
            if let Some(lease) = lease {
                put = put.attached_to(lease);
            }
            let before = later.then(|| Op::Put(Put::new("before", "")));
            engine.txn(&Txn::new().and_then(before.into_iter().chain([Op::Put(put)]))).unwrap();
        }
        engine.delete(&KeyRange::one(key.clone())).unwrap();
        for kv in engine.history(key.clone()) {
            check(&kv);
        }
        let events: Vec<Event> = engine.changes(..).unwrap().map(Result::unwrap).collect();
        check(&Events::from(events));
        check(&KeyRange::prefix(key));
    }
}
