//! The quality of service class of a pod.

use std::collections::BTreeMap;

use crate::builtin::field::Field;
use crate::builtin::quantity::Quantity;

/// The resources that the class depends on.
const COMPUTED: [&str; 2] = ["cpu", "memory"];

/// Returns the class of a pod from the resources of its containers, or from those of the pod as a whole.
pub(crate) fn class(spec: &Field<'_>) -> &'static str {
    let whole = spec.child("resources");
    if whole.child("requests").len() + whole.child("limits").len() > 0 {
        return class_of([whole].into_iter());
    }
    let containers = spec.child("containers").items();
    let all = containers.chain(spec.child("initContainers").items());
    class_of(all.map(|container| container.child("resources")))
}

fn class_of<'a>(resources: impl Iterator<Item = Field<'a>>) -> &'static str {
    let mut requests: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut limits: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut all_limited = true;
    for resources in resources {
        let mut limited = 0;
        for name in COMPUTED {
            let amount = |list: &'a str| {
                let value = resources.child(list).key(name).value();
                Quantity::of(&value).filter(|quantity| !quantity.is_zero())
            };
            if let Some(request) = amount("requests") {
                let sum = requests.entry(name).or_default();
                *sum = sum.plus(request);
            }
            if let Some(limit) = amount("limits") {
                limited += 1;
                let sum = limits.entry(name).or_default();
                *sum = sum.plus(limit);
            }
        }
        all_limited &= limited == COMPUTED.len();
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if all_limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Field, class};

    fn check(resources: &[Value], expected: &str) {
        let containers: Vec<Value> = resources
            .iter()
            .map(|resources| json!({"resources": resources}))
            .collect();
        let spec = json!({"containers": containers});
        assert_eq!(class(&Field::root(spec.as_object().unwrap())), expected);
    }

    #[test]
    fn classes_depend_on_requests_and_limits() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        check(&[json!({})], "BestEffort");
        check(&[json!({"requests": {"cpu": "0"}})], "BestEffort");
        check(&[json!({"requests": {"cpu": "1"}})], "Burstable");
        check(&[json!({"requests": full, "limits": full})], "Guaranteed");
        check(
            &[json!({"requests": full, "limits": full}), json!({})],
            "Burstable",
        );
        let half = json!({"cpu": "500m", "memory": "1024Mi"});
        check(&[json!({"requests": half, "limits": full})], "Burstable");
    }
}
