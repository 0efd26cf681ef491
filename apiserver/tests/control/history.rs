//! The journal, and reads as of an earlier revision.

use revstore_apiserver::ClockMode;
use revstore_apiserver::auth::{AuthorizationMode, User};
use revstore_apiserver::control_api::journal::Filter;
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::fixture::{Fixture, MAPS, names, version};

#[test]
fn objects_and_lists_are_read_as_of_a_revision() {
    let fixture = Fixture::new(ClockMode::System);
    let first = fixture.put("a", "1");
    let second = fixture.put("a", "2");
    let third = fixture.put("b", "");
    fixture.send("DELETE", &format!("{MAPS}/a"), "");
    let at = |path: &str, revision: &str| {
        fixture.get_with(path, &format!("Revstore-At-Revision: {revision}\r\n"))
    };
    let object = format!("{MAPS}/a");
    for (revision, text) in [(first, "1"), (second, "2"), (third, "2")] {
        let (status, read) = at(&object, &revision.to_string());
        assert_eq!((status, &read["data"]["text"]), (200, &json!(text)));
    }
    assert_eq!(at(&object, &(first - 1).to_string()).0, 404);
    assert_eq!(at(&object, &(third + 1).to_string()).0, 404);
    let list = at(MAPS, &third.to_string()).1;
    assert_eq!((names(&list), version(&list)), (vec!["a", "b"], third));
    let page = at(&format!("{MAPS}?limit=1"), &third.to_string()).1;
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let rest = at(
        &format!("{MAPS}?limit=1&continue={token}"),
        &third.to_string(),
    )
    .1;
    assert_eq!((names(&page), names(&rest)), (vec!["a"], vec!["b"]));
    for bad in ["", "x", "0", "-1", "99999999999999999999"] {
        assert_eq!(at(MAPS, bad).0, 400, "{bad:?}");
    }
    assert_eq!(at(MAPS, "9999999").0, 504);
    assert_eq!(at(&format!("{MAPS}?watch=true"), "3").0, 400);
    fixture.ok("StoreCompact", &json!({}));
    let (status, answer) = at(MAPS, &first.to_string());
    assert_eq!((status, &answer["reason"]), (410, &json!("Expired")));
    let (status, answer) = at(&object, &first.to_string());
    let message = "The resourceVersion for the provided get is too old.";
    assert_eq!((status, &answer["message"]), (410, &json!(message)));
}

#[test]
fn namespaces_are_read_as_of_a_revision() {
    let fixture = Fixture::new(ClockMode::System);
    let path = "/api/v1/namespaces/default";
    let before = version(&fixture.send("GET", path, "").1);
    let label = r#"{"metadata":{"labels":{"team":"a"}}}"#;
    let after = version(&fixture.send("PATCH", path, label).1);
    for (revision, label) in [(before, json!(null)), (after, json!("a"))] {
        let field = format!("Revstore-At-Revision: {revision}\r\n");
        let (status, read) = fixture.get_with(path, &field);
        assert_eq!((status, &read["metadata"]["labels"]["team"]), (200, &label));
    }
    let rule = json!({"resource": "namespaces", "namespace": "default", "stale": true});
    fixture.ok("FaultAdd", &rule);
    fixture.send("PATCH", path, r#"{"metadata":{"labels":{"team":"b"}}}"#);
    let (status, read) = fixture.send("GET", path, "");
    assert_eq!(
        (status, &read["metadata"]["labels"]["team"]),
        (200, &json!("a"))
    );
}

#[test]
fn a_read_of_the_past_is_answered_as_by_a_server_that_has_nothing_later() {
    let fixture = Fixture::new(ClockMode::Manual);
    let first = fixture.put("x", "1");
    let second = fixture.put("x", "2");
    let third = fixture.put("x", "3");
    let object = format!("{MAPS}/x");
    let text = |list: &Value| list["items"][0]["data"]["text"].clone();
    // The header and a rule have the same effect.
    let check = |get: &dyn Fn(&str) -> (u16, Value)| {
        let list = |query: &str| get(&format!("{MAPS}?{query}&fieldSelector=metadata.name%3Dx"));
        for query in ["", "resourceVersion=0", &format!("resourceVersion={first}")] {
            let (status, answer) = list(query);
            assert_eq!((status, version(&answer)), (200, second), "{query}");
            assert_eq!(text(&answer), "2");
        }
        // A revision that the client names stays.
        let exact = format!("resourceVersion={first}&resourceVersionMatch=Exact");
        let (_, answer) = list(&exact);
        assert_eq!((version(&answer), text(&answer)), (first, json!("1")));
        for later in [
            "",
            "&resourceVersionMatch=Exact",
            "&resourceVersionMatch=NotOlderThan",
        ] {
            let (status, answer) = list(&format!("resourceVersion={third}{later}"));
            assert_eq!(
                (status, &answer["reason"]),
                (504, &json!("Timeout")),
                "{later}"
            );
        }
        assert_eq!(get(&format!("{object}?resourceVersion={third}")).0, 504);
        assert_eq!(get(&format!("{object}?resourceVersion={second}")).0, 200);
        // What is refused otherwise is refused with the same text.
        for query in [
            "resourceVersion=junk",
            "resourceVersion=1&resourceVersionMatch=Bogus",
            "continue=x",
        ] {
            let plain = fixture.send("GET", &format!("{MAPS}?{query}"), "");
            assert_eq!(plain.0 / 100, 4, "{query}");
            assert_eq!(get(&format!("{MAPS}?{query}")), plain);
        }
        let junk = format!("{object}?resourceVersion=junk");
        assert_eq!(get(&junk), fixture.send("GET", &junk, ""));
        // A name is no selector.
        for name in ["nope%2Cmetadata.name%3Dx", "x%2Cmetadata.name%3Dx", "x%3Dy"] {
            assert_eq!(get(&format!("{MAPS}/{name}")).0, 404, "{name}");
        }
    };
    let field = format!("Revstore-At-Revision: {second}\r\n");
    check(&|path| fixture.get_with(path, &field));
    // Only for requests of this client, so that others are answered as without the rule.
    let rule = json!({"stale": true, "stale_revision": second, "client": "lagging"});
    fixture.ok("FaultAdd", &rule);
    check(&|path| fixture.get_with(path, "Revstore-Client: lagging\r\n"));
}

#[test]
fn parts_of_objects_are_read_as_of_a_revision_and_discovery_as_of_now() {
    let fixture = Fixture::new(ClockMode::Manual);
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"app": "a"});
    let mut deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    let (status, created) = fixture.send("POST", path, &deployment.to_string());
    assert_eq!(status, 201, "{created}");
    let at = format!("Revstore-At-Revision: {}\r\n", version(&created));
    deployment["spec"]["replicas"] = json!(3);
    let (status, _) = fixture.send("PUT", &format!("{path}/d"), &deployment.to_string());
    assert_eq!(status, 200);
    let (status, scale) = fixture.get_with(&format!("{path}/d/scale"), &at);
    assert_eq!((status, &scale["spec"]["replicas"]), (200, &json!(1)));
    let (status, whole) = fixture.get_with(&format!("{path}/d/status"), &at);
    assert_eq!((status, version(&whole)), (200, version(&created)));
    for discovery in ["/api/v1", "/apis", "/version"] {
        assert_eq!(
            fixture.get_with(discovery, &at),
            fixture.send("GET", discovery, "")
        );
    }
    let log = "/api/v1/namespaces/default/pods/p/log";
    assert_eq!(fixture.get_with(log, &at).0, 400);
}

#[test]
fn a_watch_of_a_name_in_a_path_is_not_one_of_a_selector() {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.put("x", "");
    let path =
        "/api/v1/watch/namespaces/default/configmaps/nope%2Cmetadata.name%3Dx?timeoutSeconds=1";
    let mut watch = crate::client::Watch::open(&fixture.server, path);
    fixture.ok("Wait", &json!({"watchers": 1}));
    fixture.ok("ClockAdvance", &json!({"by": "2s"}));
    assert_eq!(watch.next(), None);
}

#[test]
fn the_past_needs_the_authorization_of_the_present() {
    let fixture = Fixture::with(ClockMode::System, |builder| {
        builder
            .authorization_mode(AuthorizationMode::Rbac)
            .user("secret", User::new("ann", ["devs"]))
    });
    let at = fixture.put("a", "");
    let fields = format!("Authorization: Bearer secret\r\nRevstore-At-Revision: {at}\r\n");
    for path in [MAPS.to_owned(), format!("{MAPS}/a")] {
        let answer = exchange(fixture.server.endpoint(), "GET", &path, &fields, "");
        assert_eq!(answer.0, 403);
    }
}

#[test]
fn the_journal_has_requests_with_their_outcome() {
    let fixture = Fixture::new(ClockMode::System);
    let written = fixture.put("a", "");
    fixture.get_with("/apis/apps/v1/deployments", "Revstore-Client: test\r\n");
    fixture.send("GET", &format!("{MAPS}/missing"), "");
    let journal = fixture
        .server
        .control()
        .expect("control")
        .journal(&Filter::default(), 0);
    let found: Vec<_> = journal
        .records
        .iter()
        .map(|record| {
            let front = record.front.as_deref().expect("a request");
            let texts = (front.resource.as_str(), front.name.as_str());
            (record.method, texts, record.status)
        })
        .collect();
    assert_eq!(
        found,
        [
            ("update", ("configmaps", "a"), Some(404)),
            ("create", ("configmaps", "a"), Some(201)),
            ("list", ("deployments.apps", ""), Some(200)),
            ("get", ("configmaps", "missing"), Some(404)),
        ]
    );
    assert_eq!(journal.records[1].revision, Some(written));
    assert_eq!(journal.records[1].user.as_deref(), Some("admin"));
    assert_eq!(journal.records[2].client.as_deref(), Some("test"));
}

#[test]
fn the_journal_is_read_by_verbs() {
    let fixture = Fixture::new(ClockMode::System);
    fixture.send("GET", MAPS, "");
    let read = |method: &str| fixture.control("JournalRead", &json!({"methods": [method]}));
    assert_eq!(read("list").1["method"], "list");
    assert_eq!(read("get"), (200, json!(null)));
    for unknown in ["Put", "GET", ""] {
        let (status, answer) = read(unknown);
        assert_eq!((status, &answer["code"]), (400, &json!(3)), "{answer}");
    }
}

#[test]
fn the_names_of_created_objects_are_those_of_the_answers() {
    let fixture = Fixture::new(ClockMode::System);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}});
    let created = fixture.send("POST", MAPS, &object.to_string()).1;
    let fields =
        "Content-Type: application/json\r\nAccept: application/vnd.kubernetes.protobuf\r\n";
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "binary"}});
    let answer = exchange(
        fixture.server.endpoint(),
        "POST",
        MAPS,
        fields,
        &object.to_string(),
    );
    assert_eq!(answer.0, 201);
    // It has no name anywhere.
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "name": "p"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(fixture.send("POST", path, &review.to_string()).0, 201);
    let control = fixture.server.control().expect("control");
    let journal = control.journal(&Filter::default(), 0);
    let found: Vec<_> = journal
        .records
        .iter()
        .map(|record| {
            let front = record.front.as_deref().expect("a request");
            (front.name.clone(), record.revision)
        })
        .collect();
    let generated = created["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    let revision = version(&created);
    let expected = [
        (generated, Some(revision)),
        ("binary".to_owned(), Some(revision + 1)),
        (String::new(), None),
    ];
    assert_eq!(found, expected);
}
