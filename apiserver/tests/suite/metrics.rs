//! The page `/metrics`, compared with the names of kube-apiserver 1.36.3.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use revstore_apiserver::auth::{AuthorizationMode, User};
use revstore_apiserver::{ApiServer, Controllers};
use serde_json::json;

use crate::client::send;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The names and types of the metrics of a real server, after some requests.
const UPSTREAM: &str = include_str!("../data/metrics.txt");

/// The metrics of a real server that are left out, by the beginning of their names, with the reason.
const OMITTED: &[(&str, &str)] = &[
    ("go_", "this is not a Go program"),
    ("rest_client_", "the server is not a client of itself"),
    ("etcd_", "requests to an etcd cluster are not measured"),
    (
        "grpc_client_",
        "requests to an etcd cluster are not measured",
    ),
    ("aggregator_", "there are no aggregated servers"),
    (
        "apiserver_kube_aggregator_",
        "there are no aggregated servers",
    ),
    ("apiserver_flowcontrol_", "there are no priority levels"),
    (
        "apiserver_admission_step_admission_duration_seconds_summary",
        "the histogram has the durations",
    ),
    (
        "apiserver_webhooks_",
        "certificates of webhooks are not measured",
    ),
    ("apiserver_audit_", "there is no audit log"),
    ("apiserver_cel_", "expressions have costs and are not timed"),
    (
        "apiextensions_apiserver_validation_ratcheting_seconds",
        "what an update may leave invalid is found while it is validated, and not timed",
    ),
    ("apiserver_envelope_", "objects are not encrypted"),
    ("apiserver_storage_data_key_", "objects are not encrypted"),
    ("apiserver_storage_envelope_", "objects are not encrypted"),
    (
        "apiserver_storage_db_total_size_in_bytes",
        "the old name of apiserver_storage_size_bytes",
    ),
    ("apiserver_storage_size_bytes", "the store is in memory"),
    (
        "apiserver_storage_events_received_total",
        "the watch cache counts them",
    ),
    ("apiserver_storage_list_", "the watch cache counts lists"),
    (
        "apiserver_storage_objects",
        "the old name of apiserver_resource_objects",
    ),
    ("authentication_token_cache_", "tokens are not cached"),
    (
        "apiserver_client_certificate_expiration_seconds",
        "certificates are checked, not measured",
    ),
    ("serviceaccount_", "tokens are not counted by their kind"),
    (
        "apiserver_nodeport_repair_reconcile_errors_total",
        "there is no repair of ports",
    ),
    ("kube_apiserver_", "the ranges of services are not measured"),
    ("pod_security_exemptions_total", "there are no exemptions"),
    (
        "apiserver_request_body_size_bytes",
        "sizes of requests are not measured",
    ),
    (
        "apiserver_request_filter_duration_seconds",
        "there are no filters to measure",
    ),
    (
        "apiserver_request_slo_duration_seconds",
        "the old name of the indicator sli",
    ),
    (
        "apiserver_request_timestamp_comparison_time",
        "there are no time differences",
    ),
    (
        "apiserver_selfrequest_total",
        "the server is not a client of itself",
    ),
    (
        "apiserver_tls_handshake_errors_total",
        "failed handshakes are in the log",
    ),
    (
        "apiserver_validation_",
        "there is one validation, not two to compare",
    ),
    (
        "field_validation_request_duration_seconds",
        "it is part of the duration of a request",
    ),
    ("kubernetes_feature_enabled", "there are no feature gates"),
    ("version_info", "kubernetes_build_info has the version"),
];

/// The metrics of the library of a real server about metrics.
const ABOUT_METRICS: [&str; 4] = [
    "cardinality_enforcement_unexpected_categorizations_total",
    "disabled_metrics_total",
    "hidden_metrics_total",
    "registered_metrics_total",
];

/// The metrics of a real server that appear when something has happened, which had not when the names were taken.
const OCCASIONAL: [&str; 7] = [
    "apiserver_storage_consistency_checks_total",
    "apiserver_terminated_watchers_total",
    "apiserver_watch_cache_initialization_duration_seconds",
    "apiserver_watch_cache_initialization_errors_total",
    "apiserver_watch_events_dispatch_duration_seconds",
    "watch_cache_capacity_decrease_total",
    "watch_cache_capacity_increase_total",
];

fn pod(name: &str, is_privileged: bool) -> String {
    let container =
        json!({"name": "c", "image": "i", "securityContext": {"privileged": is_privileged}});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}}).to_string()
}

/// Sends one request, and returns the status and the rest of the answer.
fn get(server: &ApiServer, path: &str, header: &str) -> (u16, String) {
    let address = server.endpoint().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    (status.unwrap_or_default(), answer)
}

fn page(server: &ApiServer) -> String {
    let (status, page) = get(server, "/metrics", "");
    assert_eq!(status, 200, "{page}");
    page
}

#[test]
fn names_and_types_are_those_of_kube_apiserver() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder()
        .controllers(Controllers::all())
        .start()?;
    send(&server, "POST", PODS, &pod("a", false));
    get(&server, "/api/v1/namespaces", "");
    get(
        &server,
        "/api/v1/namespaces?watch=true&timeoutSeconds=1",
        "",
    );
    let page = page(&server);
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let ours: BTreeSet<&str> = types.collect();
    let upstream: BTreeSet<&str> = UPSTREAM.lines().collect();
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    for line in ours.difference(&upstream) {
        let name = name(line);
        let is_explained = name.starts_with("revstore_") || OCCASIONAL.contains(&&*name);
        assert!(is_explained, "{line}");
    }
    let missing: Vec<String> = upstream.difference(&ours).map(|line| name(line)).collect();
    for name in &missing {
        let is_omitted = OMITTED.iter().any(|(prefix, _)| name.starts_with(prefix));
        assert!(is_omitted || ABOUT_METRICS.contains(&&**name), "{name}");
    }
    for (prefix, _) in OMITTED {
        assert!(
            missing.iter().any(|name| name.starts_with(prefix)),
            "{prefix}"
        );
    }
    Ok(())
}

#[test]
fn requests_are_counted_and_made_up_names_are_no_labels() -> Result<(), Box<dyn std::error::Error>>
{
    let server = ApiServer::builder().start()?;
    for number in 0..3 {
        get(&server, "/api/v1/namespaces/default", "");
        get(&server, &format!("/api/v1/made-up-{number}"), "");
        get(&server, &format!("/apis/made.up-{number}/v1/things"), "");
        get(&server, &format!("/made-up-{number}"), "");
        get(
            &server,
            &format!("/api/v1/namespaces/default/made-up-{number}"),
            "",
        );
        get(
            &server,
            &format!("/api/v1/namespaces/default/pods/p/made-up-{number}"),
            "",
        );
    }
    let page = page(&server);
    assert!(
        !page.contains("made-up") && !page.contains("made.up"),
        "{page}"
    );
    for line in [
        "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",\
         resource=\"namespaces\",scope=\"resource\",subresource=\"\",system_client=\"\",verb=\"GET\",version=\"v1\"} 3",
        "apiserver_request_duration_seconds_count{component=\"apiserver\",dry_run=\"\",group=\"\",\
         resource=\"namespaces\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"} 3",
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0",
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1",
    ] {
        assert!(page.lines().any(|known| known == line), "{line}\n{page}");
    }
    Ok(())
}

#[test]
fn watches_are_counted_while_they_run() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder().start()?;
    let address = server.endpoint().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /api/v1/namespaces?watch=true HTTP/1.1\r\nHost: test\r\n\r\n")?;
    let mut lines = BufReader::new(stream).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with('{')));
    let running = |count: u32| {
        let line = format!(
            "apiserver_longrunning_requests{{component=\"apiserver\",group=\"\",resource=\"namespaces\",\
             scope=\"cluster\",subresource=\"\",verb=\"WATCH\",version=\"v1\"}} {count}"
        );
        page(&server).lines().any(|known| known == line)
    };
    assert!(running(1));
    drop(lines);
    while !running(0) {}
    Ok(())
}

#[track_caller]
fn assert_lines(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|known| known == *line), "{line}\n{page}");
    }
}

#[test]
fn users_and_decisions_are_counted() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .user("secret", User::new("ann@example.com", ["devs"]))
        .start()?;
    let user = "Authorization: Bearer secret\r\n";
    assert_eq!(get(&server, "/apis", user).0, 200);
    assert_eq!(get(&server, "/api/v1/pods", user).0, 403);
    assert_eq!(
        get(&server, "/apis", "Authorization: Bearer wrong\r\n").0,
        401
    );
    assert_lines(
        &page(&server),
        &[
            // The page itself is one of them.
            "authentication_attempts{result=\"success\"} 3",
            "authentication_attempts{result=\"error\"} 1",
            "authentication_duration_seconds_count{result=\"error\"} 1",
            "authenticated_user_requests{username=\"email_id\"} 2",
            "authenticated_user_requests{username=\"admin\"} 1",
            "authorization_attempts_total{result=\"allowed\"} 2",
            "authorization_attempts_total{result=\"no-opinion\"} 1",
            "authorization_duration_seconds_count{result=\"no-opinion\"} 1",
            "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"rbac\",type=\"RBAC\"} 1",
        ],
    );
    Ok(())
}

#[test]
fn admission_is_measured_by_plugin() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder().start()?;
    let labels =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let namespace = "/api/v1/namespaces/default";
    assert_eq!(
        send(&server, "PATCH", namespace, &labels.to_string()).0,
        200
    );
    assert_eq!(send(&server, "POST", PODS, &pod("a", false)).0, 201);
    assert_eq!(send(&server, "POST", PODS, &pod("b", true)).0, 403);
    let plugin = "apiserver_admission_controller_admission_duration_seconds_count";
    let evaluation = |decision| {
        format!(
            "pod_security_evaluations_total{{decision=\"{decision}\",mode=\"enforce\",policy_level=\"baseline\",\
             policy_version=\"latest\",request_operation=\"create\",resource=\"pod\",subresource=\"\"}} 1"
        )
    };
    let of_plugin = |rejected| {
        format!(
            "{plugin}{{name=\"PodSecurity\",operation=\"CREATE\",rejected=\"{rejected}\",type=\"validate\"}} 1"
        )
    };
    let step = "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"true\",\
                type=\"validate\"} 1";
    assert_lines(
        &page(&server),
        &[
            &evaluation("allow"),
            &evaluation("deny"),
            &of_plugin(false),
            &of_plugin(true),
            step,
        ],
    );
    Ok(())
}

#[test]
fn queues_and_health_checks_have_metrics() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder()
        .controllers(Controllers::all())
        .start()?;
    assert_eq!(get(&server, "/readyz", "").0, 200);
    assert_eq!(get(&server, "/livez/ping", "").0, 200);
    let (code, checks) = get(&server, "/metrics/slis", "");
    assert_eq!(code, 200);
    assert_lines(
        &checks,
        &[
            "kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1",
            "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"shutdown\",status=\"success\",type=\"readyz\"} 1",
        ],
    );
    // The controller adds each namespace.
    let added = |page: &str| {
        let prefix = "workqueue_adds_total{name=\"service-account-controller\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(prefix));
        line.and_then(|count| count.parse::<u32>().ok())
            .unwrap_or_default()
    };
    while added(&page(&server)) == 0 {}
    let page = page(&server);
    for line in [
        "workqueue_depth{name=\"namespace-controller\"} ",
        "workqueue_queue_duration_seconds_bucket{name=\"namespace-controller\",le=\"0.001\"} ",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    Ok(())
}
