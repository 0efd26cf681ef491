//! Damaged inputs of the decoders that `bodies` in `fuzz/` does not have. `fuzz/` gives others to the same function.

mod check;

use check::{DECODERS, check};
use fastrand::Rng;
use revstore_kinds::to_protobuf;
use revstore_watch_cache::api::ContinueToken;
use serde_json::json;

/// The number of inputs of a run.
const CASES: usize = 6000;

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
                  \"i:3\":{}}}}";
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

#[test]
fn damaged_inputs_are_decoded_or_refused() {
    let seeds = seeds();
    assert_eq!(seeds.len(), usize::from(DECODERS) + 1);
    for seed in &seeds {
        check(seed);
    }
    let seed = std::env::var("REVSTORE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut rng = Rng::with_seed(seed);
    for case in 0..CASES {
        let mut input = seeds[rng.usize(..seeds.len())].clone();
        damage(&mut rng, &seeds, &mut input);
        let result = std::panic::catch_unwind(|| check(&input));
        assert!(
            result.is_ok(),
            "REVSTORE_SEED={seed}, case {case}: {:?}",
            String::from_utf8_lossy(&input)
        );
    }
}
