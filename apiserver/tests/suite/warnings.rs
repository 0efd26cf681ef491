//! Warnings about objects that are written.

use crate::client::exchange::{answer, exchange};
use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PATCH: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Sends one request, checks its status, and returns the texts of its warnings.
fn warned(
    server: &ApiServer,
    (method, path): (&str, &str),
    media: &str,
    body: &Value,
    expected: u16,
) -> Vec<String> {
    let fields = format!("Content-Type: {media}\r\n");
    let answer = answer(server.endpoint(), method, path, &fields, &body.to_string());
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {expected} ")),
        "{method} {path} {answer}"
    );
    let (head, _) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let lines = head
        .lines()
        .filter_map(|line| line.strip_prefix("warning: 299 - "));
    lines.map(str::to_owned).collect()
}

fn deployment(name: &str, value: &str) -> Value {
    let twice = json!([{"name": "X", "value": "1"}, {"name": "X", "value": value}]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": twice}]},
            },
        },
    })
}

#[test]
fn each_write_of_a_template_is_warned_of() -> TestResult {
    let server = ApiServer::builder().start()?;
    let hidden = "\"spec.template.spec.containers[0].env[1]: hides previous definition of \\\"X\\\", which may be \
                  dropped when using apply\"";
    let json = "application/json";
    let object = format!("{DEPLOYMENTS}/d");
    let applied = format!("{DEPLOYMENTS}/e?fieldManager=m");
    let of = |value| deployment("d", value);
    let once = |request, media, body: &Value, status| {
        let warnings = warned(&server, request, media, body, status);
        assert_eq!(warnings, [hidden], "{request:?} {media}");
    };
    let never = |request, media, body: &Value, status| {
        let warnings = warned(&server, request, media, body, status);
        assert_eq!(warnings, [""; 0], "{request:?} {media}");
    };
    once(("POST", DEPLOYMENTS), json, &of("2"), 201);
    once(("PUT", &object), json, &of("3"), 200);
    // What has not changed was warned of before.
    never(("PUT", &object), json, &of("3"), 200);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    never(("PATCH", &object), PATCH, &labels, 200);
    let replicas = json!({"spec": {"replicas": 2}});
    once(("PATCH", &object), PATCH, &replicas, 200);
    let scale = format!("{object}/scale");
    let replicas = json!({"spec": {"replicas": 3}});
    once(("PATCH", &scale), PATCH, &replicas, 200);
    let status = json!({"status": {"replicas": 3}});
    let status_path = format!("{object}/status");
    never(("PATCH", &status_path), PATCH, &status, 200);
    // An apply that creates, and one that updates.
    let mut wanted = deployment("e", "2");
    wanted["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
    wanted["spec"]["template"]["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"});
    for (replicas, status) in [(1, 201), (2, 200)] {
        wanted["spec"]["replicas"] = replicas.into();
        let warnings = warned(&server, ("PATCH", &applied), APPLY, &wanted, status);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
    never(("PATCH", &applied), APPLY, &wanted, 200);
    // An object that is not valid is not warned of.
    let mut invalid = deployment("f", "2");
    invalid["spec"]["selector"] = json!({"matchLabels": {"other": "b"}});
    never(("POST", DEPLOYMENTS), json, &invalid, 422);
    Ok(())
}

#[test]
fn pods_are_warned_of_when_they_are_created() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/pods";
    let twice = json!([{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "c", "image": "i", "env": twice},
    ]}});
    let created = warned(&server, ("POST", path), "application/json", &pod, 201);
    assert_eq!(created.len(), 1, "{created:?}");
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let object = format!("{path}/p");
    let patched = warned(&server, ("PATCH", &object), PATCH, &labels, 200);
    assert_eq!(patched, [""; 0]);
    Ok(())
}

#[test]
fn finalizers_are_warned_of_when_they_are_added() -> TestResult {
    let server = ApiServer::builder().start()?;
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let json = "Content-Type: application/json\r\n";
    let url = server.endpoint();
    let (code, text) = exchange(url, "POST", definitions, json, &definition.to_string());
    assert_eq!(code, 201, "{text}");
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    while exchange(url, "GET", path, "", "").0 == 404 {
        std::thread::yield_now();
    }
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "finalizers": ["one"]},
    });
    let created = warned(&server, ("POST", path), "application/json", &widget, 201);
    assert!(
        matches!(&created[..], [one] if one.contains("one\\\": prefer")),
        "{created:?}"
    );
    let object = format!("{path}/w");
    let body = json!({"metadata": {"finalizers": ["one", "two"]}});
    let patched = warned(&server, ("PATCH", &object), PATCH, &body, 200);
    assert!(
        matches!(&patched[..], [two] if two.contains("two\\\": prefer")),
        "{patched:?}"
    );
    Ok(())
}

#[test]
fn profiles_in_annotations_are_warned_of_and_become_fields() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/pods";
    let name = "container.apparmor.security.beta.kubernetes.io/c";
    let text = format!(
        "\"metadata.annotations[{name}]: deprecated since v1.30; use the \\\"appArmorProfile\\\" field instead\""
    );
    let pod = |pod: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "annotations": {name: "runtime/default"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    };
    let applied = format!("{path}/b?fieldManager=m");
    for (request, media, pod) in [
        (("POST", path), "application/json", pod("a")),
        (("PATCH", &applied[..]), APPLY, pod("b")),
    ] {
        assert_eq!(warned(&server, request, media, &pod, 201), [&text[..]]);
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let (_, body) = exchange(server.endpoint(), "GET", &format!("{path}/{name}"), "", "");
        let stored: Value = serde_json::from_str(&body)?;
        let profile = &stored["spec"]["containers"][0]["securityContext"]["appArmorProfile"];
        assert_eq!(profile, &json!({"type": "RuntimeDefault"}), "{body}");
    }
    // Nothing is new in it.
    let again = warned(&server, ("PATCH", &applied), APPLY, &pod("b"), 200);
    assert_eq!(again, [""; 0]);
    Ok(())
}

#[test]
fn addresses_in_a_status_are_warned_of() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let created = warned(&server, ("POST", path), "application/json", &service, 201);
    assert_eq!(created, [""; 0]);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "2001:DB8::1"}]}}});
    let object = format!("{path}/s/status");
    assert_eq!(
        warned(&server, ("PATCH", &object), PATCH, &status, 200),
        [
            "\"status.loadBalancer.ingress[0]: IPv6 address \\\"2001:DB8::1\\\" should be in RFC 5952 canonical format \
             (\\\"2001:db8::1\\\")\""
        ]
    );
    Ok(())
}

#[test]
fn thousands_of_equal_parts_cost_little() -> TestResult {
    const COUNT: usize = 5_000;
    let server = ApiServer::builder().start()?;
    let path = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let container = json!({"name": "c", "image": "i"});
    let ports = vec![json!({"containerPort": 80}); COUNT];
    let host_ports = (1..=COUNT).map(|port| json!({"containerPort": 80, "hostPort": port}));
    let items = (0..COUNT).map(|index| json!({"key": format!("k{index}"), "path": "same"}));
    let items: Vec<Value> = items.collect();
    for (name, spec) in [
        (
            "ports",
            json!({"containers": [{"name": "c", "image": "i", "ports": ports}]}),
        ),
        (
            "host-ports",
            json!({"containers": [{"name": "c", "image": "i", "ports": host_ports.collect::<Vec<_>>()}]}),
        ),
        (
            "files",
            json!({"containers": [container], "volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}]}),
        ),
    ] {
        let created = warned(
            &server,
            ("POST", path),
            "application/json",
            &pod(name, spec),
            201,
        );
        assert!(created.len() < 100, "{name}");
        assert_eq!(created.is_empty(), name == "host-ports");
    }
    // Annotations and containers are not compared with each other.
    let containers = (0..COUNT).map(|index| json!({"name": format!("c{index}"), "image": "i"}));
    let name = |index: usize| {
        (
            format!("container.apparmor.security.beta.kubernetes.io/c{index}"),
            json!("runtime/default"),
        )
    };
    let annotations: serde_json::Map<String, Value> = (0..2_000).map(name).collect();
    let mut many = pod(
        "many",
        json!({"containers": containers.collect::<Vec<_>>()}),
    );
    many["metadata"]["annotations"] = annotations.into();
    let created = warned(&server, ("POST", path), "application/json", &many, 201);
    assert!(
        !created.is_empty() && created.len() < 100,
        "{}",
        created.len()
    );
    Ok(())
}
