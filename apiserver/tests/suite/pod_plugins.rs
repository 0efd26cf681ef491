//! The admission plugins about the accounts, classes, tolerations and labels of pods.

use crate::client::exchange::exchange;
use revstore_apiserver::{ApiServer, Controllers, PluginNames, TolerationSeconds};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn post(server: &ApiServer, path: &str, object: &Value) -> (u16, Value) {
    let fields = "Content-Type: application/json\r\n";
    let (code, body) = exchange(server.endpoint(), "POST", path, fields, &object.to_string());
    (code, serde_json::from_str(&body).unwrap_or_default())
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i:1"}]);
    pod
}

fn with_accounts() -> Result<ApiServer, Box<dyn std::error::Error>> {
    let plugins = PluginNames::new(vec!["ServiceAccount".to_owned()], vec![])?;
    Ok(ApiServer::builder().admission_plugins(plugins).start()?)
}

#[test]
fn pods_need_no_account_unless_the_plugin_is_on() -> TestResult {
    let server = ApiServer::builder().start()?;
    let (code, created) = post(&server, PODS, &pod("p", &json!({"serviceAccount": "a"})));
    assert_eq!(code, 201);
    assert_eq!(created["spec"]["serviceAccountName"], "a");
    assert_eq!(created["spec"].get("volumes"), None);
    Ok(())
}

#[test]
fn a_pod_without_its_account_is_refused_and_nothing_is_stored() -> TestResult {
    let server = with_accounts()?;
    for (name, account) in [("p", json!({})), ("q", json!({"serviceAccountName": "a"}))] {
        let (code, status) = post(&server, PODS, &pod(name, &account));
        let account = account["serviceAccountName"].as_str().unwrap_or("default");
        let message = format!(
            "pods \"{name}\" is forbidden: error looking up service account default/{account}: serviceaccount \
             \"{account}\" not found"
        );
        assert_eq!((code, &status["message"]), (403, &json!(message)));
        let (code, _) = exchange(server.endpoint(), "GET", &format!("{PODS}/{name}"), "", "");
        assert_eq!(code, 404);
    }
    Ok(())
}

#[test]
fn a_pod_waits_for_the_account_of_its_new_namespace() -> TestResult {
    let plugins = PluginNames::new(vec!["ServiceAccount".to_owned()], vec![])?;
    let server = ApiServer::builder()
        .admission_plugins(plugins)
        .controllers(Controllers::all())
        .start()?;
    for number in 0..8 {
        let namespace = format!("n{number}");
        let body = json!({"metadata": {"name": namespace}});
        assert_eq!(post(&server, "/api/v1/namespaces", &body).0, 201);
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let (code, created) = post(&server, &path, &pod("p", &json!({})));
        assert_eq!(code, 201, "{created}");
        let volume = &created["spec"]["volumes"][0];
        let name = volume["name"].as_str().unwrap_or_default();
        assert!(name.starts_with("kube-api-access-"), "{created}");
        assert_eq!(
            created["spec"]["containers"][0]["volumeMounts"][0]["name"],
            name
        );
        // The volume belongs to no manager: an apply of its owner does not remove it.
        assert!(
            !created["metadata"]["managedFields"]
                .to_string()
                .contains("f:volumes")
        );
    }
    Ok(())
}

#[test]
fn dry_runs_and_bursts_get_the_same_volume_as_single_pods() -> TestResult {
    let server = with_accounts()?;
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "s"}]});
    assert_eq!(post(&server, ACCOUNTS, &account).0, 201);
    let names: Vec<Value> = std::thread::scope(|scope| {
        let server = &server;
        let create = |number: usize| {
            let query = if number.is_multiple_of(2) {
                ""
            } else {
                "?dryRun=All"
            };
            let object = pod(&format!("p{number}"), &json!({}));
            let (code, created) = post(server, &format!("{PODS}{query}"), &object);
            assert_eq!(code, 201, "{created}");
            assert_eq!(created["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
            created["spec"]["volumes"].clone()
        };
        let threads: Vec<_> = (0..16)
            .map(|number| scope.spawn(move || create(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    for volumes in &names {
        assert_eq!(volumes.as_array().map(Vec::len), Some(1));
        let sources = &volumes[0]["projected"]["sources"];
        assert_eq!(sources[0]["serviceAccountToken"]["expirationSeconds"], 3607);
    }
    Ok(())
}

#[test]
fn tolerations_have_the_seconds_of_the_options() -> TestResult {
    let seconds = TolerationSeconds {
        not_ready: 5,
        unreachable: -1,
    };
    let server = ApiServer::builder().toleration_seconds(seconds).start()?;
    let (_, created) = post(&server, PODS, &pod("p", &json!({})));
    let found = created["spec"]["tolerations"].as_array();
    let found: Vec<_> = found
        .into_iter()
        .flatten()
        .map(|it| &it["tolerationSeconds"])
        .collect();
    assert_eq!(found, [&json!(5), &json!(-1)]);
    Ok(())
}

#[test]
fn pods_have_the_labels_of_their_node_and_what_their_class_demands() -> TestResult {
    let server = ApiServer::builder().start()?;
    let zone = "topology.kubernetes.io/zone";
    let node = json!({"metadata": {"name": "n", "labels": {zone: "z", "other": "o"}}});
    assert_eq!(post(&server, "/api/v1/nodes", &node).0, 201);
    let class =
        json!({"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}}});
    assert_eq!(
        post(&server, "/apis/node.k8s.io/v1/runtimeclasses", &class).0,
        201
    );
    let (code, created) = post(&server, PODS, &pod("p", &json!({"runtimeClassName": "r"})));
    assert_eq!(
        (code, &created["spec"]["overhead"]),
        (201, &json!({"cpu": "1"}))
    );
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(post(&server, &format!("{PODS}/p/binding"), &binding).0, 201);
    let (_, bound) = exchange(server.endpoint(), "GET", &format!("{PODS}/p"), "", "");
    let bound: Value = serde_json::from_str(&bound)?;
    assert_eq!(bound["metadata"]["labels"], json!({zone: "z"}));
    let (code, status) = post(
        &server,
        PODS,
        &pod("q", &json!({"runtimeClassName": "none"})),
    );
    let message = "pods \"q\" is forbidden: pod rejected: RuntimeClass \"none\" not found";
    assert_eq!((code, &status["message"]), (403, &json!(message)));
    Ok(())
}

#[test]
fn an_overhead_without_amounts_is_one() -> TestResult {
    let server = ApiServer::builder().start()?;
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    for (name, class) in [("with", json!({"overhead": {}})), ("without", json!({}))] {
        let mut class = class;
        class["metadata"] = json!({"name": name});
        class["handler"] = "h".into();
        assert_eq!(post(&server, classes, &class).0, 201);
    }
    for (class, expected) in [(None, 403), (Some("without"), 403), (Some("with"), 201)] {
        let mut spec = json!({"overhead": {}});
        if let Some(class) = class {
            spec["runtimeClassName"] = class.into();
        }
        let (code, answer) = post(&server, PODS, &pod("p", &spec));
        assert_eq!(code, expected, "{class:?}: {answer}");
        assert_eq!(answer["spec"].get("overhead"), None);
    }
    Ok(())
}

#[test]
fn bodies_of_subresources_have_their_kind() -> TestResult {
    let server = ApiServer::builder().start()?;
    assert_eq!(post(&server, PODS, &pod("p", &json!({}))).0, 201);
    for (path, kind, version, reason) in [
        (
            "p/binding",
            "Pod",
            "v1",
            "converting (v1.Pod) to (core.Binding): unknown conversion",
        ),
        (
            "p/binding",
            "Status",
            "v1",
            "converting (v1.Status) to (core.Binding): unknown conversion",
        ),
        (
            "p/binding",
            "Foo",
            "v1",
            "no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            "p/eviction",
            "Pod",
            "v1",
            "converting (v1.Pod) to (policy.Eviction): unknown conversion",
        ),
    ] {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "p"}, "target": {"name": "n"}});
        let (code, answer) = post(&server, &format!("{PODS}/{path}"), &body);
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(
            code == 400 && message.ends_with(reason),
            "{path} {kind}: {answer}"
        );
    }
    let (code, kept) = exchange(server.endpoint(), "GET", &format!("{PODS}/p"), "", "");
    assert!(code == 200 && !kept.contains("nodeName"), "{kept}");
    Ok(())
}
