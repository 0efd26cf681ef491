//! The chain of admission plugins.

use crate::client::exchange::exchange;
use revstore_apiserver::{ApiServer, PluginNames};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Sends one request, and returns the status and the body of the answer.
fn send(server: &ApiServer, method: &str, path: &str, body: &str) -> (u16, String) {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let fields = format!("Content-Type: {content_type}\r\n");
    exchange(server.endpoint(), method, path, &fields, body)
}

fn value((code, body): &(u16, String)) -> (u16, Value) {
    (*code, serde_json::from_str(body).unwrap_or_default())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn post(server: &ApiServer, path: &str, object: &Value) -> (u16, Value) {
    value(&send(server, "POST", path, &object.to_string()))
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn range(name: &str, limit: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"limits": [limit]}})
}

#[test]
fn namespaces_of_the_system_cannot_be_deleted() -> TestResult {
    let server = ApiServer::builder().start()?;
    for name in ["default", "kube-system", "kube-public"] {
        for query in ["", "?dryRun=All"] {
            let path = format!("/api/v1/namespaces/{name}{query}");
            let (code, status) = value(&send(&server, "DELETE", &path, ""));
            let message =
                format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
            assert_eq!((code, &status["message"]), (403, &json!(message)));
        }
    }
    let (code, _) = send(&server, "DELETE", "/api/v1/namespaces/kube-node-lease", "");
    assert_eq!(code, 200);
    // Nothing is created or updated in one that is not there.
    let (code, status) = post(&server, "/api/v1/namespaces/none/pods", &pod("p"));
    assert_eq!(
        (code, &status["message"]),
        (404, &json!("namespaces \"none\" not found"))
    );
    Ok(())
}

#[test]
fn plugins_that_are_off_do_nothing() -> TestResult {
    let off = ["DefaultTolerationSeconds", "NamespaceLifecycle", "Priority"];
    let plugins = PluginNames::new(vec![], names(&off))?;
    let server = ApiServer::builder().admission_plugins(plugins).start()?;
    let (code, created) = post(&server, PODS, &pod("p"));
    assert_eq!(code, 201);
    assert_eq!(created["spec"].get("tolerations"), None);
    assert_eq!(created["spec"].get("priority"), None);
    let (code, _) = send(&server, "DELETE", "/api/v1/namespaces/kube-public", "");
    assert_eq!(code, 200);
    Ok(())
}

#[test]
fn what_admission_gives_belongs_to_no_manager() -> TestResult {
    let server = ApiServer::builder().start()?;
    let (_, created) = post(&server, PODS, &pod("p"));
    assert_eq!(
        created["spec"]["tolerations"].as_array().map(Vec::len),
        Some(2)
    );
    let entries = created["metadata"]["managedFields"].to_string();
    assert!(
        entries.contains("f:containers") && !entries.contains("f:tolerations"),
        "{entries}"
    );
    // An update without these fields keeps them.
    let mut update = created.clone();
    for name in ["priority", "preemptionPolicy", "tolerations"] {
        update["spec"].as_object_mut().map(|spec| spec.remove(name));
    }
    let path = format!("{PODS}/p");
    let (code, updated) = value(&send(&server, "PUT", &path, &update.to_string()));
    assert_eq!((code, &updated["spec"]), (200, &created["spec"]));
    Ok(())
}

#[test]
fn limit_ranges_give_defaults_and_refuse() -> TestResult {
    let server = ApiServer::builder().start()?;
    let limit = json!({"type": "Container", "default": {"cpu": "200m", "memory": "1Gi"},
        "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}, "min": {"cpu": "10m"},
        "maxLimitRequestRatio": {"cpu": "4"}});
    let (code, _) = post(&server, RANGES, &range("l", &limit));
    assert_eq!(code, 201);
    // Also a dry run.
    let (code, dry) = post(&server, &format!("{PODS}?dryRun=All"), &pod("p"));
    assert_eq!(code, 201);
    let given = json!({"limits": {"cpu": "200m", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "1Gi"}});
    assert_eq!(dry["spec"]["containers"][0]["resources"], given);
    assert_eq!(
        dry["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    );
    let mut greedy = pod("q");
    greedy["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1m"}});
    let (code, status) = post(&server, PODS, &greedy);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods \"q\" is forbidden: [minimum cpu usage per Container is 10m, but request is 1m, maximum cpu usage per \
         Container is 1, but limit is 3, cpu max limit to request ratio per Container is 4, but provided ratio is \
         3000.000000]"
    );
    // A name that is generated is refused by its prefix.
    greedy["metadata"] = json!({"generateName": "g-"});
    let (_, status) = post(&server, PODS, &greedy);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("pods \"g-"), "{message}");
    // Apply and deletion of the range count at once.
    let (code, _) = send(&server, "DELETE", &format!("{RANGES}/l"), "");
    assert_eq!(code, 200);
    let (code, created) = post(&server, PODS, &pod("p"));
    assert_eq!(
        (code, &created["metadata"]["annotations"]),
        (201, &Value::Null)
    );
    Ok(())
}

#[test]
fn limit_ranges_count_whole_pods_with_many_containers_and_claims() -> TestResult {
    let server = ApiServer::builder().start()?;
    let limit = json!({"type": "Pod", "max": {"cpu": "10"}});
    assert_eq!(post(&server, RANGES, &range("p", &limit)).0, 201);
    let limit = json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}});
    assert_eq!(post(&server, RANGES, &range("c", &limit)).0, 201);
    let container = |number: usize| {
        let cpu = json!({"cpu": "11m"});
        json!({"name": format!("c{number}"), "image": "i:1", "resources": {"limits": cpu}})
    };
    let containers: Vec<Value> = (0..1000).map(container).collect();
    let mut many = pod("many");
    many["spec"]["containers"] = json!(containers);
    let (code, status) = post(&server, PODS, &many);
    assert_eq!(
        (code, &status["message"]),
        (
            403,
            &json!("pods \"many\" is forbidden: maximum cpu usage per Pod is 10, but limit is 11")
        )
    );
    let claim = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}}});
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let (code, status) = post(&server, path, &claim);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "persistentvolumeclaims \"v\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but \
         request is 2Gi"
    );
    Ok(())
}

#[test]
fn pods_get_the_priority_of_their_class_or_of_the_default_one() -> TestResult {
    let server = ApiServer::builder().start()?;
    for (name, value) in [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ] {
        let mut critical = pod(name);
        critical["spec"]["priorityClassName"] = name.into();
        let (code, created) = post(&server, "/api/v1/namespaces/kube-system/pods", &critical);
        assert_eq!((code, &created["spec"]["priority"]), (201, &json!(value)));
    }
    let class = json!({"metadata": {"name": "high"}, "value": 7, "globalDefault": true});
    assert_eq!(post(&server, CLASSES, &class).0, 201);
    let second = json!({"metadata": {"name": "higher"}, "value": 8, "globalDefault": true});
    let (code, status) = post(&server, CLASSES, &second);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "priorityclasses.scheduling.k8s.io \"higher\" is forbidden: PriorityClass high is already marked as default. \
         Only one default can exist"
    );
    let (_, created) = post(&server, PODS, &pod("p"));
    let spec = &created["spec"];
    assert_eq!(
        (&spec["priority"], &spec["priorityClassName"]),
        (&json!(7), &json!("high"))
    );
    let mut wrong = pod("q");
    wrong["spec"]["preemptionPolicy"] = "Never".into();
    let (code, _) = post(&server, PODS, &wrong);
    assert_eq!(code, 403);
    Ok(())
}

#[test]
fn claims_and_ingresses_get_the_newest_default_class() -> TestResult {
    let server = ApiServer::builder().start()?;
    let class = json!({"metadata": {"name": "s", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "x"});
    assert_eq!(
        post(&server, "/apis/storage.k8s.io/v1/storageclasses", &class).0,
        201
    );
    let claim = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let (_, created) = post(&server, path, &claim);
    assert_eq!(created["spec"]["storageClassName"], "s");
    assert_eq!(
        created["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    // It is not bound.
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}).to_string();
    let (code, status) = value(&send(&server, "PATCH", &format!("{path}/v"), &larger));
    assert!(code == 403 || code == 422, "{status}");
    let class = json!({"metadata": {"name": "i", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "e.com/c"}});
    assert_eq!(
        post(&server, "/apis/networking.k8s.io/v1/ingressclasses", &class).0,
        201
    );
    let ingress = json!({"metadata": {"name": "g"},
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let (_, created) = post(&server, path, &ingress);
    assert_eq!(created["spec"]["ingressClassName"], "i");
    Ok(())
}

#[test]
fn claims_are_completed_and_administrators_need_a_namespace_of_theirs() -> TestResult {
    let server = ApiServer::builder().start()?;
    let label = json!({"resource.kubernetes.io/admin-access": "true"});
    for (name, labels) in [("plain", json!({})), ("admins", label)] {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        assert_eq!(post(&server, "/api/v1/namespaces", &namespace).0, 201);
    }
    let base = |namespace: &str| format!("/apis/resource.k8s.io/v1/namespaces/{namespace}");
    let spec = json!({"devices": {"requests": [
        {"name": "a", "exactly": {"deviceClassName": "x", "adminAccess": true}},
        {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "x", "allocationMode": "All"},
            {"name": "d", "deviceClassName": "x", "count": 2}]}]}});
    let claim = json!({"metadata": {"name": "c"}, "spec": spec});
    let template = json!({"metadata": {"name": "c"}, "spec": {"spec": spec}});
    let detail = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on \
        the containing namespace";
    for (plural, object, pointer) in [
        ("resourceclaims", &claim, "/spec/devices/requests"),
        (
            "resourceclaimtemplates",
            &template,
            "/spec/spec/devices/requests",
        ),
    ] {
        let (code, status) = post(&server, &format!("{}/{plural}", base("plain")), object);
        assert_eq!(code, 422);
        let causes = json!([{"field": "spec.devices.requests[0].adminAccess", "message": detail,
            "reason": "FieldValueForbidden"}]);
        assert_eq!(status["details"]["causes"], causes);
        // An apply that creates is checked, too.
        let fields = "Content-Type: application/apply-patch+yaml\r\n";
        let path = format!("{}/{plural}/c?fieldManager=m", base("plain"));
        let kind = if plural == "resourceclaims" {
            "ResourceClaim"
        } else {
            "ResourceClaimTemplate"
        };
        let mut applied = object.clone();
        applied["apiVersion"] = json!("resource.k8s.io/v1");
        applied["kind"] = json!(kind);
        let answer = exchange(
            server.endpoint(),
            "PATCH",
            &path,
            fields,
            &applied.to_string(),
        );
        assert_eq!(
            (answer.0, &value(&answer).1["details"]["causes"]),
            (422, &causes)
        );

        let (code, created) = post(&server, &format!("{}/{plural}", base("admins")), object);
        assert_eq!(code, 201);
        let expected = json!([
            {"name": "a", "exactly": {"deviceClassName": "x", "adminAccess": true, "allocationMode": "ExactCount",
                "count": 1}},
            {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "x", "allocationMode": "All"},
                {"name": "d", "deviceClassName": "x", "allocationMode": "ExactCount", "count": 2}]}]);
        assert_eq!(created.pointer(pointer), Some(&expected));
    }
    // The same for the devices that a status names.
    let path = format!("{}/resourceclaims", base("plain"));
    let claim = json!({"metadata": {"name": "s"}, "spec": {"devices": {"requests": [{"name": "r",
        "exactly": {"deviceClassName": "x"}}]}}});
    assert_eq!(post(&server, &path, &claim).0, 201);
    let result = |access: bool| {
        json!({"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d.e", "pool": "p",
            "device": "x", "adminAccess": access}]}}}})
    };
    let write = |access| {
        send(
            &server,
            "PATCH",
            &format!("{path}/s/status"),
            &result(access).to_string(),
        )
    };
    let refused = value(&write(true));
    let causes = &refused.1["details"]["causes"];
    assert_eq!((refused.0, &causes[0]["message"]), (422, &json!(detail)));
    assert_eq!(
        causes[0]["field"],
        "status.allocation.devices.results[0].adminAccess"
    );
    assert_eq!(write(false).0, 200);
    Ok(())
}
