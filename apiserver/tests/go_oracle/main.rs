//! Random bodies and patches, decoded and applied by us and by the Go libraries of kube-apiserver.
//!
//! The Go program is `tests/oracle`. If Go is not installed, or its modules cannot be fetched, the tests print
//! `NOT RUN` and pass; with `REVSTORE_REQUIRE_CLIENTS=1` they fail. A seed of a failure can be set as
//! `REVSTORE_SEED`; `.ci/run expressions-long` takes other seeds each time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fields;
mod generate;
mod manage;
mod oracle;

use generate::Generator;
use oracle::{Oracle, Request};
use revstore_apiserver::decode::{
    FieldValidation, from_json, from_yaml, integral_floats_to_integers, to_yaml,
};
use revstore_apiserver::patch::{Patch, PatchType};
use revstore_structured_merge::{FieldSet, compare};
use serde_json::{Value, json};

/// The number of random cases of each test.
const CASES: usize = 3000;
/// The number of random sequences of writes.
const SEQUENCES: usize = 500;

/// The kinds whose schema is used.
const KINDS: [(&str, &str); 4] = [
    ("", "Pod"),
    ("apps", "Deployment"),
    ("", "Service"),
    ("", "Node"),
];

fn patch(
    patch_type: PatchType,
    object: &Value,
    patch: &Value,
    schema: &'static revstore_kinds::Type,
) -> Result<Value, String> {
    let body = patch.to_string();
    let (patch, _) = Patch::from_body(patch_type, body.as_bytes(), FieldValidation::Ignore)
        .map_err(|error| error.to_string())?;
    patch
        .apply(object, schema)
        .map_err(|error| error.to_string())
}

/// Compares results; errors only by their presence.
fn check(case: &Value, ours: Result<Value, String>, go: Result<Value, String>) {
    match (ours, go) {
        (Ok(mut ours), Ok(mut go)) => {
            integral_floats_to_integers(&mut ours);
            integral_floats_to_integers(&mut go);
            assert_eq!(ours, go, "{case:#}");
        }
        (Err(_), Err(_)) => {}
        // Go's typed objects have no empty lists, so that this error does not occur there.
        (Ok(_), Err(error)) if error.contains("no elements in any of the given slices") => {}
        (ours, go) => panic!("ours: {ours:?}\nGo: {go:?}\n{case:#}"),
    }
}

#[test]
fn strategic_merge_patches_have_the_same_result() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let mut cases = Vec::new();
    for seed in oracle.seeds(CASES) {
        let mut generator = Generator::new(seed);
        let (group, kind) = KINDS[generator.below(KINDS.len())];
        let schema = revstore_kinds::kind(group, "v1", kind).unwrap();
        let object = generator.object(schema);
        let other = generator.object(schema);
        let operation = if generator.chance(3) {
            "difference"
        } else {
            "strategic"
        };
        let other = if operation == "strategic" {
            generator.directives(schema, other)
        } else {
            other
        };
        cases.push((seed, operation, kind, schema, object, other));
    }
    let requests = cases
        .iter()
        .map(|(_, operation, kind, _, object, other)| Request {
            operation,
            kind,
            object: object.clone(),
            patch: other.clone(),
            text: String::new(),
        });
    let answers = oracle.ask(requests);
    let mut merged = 0;
    for ((seed, operation, kind, schema, object, mut other), answer) in
        cases.into_iter().zip(answers)
    {
        if operation == "difference" {
            // Go may not be able to compute a patch.
            let Some(computed) = answer.patch else {
                continue;
            };
            other = computed;
        }
        merged += usize::from(answer.result.is_ok());
        let case = json!({"seed": seed, "kind": kind, "object": object, "patch": other});
        check(
            &case,
            patch(PatchType::Strategic, &object, &other, schema),
            answer.result,
        );
    }
    assert!(
        merged > CASES / 2,
        "only {merged} patches fit their objects"
    );
}

#[test]
fn json_and_merge_patches_have_the_same_result() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let schema = revstore_kinds::kind("", "v1", "Pod").unwrap();
    let mut cases = Vec::new();
    for seed in oracle.seeds(CASES) {
        let mut generator = Generator::new(seed);
        let object = generator.members(4);
        cases.push(if generator.chance(2) {
            let operations: Vec<_> = (0..generator.below(5))
                .map(|_| generator.operation())
                .collect();
            ("json", PatchType::Json, object, Value::from(operations))
        } else {
            ("merge", PatchType::Merge, object, generator.value(4))
        });
    }
    let requests = cases.iter().map(|(operation, _, object, patch)| Request {
        operation,
        kind: "",
        object: object.clone(),
        patch: patch.clone(),
        text: String::new(),
    });
    let answers = oracle.ask(requests);
    for ((operation, patch_type, object, other), answer) in cases.into_iter().zip(answers) {
        // A list with `null` in it cannot be tested there.
        if matches!(&answer.result, Err(error) if error.starts_with("panic")) {
            continue;
        }
        let case = json!({"operation": operation, "object": object, "patch": other});
        check(
            &case,
            patch(patch_type, &object, &other, schema),
            answer.result,
        );
    }
}

#[test]
fn objects_differ_in_the_same_fields() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let mut cases = Vec::new();
    for seed in oracle.seeds(CASES) {
        let mut generator = Generator::new(seed);
        cases.push((
            fields::object(&mut generator, 3),
            fields::object(&mut generator, 3),
        ));
    }
    let requests = cases.iter().map(|(from, to)| Request {
        operation: "compare",
        kind: "",
        object: from.clone(),
        patch: to.clone(),
        text: String::new(),
    });
    let answers = oracle.ask(requests);
    for ((from, to), answer) in cases.into_iter().zip(answers) {
        let ours = compare(&from, &to, fields::Schema::Root)
            .map(|found| {
                let sets = [found.removed, found.modified, found.added];
                sets.iter().map(FieldSet::to_fields_v1).collect()
            })
            .map_err(|error| error.to_string());
        check(&json!({"from": from, "to": to}), ours, answer.result);
    }
}

#[test]
fn sequences_of_writes_have_the_same_managers() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let seeds = oracle.seeds(SEQUENCES);
    let cases: Vec<_> = seeds
        .iter()
        .map(|seed| manage::sequence(&mut Generator::new(*seed)))
        .collect();
    let requests = cases.iter().map(|writes| Request {
        operation: "manage",
        kind: "",
        object: writes.clone().into(),
        patch: Value::Null,
        text: String::new(),
    });
    let answers = oracle.ask(requests);
    let mut counts = [0; 3];
    for ((seed, writes), answer) in seeds.iter().zip(&cases).zip(answers) {
        let go = answer
            .result
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let go: Vec<_> = go.as_array().into_iter().flatten().collect();
        let ours = manage::outcomes(writes);
        for (number, (ours, go)) in ours.iter().zip(go).enumerate() {
            let case = || {
                let until = Value::from(&writes[..=number]);
                format!("seed {seed}, write {number} of {until:#}")
            };
            match (ours.get("error"), go.get("error")) {
                (None, None) => {
                    let (mut ours, mut go) = (manage::comparable(ours), manage::comparable(go));
                    integral_floats_to_integers(&mut ours);
                    integral_floats_to_integers(&mut go);
                    assert_eq!(ours, go, "{}", case());
                    counts[0] += 1;
                }
                (Some(ours), Some(go)) => {
                    let is_conflict = go.as_str().is_some_and(|go| go.starts_with("Apply failed"));
                    if is_conflict {
                        assert_eq!(ours, go, "{}", case());
                    }
                    counts[usize::from(is_conflict) + 1] += 1;
                }
                _ => panic!("ours: {ours}\nGo: {go}\n{}", case()),
            }
        }
    }
    let [writes, errors, conflicts] = counts;
    let few = SEQUENCES / 10;
    assert!(
        seeds.len() == 1 || (writes > SEQUENCES && errors > few && conflicts > few),
        "{counts:?}"
    );
}

#[test]
fn yaml_is_read_as_the_same_value() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let texts: Vec<String> = oracle
        .seeds(CASES)
        .into_iter()
        .map(|seed| {
            let mut generator = Generator::new(seed);
            match generator.below(4) {
                0 => to_yaml(&generator.value(4)),
                1 => to_yaml(&json!({generator.text(): generator.text(), "l": [generator.text()]})),
                2 => format!("a: {}\nb: 1\n", generator.scalar()),
                _ => format!(
                    "{}: 1\nx: {{{}: 2, z: [{}]}}\n",
                    generator.scalar(),
                    generator.scalar(),
                    generator.scalar()
                ),
            }
        })
        .collect();
    let answers = oracle.ask(texts.iter().map(|text| Request::text("yaml", text)));
    let mut read = 0;
    for (text, answer) in texts.iter().zip(answers) {
        // The parsers have different rules for malformed documents.
        let Ok(go) = answer.result else { continue };
        read += 1;
        // As numbers are read from JSON.
        let mut go = from_json(go.to_string().as_bytes()).unwrap().value;
        let ours = from_yaml(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        integral_floats_to_integers(&mut go);
        assert_eq!(ours.value, go, "{text:?}");
        assert_eq!(ours.strict, answer.strict, "{text:?}");
    }
    assert!(
        read > CASES * 3 / 4,
        "only {read} documents are well-formed"
    );
}

#[test]
fn json_is_read_with_the_same_errors() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let texts: Vec<String> = oracle
        .seeds(CASES)
        .into_iter()
        .map(|seed| {
            let mut generator = Generator::new(seed);
            let text = generator.duplicated(4);
            generator.damaged(&text)
        })
        .collect();
    let answers = oracle.ask(texts.iter().map(|text| Request::text("decode", text)));
    for (text, answer) in texts.iter().zip(answers) {
        let ours = from_json(text.as_bytes());
        match (ours, answer.result) {
            (Ok(ours), Ok(mut go)) => {
                let mut value = ours.value;
                integral_floats_to_integers(&mut value);
                integral_floats_to_integers(&mut go);
                assert_eq!((value, ours.strict), (go, answer.strict), "{text:?}");
            }
            (Err(error), Err(go)) => assert_eq!(error.to_string(), go, "{text:?}"),
            (ours, go) => panic!("{text:?}\nours: {ours:?}\nGo: {go:?}"),
        }
    }
}
