//! The admission plugins that a flag turns on, and those that watch over the resize of pods.

use revstore_apiserver::auth::{AuthorizationMode, User};
use revstore_apiserver::{ApiServer, PluginNames};
use serde_json::{Value, json};

use crate::client::exchange::exchange;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn send(server: &ApiServer, method: &str, path: &str, object: &Value) -> (u16, Value) {
    send_as(server, "", method, path, object)
}

fn send_as(
    server: &ApiServer,
    user: &str,
    method: &str,
    path: &str,
    object: &Value,
) -> (u16, Value) {
    let media = match method {
        "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let token = match user {
        "" => String::new(),
        user => format!("Authorization: Bearer {user}\r\n"),
    };
    let fields = format!("Content-Type: {media}\r\n{token}");
    let (code, body) = exchange(
        server.endpoint(),
        method,
        path,
        &fields,
        &object.to_string(),
    );
    (code, serde_json::from_str(&body).unwrap_or_default())
}

fn with(plugin: &str) -> Result<ApiServer, Box<dyn std::error::Error>> {
    let plugins = PluginNames::new(vec![plugin.to_owned()], vec![])?;
    Ok(ApiServer::builder().admission_plugins(plugins).start()?)
}

/// A pod with one container, whose specification has further fields.
fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    if pod["spec"]["containers"].is_null() {
        pod["spec"]["containers"] = json!([{}]);
    }
    let container = &mut pod["spec"]["containers"][0];
    container["name"] = "c".into();
    if container["image"].is_null() {
        container["image"] = "i:1".into();
    }
    pod
}

#[test]
fn everything_is_refused_and_everything_else_is_as_without() -> TestResult {
    let map = json!({"metadata": {"name": "m"}});
    let (code, answer) = send(&with("AlwaysDeny")?, "POST", MAPS, &map);
    let message = "configmaps \"m\" is forbidden: admission control is denying all modifications";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    assert_eq!(send(&with("AlwaysAdmit")?, "POST", MAPS, &map).0, 201);
    let server = with("NamespaceExists")?;
    assert_eq!(send(&server, "POST", MAPS, &map).0, 201);
    let elsewhere = "/api/v1/namespaces/nowhere/configmaps";
    let (code, answer) = send(&server, "POST", elsewhere, &map);
    let message = "namespaces \"nowhere\" not found";
    assert_eq!((code, &answer["message"]), (404, &json!(message)));
    Ok(())
}

#[test]
fn images_are_pulled_always() -> TestResult {
    let server = with("AlwaysPullImages")?;
    let spec = json!({"initContainers": [{"name": "i", "image": "a:1", "imagePullPolicy": "Never"}],
        "containers": [{"imagePullPolicy": "IfNotPresent"}],
        "volumes": [{"name": "v", "image": {"reference": "r:1", "pullPolicy": "Never"}}]});
    let (code, created) = send(&server, "POST", PODS, &pod("p", &spec));
    assert_eq!(code, 201, "{created}");
    let spec = &created["spec"];
    for policy in [
        &spec["initContainers"][0]["imagePullPolicy"],
        &spec["containers"][0]["imagePullPolicy"],
        &spec["volumes"][0]["image"]["pullPolicy"],
    ] {
        assert_eq!(policy, "Always", "{created}");
    }
    Ok(())
}

#[test]
fn extended_resources_are_tolerated() -> TestResult {
    let server = with("ExtendedResourceToleration")?;
    let amounts = json!({"example.com/gpu": "1", "cpu": "1", "memory": "1Mi"});
    let limits = json!({"limits": amounts, "requests": amounts});
    let spec = json!({"containers": [{"resources": limits}], "tolerations": [
        {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "x", "operator": "Exists"}]});
    let (code, created) = send(&server, "POST", PODS, &pod("p", &spec));
    assert_eq!(code, 201, "{created}");
    let found = created["spec"]["tolerations"].to_string();
    assert_eq!(found.matches("example.com/gpu").count(), 1, "{found}");
    let spec = json!({"containers": [{"resources": limits}]});
    let (_, created) = send(&server, "POST", PODS, &pod("q", &spec));
    let expected = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    let tolerations = created["spec"]["tolerations"].as_array();
    assert!(
        tolerations.is_some_and(|all| all.contains(&expected)),
        "{created}"
    );
    Ok(())
}

#[test]
fn external_addresses_and_wide_affinities_are_refused() -> TestResult {
    let server = with("DenyServiceExternalIPs")?;
    let service = |addresses: &[&str]| json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": addresses}});
    let (code, answer) = send(&server, "POST", SERVICES, &service(&["8.8.8.8"]));
    let message = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    assert_eq!(send(&server, "POST", SERVICES, &service(&[])).0, 201);
    let server = with("LimitPodHardAntiAffinityTopology")?;
    let spec = |key: &str| {
        let term = json!({"topologyKey": key, "labelSelector": {}});
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        json!({"affinity": {"podAntiAffinity": terms}})
    };
    let (code, answer) = send(&server, "POST", PODS, &pod("p", &spec("zone")));
    let message = "pods \"p\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    let narrow = pod("p", &spec("kubernetes.io/hostname"));
    assert_eq!(send(&server, "POST", PODS, &narrow).0, 201);
    Ok(())
}

#[test]
fn owners_need_rights() -> TestResult {
    let plugins = vec!["OwnerReferencesPermissionEnforcement".to_owned()];
    let server = ApiServer::builder()
        .admission_plugins(PluginNames::new(plugins, vec![])?)
        .authorization_mode(AuthorizationMode::Rbac)
        .user("writer", User::new("writer", ["w"]))
        .user("finalizer", User::new("finalizer", ["f"]))
        .user("all", User::new("all", ["a"]))
        .start()?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let write = json!({"verbs": ["get", "create", "update", "patch"], "apiGroups": [""], "resources": ["configmaps"]});
    let finalize = json!({"verbs": ["update"], "apiGroups": ["apps"], "resources": ["deployments/finalizers"]});
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let delete = json!({"verbs": ["delete"], "apiGroups": [""], "resources": ["configmaps"]});
    for (name, rules) in [
        ("writer", json!([write])),
        ("finalizer", json!([write, finalize, delete])),
        ("all", json!([all])),
    ] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        assert_eq!(
            send(&server, "POST", &format!("{rbac}/clusterroles"), &role).0,
            201
        );
        let api = "rbac.authorization.k8s.io";
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": name}]});
        let path = format!("{rbac}/clusterrolebindings");
        assert_eq!(send(&server, "POST", &path, &binding).0, 201);
    }
    let owner = |kind: &str, blocks: bool| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": "u", "blockOwnerDeletion": blocks}]);
    let map =
        |name: &str, owners: Value| json!({"metadata": {"name": name, "ownerReferences": owners}});
    let refused = |(code, answer): (u16, Value), text: &str| {
        assert_eq!(code, 403, "{answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(text), "{message}");
    };
    // Whoever creates an object may give it an owner, but not one whose deletion it blocks.
    let plain = map("a", owner("Deployment", false));
    assert_eq!(send_as(&server, "writer", "POST", MAPS, &plain).0, 201);
    let blocking = map("b", owner("Deployment", true));
    let text = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    refused(send_as(&server, "writer", "POST", MAPS, &blocking), text);
    assert_eq!(
        send_as(&server, "finalizer", "POST", MAPS, &blocking).0,
        201
    );
    let unknown = map("c", owner("Nothing", true));
    let text = "cannot find RESTMapping for APIVersion apps/v1 Kind Nothing: no matches for kind \"Nothing\" in version \"apps/v1\"";
    refused(send_as(&server, "finalizer", "POST", MAPS, &unknown), text);
    // Whoever may do all is not asked which kinds there are.
    assert_eq!(send_as(&server, "all", "POST", MAPS, &unknown).0, 201);
    let free = map("e", json!([]));
    assert_eq!(send_as(&server, "writer", "POST", MAPS, &free).0, 201);
    let dependent = map("e", owner("Deployment", false));
    let text = "cannot set an ownerRef on a resource you can't delete: , <nil>";
    refused(
        send_as(&server, "writer", "PUT", &format!("{MAPS}/e"), &dependent),
        text,
    );
    assert_eq!(
        send_as(
            &server,
            "finalizer",
            "PUT",
            &format!("{MAPS}/e"),
            &dependent
        )
        .0,
        200
    );
    // An unchanged owner needs no right.
    let mut labeled = dependent;
    labeled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(
        send_as(&server, "writer", "PUT", &format!("{MAPS}/e"), &labeled).0,
        200
    );
    Ok(())
}

#[test]
fn pods_are_resized_where_there_is_room() -> TestResult {
    let server = ApiServer::builder().start()?;
    let nodes = "/api/v1/nodes";
    for (name, os) in [("n1", "linux"), ("n2", "windows")] {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}});
        assert_eq!(send(&server, "POST", nodes, &node).0, 201);
    }
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
    for (number, node) in ["n1", "n2", "gone"].iter().enumerate() {
        let spec = json!({"nodeName": node, "containers": [{"resources": resources("100m")}],
            "initContainers": [{"name": "i", "image": "i:1", "resources": resources("100m")}]});
        let (code, created) = send(&server, "POST", PODS, &pod(&format!("p{number}"), &spec));
        assert_eq!(code, 201, "{created}");
    }
    let resize = |pod: &str, list: &str, cpu: &str| {
        let name = if list == "containers" { "c" } else { "i" };
        let patch = json!({"spec": {list: [{"name": name, "resources": resources(cpu)}]}});
        send(&server, "PATCH", &format!("{PODS}/{pod}/resize"), &patch)
    };
    assert_eq!(resize("p0", "containers", "200m").0, 200);
    let (code, answer) = resize("p0", "containers", "5");
    let message = "pods \"p0\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 1000";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    assert_eq!(
        answer["details"]["causes"],
        json!([{"reason": "NodeCapacity"}])
    );
    let (code, answer) = resize("p1", "containers", "200m");
    let message = "pods \"p1\" is forbidden: pod resize is only supported on linux nodes, node \"n2\" is \"windows\"";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    let (code, answer) = resize("p2", "containers", "200m");
    let message = "pods \"p2\" is forbidden: node \"gone\" not found";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    // A change without an effect asks for no node.
    assert_eq!(resize("p2", "containers", "100m").0, 200);
    let (code, answer) = resize("p0", "initContainers", "300m");
    let message = "pods \"p0\" is forbidden: pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node \"n1\"";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    let features =
        json!({"status": {"declaredFeatures": ["InPlacePodVerticalScalingInitContainers"]}});
    assert_eq!(
        send(&server, "PATCH", &format!("{nodes}/n1/status"), &features).0,
        200
    );
    let (code, answer) = resize("p0", "initContainers", "300m");
    assert_eq!(code, 200, "{answer}");
    Ok(())
}

#[test]
fn namespaces_are_created_with_their_first_object() -> TestResult {
    let server = with("NamespaceAutoProvision")?;
    let map = json!({"metadata": {"name": "m"}});
    let elsewhere = "/api/v1/namespaces/elsewhere/configmaps";
    let dry = format!("{elsewhere}?dryRun=All");
    assert_eq!(send(&server, "POST", &dry, &map).0, 404);
    let (code, created) = send(&server, "POST", elsewhere, &map);
    assert_eq!(code, 201, "{created}");
    let (code, namespace) = send(&server, "GET", "/api/v1/namespaces/elsewhere", &json!(null));
    assert_eq!(code, 200, "{namespace}");
    assert_eq!(namespace["status"]["phase"], "Active");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let (code, answer) = send(&server, "POST", "/api/v1/namespaces/A_B/configmaps", &map);
    assert!(
        code == 403 && !answer["message"].is_null(),
        "{code} {answer}"
    );
    Ok(())
}

const DEFAULT: &str = "/api/v1/namespaces/default";

fn annotate(server: &ApiServer, annotations: &Value) {
    let patch = json!({"metadata": {"annotations": annotations}});
    let (code, answer) = send(server, "PATCH", DEFAULT, &patch);
    assert_eq!(code, 200, "{answer}");
}

#[test]
fn pods_run_on_the_nodes_of_their_namespace() -> TestResult {
    const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
    let server = with("PodNodeSelector")?;
    let plain = send(&server, "POST", PODS, &pod("plain", &json!({}))).1;
    assert_eq!(plain["spec"]["nodeSelector"], Value::Null);
    annotate(&server, &json!({ANNOTATION: "zone=a, disk=ssd"}));
    let spec = json!({"nodeSelector": {"zone": "a", "x": "y"}});
    let (code, created) = send(&server, "POST", PODS, &pod("p", &spec));
    assert_eq!(code, 201, "{created}");
    let expected = json!({"zone": "a", "disk": "ssd", "x": "y"});
    assert_eq!(created["spec"]["nodeSelector"], expected);
    let spec = json!({"nodeSelector": {"zone": "b"}});
    let (code, answer) = send(&server, "POST", PODS, &pod("q", &spec));
    let message = "pods \"q\" is forbidden: pod node label selector conflicts with its namespace node label selector";
    assert_eq!((code, &answer["message"]), (403, &json!(message)));
    annotate(&server, &json!({ANNOTATION: "zone"}));
    let (code, answer) = send(&server, "POST", PODS, &pod("r", &json!({})));
    let message = "invalid selector: [zone]";
    assert_eq!((code, &answer["message"]), (500, &json!(message)));
    // Others than new pods are not looked at.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, "PATCH", &format!("{PODS}/p"), &labels).0, 200);
    Ok(())
}

#[test]
fn pods_have_the_tolerations_that_their_namespace_permits() -> TestResult {
    let server = with("PodTolerationRestriction")?;
    let keys = |pod: &Value| -> Vec<String> {
        let list = pod["spec"]["tolerations"].as_array().cloned();
        let key = |it: &Value| it["key"].as_str().unwrap_or_default().to_owned();
        list.unwrap_or_default().iter().map(key).collect()
    };
    let requests = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]});
    let own = [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ];
    let pressure = "node.kubernetes.io/memory-pressure";
    let plain = send(&server, "POST", PODS, &pod("plain", &json!({}))).1;
    assert_eq!(keys(&plain), own);
    let burst = send(&server, "POST", PODS, &pod("burst", &requests)).1;
    assert_eq!(keys(&burst), [own[0], own[1], pressure]);
    let list = |tolerations: &Value| tolerations.to_string();
    let gpu = json!([{"key": "gpu", "operator": "Exists"}]);
    annotate(
        &server,
        &json!({
            "scheduler.alpha.kubernetes.io/defaultTolerations": list(&gpu),
            "scheduler.alpha.kubernetes.io/tolerationsWhitelist": list(&json!([
                gpu[0],
                {"key": own[0], "operator": "Exists"},
                {"key": own[1], "operator": "Exists"},
            ])),
        }),
    );
    let (code, created) = send(&server, "POST", PODS, &pod("p", &json!({})));
    assert_eq!(code, 201, "{created}");
    assert_eq!(keys(&created), [own[0], own[1], "gpu"]);
    let spec = json!({"tolerations": [{"key": "x", "operator": "Exists"}]});
    let message = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace \
                   whitelist";
    for spec in [spec, requests] {
        let (code, answer) = send(&server, "POST", PODS, &pod("q", &spec));
        assert_eq!((code, &answer["message"]), (500, &json!(message)));
    }
    annotate(
        &server,
        &json!({"scheduler.alpha.kubernetes.io/defaultTolerations": "x"}),
    );
    let (code, answer) = send(&server, "POST", PODS, &pod("r", &json!({})));
    assert_eq!(code, 500, "{answer}");
    Ok(())
}
