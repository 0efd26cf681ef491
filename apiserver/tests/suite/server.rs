//! A server over plain HTTP.

use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use revstore_apiserver::{ApiServer, Config, Invocation, ListenUrl, parse};
use revstore_engine::ManualClock;
use serde_json::{Value, json};

use crate::client::{TestResult, Watch, send, send_to, value};

pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) fn definition() -> String {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 1, "default": 3},
    }}}});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        },
    });
    definition.to_string()
}

/// Waits until the definition is established: its watch says so.
pub(crate) fn established(server: &ApiServer) {
    let mut watch = Watch::open(server, &format!("{DEFINITIONS}?watch=true"));
    let is_established = |event: &Value| {
        let conditions = event["object"]["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    while let Some(event) = watch.next() {
        if is_established(&event) {
            return;
        }
    }
    panic!("the watch has ended");
}

#[test]
fn a_local_review_of_access_answers_with_its_namespace() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let asked = json!({"namespace": "default", "verb": "get", "resource": "pods"});
    let review = json!({"spec": {"user": "u", "resourceAttributes": asked}});
    let (code, answer) = value(&send(&server, "POST", path, &review.to_string()));
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));
    assert_eq!(answer["metadata"]["namespace"], "default");
    Ok(())
}

#[test]
fn objects_are_written_and_watched() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps";
    let (status, list) = value(&send(&server, "GET", path, ""));
    assert_eq!(
        (status, &list["kind"], &list["items"]),
        (200, &json!("ConfigMapList"), &json!([]))
    );
    let revision = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let mut watch = Watch::open(
        &server,
        &format!("{path}?watch=1&resourceVersion={revision}"),
    );
    let created = send(
        &server,
        "POST",
        path,
        r#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#,
    );
    assert_eq!(created.0, 201, "{}", created.1);
    let patched = send(
        &server,
        "PATCH",
        &format!("{path}/a"),
        r#"{"data":{"k":"2"}}"#,
    );
    assert_eq!(patched.0, 200, "{}", patched.1);
    assert_eq!(send(&server, "DELETE", &format!("{path}/a"), "").0, 200);
    for (kind, data) in [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")] {
        let event = watch.next().ok_or("the watch has ended")?;
        assert_eq!(
            (&event["type"], &event["object"]["data"]["k"]),
            (&json!(kind), &json!(data))
        );
    }
    Ok(())
}

#[test]
fn one_of_many_creates_of_a_name_succeeds() -> TestResult {
    let server = ApiServer::builder().start()?;
    let statuses = thread::scope(|scope| {
        let create = || {
            send(
                &server,
                "POST",
                "/api/v1/namespaces",
                r#"{"metadata":{"name":"a"}}"#,
            )
            .0
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(create)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("the client has not panicked"))
            .collect::<Vec<_>>()
    });
    assert_eq!(
        statuses.iter().filter(|status| **status == 201).count(),
        1,
        "{statuses:?}"
    );
    assert!(
        statuses.iter().all(|status| [201, 409].contains(status)),
        "{statuses:?}"
    );
    Ok(())
}

#[test]
fn custom_resources_come_and_go() -> TestResult {
    let server = ApiServer::builder().start()?;
    // The same name again and again: nothing of the previous definition may remain.
    for _ in 0..5 {
        assert_eq!(
            send(&server, "GET", WIDGETS, ""),
            (404, "404 page not found\n".to_owned())
        );
        let (status, body) = send(&server, "POST", DEFINITIONS, &definition());
        assert_eq!(status, 201, "{body}");
        established(&server);
        let widget =
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{}}"#;
        let (status, created) = value(&send(&server, "POST", WIDGETS, widget));
        assert_eq!(
            (status, &created["spec"]["size"]),
            (201, &json!(3)),
            "{created}"
        );
        let (status, refused) = value(&send(
            &server,
            "PATCH",
            &format!("{WIDGETS}/a"),
            r#"{"spec":{"size":0}}"#,
        ));
        assert_eq!(
            (status, &refused["reason"]),
            (422, &json!("Invalid")),
            "{refused}"
        );
        let mut watch = Watch::open(&server, &format!("{WIDGETS}?watch=true"));
        assert_eq!(
            watch.next().map(|event| event["type"].clone()),
            Some(json!("ADDED"))
        );
        let mut gone = Watch::open(&server, &format!("{DEFINITIONS}?watch=true"));
        // The watch must have begun before the deletion, or it never sees it.
        assert!(gone.next().is_some());
        assert_eq!(
            send(
                &server,
                "DELETE",
                &format!("{DEFINITIONS}/widgets.example.com"),
                ""
            )
            .0,
            200
        );
        assert_eq!(
            watch.next().map(|event| event["type"].clone()),
            Some(json!("DELETED"))
        );
        assert_eq!(
            watch.next(),
            None,
            "the watch of a resource that is gone ends"
        );
        while gone.next().is_some_and(|event| event["type"] != "DELETED") {}
        // The answer to a request that finds the resource just before it is withdrawn is 404, too.
        while send(&server, "GET", WIDGETS, "").1 != "404 page not found\n" {}
    }
    Ok(())
}

#[test]
fn a_definition_in_a_built_in_group_stops_no_other() -> TestResult {
    let server = ApiServer::builder().start()?;
    let foreign = definition().replace("example.com", "networking.k8s.io");
    let approved =
        r#""annotations":{"api-approved.kubernetes.io":"unapproved, a test"},"name":"widgets"#;
    let foreign = foreign.replace(r#""name":"widgets"#, approved);
    let (status, body) = send(&server, "POST", DEFINITIONS, &foreign);
    assert_eq!(status, 201, "{body}");
    let (status, body) = send(&server, "POST", DEFINITIONS, &definition());
    assert_eq!(status, 201, "{body}");
    while send(&server, "GET", WIDGETS, "").0 != 200 {}
    let foreign = "/apis/networking.k8s.io/v1/namespaces/default/widgets";
    assert_eq!(send(&server, "GET", foreign, "").0, 404);
    // kube-apiserver says so, too.
    let name = format!("{DEFINITIONS}/widgets.networking.k8s.io");
    let is_established = || {
        let (_, definition) = value(&send(&server, "GET", &name, ""));
        let conditions = definition["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
    };
    while !is_established() {}
    assert_eq!(send(&server, "DELETE", &name, "").0, 200);
    while send(&server, "GET", &name, "").0 != 404 {}
    Ok(())
}

#[test]
fn objects_go_with_a_collection_of_definitions() -> TestResult {
    let server = ApiServer::builder().start()?;
    assert_eq!(send(&server, "POST", DEFINITIONS, &definition()).0, 201);
    established(&server);
    let widget = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}"#;
    assert_eq!(send(&server, "POST", WIDGETS, widget).0, 201);
    let mut watch = Watch::open(&server, &format!("{WIDGETS}?watch=true"));
    assert!(watch.next().is_some());
    let (status, body) = send(&server, "DELETE", DEFINITIONS, "");
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        watch.next().map(|event| event["type"].clone()),
        Some(json!("DELETED"))
    );
    Ok(())
}

#[test]
fn hostile_requests_get_an_error_and_change_nothing() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/configmaps";
    let deep = "[".repeat(100_000);
    let large = format!(
        r#"{{"metadata":{{"name":"a"}},"data":{{"k":"{}"}}}}"#,
        "x".repeat(4 << 20)
    );
    let reviews = |name: &str| format!("/apis/authentication.k8s.io/v1/{name}");
    let access_reviews = |name: &str| format!("/apis/authorization.k8s.io/v1/{name}");
    let long_name = format!(r#"{{"metadata":{{"name":"{}"}}}}"#, "a".repeat(10_000));
    for (method, path, body, expected) in [
        ("POST", path, deep.as_str(), 400),
        ("POST", path, large.as_str(), 413),
        ("POST", path, long_name.as_str(), 422),
        ("POST", path, r#"{"metadata":{"name":"../../x"}}"#, 422),
        ("POST", path, r#"{"metadata":7}"#, 400),
        ("POST", &reviews("tokenreviews"), "{}", 400),
        (
            "POST",
            &access_reviews("selfsubjectaccessreviews"),
            "{}",
            422,
        ),
        (
            "POST",
            &access_reviews("subjectaccessreviews"),
            r#"{"spec":{"resourceAttributes":{}}}"#,
            422,
        ),
        (
            "POST",
            &access_reviews("subjectaccessreviews"),
            r#"{"spec":{"resourceAttributes":{},"nonResourceAttributes":{},"user":"a"}}"#,
            422,
        ),
        (
            "POST",
            &access_reviews("subjectaccessreviews"),
            r#"{"metadata":{"name":"a"},"spec":{"resourceAttributes":{},"user":"a"}}"#,
            422,
        ),
        (
            "POST",
            &access_reviews("selfsubjectrulesreviews"),
            "{}",
            400,
        ),
        (
            "POST",
            path,
            r#"{"metadata":{"name":"a"},"data":{"k":1}}"#,
            400,
        ),
        ("POST", path, "\u{0}", 400),
        ("PATCH", &format!("{path}/none"), "{}", 404),
        ("GET", &format!("{path}?limit=-1x"), "", 400),
        ("GET", &format!("{path}?labelSelector=a%20in%20("), "", 400),
        ("GET", "/api/v1/namespaces/default/pods/p/log", "", 404),
        ("BREW", path, "", 405),
        ("GET", "/api/v1/namespaces?timeout=soon", "", 400),
        ("GET", "/openapi/v3/apis/none/v1", "", 404),
        (
            "DELETE",
            "/api/v1/namespaces/none",
            r#"{"gracePeriodSeconds":"x"}"#,
            400,
        ),
    ] {
        let (status, answer) = send(&server, method, path, body);
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
    let (_, list) = value(&send(&server, "GET", path, ""));
    assert_eq!(list["items"], json!([]));
    Ok(())
}

#[test]
fn watches_end_after_the_time_of_the_configuration() -> TestResult {
    let clock = ManualClock::new();
    let mut config = Config::default();
    config.https = None;
    config.http = Some("127.0.0.1:0".parse()?);
    config.min_request_timeout = Duration::from_secs(10);
    let server = ApiServer::builder()
        .config(config)
        .clock(clock.clone())
        .start()?;
    let mut watch = Watch::open(&server, "/api/v1/namespaces?watch=true");
    assert!(watch.next().is_some());
    clock.advance(Duration::from_secs(20));
    while watch.next().is_some() {}
    Ok(())
}

#[test]
fn the_pods_of_one_node_are_read_without_the_others() -> TestResult {
    let server = ApiServer::builder().start()?;
    for number in 0..10 {
        let pod = json!({
            "metadata": {"name": format!("pod-{number}")},
            "spec": {"nodeName": format!("node-{}", number % 5), "containers": [{"name": "c", "image": "i"}]},
        });
        let path = "/api/v1/namespaces/default/pods";
        assert_eq!(send(&server, "POST", path, &pod.to_string()).0, 201);
    }
    let cache = server.cache().resources();
    let pods = cache.iter().find(|it| it.name().plural == "pods");
    let pods = pods.ok_or("pods have a cache")?;
    let before = pods.metrics();
    let path = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-3";
    let (status, list) = value(&send(&server, "GET", path, ""));
    let names = |list: &Value| -> Vec<Value> {
        let items = list["items"].as_array().into_iter().flatten();
        items.map(|pod| pod["metadata"]["name"].clone()).collect()
    };
    assert_eq!(
        (status, names(&list)),
        (200, vec!["pod-3".into(), "pod-8".into()])
    );
    let after = pods.metrics();
    assert_eq!(after.list_objects_fetched - before.list_objects_fetched, 2);
    Ok(())
}

#[test]
fn documents_are_sent_once() -> TestResult {
    let server = ApiServer::builder().start()?;
    let (status, index) = value(&send(&server, "GET", "/openapi/v3", ""));
    assert_eq!(status, 200);
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap_or_default();
    let (status, document) = value(&send(&server, "GET", url, ""));
    assert_eq!((status, &document["openapi"]), (200, &json!("3.0.0")));
    let (status, document) = value(&send(&server, "GET", "/openapi/v2", ""));
    assert_eq!((status, &document["swagger"]), (200, &json!("2.0")));
    Ok(())
}

#[test]
fn a_server_that_stops_ends_its_watches() -> TestResult {
    let server = ApiServer::builder().start()?;
    let mut watch = Watch::open(&server, "/api/v1/namespaces?watch=true");
    assert!(watch.next().is_some());
    server.stop();
    while watch.next().is_some() {}
    Ok(())
}

#[test]
fn the_store_is_served_over_the_api_of_etcd() -> TestResult {
    let server = ApiServer::builder()
        .etcd_listen([ListenUrl::localhost(0)])
        .start()?;
    let etcd = server.etcd_endpoints()[0].clone();
    let path = "/api/v1/namespaces/default/configmaps";
    let first = value(&send(&server, "POST", path, r#"{"metadata":{"name":"a"}}"#)).1;
    let first = first["metadata"]["resourceVersion"]
        .as_str()
        .ok_or("no version")?;
    assert_eq!(
        send(&server, "POST", path, r#"{"metadata":{"name":"b"}}"#).0,
        201
    );
    // What clients of etcd read and write.
    let key = BASE64_STANDARD.encode("/registry/configmaps/default/a");
    let read = json!({"key": key}).to_string();
    let (status, found) = value(&send_to(&etcd, "POST", "/v3/kv/range", &read));
    assert_eq!((status, &found["count"]), (200, &json!("1")), "{found}");
    let exact = format!("{path}?resourceVersion={first}&resourceVersionMatch=Exact");
    let mut watch = Watch::open(&server, &format!("{path}?watch=1&resourceVersion={first}"));
    assert_eq!(send(&server, "GET", &exact, "").0, 200);
    let compact = json!({"revision": found["header"]["revision"]}).to_string();
    assert_eq!(send_to(&etcd, "POST", "/v3/kv/compaction", &compact).0, 200);
    let (status, expired) = value(&send(&server, "GET", &exact, ""));
    assert_eq!((status, &expired["reason"]), (410, &json!("Expired")));
    assert_eq!(send_to(&etcd, "POST", "/v3/kv/deleterange", &read).0, 200);
    for expected in ["ADDED", "DELETED"] {
        let event = watch.next().ok_or("the watch has ended")?;
        assert_eq!(event["type"], expected, "{event}");
    }
    assert_eq!(send(&server, "GET", &format!("{path}/a"), "").0, 404);
    Ok(())
}

#[test]
fn servers_over_one_store_serve_the_same_objects() -> TestResult {
    let first = ApiServer::builder().start()?;
    let second = ApiServer::builder()
        .engine(first.engine().ok_or("not embedded")?.clone())
        .start()?;
    assert_eq!(send(&first, "POST", DEFINITIONS, &definition()).0, 201);
    established(&second);
    // The second server also follows the definition.
    while send(&second, "GET", WIDGETS, "").0 != 200 {}
    let widget = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}"#;
    assert_eq!(send(&second, "POST", WIDGETS, widget).0, 201);
    while send(&first, "GET", WIDGETS, "").0 != 200 {}
    assert_eq!(send(&first, "GET", &format!("{WIDGETS}/a"), "").0, 200);
    Ok(())
}

#[test]
fn urls_for_the_api_of_etcd_are_checked() -> TestResult {
    let parsed = |url: &str| parse([format!("--etcd-listen-url={url}").into()], []);
    for (url, expected) in [
        ("https://127.0.0.1:0", "only http and unix are supported"),
        ("http://example.com:0", "expected IP in URL for binding"),
        ("127.0.0.1", "URL scheme must be"),
    ] {
        let error = parsed(url).map(drop).expect_err(url).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut warned = Vec::new();
    for url in ["http://127.0.0.1:0,http://localhost:0", "http://0.0.0.0:0"] {
        let Invocation::Serve { config, warnings } = parsed(url)? else {
            return Err("nothing to serve".into());
        };
        warned.push((config.etcd_listen_urls.len(), warnings.len()));
    }
    assert_eq!(warned, [(2, 0), (1, 1)]);
    Ok(())
}

#[test]
fn documents_follow_the_definitions_of_custom_resources() -> TestResult {
    let server = ApiServer::builder().start()?;
    let index = || value(&send(&server, "GET", "/openapi/v3", "")).1;
    let url = |index: &Value| {
        let url = &index["paths"]["apis/example.com/v1"]["serverRelativeURL"];
        url.as_str().map(str::to_owned)
    };
    let v2 = || value(&send(&server, "GET", "/openapi/v2", "")).1;
    assert_eq!(url(&index()), None);
    assert_eq!(send(&server, "POST", DEFINITIONS, &definition()).0, 201);
    established(&server);
    let first = url(&index()).expect("the document is in the index");
    let (status, document) = value(&send(&server, "GET", &first, ""));
    assert_eq!(status, 200);
    let size = "/components/schemas/com.example.v1.Widget/properties/spec/properties/size";
    assert_eq!(
        document.pointer(size),
        Some(&json!({"type": "integer", "minimum": 1, "default": 3}))
    );
    let path = "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status";
    assert!(document["paths"][path]["patch"].is_object());
    let swagger = v2();
    assert_eq!(
        swagger["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]["size"],
        json!({"type": "integer", "minimum": 1})
    );
    assert!(swagger["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let mut changed: Value = serde_json::from_str(&send(&server, "GET", &name, "").1)?;
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    changed.pointer_mut(properties).expect("it was written")["color"] = json!({"type": "string"});
    assert_eq!(send(&server, "PUT", &name, &changed.to_string()).0, 200);
    let second = loop {
        let url = url(&index()).expect("the document is in the index");
        if url != first {
            break url;
        }
    };
    let (_, document) = value(&send(&server, "GET", &second, ""));
    let color = "/components/schemas/com.example.v1.Widget/properties/spec/properties/color";
    assert!(document.pointer(color).is_some());
    let color = "/definitions/com.example.v1.Widget/properties/spec/properties/color";
    assert!(v2().pointer(color).is_some());
    assert_eq!(send(&server, "DELETE", &name, "").0, 200);
    while url(&index()).is_some() {}
    assert_eq!(send(&server, "GET", &second, "").0, 404);
    assert!(v2()["definitions"]["com.example.v1.Widget"].is_null());
    Ok(())
}

#[test]
fn bodies_of_custom_resources_say_what_they_are() -> TestResult {
    let server = ApiServer::builder().start()?;
    assert_eq!(send(&server, "POST", DEFINITIONS, &definition()).0, 201);
    established(&server);
    // Built-in kinds need not.
    for untyped in [
        r#"{"metadata":{"name":"b"}}"#,
        r#"{"kind":"Widget","metadata":{"name":"b"}}"#,
        r#"{"kind":5,"apiVersion":"example.com/v1","metadata":{"name":"b"}}"#,
    ] {
        assert_eq!(send(&server, "POST", WIDGETS, untyped).0, 400, "{untyped}");
    }
    Ok(())
}

/// A finalizer can hold a definition for long. The server does nothing meanwhile.
#[test]
fn a_definition_that_waits_for_a_finalizer_costs_nothing() -> TestResult {
    let server = ApiServer::builder().start()?;
    assert_eq!(send(&server, "POST", DEFINITIONS, &definition()).0, 201);
    established(&server);
    let widget = r#"{"apiVersion":"example.com/v1","kind":"Widget",
        "metadata":{"name":"a","finalizers":["e.com/f"]}}"#;
    assert_eq!(send(&server, "POST", WIDGETS, widget).0, 201);
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let mut watch = Watch::open(&server, &format!("{WIDGETS}?watch=true"));
    // The watch must have begun before the deletion, or it begins with what it waits for.
    assert!(watch.next().is_some());
    assert_eq!(send(&server, "DELETE", &name, "").0, 200);
    // The object is being deleted.
    while watch
        .next()
        .is_some_and(|event| event["type"] != "MODIFIED")
    {}
    let lists = || -> u64 {
        let resources = server.cache().resources();
        resources
            .iter()
            .map(|resource| resource.metrics().lists)
            .sum()
    };
    // Each round of the server lists the definitions; each of these changes leads to one.
    let before = lists();
    let changes = 20;
    for change in 0..changes {
        let label = json!({"metadata": {"labels": {"change": format!("c{change}")}}});
        assert_eq!(send(&server, "PATCH", &name, &label.to_string()).0, 200);
    }
    let rounds = lists() - before;
    assert!(rounds <= 10 * (changes + 1), "{rounds} lists");
    let free = r#"{"metadata":{"finalizers":null}}"#;
    assert_eq!(send(&server, "PATCH", &format!("{WIDGETS}/a"), free).0, 200);
    while send(&server, "GET", &name, "").0 != 404 {}
    Ok(())
}

#[test]
fn servers_over_one_store_compact_it_once_in_each_interval() -> TestResult {
    const INTERVAL: Duration = Duration::from_secs(300);
    let clock = ManualClock::new();
    let engine = revstore_engine::Engine::builder()
        .clock(clock.clone())
        .build();
    let serve = || {
        ApiServer::builder()
            .clock(clock.clone())
            .engine(engine.clone())
            .start()
    };
    let servers = [serve()?, serve()?];
    let turns = || engine.get("compact_rev_key").map_or(0, |key| key.version());
    let mut intervals = 0;
    while engine.compacted_revision().is_none() {
        clock.advance(INTERVAL);
        intervals += 1;
        thread::yield_now();
    }
    // The first turn only records the current revision.
    assert!(
        (2..=intervals).contains(&turns()),
        "{} in {intervals}",
        turns()
    );
    let compacted = engine.compacted_revision().ok_or("not compacted")?;
    assert!(compacted < engine.current_revision());
    drop(servers);
    Ok(())
}

#[test]
fn the_interval_of_compactions_is_checked() -> TestResult {
    let parsed = |interval: &str| {
        parse(
            [format!("--etcd-compaction-interval={interval}").into()],
            [],
        )
    };
    let mut intervals = Vec::new();
    for interval in ["0", "10m"] {
        let Invocation::Serve { config, .. } = parsed(interval)? else {
            return Err("nothing to serve".into());
        };
        intervals.push(config.etcd_compaction_interval);
    }
    assert_eq!(intervals, [None, Some(Duration::from_secs(600))]);
    assert!(parsed("-1s").is_err());
    Ok(())
}

/// A binding may be sent to the namespace instead of its pod: it names the pod.
#[test]
fn bindings_name_their_pods() -> TestResult {
    let server = ApiServer::builder().start()?;
    let pods = "/api/v1/namespaces/default/pods";
    let pod =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(send(&server, "POST", pods, &pod.to_string()).0, 201);
    let path = "/api/v1/namespaces/default/bindings";
    let bind = |metadata: Value, target: Value| {
        let binding = json!({"metadata": metadata, "target": target});
        let (code, status) = value(&send(&server, "POST", path, &binding.to_string()));
        (
            code,
            status["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let node = || json!({"kind": "Node", "name": "n"});
    for (metadata, target, code, message) in [
        (
            json!({"name": "none"}),
            node(),
            404,
            "pods \"none\" not found",
        ),
        (json!({}), node(), 400, "Name parameter required."),
        (json!({}), json!({}), 500, "target.name: Required value"),
        (
            json!({"name": "a", "namespace": "other"}),
            node(),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"name": "a"}),
            json!({}),
            500,
            "target.name: Required value",
        ),
        (
            json!({"name": "a", "annotations": {"x": "y"}}),
            node(),
            201,
            "",
        ),
        (
            json!({"name": "a"}),
            node(),
            409,
            "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n\"",
        ),
    ] {
        let shown = metadata.to_string();
        assert_eq!(
            bind(metadata, target),
            (code, message.to_owned()),
            "{shown}"
        );
    }
    let (_, pod) = value(&send(&server, "GET", &format!("{pods}/a"), ""));
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["metadata"]["annotations"]["x"], "y");
    assert_eq!(send(&server, "GET", path, "").0, 405);
    Ok(())
}
