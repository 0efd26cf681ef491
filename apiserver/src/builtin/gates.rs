//! The fields of features that are off by default in Kubernetes 1.36. They are dropped from new objects, and from new
//! versions of objects that do not have them already.

use std::sync::LazyLock;

use serde_json::Value;

use revstore_watch_cache::registry::JsonObject;

use super::field::values_equal;
use super::rules::raise_generation;

/// The fields of a feature. They are kept if the old version of an object has one of them.
///
/// A path has the names of members, separated by dots. `[]` after a name stands for each item of a list, `{}` for each
/// value of a map, and `?` for an object that is removed when nothing else is in it.
type Fields = &'static [&'static str];

/// The features of a kind.
struct Gated {
    group: &'static str,
    kind: &'static str,
    /// The path of the specification of pods, if the kind has one.
    pods: &'static str,
    features: &'static [Fields],
    /// Whether a change of dropped fields counts in the generation.
    counts: bool,
}

/// The features of specifications of pods.
const PODS: [Fields; 4] = [
    // ClusterTrustBundleProjection
    &["volumes[].projected.sources[].clusterTrustBundle"],
    // PodCertificateRequest
    &["volumes[].projected.sources[].podCertificate"],
    // GenericWorkload
    &["schedulingGroup"],
    // ContainerStopSignals
    &[
        "containers[].lifecycle?.stopSignal",
        "initContainers[].lifecycle?.stopSignal",
        "ephemeralContainers[].lifecycle?.stopSignal",
    ],
];

const KINDS: [Gated; 13] = [
    Gated {
        pods: "spec",
        features: &[
            // DRANodeAllocatableResources
            &["status.nodeAllocatableResourceClaimStatuses"],
            // ImageVolumeWithDigest
            &[
                "status.containerStatuses[].volumeMounts[].volumeStatus",
                "status.initContainerStatuses[].volumeMounts[].volumeStatus",
                "status.ephemeralContainerStatuses[].volumeMounts[].volumeStatus",
            ],
        ],
        ..Gated::new("", "Pod")
    },
    Gated {
        // DynamicKubeletConfig, which does not exist any more
        features: &[&["spec.configSource"], &["status.config"]],
        ..Gated::new("", "Node")
    },
    Gated::templates("", "PodTemplate", "template.spec"),
    Gated::templates("", "ReplicationController", "spec.template.spec"),
    Gated::templates("apps", "DaemonSet", "spec.template.spec"),
    Gated::templates("apps", "Deployment", "spec.template.spec"),
    Gated::templates("apps", "ReplicaSet", "spec.template.spec"),
    Gated {
        pods: "spec.template.spec",
        // MaxUnavailableStatefulSet
        features: &[&["spec.updateStrategy.rollingUpdate.maxUnavailable"]],
        ..Gated::new("apps", "StatefulSet")
    },
    Gated::templates("batch", "Job", "spec.template.spec"),
    Gated::templates("batch", "CronJob", "spec.jobTemplate.spec.template.spec"),
    Gated {
        // CoordinatedLeaderElection
        features: &[&["spec.strategy"], &["spec.preferredHolder"]],
        ..Gated::new("coordination.k8s.io", "Lease")
    },
    Gated {
        features: &[
            // DRANodeAllocatableResources
            &["spec.devices[].nodeAllocatableResourceMappings"],
            // DRAListTypeAttributes
            &[
                "spec.devices[].attributes{}.bools",
                "spec.devices[].attributes{}.ints",
                "spec.devices[].attributes{}.strings",
                "spec.devices[].attributes{}.versions",
            ],
        ],
        counts: true,
        ..Gated::new("resource.k8s.io", "ResourceSlice")
    },
    Gated {
        // VolumeLimitScaling
        features: &[&["spec.preventPodSchedulingIfMissing"]],
        ..Gated::new("storage.k8s.io", "CSIDriver")
    },
];

impl Gated {
    const fn new(group: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            kind,
            pods: "",
            features: &[],
            counts: false,
        }
    }

    /// Returns a kind whose only features are those of its template of pods.
    const fn templates(group: &'static str, kind: &'static str, pods: &'static str) -> Self {
        Self {
            pods,
            ..Self::new(group, kind)
        }
    }
}

/// A step to a field.
enum Step {
    Member(&'static str),
    /// A member that is removed when nothing is left in it.
    Emptied(&'static str),
    Items(&'static str),
    Values(&'static str),
}

type Path = Vec<Step>;

/// The fields of the features of a kind that are dropped.
pub(super) struct Gates {
    group: &'static str,
    kind: &'static str,
    features: Vec<Vec<Path>>,
    counts: bool,
}

/// Reads a path.
fn path(text: &'static str) -> impl Iterator<Item = Step> {
    let names = text.split('.').filter(|name| !name.is_empty());
    names.map(|name| {
        if let Some(name) = name.strip_suffix("[]") {
            Step::Items(name)
        } else if let Some(name) = name.strip_suffix("{}") {
            Step::Values(name)
        } else if let Some(name) = name.strip_suffix('?') {
            Step::Emptied(name)
        } else {
            Step::Member(name)
        }
    })
}

impl Gates {
    fn new(gated: &Gated) -> Self {
        let of = |prefix: &'static str, fields: Fields| -> Vec<Path> {
            let paths = fields
                .iter()
                .map(|field| path(prefix).chain(path(field)).collect());
            paths.collect()
        };
        let pods = PODS.iter().filter(|_| !gated.pods.is_empty());
        let features = pods
            .map(|fields| of(gated.pods, fields))
            .chain(gated.features.iter().map(|fields| of("", fields)));
        Self {
            group: gated.group,
            kind: gated.kind,
            features: features.collect(),
            counts: gated.counts,
        }
    }

    /// Returns the features of a kind, or `None` if it has none that are off.
    pub(super) fn of(group: &str, kind: &str) -> Option<&'static Self> {
        static ALL: LazyLock<Vec<Gates>> = LazyLock::new(|| KINDS.iter().map(Gates::new).collect());
        ALL.iter()
            .find(|known| known.kind == kind && known.group == group)
    }

    /// Drops the fields from a new version that the old version, if there is one, does not have.
    pub(super) fn drop_fields(&self, new: &mut JsonObject, old: Option<&JsonObject>) {
        let Some(old) = old.filter(|_| self.counts) else {
            return self.drop_unused(new, old);
        };
        let differ = |new: &JsonObject| {
            let spec = |object: &JsonObject| object.get("spec").cloned().unwrap_or_default();
            !values_equal(&spec(new), &spec(old))
        };
        let differed = differ(new);
        self.drop_unused(new, Some(old));
        // The store counts what differs after it.
        if differed && !differ(new) {
            raise_generation(new, old);
        }
    }

    fn drop_unused(&self, new: &mut JsonObject, old: Option<&JsonObject>) {
        for paths in &self.features {
            let is_used = |old| paths.iter().any(|path| is_used(old, path));
            if !old.is_some_and(is_used) {
                for path in paths {
                    remove(new, path);
                }
            }
        }
    }
}

/// Returns whether a field at a path has a value: not null, and no empty list.
fn is_used(object: &JsonObject, path: &[Step]) -> bool {
    let Some((step, rest)) = path.split_first() else {
        return false;
    };
    let below = |value: &Value| value.as_object().is_some_and(|below| is_used(below, rest));
    match step {
        Step::Member(name) | Step::Emptied(name) => object.get(*name).is_some_and(|value| {
            if rest.is_empty() {
                !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty())
            } else {
                below(value)
            }
        }),
        Step::Items(name) => {
            let items = object.get(*name).and_then(Value::as_array);
            items.is_some_and(|items| items.iter().any(below))
        }
        Step::Values(name) => {
            let values = object.get(*name).and_then(Value::as_object);
            values.is_some_and(|values| values.values().any(below))
        }
    }
}

/// Removes the fields at a path.
fn remove(object: &mut JsonObject, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    let below = |value: &mut Value| {
        if let Some(below) = value.as_object_mut() {
            remove(below, rest);
        }
    };
    match step {
        Step::Member(name) if rest.is_empty() => {
            object.remove(*name);
        }
        Step::Member(name) => object.get_mut(*name).into_iter().for_each(below),
        Step::Emptied(name) => {
            let Some(member) = object.get_mut(*name).and_then(Value::as_object_mut) else {
                return;
            };
            if is_used(member, rest) {
                remove(member, rest);
                if member.is_empty() {
                    object.remove(*name);
                }
            }
        }
        Step::Items(name) => {
            let items = object.get_mut(*name).and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(below);
        }
        Step::Values(name) => {
            if let Some(values) = object.get_mut(*name).and_then(Value::as_object_mut) {
                values.values_mut().for_each(below);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use revstore_kinds::{Field, Type};
    use serde_json::{Value, json};

    use super::{Gates, KINDS, Step, is_used};
    use crate::builtin::edit::restore;

    /// Returns what is left of a new version.
    fn dropped((group, kind): (&str, &str), new: &Value, old: Option<&Value>) -> Value {
        let mut new = new.as_object().cloned().unwrap();
        let old = old.map(|old| old.as_object().cloned().unwrap());
        let gates = Gates::of(group, kind).unwrap();
        gates.drop_fields(&mut new, old.as_ref());
        new.into()
    }

    /// Returns whether a type has a field at a path.
    fn has_field(object: &'static Type, path: &[Step]) -> bool {
        let Some((step, rest)) = path.split_first() else {
            return true;
        };
        let (Step::Member(name) | Step::Emptied(name) | Step::Items(name) | Step::Values(name)) =
            step;
        let field = object.field(name).map(Field::ty);
        let next = match step {
            Step::Member(_) | Step::Emptied(_) => field,
            Step::Items(_) | Step::Values(_) => field.and_then(Type::element),
        };
        next.is_some_and(|next| has_field(next, rest))
    }

    #[test]
    fn fields_exist() {
        for gated in &KINDS {
            let resource = revstore_kinds::resource_of_kind(gated.group, "v1", gated.kind);
            let object = resource.unwrap().object();
            let gates = Gates::new(gated);
            assert!(!gates.features.is_empty(), "{}", gated.kind);
            for path in gates.features.iter().flatten() {
                assert!(has_field(object, path), "{}", gated.kind);
            }
        }
    }

    /// Objects, and what the strategies of kube-apiserver made of them: `scripts/generate-apiserver.sh`.
    const CASES: &str = include_str!("../../tests/data/prepared.json");

    #[test]
    fn fields_are_dropped_as_by_kube_apiserver() {
        let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
        assert!(cases.len() > 80);
        for case in &cases {
            let text = |name: &str| case["body"][name].as_str().unwrap();
            let group = text("apiVersion").split_once('/').map_or("", |it| it.0);
            let gates = Gates::of(group, text("kind")).unwrap();
            let mut new = case["body"].as_object().cloned().unwrap();
            let old = case.get("old").and_then(Value::as_object);
            // What the rules restore before.
            let restored = if case["verb"] == "status" {
                "spec"
            } else {
                "status"
            };
            match old {
                Some(old) => restore(&mut new, old, restored),
                None => drop(new.remove(restored)),
            }
            gates.drop_fields(&mut new, old);
            let expected = case["expect"].as_object().unwrap();
            for path in gates.features.iter().flatten() {
                let found = is_used(&new, path);
                assert_eq!(found, is_used(expected, path), "{}", case["id"]);
            }
        }
    }

    #[test]
    fn fields_are_dropped_unless_the_old_version_has_them() {
        let lease = ("coordination.k8s.io", "Lease");
        let with = |spec: Value| json!({"spec": spec});
        let both = with(json!({"strategy": "s", "preferredHolder": "p", "holderIdentity": "h"}));
        let holder = with(json!({"preferredHolder": "q"}));
        assert_eq!(
            dropped(lease, &both, None),
            with(json!({"holderIdentity": "h"}))
        );
        assert_eq!(
            dropped(lease, &both, Some(&holder)),
            with(json!({"preferredHolder": "p", "holderIdentity": "h"}))
        );
        let null = with(json!({"strategy": null}));
        assert_eq!(
            dropped(lease, &both, Some(&null)),
            with(json!({"holderIdentity": "h"}))
        );
    }

    #[test]
    fn a_field_of_one_item_keeps_those_of_all() {
        let of = |first: Value, second: Value| json!({"spec": {"containers": [first], "initContainers": [second]}});
        let plain = json!({"name": "c"});
        let stops = json!({"name": "c", "lifecycle": {"stopSignal": "SIGTERM"}});
        let sleeps = json!({"name": "c", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {}}});
        let pod = ("", "Pod");
        assert_eq!(
            dropped(pod, &of(stops.clone(), sleeps.clone()), None),
            of(
                plain.clone(),
                json!({"name": "c", "lifecycle": {"preStop": {}}})
            )
        );
        let old = of(plain.clone(), stops.clone());
        let new = of(stops, sleeps);
        assert_eq!(dropped(pod, &new, Some(&old)), new);
        // What has no such field keeps its form.
        let empty = of(json!({"name": "c", "lifecycle": {}}), plain);
        assert_eq!(dropped(pod, &empty, None), empty);
    }

    #[test]
    fn changes_of_dropped_fields_of_slices_count() {
        let slice = |values: Value, pool: &str| {
            json!({
                "metadata": {"generation": 3},
                "spec": {"pool": pool, "devices": [{"attributes": {"a": values}}]},
            })
        };
        let kind = ("resource.k8s.io", "ResourceSlice");
        let old = slice(json!({"int": 1}), "p");
        let mut counted = old.clone();
        counted["metadata"]["generation"] = json!(4);
        let new = slice(json!({"int": 1, "ints": [1, 2]}), "p");
        assert_eq!(dropped(kind, &new, Some(&old)), counted);
        // The store counts other changes.
        let new = slice(json!({"int": 1, "ints": [1, 2]}), "q");
        let left = slice(json!({"int": 1}), "q");
        assert_eq!(dropped(kind, &new, Some(&old)), left);
    }
}
