//! Namespaces whose labels demand a standard of their pods.

use std::io::{Read, Write};
use std::net::TcpStream;

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

const PREFIX: &str = "pod-security.kubernetes.io/";
const NAMESPACES: &str = "/api/v1/namespaces";
const PODS: &str = "/api/v1/namespaces/n/pods";
/// What is wrong with the pods of these tests under the standard "restricted".
const RESTRICTED: &str = "allowPrivilegeEscalation != false (container \"c\" must set \
    securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
    securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
    securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
    securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The status, the warnings and the body of an answer.
type Answered = (u16, Vec<String>, Value);

fn send(server: &ApiServer, method: &str, path: &str, object: &Value) -> Answered {
    let address = server.endpoint().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = object.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .expect("the server reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the server answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the head ends");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let warnings = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let text = value.strip_prefix("299 - \"")?.strip_suffix('"')?;
        let is_warning = name.eq_ignore_ascii_case("warning");
        is_warning.then(|| text.replace("\\\"", "\""))
    });
    let warnings = warnings.collect();
    (
        code.unwrap_or_default(),
        warnings,
        serde_json::from_str(body).unwrap_or_default(),
    )
}

fn labels(labels: &[(&str, &str)]) -> Value {
    let labels = labels.iter();
    let labels = labels.map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)));
    json!({"metadata": {"labels": Value::Object(labels.collect())}})
}

fn namespace(server: &ApiServer, all: &[(&str, &str)]) -> Answered {
    let mut object = labels(all);
    object["metadata"]["name"] = "n".into();
    send(server, "POST", NAMESPACES, &object)
}

fn relabel(server: &ApiServer, query: &str, all: &[(&str, &str)]) -> Answered {
    send(
        server,
        "PATCH",
        &format!("{NAMESPACES}/n{query}"),
        &labels(all),
    )
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[test]
fn pods_that_violate_the_enforced_standard_are_refused() -> TestResult {
    let server = ApiServer::builder().start()?;
    let (code, _, _) = namespace(&server, &[("enforce", "restricted")]);
    assert_eq!(code, 201);
    for query in ["", "?dryRun=All"] {
        let (code, warnings, status) = send(&server, "POST", &format!("{PODS}{query}"), &pod("p"));
        let message = format!(
            "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": {RESTRICTED}"
        );
        assert_eq!((code, &status["message"]), (403, &json!(message)));
        assert_eq!(warnings, Vec::<String>::new());
    }
    // The standard of another version, from the next request on.
    let (code, _, _) = relabel(&server, "", &[("enforce-version", "v1.7")]);
    assert_eq!(code, 200);
    let (code, _, status) = send(&server, "POST", PODS, &pod("p"));
    let message = "pods \"p\" is forbidden: violates PodSecurity \"restricted:v1.7\": runAsNonRoot != true (pod or \
        container \"c\" must set securityContext.runAsNonRoot=true)";
    assert_eq!((code, &status["message"]), (403, &json!(message)));
    let mut safe = pod("p");
    safe["spec"]["securityContext"] = json!({"runAsNonRoot": true});
    let (code, warnings, _) = send(&server, "POST", PODS, &safe);
    assert_eq!((code, warnings), (201, vec![]));
    Ok(())
}

#[test]
fn updates_are_checked_if_images_or_containers_change() -> TestResult {
    let server = ApiServer::builder().start()?;
    namespace(&server, &[]);
    let (code, warnings, _) = send(&server, "POST", PODS, &pod("p"));
    assert_eq!((code, warnings), (201, vec![]));
    relabel(&server, "", &[("enforce", "restricted")]);
    let path = format!("{PODS}/p");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, "PATCH", &path, &label).0, 200);
    let image = json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}});
    assert_eq!(send(&server, "PATCH", &path, &image).0, 403);
    let status = json!({"status": {"message": "m"}});
    assert_eq!(
        send(&server, "PATCH", &format!("{path}/status"), &status).0,
        200
    );
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i:1"}]}});
    let path = format!("{path}/ephemeralcontainers");
    assert_eq!(send(&server, "PATCH", &path, &debug).0, 403);
    Ok(())
}

#[test]
fn warnings_are_for_pods_and_templates() -> TestResult {
    let server = ApiServer::builder().start()?;
    namespace(&server, &[("warn", "restricted")]);
    let expected = vec![format!(
        "would violate PodSecurity \"restricted:latest\": {RESTRICTED}"
    )];
    let (code, warnings, _) = send(&server, "POST", PODS, &pod("p"));
    assert_eq!((code, &warnings), (201, &expected));
    // An enforced standard counts for templates as a warning only.
    relabel(
        &server,
        "",
        &[("warn", "baseline"), ("enforce", "restricted")],
    );
    let mut template = pod("");
    template["metadata"] = json!({"labels": {"a": "b"}});
    template["spec"]["hostPID"] = true.into();
    let selector = json!({"matchLabels": {"a": "b"}});
    let workload =
        json!({"metadata": {"name": "w"}, "spec": {"template": template, "selector": selector}});
    let mut job = workload.clone();
    job["spec"] = json!({"template": template});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    let mut controller = workload.clone();
    controller["spec"]["selector"] = json!({"a": "b"});
    let cron = json!({"metadata": {"name": "w"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}}});
    let bare = json!({"metadata": {"name": "w"}, "template": template});
    let mut set = workload.clone();
    set["spec"]["serviceName"] = "s".into();
    for (path, object) in [
        ("/apis/apps/v1/namespaces/n/deployments", &workload),
        ("/apis/apps/v1/namespaces/n/daemonsets", &workload),
        ("/apis/apps/v1/namespaces/n/replicasets", &workload),
        ("/apis/apps/v1/namespaces/n/statefulsets", &set),
        ("/apis/batch/v1/namespaces/n/jobs", &job),
        ("/apis/batch/v1/namespaces/n/cronjobs", &cron),
        ("/api/v1/namespaces/n/replicationcontrollers", &controller),
        ("/api/v1/namespaces/n/podtemplates", &bare),
    ] {
        let (code, warnings, answer) = send(&server, "POST", path, object);
        assert_eq!(code, 201, "{path}: {answer}");
        let expected =
            "would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
        assert_eq!(warnings, [expected], "{path}");
    }
    Ok(())
}

#[test]
fn invalid_labels_are_refused_when_they_are_set() -> TestResult {
    let server = ApiServer::builder().start()?;
    let (code, _, status) = namespace(&server, &[("enforce", "high"), ("warn-version", "1.20")]);
    assert_eq!(code, 422);
    let message = "Namespace \"n\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \
        \"high\": must be one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: \
        Invalid value: \"1.20\": must be \"latest\" or \"v1.x\"]";
    assert_eq!(status["message"], message);
    let fields: Vec<&Value> = status["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(fields.len(), 2);
    assert_eq!(
        fields[0]["field"],
        "metadata.labels[pod-security.kubernetes.io/enforce]"
    );
    assert_eq!(fields[0]["reason"], "FieldValueInvalid");
    namespace(&server, &[]);
    let (code, _, _) = relabel(&server, "?dryRun=All", &[("audit", "x")]);
    assert_eq!(code, 422);
    Ok(())
}

#[test]
fn a_stricter_namespace_warns_of_its_pods() -> TestResult {
    let server = ApiServer::builder().start()?;
    namespace(&server, &[]);
    for name in ["b", "a", "c"] {
        let mut pod = pod(name);
        pod["spec"]["hostPID"] = (name != "c").into();
        assert_eq!(send(&server, "POST", PODS, &pod).0, 201);
    }
    let expected = [
        "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "a (and 1 other pod): host namespaces",
    ];
    for query in ["?dryRun=All", ""] {
        let (code, warnings, _) = relabel(&server, query, &[("enforce", "baseline")]);
        assert_eq!(
            (code, warnings),
            (200, expected.map(str::to_owned).to_vec())
        );
    }
    // The same level again, and a lower one.
    for level in ["baseline", "privileged"] {
        let (code, warnings, _) = relabel(&server, "", &[("enforce", level)]);
        assert_eq!((code, warnings), (200, vec![]));
    }
    Ok(())
}
