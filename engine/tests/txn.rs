//! Transactions of embedders: compares of one key, and the place of an operation that fails.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use revstore_engine::{
    Branch, Compare, Engine, KeyRange, LeaseId, Op, Put, PutError, Range, ReadError, Relation,
    Revision, Txn, TxnError,
};

fn holds(engine: &Engine, compare: Compare) -> bool {
    engine.txn(&Txn::new().when([compare])).unwrap().succeeded
}

#[test]
fn compares_of_one_key() {
    let engine = Engine::builder().build();
    let lease = engine.grant(LeaseId::new(7), 60).unwrap().id;
    let created = engine.put("k", "1").unwrap().revision;
    let put = Put::new("k", "2").attached_to(lease);
    let modified = engine.put_with(&put).unwrap().revision;
    let none = Revision(0);
    for (compare, of_live, of_absent) in [
        (Compare::absent as fn(&'static str) -> Compare, false, true),
        (Compare::exists, true, false),
        (|key| Compare::version(key, 2), true, false),
        (|key| Compare::version(key, 0), false, true),
        (|key| Compare::value(key, "2"), true, false),
        (|key| Compare::value(key, ""), false, false),
        (
            |key| Compare::value(key, "").with_relation(Relation::NotEqual),
            true,
            false,
        ),
        (|key| Compare::lease(key, LeaseId::new(7)), true, false),
        (|key| Compare::lease(key, None), false, true),
    ] {
        assert_eq!(holds(&engine, compare("k")), of_live);
        assert_eq!(holds(&engine, compare("absent")), of_absent);
    }
    assert!(holds(&engine, Compare::create_revision("k", created)));
    assert!(holds(&engine, Compare::mod_revision("k", modified)));
    assert!(!holds(&engine, Compare::mod_revision("k", created)));
    assert!(holds(&engine, Compare::mod_revision("absent", none)));
    let later = Compare::mod_revision("k", created).with_relation(Relation::Greater);
    assert!(holds(&engine, later));
    assert!(holds(&engine, Compare::lease("k", lease)));
}

/// Checks the place of the operation that fails, and that it is that operation.
fn check(engine: &Engine, txn: &Txn, place: &str, failing: &Op) {
    let before = engine.current_revision();
    let error = engine.txn(txn).unwrap_err();
    let (TxnError::Put { op, .. } | TxnError::Read { op, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(op.to_string(), place);
    assert_eq!(txn.op(op), Some(failing));
    assert!(
        error
            .to_string()
            .starts_with(&format!("operation {place}: "))
    );
    assert_eq!(engine.current_revision(), before, "nothing is changed");
}

#[test]
fn an_error_has_the_place_of_its_operation() {
    let engine = Engine::builder().build();
    let good = || Op::Put(Put::new("a", "1"));
    let all_but = |failing: &Op| [good(), good(), failing.clone(), good()];
    let no_lease = LeaseId::new(99).unwrap();
    let failing = [
        // Found before the branch is chosen, and when it is.
        Op::Put(Put::new("", "1")),
        Op::Put(Put::keeping_value("absent")),
        Op::Put(Put::new("k", "1").attached_to(no_lease)),
        Op::Range(Range::of(KeyRange::all()).at(Revision(99))),
    ];
    for failing in &failing {
        let txn = Txn::new().and_then(all_but(failing));
        check(&engine, &txn, "success[2]", failing);
        let other = Txn::new()
            .when([Compare::exists("absent")])
            .or_else(all_but(failing));
        check(&engine, &other, "failure[2]", failing);
        let nested = Txn::new().and_then([good(), Op::Txn(other)]);
        check(&engine, &nested, "success[1].failure[2]", failing);
        let deep = Txn::new().and_then([Op::Txn(nested)]);
        check(&engine, &deep, "success[0].success[1].failure[2]", failing);
    }
    // The first failing write, also if a range before it fails too.
    let txn = Txn::new().and_then([
        failing[3].clone(),
        Op::Txn(Txn::new().and_then(all_but(&failing[1]))),
    ]);
    check(&engine, &txn, "success[1].success[2]", &failing[1]);
    // A branch that does not run is not checked, except for what no state of the store allows.
    let txn = Txn::new().or_else(all_but(&failing[1]));
    assert!(engine.txn(&txn).unwrap().succeeded);
    let txn = Txn::new().or_else(all_but(&failing[0]));
    check(&engine, &txn, "failure[2]", &failing[0]);
}

#[test]
fn the_errors_contain_the_facts() {
    let engine = Engine::builder().build();
    let range = Op::Range(Range::of(KeyRange::all()).at(Revision(99)));
    let error = engine.txn(&Txn::new().and_then([range])).unwrap_err();
    let TxnError::Read { op, error } = error else {
        panic!("{error}")
    };
    assert_eq!(op.levels(), [(Branch::Success, 0)]);
    let future = ReadError::Future {
        requested: Revision(99),
        current: Revision(1),
    };
    assert_eq!(error, future);
    // A place that does not exist, and a place inside an operation that is not a transaction.
    let flat = Txn::new().and_then([Op::Put(Put::new("a", "1"))]);
    assert_eq!(Txn::new().op(&op), None);
    let inner = Txn::new().and_then([Op::Txn(Txn::new().and_then([Op::Put(Put::new("", ""))]))]);
    let TxnError::Put { op, error } = engine.txn(&inner).unwrap_err() else {
        panic!("the put fails")
    };
    assert_eq!((flat.op(&op), error), (None, PutError::EmptyKey));
}
