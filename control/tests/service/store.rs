//! Copies of the store and its replacement.

use std::time::Duration;

use http::StatusCode;
use revstore_control::store::FORKS_MAX;
use revstore_engine::{LeaseId, Put, Revision};
use serde_json::json;
use tonic::Code;

use super::fixture::{Fixture, ReplaceableNode, post};

#[tokio::test]
async fn the_store_is_compacted() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    for value in ["a", "b", "c"] {
        engine.put("key", value).unwrap();
    }
    let compacted = fixture.ok("StoreCompact", json!({"revision": 3})).await;
    assert_eq!(
        compacted,
        json!({"revision": 4, "time": "0s", "compacted": 3})
    );
    assert_eq!(fixture.ok("StoreCompact", json!({})).await["compacted"], 4);
    assert_eq!(engine.compacted_revision(), Some(Revision(4)));
    for revision in [4, 5, 100] {
        let (_, code, _) = fixture
            .refused("StoreCompact", json!({"revision": revision}))
            .await;
        assert_eq!(code, Code::OutOfRange);
    }
}

#[tokio::test]
async fn checkpoints_keep_keys_leases_and_the_state_of_the_node() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let lease = engine.grant(LeaseId::new(7), 60).unwrap().id;
    engine
        .put_with(&Put::new("session", "").attached_to(lease))
        .unwrap();
    *fixture.target.state.lock() = "users".to_owned();
    fixture.control.advance(Duration::from_secs(20)).unwrap();
    let kept = fixture.ok("StoreCheckpoint", json!({"name": "a"})).await;
    let expected = json!({"revision": 2, "time": "20s", "name": "a", "checkpoint": 2});
    assert_eq!(kept, expected);
    engine.put("later", "").unwrap();
    "other users".clone_into(&mut fixture.target.state.lock());
    // The time that the lease has left in the checkpoint does not pass.
    fixture.control.advance(Duration::from_secs(100)).unwrap();
    assert!(engine.get("session").is_none());
    for round in 0..2 {
        let restored = fixture.ok("StoreRestore", json!({"name": "a"})).await;
        assert_eq!(restored["revision"], 2, "{round}");
        let engine = fixture.control.engine();
        assert!(engine.get("session").is_some() && engine.get("later").is_none());
        assert_eq!(*fixture.target.state.lock(), "users");
        let (leases, _) = fixture.control.leases(10);
        assert_eq!(leases[0].status.remaining, Duration::from_secs(40));
        fixture.control.advance(Duration::from_secs(40)).unwrap();
        assert!(
            engine.get("session").is_none(),
            "the restored lease expires by the clock"
        );
    }
    let bumped = json!({"name": "a", "bump_revision": 1_000, "mark_compacted": true});
    assert_eq!(fixture.ok("StoreRestore", bumped).await["revision"], 1_002);
    assert_eq!(
        fixture.control.engine().compacted_revision(),
        Some(Revision(1_002))
    );
    for (body, expected) in [
        (json!({"name": "b"}), Code::NotFound),
        (
            json!({"name": "a", "bump_revision": -1}),
            Code::InvalidArgument,
        ),
        (
            json!({"name": "a", "bump_revision": i64::MAX}),
            Code::OutOfRange,
        ),
    ] {
        let (_, code, text) = fixture.refused("StoreRestore", body).await;
        assert_eq!(code, expected, "{text}");
    }
    assert_eq!(
        fixture.control.point().revision,
        Revision(1_002),
        "nothing was changed"
    );
    fixture.ok("StoreDrop", json!({"id": "a"})).await;
    let (_, code, _) = fixture.refused("StoreRestore", json!({"name": "a"})).await;
    assert_eq!(code, Code::NotFound);
}

#[tokio::test]
async fn checkpoints_beyond_the_memory_limit_are_refused() {
    let fixture = Fixture::new();
    let value = "x".repeat(4_000);
    fixture.control.engine().put("key", value).unwrap();
    for name in ["a", "b", "a"] {
        fixture.ok("StoreCheckpoint", json!({"name": name})).await;
    }
    let (status, code, text) = fixture
        .refused("StoreCheckpoint", json!({"name": "c"}))
        .await;
    assert_eq!(
        (status, code),
        (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted)
    );
    assert!(
        text.ends_with("and --control-memory-limit is 10000"),
        "{text}"
    );
    fixture.ok("StoreDrop", json!({"id": "a"})).await;
    fixture.ok("StoreCheckpoint", json!({"name": "c"})).await;
    for name in ["", &"x".repeat(300)] {
        let (_, code, _) = fixture
            .refused("StoreCheckpoint", json!({"name": name}))
            .await;
        assert_eq!(code, Code::InvalidArgument);
    }
}

#[tokio::test]
async fn the_store_is_reset_and_jumps() {
    let fixture = Fixture::new();
    fixture.control.engine().put("key", "").unwrap();
    "users".clone_into(&mut fixture.target.state.lock());
    assert_eq!(
        fixture.ok("StoreJump", json!({"revision": 100})).await["revision"],
        99
    );
    let engine = fixture.control.engine();
    assert_eq!(*fixture.target.state.lock(), "users");
    assert_eq!(engine.put("other", "").unwrap().revision, Revision(100));
    assert!(engine.get("key").is_some());
    for revision in [1, 100, 101] {
        let (_, code, _) = fixture
            .refused("StoreJump", json!({"revision": revision}))
            .await;
        assert_eq!(code, Code::OutOfRange, "{revision}");
    }
    let (_, code, _) = fixture.refused("StoreJump", json!({"revision": 0})).await;
    assert_eq!(code, Code::InvalidArgument);
    let (_, code, _) = fixture
        .refused("StoreJump", json!({"revision": i64::MAX}))
        .await;
    assert_eq!(code, Code::OutOfRange);
    let reset = fixture
        .ok("StoreReset", json!({"keep_revision": true}))
        .await;
    assert_eq!(reset["revision"], 100);
    let engine = fixture.control.engine();
    assert_eq!(engine.compacted_revision(), Some(Revision(100)));
    assert_eq!(engine.stats().live_keys, 0);
    assert_eq!(*fixture.target.state.lock(), "");
    assert_eq!(fixture.ok("StoreReset", json!({})).await["revision"], 1);
}

/// A replacement while a copy is made is after it: no copy has the keys of one node and the users of another one.
#[tokio::test]
async fn a_copy_is_of_one_node() {
    let fixture = Fixture::new();
    let node = |name: &str| {
        let engine = fixture.control.engine().to_builder().build();
        engine.put(name.to_owned(), "").unwrap();
        let state = name.to_owned();
        ReplaceableNode { engine, state }
    };
    let replace_during = |old: &str| {
        let ReplaceableNode { engine, state } = node(old);
        *fixture.target.engine.lock() = engine;
        *fixture.target.state.lock() = state;
        *fixture.target.next.lock() = Some(node("new"));
    };
    let check_current = |name: &str| {
        assert!(fixture.control.engine().get(name).is_some(), "{name}");
        assert_eq!(*fixture.target.state.lock(), name);
    };
    replace_during("kept");
    fixture.ok("StoreCheckpoint", json!({"name": "a"})).await;
    check_current("new");
    fixture.ok("StoreRestore", json!({"name": "a"})).await;
    check_current("kept");
    replace_during("forked");
    fixture.ok("StoreFork", json!({})).await;
    check_current("new");
    let fork = fixture.target.last_fork.lock().clone().unwrap();
    assert!(fork.engine.get("forked").is_some());
    let state = fork.node.unwrap().downcast::<String>().unwrap();
    assert_eq!(*state, "forked");
    replace_during("dumped");
    let (_, dump) = fixture.send(post("StoreDump", "{}")).await;
    assert_eq!(dump, "Text\ndumped\ndumped=\n");
    check_current("new");
}

#[tokio::test]
async fn a_fork_has_the_revision_at_which_it_was_taken() {
    let fixture = Fixture::new();
    fixture.control.engine().put("key", "").unwrap();
    *fixture.target.write_during_fork.lock() = Some("later");
    let fork = fixture.ok("StoreFork", json!({})).await;
    assert_eq!(fork["endpoint"], "http://revision-2");
    assert_eq!(fork["revision"], 2);
    assert_eq!(fixture.control.point().revision, Revision(3));
}

#[tokio::test]
async fn forks_are_listed_bounded_and_dropped() {
    let fixture = Fixture::new();
    fixture.control.engine().put("key", "").unwrap();
    fixture.control.advance(Duration::from_secs(5)).unwrap();
    let fork = fixture.ok("StoreFork", json!({})).await;
    let expected = json!({
        "revision": 2, "time": "5s", "id": "fork-1",
        "endpoint": "http://revision-2", "control": "http://manual-5", "kubeconfig": "",
        "etcd_endpoints": [],
    });
    assert_eq!(fork, expected);
    for _ in 1..FORKS_MAX {
        fixture.control.fork().unwrap();
    }
    let (_, code, _) = fixture.refused("StoreFork", json!({})).await;
    assert_eq!(code, Code::ResourceExhausted);
    fixture.ok("StoreDrop", json!({"id": "fork-1"})).await;
    let (_, code, text) = fixture.refused("StoreDrop", json!({"id": "fork-1"})).await;
    assert_eq!(
        (code, &*text),
        (
            Code::NotFound,
            "there is no fork and no checkpoint \"fork-1\""
        )
    );
    let listed = fixture.ok("StoreForks", json!({})).await;
    assert_eq!(listed["forks"].as_array().unwrap().len(), FORKS_MAX - 1);
    assert_eq!(listed["forks"][0]["id"], "fork-2");
}
