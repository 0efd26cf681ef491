//! LE-7: a key that is attached to another lease while its old one is revoked is live afterwards.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, LeaseId, Put};

fn model(engine: &Engine) {
    let [old, new] = [1, 2].map(|id| engine.grant(LeaseId::new(id), 60).expect("a free id").id);
    engine
        .put_with(&Put::new("k", "1").attached_to(old))
        .expect("the lease exists");
    let attach = move |engine: &Engine| {
        engine
            .put_with(&Put::new("k", "2").attached_to(new))
            .expect("the lease exists");
    };
    let revoke = move |engine: &Engine| {
        engine.revoke(old).expect("the lease exists");
    };
    race(engine, attach, revoke);
    let found = engine
        .get("k")
        .expect("the key of another lease was deleted");
    assert_eq!(found.lease(), Some(new));
    let attached = engine.lease(new, true).expect("the lease exists").keys;
    assert_eq!(attached, ["k"]);
}

#[test]
fn a_key_of_a_new_lease_is_not_deleted_with_its_old_one() {
    run_model(model);
}

#[test]
#[should_panic(expected = "the key of another lease was deleted")]
fn releasing_the_sequencer_during_a_revocation_is_detected() {
    run_broken(Fault::RevokeOutsideSequencer, model);
}
