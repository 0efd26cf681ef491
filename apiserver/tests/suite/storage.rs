//! Servers over etcd's API, and values that a kube-apiserver has written.

use revstore_apiserver::{ApiServer, Config, EtcdServers, Invocation, ListenUrl, parse};
use revstore_engine::Engine;
use revstore_kinds as kinds;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, value};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts a server over the API of etcd at a URL.
fn over(url: &str) -> Result<ApiServer, Box<dyn std::error::Error>> {
    let mut config = Config::default();
    config.https = None;
    config.http = Some("127.0.0.1:0".parse()?);
    config.etcd = Some(EtcdServers::new([url]));
    Ok(ApiServer::builder().config(config).start()?)
}

fn revision(object: &Value) -> String {
    let revision = object["metadata"]["resourceVersion"].as_str();
    revision.unwrap_or_default().to_owned()
}

#[test]
fn servers_over_one_etcd_serve_the_same_objects() -> TestResult {
    let etcd = revstore::Server::builder().start()?;
    let (first, second) = (over(etcd.endpoint())?, over(etcd.endpoint())?);
    assert!(first.engine().is_none());
    let (_, list) = value(&send(&second, "GET", CONFIG_MAPS, ""));
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&list));
    let mut watch = Watch::open(&second, &path);
    let one = format!("{CONFIG_MAPS}/a");
    let object = r#"{"metadata":{"name":"a","finalizers":["example.com/a"]},"data":{"k":"1"}}"#;
    let dry = send(&first, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), object);
    assert_eq!(dry.0, 201, "{}", dry.1);
    assert_eq!(send(&first, "POST", CONFIG_MAPS, object).0, 201);
    assert_eq!(send(&second, "POST", CONFIG_MAPS, object).0, 409);
    // A read without a version shows the writes of all servers.
    let (status, read) = value(&send(&second, "GET", &one, ""));
    assert_eq!((status, &read["data"]["k"]), (200, &json!("1")), "{read}");
    assert_eq!(send(&second, "PATCH", &one, r#"{"data":{"k":"2"}}"#).0, 200);
    assert_eq!(send(&first, "PUT", &one, &read.to_string()).0, 409);
    assert_eq!(send(&first, "DELETE", &one, "").0, 200);
    let unheld = r#"{"metadata":{"finalizers":null}}"#;
    assert_eq!(send(&second, "PATCH", &one, unheld).0, 200);
    assert_eq!(send(&first, "GET", &one, "").0, 404);
    for expected in ["ADDED", "MODIFIED", "MODIFIED", "DELETED"] {
        let event = watch.next().ok_or("the watch has ended")?;
        assert_eq!(event["type"], expected, "{event}");
    }
    Ok(())
}

#[test]
fn an_etcd_that_is_gone_leads_to_errors_until_it_is_back() -> TestResult {
    let engine = Engine::builder().build();
    let etcd = revstore::Server::builder().store(engine.clone()).start()?;
    let url = etcd.endpoint().to_owned();
    let address = etcd.address().ok_or("no address")?;
    let server = over(&url)?;
    let object = r#"{"metadata":{"name":"a"}}"#;
    assert_eq!(send(&server, "POST", CONFIG_MAPS, object).0, 201);
    assert_eq!(send(&server, "GET", "/readyz", "").0, 200);
    // A dropped server answers for a moment on the connections that it has.
    etcd.stop();
    let (status, text) = send(&server, "GET", "/readyz", "");
    assert_eq!(status, 500);
    assert!(text.contains("[-]etcd failed"), "{text}");
    assert_eq!(send(&server, "GET", "/readyz/ping", "").0, 200);
    assert_eq!(send(&server, "GET", "/readyz?exclude=etcd", "").0, 200);
    for (method, path) in [("POST", CONFIG_MAPS), ("GET", CONFIG_MAPS)] {
        let (status, body) = value(&send(&server, method, path, r#"{"metadata":{"name":"b"}}"#));
        assert_eq!((status, &body["kind"]), (500, &json!("Status")), "{body}");
    }
    // What the cache has is still read.
    let cached = format!("{CONFIG_MAPS}?resourceVersion=0");
    assert_eq!(send(&server, "GET", &cached, "").0, 200);
    let etcd = revstore::Server::builder()
        .store(engine)
        .listen([ListenUrl::localhost(address.port())])
        .start()?;
    while send(&server, "GET", "/readyz", "").0 != 200 {}
    assert_eq!(send(&server, "GET", &format!("{CONFIG_MAPS}/a"), "").0, 200);
    drop(etcd);
    Ok(())
}

#[test]
fn values_in_protobuf_are_read_and_replaced_by_json() -> TestResult {
    let server = ApiServer::builder().start()?;
    let engine = server.engine().ok_or("not embedded")?;
    let (_, list) = value(&send(&server, "GET", CONFIG_MAPS, ""));
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&list));
    let mut watch = Watch::open(&server, &path);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "uid": "u", "labels": {"l": "1"}},
        "data": {"k": "1"}, "binaryData": {"b": "AAE="}});
    let key = "/registry/configmaps/default/a";
    engine.put(key, kinds::to_protobuf(&object)?)?;
    let one = format!("{CONFIG_MAPS}/a");
    let (status, mut read) = value(&send(&server, "GET", &one, ""));
    assert_eq!((status, &read["data"]), (200, &json!({"k": "1"})), "{read}");
    assert_eq!(read["binaryData"], json!({"b": "AAE="}));
    let selected = format!("{CONFIG_MAPS}?labelSelector=l%3D1");
    let (_, list) = value(&send(&server, "GET", &selected, ""));
    assert_eq!(list["items"][0]["metadata"]["uid"], "u", "{list}");
    read["data"] = json!({"k": "2"});
    assert_eq!(send(&server, "PUT", &one, &read.to_string()).0, 200);
    let stored = engine.get(key).ok_or("no value")?;
    let first = br#"{"apiVersion":"v1","kind":"ConfigMap","#;
    assert!(stored.value().starts_with(first), "{stored:?}");
    // A deletion by another server has the last version in protobuf.
    engine.put(key, kinds::to_protobuf(&object)?)?;
    engine.delete(&revstore_engine::KeyRange::one(key))?;
    for (kind, data) in [
        ("ADDED", "1"),
        ("MODIFIED", "2"),
        ("MODIFIED", "1"),
        ("DELETED", "1"),
    ] {
        let event = watch.next().ok_or("the watch has ended")?;
        assert_eq!(
            (&event["type"], &event["object"]["data"]["k"]),
            (&json!(kind), &json!(data))
        );
    }
    Ok(())
}

#[test]
fn values_in_protobuf_get_the_defaults_of_reads() -> TestResult {
    let server = ApiServer::builder().start()?;
    let engine = server.engine().ok_or("not embedded")?;
    // As kube-apiserver stores it when it is created.
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a", "namespace": "default", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    engine.put(
        "/registry/persistentvolumeclaims/default/a",
        kinds::to_protobuf(&claim)?,
    )?;
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/a";
    let (status, read) = value(&send(&server, "GET", path, ""));
    assert_eq!(status, 200);
    assert_eq!(read["status"]["phase"], "Pending", "{read}");
    assert_eq!(read["spec"]["volumeMode"], "Filesystem", "{read}");
    Ok(())
}

#[test]
fn definitions_that_a_kube_apiserver_has_stored_are_served() -> TestResult {
    let server = ApiServer::builder().start()?;
    let engine = server.engine().ok_or("not embedded")?;
    let names =
        r#"{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"}"#;
    let size = r#"{"type":"object","properties":{"size":{"type":"integer","default":3}}}"#;
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com";
    let stored = format!(
        r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{{"name":"widgets.example.com","uid":"u","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"group":"example.com","version":"v1","names":{names},"scope":"Namespaced","validation":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{size}}}}}}},"versions":[{{"name":"v1","served":true,"storage":true}}],"conversion":{{"strategy":"None"}},"preserveUnknownFields":false}},"status":{{"conditions":[{{"type":"NamesAccepted","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"NoConflicts","message":"no conflicts found"}},{{"type":"Established","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"InitialNamesAccepted","message":"the initial names have been accepted"}}],"acceptedNames":{names},"storedVersions":["v1"]}}}}
"#
    );
    engine.put(key, stored)?;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    while send(&server, "GET", widgets, "").0 != 200 {}
    let object = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"unknown":1}}"#;
    let (status, made) = value(&send(&server, "POST", widgets, object));
    assert_eq!(
        (status, &made["spec"]),
        (201, &json!({"size": 3})),
        "{made}"
    );
    // Nothing was to do for the definition.
    let unchanged = engine.get(key).ok_or("no value")?;
    assert!(unchanged.value().starts_with(br#"{"kind":"#));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    let (status, read) = value(&send(&server, "GET", path, ""));
    assert_eq!(status, 200);
    let shown = &read["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(
        shown["properties"]["spec"]["properties"]["size"]["default"], 3,
        "{read}"
    );
    assert_eq!(send(&server, "DELETE", path, "").0, 200);
    while engine.get(key).is_some() {}
    Ok(())
}

#[test]
fn a_broken_value_in_protobuf_is_an_error_of_its_object() -> TestResult {
    let server = ApiServer::builder().start()?;
    let engine = server.engine().ok_or("not embedded")?;
    let mut broken = kinds::MAGIC.to_vec();
    broken.extend([0x0a, 0xff, 0xff]);
    engine.put("/registry/configmaps/default/broken", broken)?;
    let object = r#"{"metadata":{"name":"a"}}"#;
    assert_eq!(send(&server, "POST", CONFIG_MAPS, object).0, 201);
    assert_eq!(
        send(&server, "GET", &format!("{CONFIG_MAPS}/broken"), "").0,
        500
    );
    assert_eq!(send(&server, "GET", &format!("{CONFIG_MAPS}/a"), "").0, 200);
    Ok(())
}

#[test]
fn flags_of_the_store_are_checked() -> TestResult {
    let parsed = |flags: &[&str]| parse(flags.iter().map(|flag| (*flag).into()), []);
    let http = "--etcd-servers=http://127.0.0.1:1,http://127.0.0.1:2";
    for (flags, expected) in [
        (vec!["--storage=etcd"], "needs --etcd-servers"),
        (vec!["--storage=disk"], "must be 'embedded' or 'etcd'"),
        (vec!["--etcd-cafile=ca"], "need --etcd-servers"),
        (vec![http, "--etcd-cafile=ca"], "http has no use for"),
        (
            vec!["--etcd-servers=https://a:1"],
            "https needs --etcd-cafile",
        ),
        (vec!["--etcd-servers=unix://a:1"], "only http and https"),
        (vec!["--etcd-servers=a"], "URL scheme must be"),
        (vec![http, "--etcd-keyfile=k"], "must be given together"),
        (
            vec![http, "--etcd-listen-url=http://127.0.0.1:0"],
            "embedded store",
        ),
    ] {
        let error = parsed(&flags).map(drop).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let Invocation::Serve { config, .. } = parsed(&[http])? else {
        return Err("nothing to serve".into());
    };
    let servers = config.etcd.ok_or("no etcd")?;
    assert_eq!(servers.urls, ["http://127.0.0.1:1", "http://127.0.0.1:2"]);
    Ok(())
}
