//! The subresources of built-in kinds that are functions from an object and a request body to a new version,
//! as recorded from kube-apiserver 1.36.

use std::sync::Arc;

use revstore_apiserver::builtin::{
    EvictionCase, Rules, approve, bind, binding_conditions, budget_of, count_eviction,
    counts_eviction, finalize_namespace, mark_evicted, resize, scale_of, set_ephemeral_containers,
    set_scale, warnings,
};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use revstore_watch_cache::status::{Reason, Status};
use serde_json::{Value, json};

const NOW: &str = "2024-01-01T00:00:00Z";

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}

fn rules(group: &str, version: &str, kind: &str) -> Rules {
    Rules::new(group, version, kind, Arc::new(|| NOW.to_owned()))
}

fn status(error: RequestError) -> Status {
    match error {
        RequestError::Reported(status) => *status,
        other => panic!("{other}"),
    }
}

fn fields(error: RequestError) -> Vec<String> {
    let details = status(error).details.unwrap_or_default();
    details
        .causes
        .into_iter()
        .map(|cause| cause.field)
        .collect()
}

fn pod(spec: &Value) -> JsonObject {
    let mut pod = object(&json!({"metadata": {"name": "p"}, "spec": spec}));
    let prepared = rules("", "v1", "Pod").prepare_create(&mut pod);
    prepared.expect("defaults do not fail");
    pod
}

fn plain_pod() -> JsonObject {
    pod(&json!({"containers": [{"name": "c", "image": "img:1"}]}))
}

#[test]
fn a_binding_sets_the_node_once() {
    let binding = object(&json!({"metadata": {"name": "p"}, "target": {"name": "n"}}));
    let bound = bind(&plain_pod(), &binding, NOW).unwrap();
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let error = status(bind(&bound, &binding, NOW).unwrap_err());
    assert_eq!(
        error.message,
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
    assert!(bind(&plain_pod(), &object(&json!({})), NOW).is_err());
    let mut nominated = plain_pod();
    nominated["status"]["nominatedNodeName"] = "m".into();
    let bound = bind(&nominated, &binding, NOW).unwrap();
    assert_eq!(bound["status"].get("nominatedNodeName"), None);
    assert_eq!(binding_conditions(&binding), Preconditions::default());
    let binding = object(&json!({"metadata": {"uid": "u", "resourceVersion": "7"}}));
    assert_eq!(
        binding_conditions(&binding),
        Preconditions::default().uid("u").resource_version("7")
    );
}

#[test]
fn the_generation_counts_resizes_and_not_bindings() {
    let rules = rules("", "v1", "Pod");
    assert!(rules.prepared(true).has_generation());
    assert!(!rules.prepared(false).has_generation());
    let old = plain_pod();
    let binding = object(&json!({"target": {"name": "n"}}));
    let bound = bind(&old, &binding, NOW).unwrap();
    let mut new = bound.clone();
    let prepared = rules.prepared(false);
    prepared.prepare_update(&mut new, &old).unwrap();
    assert_eq!(new, bound);
    assert!(prepared.validate_update(&new, &old).is_empty());
    // As an ordinary update it is refused.
    assert!(!rules.validate_update(&new, &old).is_empty());
}

#[test]
fn ephemeral_containers_are_only_added() {
    let old = plain_pod();
    let with = |containers: Value| {
        let mut new = old.clone();
        new["spec"]["ephemeralContainers"] = containers;
        new
    };
    let first = with(json!([{"name": "d1", "image": "dbg:1"}]));
    let one = set_ephemeral_containers(&old, &first).unwrap();
    let container = &one["spec"]["ephemeralContainers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    // The signal belongs to a feature that is off, and no other field of the life cycle is allowed.
    let stopped =
        with(json!([{"name": "d1", "image": "dbg:1", "lifecycle": {"stopSignal": "SIGTERM"}}]));
    assert_eq!(set_ephemeral_containers(&old, &stopped).unwrap(), one);
    let changed = with(json!([{"name": "d1", "image": "dbg:2"}]));
    let error = set_ephemeral_containers(&one, &changed).unwrap_err();
    assert_eq!(fields(error), ["spec.ephemeralContainers"]);
    let error = set_ephemeral_containers(&one, &old).unwrap_err();
    assert_eq!(fields(error), ["spec.ephemeralContainers"]);
    let same_name = with(json!([{"name": "c", "image": "x"}]));
    let error = set_ephemeral_containers(&old, &same_name).unwrap_err();
    assert_eq!(fields(error), ["spec.ephemeralContainers[0].name"]);
}

#[test]
fn a_resize_changes_resources_and_keeps_the_class() {
    let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "64Mi"});
    let resources = |requests: &str, limits: &str| json!({"requests": amounts(requests), "limits": amounts(limits)});
    let old = pod(&json!({"containers": [
        {"name": "c", "image": "img:1", "resources": resources("100m", "100m")},
    ]}));
    assert_eq!(old["status"]["qosClass"], "Guaranteed");
    let mut wanted = old.clone();
    wanted["spec"]["containers"][0]["resources"] = resources("200m", "200m");
    wanted["spec"]["containers"][0]["image"] = "img:2".into();
    wanted["metadata"]["labels"] = json!({"a": "b"});
    let resized = resize(&old, &wanted).unwrap();
    let container = &resized["spec"]["containers"][0];
    assert_eq!(container["resources"], resources("200m", "200m"));
    assert_eq!(container["image"], "img:1");
    assert_eq!(resized["metadata"], old["metadata"]);
    wanted["spec"]["containers"][0]["resources"] = resources("50m", "100m");
    let error = status(resize(&old, &wanted).unwrap_err());
    let causes = &error.details.as_ref().unwrap().causes;
    assert_eq!(causes.len(), 1);
    assert_eq!(
        causes[0].to_string(),
        "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"
    );
    // Resources that are not of CPU or memory stay.
    wanted["spec"]["containers"][0]["resources"] = resources("100m", "100m");
    wanted["spec"]["containers"][0]["resources"]["limits"]["example.com/x"] = "1".into();
    wanted["spec"]["containers"][0]["resources"]["requests"]["example.com/x"] = "1".into();
    assert_eq!(fields(resize(&old, &wanted).unwrap_err()), ["spec"]);
}

#[test]
fn budgets_forbid_and_count_evictions() {
    let mut running = plain_pod();
    running["metadata"]["labels"] = json!({"app": "x"});
    running["status"]["phase"] = "Running".into();
    running["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let budget = |status: Value| {
        object(&json!({
            "metadata": {"name": "b", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": status,
        }))
    };
    let count = |budget: &JsonObject| count_eviction(budget, "p", NOW);
    let error = status(count(&budget(json!({}))).unwrap_err());
    assert_eq!((error.code, error.retry_after_seconds()), (429, Some(10)));
    let exhausted = budget(json!({
        "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
    }));
    let error = status(count(&exhausted).unwrap_err());
    assert_eq!(
        (error.reason, error.retry_after_seconds()),
        (Some(Reason::TooManyRequests), None)
    );
    assert_eq!(
        error.details.unwrap().causes[0].message,
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    let open = budget(json!({
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1,
    }));
    let counted = count(&open).unwrap();
    assert_eq!(counted["status"]["disruptionsAllowed"], 0);
    assert_eq!(counted["status"]["disruptedPods"], json!({"p": NOW}));
    assert_eq!(
        counted["status"]["conditions"][0]["reason"],
        "InsufficientPods"
    );
    assert!(counts_eviction(&open, &running));
    let mut unready = running.clone();
    unready["status"]["conditions"] = json!([]);
    assert!(!counts_eviction(&open, &unready));
    let budgets = [open.clone()];
    assert_eq!(budget_of(&running, &budgets).unwrap(), Some(&open));
    assert!(budget_of(&running, &[open.clone(), open]).is_err());
    assert_eq!(budget_of(&plain_pod(), &budgets).unwrap(), None);
    assert_eq!(EvictionCase::of(&running), EvictionCase::Running);
    assert_eq!(EvictionCase::of(&plain_pod()), EvictionCase::Pending);
    running["metadata"]["deletionTimestamp"] = NOW.into();
    assert_eq!(EvictionCase::of(&running), EvictionCase::Ended);
}

#[test]
fn an_eviction_changes_one_condition_of_the_latest_pod() {
    let mut pod = plain_pod();
    pod["metadata"]["uid"] = "u".into();
    pod["metadata"]["resourceVersion"] = "7".into();
    pod["status"]["message"] = "newer".into();
    let conditions = Preconditions::default().uid("u").resource_version("7");
    let marked = mark_evicted(&pod, &conditions, NOW).unwrap();
    let mut without = marked.clone();
    let list = without["status"]["conditions"].as_array_mut().unwrap();
    assert_eq!(list.pop().unwrap()["type"], "DisruptionTarget");
    assert!(list.is_empty());
    without["status"]
        .as_object_mut()
        .unwrap()
        .remove("conditions");
    assert_eq!(without, pod);
    for (conditions, text) in [
        (
            Preconditions::default().uid("v"),
            "the UID in the precondition (v) does not match the UID in record (u). The object might have been deleted \
             and then recreated",
        ),
        (
            Preconditions::default().resource_version("6"),
            "the ResourceVersion in the precondition (6) does not match the ResourceVersion in record (7). The object \
             might have been modified",
        ),
    ] {
        let error = status(mark_evicted(&pod, &conditions, NOW).unwrap_err());
        assert_eq!(error.code, 409);
        assert_eq!(
            error.message,
            format!("Operation cannot be fulfilled on Pod \"p\": {text}")
        );
    }
}

#[test]
fn pods_without_a_node_have_no_grace() {
    let rules = rules("", "v1", "Pod");
    let mut pod = plain_pod();
    assert_eq!(rules.grace_period_seconds(&pod, Some(10)), 0);
    pod["spec"]["nodeName"] = "n".into();
    assert_eq!(rules.grace_period_seconds(&pod, None), 30);
    assert_eq!(rules.grace_period_seconds(&pod, Some(5)), 5);
    assert_eq!(rules.grace_period_seconds(&pod, Some(-5)), 1);
    pod["status"]["phase"] = "Succeeded".into();
    assert_eq!(rules.grace_period_seconds(&pod, None), 0);
}

#[test]
fn scales_show_and_set_the_replicas() {
    let deployment = object(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}},
    }));
    let scale = scale_of(&deployment);
    assert_eq!(
        Value::Object(scale.clone()),
        json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 2},
            "status": {"replicas": 0, "selector": "app=x"},
        })
    );
    let mut wanted = scale;
    wanted["spec"]["replicas"] = 5.into();
    let scaled = set_scale(&deployment, &wanted).unwrap();
    assert_eq!(scaled["spec"]["replicas"], 5);
    assert_eq!(scaled["metadata"]["resourceVersion"], "7");
    wanted["spec"]["replicas"] = (-1).into();
    let error = status(set_scale(&deployment, &wanted).unwrap_err());
    assert_eq!(
        error.message,
        "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or \
         equal to 0"
    );
}

#[test]
fn approvals_get_their_times_and_stay() {
    let request = object(&json!({"metadata": {"name": "r"}, "status": {}}));
    let with = |condition: Value| {
        let mut requested = request.clone();
        requested["status"] = json!({"conditions": [condition]});
        requested
    };
    let approved = with(json!({"type": "Approved", "status": "True", "reason": "R"}));
    let approved = approve(&request, &approved, NOW).unwrap();
    assert_eq!(approved["status"]["conditions"][0]["lastUpdateTime"], NOW);
    let denied = with(json!({"type": "Denied", "status": "True"}));
    let error = status(approve(&approved, &denied, NOW).unwrap_err());
    assert_eq!(
        error.message,
        "CertificateSigningRequest.certificates.k8s.io \"r\" is invalid: status.conditions: Forbidden: \
         updates may not remove a condition of type \"Approved\""
    );
    // The ordinary path changes neither the spec nor the status.
    let rules = rules("certificates.k8s.io", "v1", "CertificateSigningRequest");
    let mut changed = approved.clone();
    changed.insert("spec".to_owned(), json!({"signerName": "example.com/t"}));
    changed.remove("status");
    rules.prepare_update(&mut changed, &approved).unwrap();
    assert_eq!(changed, approved);
}

// With a search through all conditions for each, this takes minutes.
#[test]
fn times_of_many_conditions_are_set_in_linear_time() {
    const CONDITIONS: usize = 40_000;
    let conditions = |time: Option<&str>| -> Value {
        let condition = |number: usize| {
            let mut condition = json!({"type": format!("t{number}"), "status": "True"});
            if let Some(time) = time {
                condition["lastTransitionTime"] = format!("{time}{number}").into();
            }
            condition
        };
        (0..CONDITIONS).rev().map(condition).collect()
    };
    let request = |conditions: Value| {
        object(&json!({"metadata": {"name": "r"}, "status": {"conditions": conditions}}))
    };
    let approved = approve(
        &request(conditions(Some("old"))),
        &request(conditions(None)),
        NOW,
    );
    let approved = approved.unwrap();
    let first = &approved["status"]["conditions"][0];
    assert_eq!(
        first["lastTransitionTime"],
        format!("old{}", CONDITIONS - 1)
    );
    // Another status is a transition.
    let other = json!([{"type": "t1", "status": "False"}]);
    let old = request(
        json!([{"type": "t1", "status": "True", "lastTransitionTime": "old"},
        {"type": "t1", "status": "False"}]),
    );
    let stamped = approve(&old, &request(other), NOW).unwrap();
    let condition = &stamped["status"]["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], NOW);
}

#[test]
fn finalizers_of_namespaces_change_through_their_subresource() {
    let mut namespace = object(&json!({"metadata": {"name": "n"}}));
    let rules = rules("", "v1", "Namespace");
    rules.prepare_create(&mut namespace).unwrap();
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let mut without = namespace.clone();
    without["spec"]["finalizers"] = json!([]);
    let finalized = finalize_namespace(&namespace, &without).unwrap();
    assert_eq!(finalized["spec"]["finalizers"], json!([]));
    rules.prepare_update(&mut without, &namespace).unwrap();
    assert_eq!(without, namespace);
    let bad = object(&json!({"spec": {"finalizers": ["plain"]}}));
    let error = finalize_namespace(&namespace, &bad).unwrap_err();
    assert_eq!(fields(error), ["spec.finalizers[0]"]);
}

#[test]
fn hidden_variables_are_warned_of() {
    let pod = object(
        &json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "env": [
                {"name": "X", "value": "1"}, {"name": "X", "value": "2"}, {"name": "X", "value": "$(X)3"},
            ]},
        ]}}),
    );
    assert_eq!(
        warnings(&pod, None),
        [
            "spec.containers[0].env[1]: hides previous definition of \"X\", which may be dropped when using \
          apply"
        ]
    );
}

#[test]
fn values_of_the_wrong_type_are_no_panic() {
    for kind in [
        "Pod",
        "Service",
        "Deployment",
        "Job",
        "Secret",
        "Node",
        "Namespace",
        "Ingress",
    ] {
        let group = match kind {
            "Deployment" => "apps",
            "Job" => "batch",
            "Ingress" => "networking.k8s.io",
            _ => "",
        };
        let rules = rules(group, "v1", kind);
        for wrong in [
            json!(1),
            json!("x"),
            json!([1]),
            json!([[]]),
            json!({"containers": 3}),
            json!(null),
        ] {
            let mut object = object(&json!({"metadata": wrong, "spec": wrong, "status": wrong}));
            object.insert("data".to_owned(), wrong.clone());
            let old = object.clone();
            rules.prepare_create(&mut object).unwrap();
            rules.validate_create(&object);
            rules.prepare_update(&mut object, &old).unwrap();
            rules.validate_update(&object, &old);
            warnings(&object, Some(&old));
        }
    }
}
