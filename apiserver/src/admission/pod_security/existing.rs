//! The pods of a namespace that would violate its new standard. They stay, and who changes the labels is warned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::admission::builtin::objects;
use crate::admission::pod_security::pod::{Pod, items, text};
use crate::admission::pod_security::policy::Standard;
use crate::admission::pod_security::registry::{reasons, violations};
use crate::builtin::edit;
use crate::http::Front;

/// The maximum number of pods that are checked, as in kube-apiserver. A warning says that there are more.
const PODS_MAX: usize = 3_000;
/// The time for the checks, as in kube-apiserver. A warning says how many pods were checked in it.
const TIME_MAX: Duration = Duration::from_secs(1);
/// The number of pods after which other tasks have a turn.
const TURN: usize = 100;

/// Returns the warnings about the pods of a namespace.
pub(super) async fn warnings(front: &Front, namespace: &str, standard: Standard) -> Vec<String> {
    let begun = Instant::now();
    let Ok(pods) = objects::list(front, ("", "pods"), Some(namespace)).await else {
        let text = "failed to list pods while checking new PodSecurity enforce level";
        return vec![text.to_owned()];
    };
    let mut found = Findings::default();
    let (total, mut checked) = (pods.len(), 0);
    for pod in in_order(&pods).take(PODS_MAX) {
        found.add(pod, standard);
        checked += 1;
        if begun.elapsed() > TIME_MAX {
            break;
        }
        if checked % TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    found.into_warnings(namespace, standard, checked, total)
}

/// Returns one pod of each controller and those without one, and then the others, which are like them in general.
fn in_order(pods: &[JsonObject]) -> impl Iterator<Item = &JsonObject> {
    let mut controllers = BTreeSet::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for pod in pods {
        if controller(pod).is_none_or(|owner| controllers.insert(owner)) {
            first.push(pod);
        } else {
            rest.push(pod);
        }
    }
    first.into_iter().chain(rest)
}

/// Returns the UID of the controller of a pod.
fn controller(pod: &JsonObject) -> Option<&str> {
    let owners = edit::at(pod, &["metadata", "ownerReferences"])?;
    let owner = items(owners).find(|owner| owner["controller"] == Value::Bool(true));
    owner.map(|owner| text(&owner["uid"]))
}

/// The reasons, each with the first pod by name and the number of the pods.
#[derive(Debug, Default)]
struct Findings(BTreeMap<String, (String, usize)>);

impl Findings {
    fn add(&mut self, pod: &JsonObject, standard: Standard) {
        let found = violations(standard, Pod::of(pod));
        if found.is_empty() {
            return;
        }
        let name = edit::text_at(pod, &["metadata", "name"]);
        let entry = self.0.entry(reasons(&found));
        let (first, count) = entry.or_insert_with(|| (name.to_owned(), 0));
        if name < first.as_str() {
            name.clone_into(first);
        }
        *count += 1;
    }

    fn into_warnings(
        self,
        namespace: &str,
        standard: Standard,
        checked: usize,
        total: usize,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        if checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !self.0.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
            ));
        }
        let pods = self
            .0
            .into_iter()
            .map(|(reasons, (first, count))| match count {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                count => format!("{first} (and {} other pods): {reasons}", count - 1),
            });
        let mut pods: Vec<String> = pods.collect();
        pods.sort();
        warnings.extend(pods);
        warnings
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::pod_security::policy::{Level, Version};

    fn pod(name: &str, controller: &str) -> JsonObject {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"hostNetwork": true}});
        if !controller.is_empty() {
            pod["metadata"]["ownerReferences"] = json!([{"uid": controller, "controller": true}]);
        }
        pod.as_object().unwrap().clone()
    }

    #[test]
    fn one_pod_of_each_controller_comes_first() {
        let pods = [
            ("a", "x"),
            ("b", "x"),
            ("c", ""),
            ("d", "y"),
            ("e", "x"),
            ("f", ""),
        ];
        let pods: Vec<JsonObject> = pods.iter().map(|(name, owner)| pod(name, owner)).collect();
        let names: Vec<&str> = in_order(&pods)
            .map(|pod| edit::text_at(pod, &["metadata", "name"]))
            .collect();
        assert_eq!(names, ["a", "c", "d", "f", "b", "e"]);
    }

    #[test]
    fn pods_with_the_same_reasons_share_a_warning() {
        let standard = Standard {
            level: Level::Baseline,
            version: Version::Minor(30),
        };
        let mut found = Findings::default();
        for name in ["c", "a", "b"] {
            found.add(&pod(name, ""), standard);
        }
        let warnings = found.into_warnings("n", standard, 3, 5);
        let expected = [
            "new PodSecurity enforce level only checked against the first 3 of 5 existing pods",
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:v1.30\"",
            "a (and 2 other pods): host namespaces",
        ];
        assert_eq!(warnings, expected);
    }
}
