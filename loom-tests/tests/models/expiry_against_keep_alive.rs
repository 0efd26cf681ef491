//! LE-9: operations on one lease are linearizable, also when its id is used again.
//!
//! Bound: 5 preemptions. The models have three threads with up to two calls each, and do not end
//! within minutes without a bound. With two threads they could not run a revocation with a new grant
//! beside a keep-alive and the expiry, or two keep-alives beside the expiry.

use std::time::Duration;

use loom::thread;
use loom_tests::run;
use revstore_engine::{Engine, Fault, LeaseError, LeaseId, ManualClock};
use revstore_verify::Options;

const ONE_SECOND: Duration = Duration::from_secs(1);

fn bound() -> Options {
    Options::new().preemptions(5)
}

/// Grants a lease of 5 s and advances the time by 1 s, so that a keep-alive changes the expiry.
fn grant(engine: &Engine, clock: &ManualClock) -> LeaseId {
    let id = engine.grant(LeaseId::new(1), 5).expect("a free id").id;
    clock.advance(ONE_SECOND);
    id
}

/// A keep-alive, the expiry, and a revocation with a new grant of the same id.
fn all_operations(engine: &Engine, clock: &ManualClock) {
    let id = grant(engine, clock);
    let keep_alive = {
        let engine = engine.clone();
        thread::spawn(move || engine.keep_alive(id))
    };
    let expire = {
        let clock = clock.clone();
        thread::spawn(move || clock.advance(4 * ONE_SECOND))
    };
    let revoked = engine.revoke(id);
    let granted = engine.grant(Some(id), 60);
    let renewed = keep_alive.join().expect("loom ends the model");
    expire.join().expect("loom ends the model");

    granted.expect("the lease was revoked or had expired");
    let lease = engine.lease(id, false).expect("the new lease was ended");
    assert_eq!(lease.granted_ttl, 60 * ONE_SECOND);
    match renewed {
        // The first lease, which then expires at 6 s or later.
        Ok(ttl) if ttl == 5 * ONE_SECOND => {
            revoked.expect("a renewed lease was ended");
        }
        Ok(ttl) => assert_eq!(ttl, 60 * ONE_SECOND),
        Err(error) => assert_eq!(error, LeaseError::NotFound),
    }
}

/// Two keep-alives and the expiry.
fn two_keep_alives(engine: &Engine, clock: &ManualClock) {
    let id = grant(engine, clock);
    let [one, other] = [engine, engine].map(|engine| {
        let engine = engine.clone();
        thread::spawn(move || engine.keep_alive(id).is_ok())
    });
    let expire = {
        let clock = clock.clone();
        thread::spawn(move || clock.advance(4 * ONE_SECOND))
    };
    let one = one.join().expect("loom ends the model");
    let other = other.join().expect("loom ends the model");
    expire.join().expect("loom ends the model");
    assert_eq!(one, other, "a lease was renewed after it had expired");
    assert_eq!(
        engine.lease(id, false).is_ok(),
        one,
        "a renewed lease was ended"
    );
}

#[test]
fn a_renewed_lease_and_a_new_lease_with_its_id_do_not_expire() {
    run(&bound(), None, all_operations);
}

#[test]
#[should_panic(expected = "was ended")]
fn expiry_without_a_second_look_is_detected() {
    run(&bound(), Some(Fault::ExpireUnchecked), all_operations);
}

#[test]
fn an_expired_lease_is_not_renewed() {
    run(&bound(), None, two_keep_alives);
}

#[test]
#[should_panic(expected = "a lease was renewed after it had expired")]
fn a_keep_alive_in_the_past_is_detected() {
    run(&bound(), Some(Fault::RenewInThePast), two_keep_alives);
}
