//! Damaged inputs of the decoders that `bodies` in `fuzz/` does not have. `fuzz/` gives others to the same function.

mod apply;
mod check;
mod patches;

use check::{DECODERS, check};
use fastrand::Rng;
use revstore_apiserver::decode::from_json;
use revstore_kinds::to_protobuf;
use revstore_watch_cache::api::ContinueToken;
use serde_json::{Value, json};

/// The number of inputs of a run.
const CASES: usize = 6000;
/// The same for rearranged objects, of which nearly all are applied.
const REARRANGED: usize = 2000;

/// Valid inputs of each decoder.
fn seeds() -> Vec<Vec<u8>> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "c"}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}, "ports": [{"containerPort": 80}]}],
            "tolerations": [{"key": "k", "tolerationSeconds": 300}],
        },
        "status": {"startTime": "2024-01-01T00:00:00Z"},
    });
    let claim = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "a"},
        "data": {"any": ["thing", 1.5, null]}, "revision": 7,
    });
    let options = "{\"kind\":\"DeleteOptions\",\"gracePeriodSeconds\":30,\"propagationPolicy\":\"Orphan\",\
                   \"preconditions\":{\"uid\":\"u\",\"resourceVersion\":\"7\"},\"dryRun\":[\"All\"]}\0\
                   gracePeriodSeconds=5&propagationPolicy=Background&dryRun=All&orphanDependents=false";
    let selectors =
        "a=b,c!=d,e in (f,g),h notin (i),j,!k,l>5,m<7\0metadata.name=a,spec.nodeName!=b\\,c";
    let schema = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":1,\"default\":3},\
                  \"b\":{\"type\":\"array\",\"x-kubernetes-list-type\":\"set\",\"items\":{\"type\":\"string\",\
                  \"pattern\":\"^[a-z]+$\",\"maxLength\":5}},\"c\":{\"type\":\"object\",\"additionalProperties\":\
                  {\"type\":\"string\",\"format\":\"date-time\",\"nullable\":true}},\"d\":{\
                  \"x-kubernetes-int-or-string\":true},\"e\":{\"type\":\"object\",\
                  \"x-kubernetes-preserve-unknown-fields\":true}},\"required\":[\"a\"]}\0\
                  {\"a\":0,\"b\":[\"x\",\"x\",\"Toolong\"],\"c\":{\"k\":null},\"d\":\"5\",\"e\":{\"f\":1},\"g\":2}";
    let fields = "{\"f:metadata\":{\"f:labels\":{\".\":{},\"f:a\":{}}},\"f:spec\":{\"f:containers\":{\
                  \"k:{\\\"name\\\":\\\"c\\\",\\\"port\\\":80}\":{\".\":{},\"f:image\":{}}},\"f:list\":{\"v:\\\"x\\\"\":{},\
                  \"i:3\":{},\"v:9007199254740993\":{},\"v:9007199254740992.0\":{},\"v:-9223372036854775808\":{},\
                  \"v:18446744073709551615\":{},\"v:1e300\":{}}}}";
    let token = ContinueToken::decode(
        // {"v":"meta.k8s.io/v1","rv":7,"start":"default/a\u0000"}
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Nywic3RhcnQiOiJkZWZhdWx0L2FcdTAwMDAifQ",
    );
    let token = token.expect("a token of kube-apiserver").encode();
    let parts = [
        to_protobuf(&pod).expect("a pod"),
        options.into(),
        selectors.into(),
        token.into_bytes(),
        schema.into(),
        fields.into(),
    ];
    let mut seeds: Vec<Vec<u8>> = (0_u8..).zip(parts).map(seed).collect();
    seeds.push(seed((0, to_protobuf(&claim).expect("a revision"))));
    seeds
}

fn seed((decoder, input): (u8, Vec<u8>)) -> Vec<u8> {
    [vec![decoder], input].concat()
}

/// Damages an input at a few places: bytes change, vanish, appear again elsewhere, or are those of another input.
fn damage(rng: &mut Rng, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(1..=input.len());
        match rng.u8(..6) {
            0 if at < input.len() => input[at] = rng.u8(..),
            1 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
            2 => input.truncate(at),
            3 => {
                let end = rng.usize(at..=input.len());
                input.drain(at..end);
            }
            4 => {
                let end = rng.usize(at..=input.len()).min(at + 64);
                let part = input[at..end].to_vec();
                let to = rng.usize(1..=input.len());
                input.splice(to..to, part);
            }
            _ => {
                let other = &seeds[rng.usize(..seeds.len())];
                let begin = rng.usize(..other.len());
                let end = rng.usize(begin..=other.len()).min(begin + 64);
                input.splice(at..at, other[begin..end].iter().copied());
            }
        }
    }
}

/// Valid inputs of applies: a schema, an object with entries and two configurations.
fn applies() -> Vec<Vec<u8>> {
    let entry = |manager: &str, operation: &str, fields: Value| {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2024-01-01T00:00:00Z", "fieldsV1": fields})
    };
    let container = json!({"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}], "ports": [
        {"containerPort": 80, "protocol": "TCP"}]});
    let spec = json!({"containers": [container], "tolerations": [{"key": "k"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"},
        "finalizers": ["a/b"], "managedFields": [
            entry("one", "Apply", json!({"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}}}}})),
            entry("other", "Update", json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {},
                "v:9007199254740993": {}, "v:9007199254740992.0": {}, "v: 9007199254740994": {}, "v:1e300": {},
                "v:-9223372036854775808": {}, "v:18446744073709551615": {}, "v:18446744073709551616": {}}}})),
        ]}, "spec": spec});
    let wanted = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"z": "y"}},
        "spec": {"containers": [{"name": "c", "image": "j"}, {"name": "d"}]}});
    let deployment = |replicas: u32| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": spec}}})
    };
    let custom = |text: &str| {
        json!({"apiVersion": "e.c/v1", "kind": "W", "metadata": {"name": "a"}, "spec": {"set": ["a", text], "map": [
            {"name": text, "values": ["u"]}, {"name": "b", "port": 1}], "atomic": [{"name": text}], "one": {"k": text},
            "many": {"k": text, "n": null}, "open": {"a": [{"b": text}]}, "either": 5}})
    };
    let parts = [
        (
            0,
            pod,
            wanted.clone(),
            json!({"metadata": {"labels": {"x": "q"}}}),
        ),
        (1, json!({}), deployment(1), deployment(2)),
        (2, custom("x"), custom("y"), custom("z")),
        (3, custom("x"), custom("y"), wanted),
    ];
    let inputs = parts.into_iter().flat_map(|(schema, live, one, two)| {
        let parts = [live, one, two].map(|part| part.to_string());
        [0, 0x80].map(|force| seed((schema | force, parts.join("\0").into_bytes())))
    });
    inputs.collect()
}

/// Valid objects with patches in all formats.
fn patched() -> Vec<Vec<u8>> {
    let container = json!({"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}, {"name": "B"}],
        "ports": [{"containerPort": 80, "protocol": "TCP"}], "args": ["x", null]});
    let pod = json!({"metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": ["a/b", "c/d"]},
        "spec": {"containers": [container, {"name": "d"}], "tolerations": [{"key": "k"}], "nodeSelector": {"a": "b"}}});
    let patches = [
        json!([{"op": "test", "path": "/metadata/name", "value": "a"},
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "e"}},
            {"op": "move", "from": "/spec/containers/0", "path": "/spec/containers/1"},
            {"op": "copy", "from": "/metadata/labels", "path": "/spec/nodeSelector"},
            {"op": "replace", "path": "/spec/containers/0/image", "value": "j"},
            {"op": "remove", "path": "/metadata/finalizers/0"}]),
        json!({"metadata": {"labels": {"x": null, "z": "w"}, "finalizers": null}, "spec": {"containers": [{"name": "e"}]}}),
        json!({"metadata": {"finalizers": ["e/f"], "$deleteFromPrimitiveList/finalizers": ["a/b"],
            "$setElementOrder/finalizers": ["e/f", "c/d"]}, "spec": {"containers": [
                {"name": "c", "image": "j", "env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": null}]},
                {"name": "n", "ports": [{"containerPort": 81}]}],
            "$setElementOrder/containers": [{"name": "n"}, {"name": "c"}, {"name": "d"}],
            "tolerations": [{"key": "q", "$patch": "replace"}], "nodeSelector": {"$patch": "replace", "c": "d"},
            "volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}}),
    ];
    let parts = patches.map(|patch| seed((0, format!("{pod}\0{patch}").into_bytes())));
    parts.into()
}

#[test]
fn damaged_inputs_are_decoded_or_refused() {
    let seeds = seeds();
    assert_eq!(seeds.len(), usize::from(DECODERS) + 1);
    check_damaged(&seeds, check);
}

/// Returns the place in a value with a number, counted from the root down.
fn place<'a>(value: &'a mut Value, number: &mut usize) -> Option<&'a mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| place(item, number)),
        Value::Object(map) => map.values_mut().find_map(|value| place(value, number)),
        _ => None,
    }
}

fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(places).sum::<usize>(),
        Value::Object(map) => map.values().map(places).sum(),
        _ => 0,
    }
}

/// Changes a value at one place: parts vanish, are there twice, or are those of another value.
fn graft(rng: &mut Rng, value: &mut Value, other: &mut Value) {
    let mut at = rng.usize(..places(value));
    let mut from = rng.usize(..places(other));
    let part = place(other, &mut from).expect("a place").clone();
    let target = place(value, &mut at).expect("a place");
    match (rng.u8(..5), target) {
        (0, Value::Array(items)) if !items.is_empty() => {
            items.remove(rng.usize(..items.len()));
        }
        (1, Value::Array(items)) => items.push(part),
        (2, Value::Array(items)) if !items.is_empty() => {
            let item = items[rng.usize(..items.len())].clone();
            items.push(item);
        }
        (0 | 1, Value::Object(map)) if !map.is_empty() => {
            let name = rng.usize(..map.len());
            let name = map.keys().nth(name).expect("a name").clone();
            map.remove(&name);
        }
        (2, Value::Object(map)) => {
            if let Value::Object(part) = part {
                map.extend(part);
            }
        }
        (_, target) => *target = part,
    }
}

#[test]
fn applies_of_damaged_objects_are_stable() {
    let seeds = applies();
    assert_eq!(seeds.len(), 2 * usize::from(apply::SCHEMAS));
    check_damaged(&seeds, apply::check);
}

#[test]
fn applies_of_rearranged_objects_are_stable() {
    check_rearranged(&applies(), apply::check);
}

/// Gives seeds, whose parts in JSON are rearranged, to a function that must not panic.
fn check_rearranged(seeds: &[Vec<u8>], check: fn(&[u8])) {
    let parts = |seed: &[u8]| {
        let parts = seed[1..].split(|byte| *byte == 0);
        parts
            .map(|part| serde_json::from_slice::<Value>(part).expect("JSON"))
            .collect::<Vec<_>>()
    };
    let seed = std::env::var("REVSTORE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut rng = Rng::with_seed(seed);
    for case in 0..REARRANGED {
        let chosen = &seeds[rng.usize(..seeds.len())];
        let mut values = parts(chosen);
        for _ in 0..rng.usize(1..5) {
            let (one, two) = (rng.usize(..values.len()), rng.usize(..values.len()));
            let mut other = values[two].clone();
            graft(&mut rng, &mut values[one], &mut other);
        }
        let texts: Vec<String> = values.iter().map(Value::to_string).collect();
        let input = [&chosen[..1], texts.join("\0").as_bytes()].concat();
        let result = std::panic::catch_unwind(|| check(&input));
        assert!(
            result.is_ok(),
            "REVSTORE_SEED={seed}, case {case}: {chosen:?} {texts:?}",
            chosen = chosen[0]
        );
    }
}

/// Gives seeds, and damaged seeds, to a function that must not panic.
fn check_damaged(seeds: &[Vec<u8>], check: fn(&[u8])) {
    for seed in seeds {
        check(seed);
    }
    let seed = std::env::var("REVSTORE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut rng = Rng::with_seed(seed);
    for case in 0..CASES {
        let mut input = seeds[rng.usize(..seeds.len())].clone();
        damage(&mut rng, seeds, &mut input);
        let result = std::panic::catch_unwind(|| check(&input));
        assert!(
            result.is_ok(),
            "REVSTORE_SEED={seed}, case {case}: {:?}",
            String::from_utf8_lossy(&input)
        );
    }
}

/// Applies the patch in an input, and returns the number of its results.
fn patch(input: &[u8]) -> usize {
    let mut parts = input[1..].splitn(2, |byte| *byte == 0);
    let (object, patch) = (parts.next(), parts.next().unwrap_or_default());
    let object = from_json(object.unwrap_or_default());
    object.map_or(0, |object| patches::check(&object.value, patch).len())
}

#[test]
fn a_patch_of_the_result_of_a_patch_does_what_it_must() {
    let seeds = patched();
    for seed in &seeds {
        assert!(patch(seed) > 0, "{:?}", String::from_utf8_lossy(seed));
    }
    check_damaged(&seeds, |input| {
        patch(input);
    });
}

#[test]
fn a_patch_of_the_result_of_a_rearranged_patch_does_what_it_must() {
    check_rearranged(&patched(), |input| {
        patch(input);
    });
}
