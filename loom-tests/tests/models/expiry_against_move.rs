//! LE-7: a key that is put with another lease while its own ends lives on, or dies before the put.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, LeaseId, Put};

fn model(engine: &Engine) {
    let [old, new] = [1, 2].map(|id| engine.grant(LeaseId::new(id), 60).expect("a free id").id);
    engine
        .put_with(&Put::new("k", "1").attached_to(old))
        .expect("the lease exists");
    let shift = move |engine: &Engine| {
        engine
            .put_with(&Put::new("k", "2").attached_to(new))
            .expect("the lease exists");
    };
    let revoke = move |engine: &Engine| {
        engine.revoke(old).expect("the lease exists");
    };
    race(engine, shift, revoke);
    let found = engine
        .get("k")
        .expect("the key of another lease was deleted");
    assert_eq!(found.lease(), Some(new));
    let attached = engine.lease(new, true).expect("the lease exists").keys;
    assert_eq!(attached, ["k"]);
}

#[test]
fn a_moved_key_survives_its_old_lease() {
    run_model(model);
}

#[test]
#[should_panic(expected = "the key of another lease was deleted")]
fn taking_the_keys_before_the_sequencer_is_found() {
    run_broken(Fault::RevokeEarly, model);
}
