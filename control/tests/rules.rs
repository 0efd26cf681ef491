//! Properties of the rules of faults.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::collection::vec;
use proptest::prelude::*;
use revstore_control::call::{Call, Method, MethodKind};
use revstore_control::fault::{
    Action, Failure, KeySelector, Preset, RULES_MAX, Rule, RuleError, RuleId, Rules, Selector,
    Trigger,
};
use revstore_engine::KeyRange;
use tonic::Code;

const METHODS: [Method; 4] = [
    Method {
        name: "etcdserverpb.KV/Put",
        kind: MethodKind::Keys,
    },
    Method {
        name: "etcdserverpb.KV/Range",
        kind: MethodKind::Keys,
    },
    Method {
        name: "etcdserverpb.Watch/Watch",
        kind: MethodKind::Watch,
    },
    Method {
        name: "etcdserverpb.Lease/LeaseKeepAlive",
        kind: MethodKind::KeepAlive,
    },
];

fn triggers() -> impl Strategy<Value = Trigger> {
    prop_oneof![
        Just(Trigger::Always),
        (1..5_u64).prop_map(Trigger::Next),
        (1..5_u64).prop_map(Trigger::Every),
        (0.01..=1.0, any::<u64>())
            .prop_map(|(probability, seed)| Trigger::Probability { probability, seed }),
        (0..20_i64, 0..20_i64).prop_map(|(from, length)| Trigger::Revisions {
            from: Some(from),
            to: Some(from + length)
        }),
    ]
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Preset(Preset::NoLeader)),
        Just(Action::Reset),
        (1..9_u64).prop_map(|seconds| Action::Delay {
            time: std::time::Duration::from_secs(seconds),
            wall: false
        }),
    ]
}

fn rules() -> impl Strategy<Value = Rule> {
    let methods = prop_oneof![
        Just(Vec::new()),
        Just(vec!["Put".to_owned()]),
        Just(vec!["Range".to_owned(), "KV/Put".to_owned()]),
    ];
    let keys = prop_oneof![
        Just(None),
        Just(Some(KeySelector::Prefix("a".into()))),
        Just(Some(KeySelector::Range("b".into(), "d".into()))),
    ];
    (methods, keys, triggers(), actions()).prop_map(|(methods, keys, trigger, action)| Rule {
        selector: Selector {
            methods,
            keys,
            ..Selector::default()
        },
        trigger,
        action,
    })
}

/// A request of a test: its method, its key, and the revision at which it arrives.
type Request = (usize, &'static str, i64);

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let key = prop::sample::select(vec!["a", "ab", "b", "c", "d"]);
    vec((0..2_usize, key, 0..40_i64), 0..60)
}

/// What a rule does, without an index and by its definition.
struct Model {
    rule: Rule,
    selected: u64,
    fired: u64,
    random: fastrand::Rng,
}

impl Model {
    fn new(rule: &Rule) -> Self {
        let seed = match rule.trigger {
            Trigger::Probability { seed, .. } => seed,
            _ => 0,
        };
        Self {
            rule: rule.clone(),
            selected: 0,
            fired: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn fires(&mut self, (method, key, revision): Request) -> bool {
        let selector = &self.rule.selector;
        let name = METHODS[method].name;
        let is_selected = (selector.methods.is_empty()
            || selector.methods.iter().any(|it| name.ends_with(&**it)))
            && match &selector.keys {
                None => true,
                Some(keys) => keys.to_range().contains(key.as_bytes()),
            };
        if !is_selected {
            return false;
        }
        self.selected += 1;
        let fires = match self.rule.trigger {
            Trigger::Always => true,
            Trigger::Next(count) => self.fired < count,
            Trigger::Every(number) => self.selected.is_multiple_of(number),
            Trigger::Probability { probability, .. } => self.random.f64() < probability,
            Trigger::Revisions { from, to } => from.unwrap() <= revision && revision <= to.unwrap(),
        };
        self.fired += u64::from(fires);
        fires
    }
}

proptest! {
    #[test]
    fn the_first_rule_that_fires_decides_and_delays_add_up(
        added in vec(rules(), 0..12),
        requests in requests(),
    ) {
        let table = Rules::new(&METHODS);
        let mut models: Vec<_> = added.iter().map(Model::new).collect();
        for rule in &added {
            table.add(rule.clone()).unwrap();
        }
        for request in requests {
            let (mut delays, mut action) = (Vec::new(), None);
            for model in &mut models {
                if !model.fires(request) {
                    continue;
                }
                if let Action::Delay { time, .. } = model.rule.action {
                    delays.push(time);
                } else {
                    action = Some(model.rule.action.clone());
                    break;
                }
            }
            let keys = [KeyRange::one(request.1)];
            let call = Call {
                method: Some(request.0),
                keys: &keys,
                revision: request.2,
                ..Call::default()
            };
            let decision = table.decide(&call);
            let decided: Vec<_> = decision.delays.iter().map(|it| it.time).collect();
            prop_assert_eq!(decided, delays);
            prop_assert_eq!(decision.action.map(|(_, action)| action), action);
        }
        let fired: Vec<_> = table.list().iter().map(|it| it.fired).collect();
        let expected: Vec<_> = models.iter().map(|it| it.fired).collect();
        prop_assert_eq!(fired, expected);
    }
}

fn rule(method: &str, action: Action) -> Rule {
    Rule {
        selector: Selector {
            methods: vec![method.to_owned()],
            ..Selector::default()
        },
        trigger: Trigger::Always,
        action,
    }
}

#[test]
fn impossible_rules_are_refused_and_change_nothing() {
    let table = Rules::new(&METHODS);
    let preset = || Action::Preset(Preset::NoLeader);
    let with_keys = |method: &str, keys| {
        let mut rule = rule(method, preset());
        rule.selector.keys = Some(keys);
        rule
    };
    let with_trigger = |trigger| Rule {
        trigger,
        ..rule("Put", preset())
    };
    let mut refuse = rule("Put", Action::Refuse);
    refuse.selector = Selector {
        client: Some("x".to_owned()),
        ..Selector::default()
    };
    let probability = |probability| {
        with_trigger(Trigger::Probability {
            probability,
            seed: 1,
        })
    };
    let failure = |code, text: String| Action::Error(Failure::new(code, text));
    let empty = KeySelector::Range("b".into(), "a".into());
    let refused = [
        rule("Nope", preset()),
        rule("", preset()),
        rule("ut", preset()),
        with_keys("Put", empty),
        with_keys("LeaseKeepAlive", KeySelector::Prefix("a".into())),
        with_trigger(Trigger::Next(0)),
        with_trigger(Trigger::Every(0)),
        with_trigger(Trigger::Revisions {
            from: Some(2),
            to: Some(1),
        }),
        probability(0.0),
        probability(1.1),
        probability(f64::NAN),
        rule("Put", Action::Hold),
        rule("Put", Action::Cut),
        rule("Put", Action::CancelCompacted),
        rule("Put", Action::LoseKeepAlive),
        rule("Put", Action::Stale { revision: None }),
        refuse,
        rule("Put", failure(Code::Ok, String::new())),
        rule("Put", failure(Code::Aborted, "x".repeat(5_000))),
    ];
    for rule in refused {
        let error = table.add(rule.clone()).unwrap_err();
        assert!(!error.to_string().contains('\n'), "{rule}: {error}");
        assert!(table.is_empty(), "{rule}");
    }
    assert_eq!(
        table.clear(Some(RuleId(1))),
        Err(RuleError::NotFound(RuleId(1)))
    );
}

#[test]
fn there_is_a_maximum_of_rules_and_removed_ones_make_room() {
    let table = Rules::new(&METHODS);
    for _ in 0..RULES_MAX {
        table.add(rule("Put", Action::Reset)).unwrap();
    }
    let more = rule("Range", Action::Reset);
    assert_eq!(table.add(more.clone()), Err(RuleError::TooMany(RULES_MAX)));
    table.clear(Some(RuleId(7))).unwrap();
    table.add(more).unwrap();
    assert_eq!(table.clear(None), Ok(RULES_MAX));
    assert!(table.is_empty() && table.list().is_empty());
}

#[test]
fn rules_are_printed_as_flags() {
    let rule = Rule {
        selector: Selector {
            methods: vec!["Put".into(), "Range".into()],
            keys: Some(KeySelector::Range("a".into(), "b c".into())),
            user: Some("ann's".into()),
            ..Selector::default()
        },
        trigger: Trigger::Probability {
            probability: 0.5,
            seed: 7,
        },
        action: Action::ErrorAfter(Failure::new(Code::Unavailable, "etcdserver: no leader")),
    };
    assert_eq!(
        rule.to_string(),
        r"--method Put,Range --range 'a:b c' --user 'ann'\''s' --probability 0.5 --seed 7 --error-after 'UNAVAILABLE:etcdserver: no leader'"
    );
}

#[test]
fn keys_are_printed_with_escapes() {
    let check = |keys, expected: &str| {
        let selector = Selector {
            keys: Some(keys),
            ..Selector::default()
        };
        let rule = Rule {
            selector,
            trigger: Trigger::Always,
            action: Action::Reset,
        };
        assert_eq!(rule.to_string(), format!("{expected} --reset"));
    };
    check(
        KeySelector::Range("a:b".into(), "c".into()),
        r"--range 'a\:b:c'",
    );
    check(KeySelector::Prefix("a:b".into()), "--prefix a:b");
    let binary: &[u8] = b"\xff\n\\";
    check(KeySelector::Prefix(binary.into()), r"--prefix '\xff\x0a\\'");
}

#[test]
fn only_keep_alives_are_lost() {
    let rules = Rules::new(&METHODS);
    let add = |trigger, action| {
        let selector = Selector::default();
        let rule = Rule {
            selector,
            trigger,
            action,
        };
        rules.add(rule).unwrap()
    };
    let lose = add(Trigger::Next(1), Action::LoseKeepAlive);
    let error = add(Trigger::Always, Action::Preset(Preset::NoLeader));
    let decided = |method| {
        let call = Call {
            method,
            ..Call::default()
        };
        rules.decide(&call).action.map(|(rule, _)| rule)
    };
    // Other calls neither use the rule up nor miss the next one.
    for method in [None, Some(0), Some(1), Some(2)] {
        assert_eq!(decided(method), Some(error), "{method:?}");
    }
    assert_eq!(decided(Some(3)), Some(lose));
    assert_eq!(decided(Some(3)), Some(error));
}
