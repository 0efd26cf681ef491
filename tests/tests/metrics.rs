//! Tests of the metrics at `/metrics` (HT-10) with revstore and, if it is installed, with a real etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use revstore_tests::server::{Endpoint, Options, REVSTORE, Servers};
use revstore_tests::{http, poll};

revstore_tests::on_every_server! {
    needs: [];
    ht_10_metrics_have_the_names_and_types_of_etcd,
    ht_10_extensive_metrics_have_the_names_and_types_of_etcd,
    ht_10_operations_are_counted,
    ht_10_lease_operations_are_counted,
    ht_10_delivered_events_are_counted,
    ht_10_health_checks_are_counted,
    ht_10_failed_promotions_are_counted,
}

fn fresh(servers: &Servers) -> Box<dyn Endpoint> {
    fresh_with(servers, &[])
}

fn fresh_with(servers: &Servers, flags: &'static [&'static str]) -> Box<dyn Endpoint> {
    servers.fresh(&Options {
        json_gateway: true,
        flags,
        ..Options::default()
    })
}

fn page(address: SocketAddr) -> String {
    let response = http::get(address, "/metrics").expect("a response");
    assert_eq!(response.status, 200);
    response.body
}

/// The types and names of etcd's metrics, without those of the Go runtime and of its HTTP handler. Those with labels
/// are shown by etcd after the first request of their kind.
const ETCD_METRICS: &str = include_str!("etcd_metrics.txt");

/// The beginnings of the names of metrics that every program in Go has.
const OF_GO: [&str; 2] = ["go_", "promhttp_"];

/// The metrics of etcd that we leave out, by the beginning of their names, with the reason.
const LEFT_OUT: [(&str, &str); 14] = [
    ("etcd_debugging_lease_ttl_total", "not counted"),
    (
        "etcd_debugging_mvcc_db_compaction_last",
        "the engine has no time of day",
    ),
    (
        "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
        "not measured: a writer waits for at most one step of a compaction",
    ),
    (
        "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
        "not measured",
    ),
    (
        "etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
        "as above",
    ),
    ("etcd_debugging_mvcc_total_put_size_in_bytes", "not counted"),
    (
        "etcd_debugging_store_",
        "of the store of etcd's API v2, which does not exist here",
    ),
    (
        "etcd_disk_backend_snapshot_duration_seconds",
        "not measured",
    ),
    (
        "etcd_grpc_proxy_",
        "of `etcd grpc-proxy`; a server shows zeros",
    ),
    ("etcd_mvcc_hash_duration_seconds", "not measured"),
    ("etcd_mvcc_hash_rev_duration_seconds", "not measured"),
    ("etcd_server_go_version", "there is no Go"),
    (
        "etcd_server_healthchecks_total",
        "not counted; `etcd_server_healthcheck` has the results",
    ),
    (
        "os_fd_",
        "the same as `process_open_fds` and `process_max_fds`",
    ),
];

/// The metrics of etcd that we show only with `--metrics=extensive`, because counting them costs more than a small
/// request should.
const EXTENSIVE: [&str; 2] = [
    "etcd_server_apply_duration_seconds",
    "etcd_server_client_requests_total",
];

/// The histogram that etcd, too, shows only with `--metrics=extensive`.
const HANDLING: (&str, &str) = ("grpc_server_handling_seconds", "histogram");

/// The prefix of the metrics that etcd does not have.
const OURS: &str = "revstore_";

/// Dashboards compute rates of counters and show the values of gauges, so the types are checked. A metric that is
/// left out by mistake, or shown although its name is in the list, fails the test.
fn ht_10_metrics_have_the_names_and_types_of_etcd(servers: &Servers) {
    check_names(servers, fresh(servers).as_ref(), &EXTENSIVE, &[]);
}

fn ht_10_extensive_metrics_have_the_names_and_types_of_etcd(servers: &Servers) {
    let server = fresh_with(servers, &["--metrics=extensive"]);
    check_names(servers, server.as_ref(), &[], &[HANDLING]);
    let address = server.address();
    post(address, "lease/grant", r#"{"ID":"7","TTL":"60"}"#);
    post(address, "lease/revoke", r#"{"ID":"7"}"#);
    let page = page(address);
    for (line, expected) in [
        (
            r#"grpc_server_handling_seconds_count{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}"#,
            1,
        ),
        (
            r#"grpc_server_handling_seconds_bucket{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary",le="10"}"#,
            1,
        ),
        (
            r#"grpc_server_handling_seconds_bucket{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream",le="0.005"}"#,
            0,
        ),
        (
            r#"etcd_server_apply_duration_seconds_count{op="Put",success="true",version="v3"}"#,
            1,
        ),
        (
            r#"etcd_server_apply_duration_seconds_count{op="LeaseGrant",success="true",version="v3"}"#,
            1,
        ),
        (
            r#"etcd_server_apply_duration_seconds_count{op="LeaseRevoke",success="true",version="v3"}"#,
            1,
        ),
        (
            r#"etcd_server_client_requests_total{client_api_version="unknown",type="unary"}"#,
            3,
        ),
    ] {
        assert_eq!(value(&page, line), Some(expected), "{line} in {page}");
    }
    check_with_promtool(&page);
}

/// Checks the format of a page with the tool of Prometheus, where it is installed.
fn check_with_promtool(page: &str) {
    let tool = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let command = Command::new(tool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut command) = command else {
        eprintln!("NOT RUN: promtool is not installed");
        return;
    };
    let mut input = command.stdin.take().expect("standard input");
    input.write_all(page.as_bytes()).expect("promtool reads");
    drop(input);
    let output = command.wait_with_output().expect("promtool ends");
    // Status 3 stands for advice about names, and those are etcd's.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
}

/// Compares the names and types with etcd's, except `hidden`, and with `added`.
fn check_names(
    servers: &Servers,
    server: &dyn Endpoint,
    hidden: &[&str],
    added: &[(&'static str, &'static str)],
) {
    // The metrics of health checks and calls exist after the first request of their kind.
    http::get(server.address(), "/readyz").expect("a response");
    post(server.address(), "kv/put", r#"{"key":"YQ=="}"#);
    let page = page(server.address());
    let shown: BTreeSet<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| !OF_GO.iter().any(|of_go| name.starts_with(of_go)))
        .filter(|(name, _)| !(servers.name == REVSTORE.name && name.starts_with(OURS)))
        .collect();
    let is_left_out = |name: &str| {
        let is_left_out = LEFT_OUT
            .iter()
            .any(|(left_out, _)| name.starts_with(left_out));
        let is_left_out = is_left_out || hidden.contains(&name);
        is_left_out && servers.name == REVSTORE.name
    };
    let expected: BTreeSet<(&str, &str)> = ETCD_METRICS
        .lines()
        .map(|line| line.split_once(' ').expect("a type and a name"))
        .map(|(kind, name)| (name, kind))
        .filter(|(name, _)| !is_left_out(name))
        .chain(added.iter().copied())
        .collect();
    let missing: Vec<_> = expected.difference(&shown).collect();
    let unknown: Vec<_> = shown.difference(&expected).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing {missing:?}, unknown {unknown:?}"
    );
}

#[test]
fn every_metric_that_is_left_out_is_one_of_etcd() {
    for (left_out, reason) in LEFT_OUT {
        let mut names = ETCD_METRICS.lines().filter_map(|line| line.split_once(' '));
        assert!(
            names.any(|(_, name)| name.starts_with(left_out)),
            "{left_out}: {reason}"
        );
    }
}

/// The counted operations, each with the name of its metric.
const COUNTED: [(&str, &str); 8] = [
    ("put", "etcd_mvcc_put_total"),
    ("delete", "etcd_mvcc_delete_total"),
    ("txn", "etcd_mvcc_txn_total"),
    ("keys", "etcd_debugging_mvcc_keys_total"),
    ("granted", "etcd_debugging_lease_granted_total"),
    ("revoked", "etcd_debugging_lease_revoked_total"),
    ("renewed", "etcd_debugging_lease_renewed_total"),
    ("expired", "etcd_debugging_server_lease_expired_total"),
];

/// Returns the value of a metric.
fn value(page: &str, name: &str) -> Option<i64> {
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.parse().ok()
}

/// Returns the metrics in [`COUNTED`] that are not 0.
fn counts(address: SocketAddr) -> BTreeMap<&'static str, i64> {
    let page = page(address);
    let counts = COUNTED.map(|(word, name)| (word, value(&page, name).expect(name)));
    counts
        .into_iter()
        .filter(|(_, count)| *count != 0)
        .collect()
}

fn post(address: SocketAddr, path: &str, body: &str) {
    let request = http::Request {
        method: "POST",
        path: &format!("/v3/{path}"),
        headers: &[],
        body,
    };
    let response = request.send(address).expect("a response");
    assert_eq!(response.status, 200, "{path} {body}: {}", response.body);
}

/// Sends a request, then compares all metrics in [`COUNTED`] that are not 0.
fn check(address: SocketAddr, path: &str, body: &str, expected: &[(&'static str, i64)]) {
    post(address, path, body);
    let expected = expected.iter().copied().collect();
    assert_eq!(counts(address), expected, "{path} {body}");
}

fn ht_10_operations_are_counted(servers: &Servers) {
    let server = fresh(servers);
    let check = |path, body, expected: &[_]| check(server.address(), path, body, expected);
    check("kv/put", r#"{"key":"YQ=="}"#, &[("put", 1), ("keys", 1)]);
    check("kv/put", r#"{"key":"YQ=="}"#, &[("put", 2), ("keys", 1)]);
    // A transaction with one operation counts as that operation.
    check(
        "kv/txn",
        r#"{"compare":[{"key":"Yg==","version":0}],"success":[{"request_put":{"key":"Yg=="}}]}"#,
        &[("put", 3), ("keys", 2)],
    );
    check("kv/txn", "{}", &[("put", 3), ("keys", 2)]);
    check(
        "kv/txn",
        r#"{"success":[{"request_put":{"key":"YQ=="}},{"request_range":{"key":"YQ=="}}]}"#,
        &[("put", 4), ("txn", 1), ("keys", 2)],
    );
    // A nested transaction is not counted. Its operations are counted.
    check(
        "kv/txn",
        r#"{"success":[{"request_txn":{"success":[{"request_put":{"key":"Yw=="}}]}},{"request_delete_range":{"key":"YQ=="}}]}"#,
        &[("put", 5), ("delete", 1), ("txn", 2), ("keys", 2)],
    );
    // A delete counts once for any number of deleted keys.
    check(
        "kv/deleterange",
        r#"{"key":"YQ==","range_end":"eg=="}"#,
        &[("put", 5), ("delete", 2), ("txn", 2)],
    );
    check(
        "kv/deleterange",
        r#"{"key":"YQ=="}"#,
        &[("put", 5), ("delete", 3), ("txn", 2)],
    );
}

fn ht_10_lease_operations_are_counted(servers: &Servers) {
    let server = fresh(servers);
    let address = server.address();
    let check = |path, body, expected: &[_]| check(address, path, body, expected);
    check("lease/grant", r#"{"ID":7,"TTL":1000}"#, &[("granted", 1)]);
    check(
        "lease/keepalive",
        r#"{"ID":7}"#,
        &[("granted", 1), ("renewed", 1)],
    );
    // A lease that does not exist is not renewed.
    check(
        "lease/keepalive",
        r#"{"ID":8}"#,
        &[("granted", 1), ("renewed", 1)],
    );
    check(
        "lease/revoke",
        r#"{"ID":7}"#,
        &[("granted", 1), ("renewed", 1), ("revoked", 1)],
    );
    // An expired lease counts as revoked.
    check(
        "lease/grant",
        r#"{"ID":9,"TTL":1}"#,
        &[("granted", 2), ("renewed", 1), ("revoked", 1)],
    );
    let expired = || (counts(address).get("revoked") == Some(&2)).then_some(());
    assert_eq!(poll::until(poll::LIMIT, expired), Some(()));
    assert_eq!(counts(address).get("expired"), Some(&1));
}

fn ht_10_delivered_events_are_counted(servers: &Servers) {
    let server = fresh(servers);
    let address = server.address();
    for _ in 0..3 {
        post(address, "kv/put", r#"{"key":"YQ=="}"#);
    }
    let watch = http::Request {
        method: "POST",
        path: "/v3/watch",
        headers: &[],
        body: r#"{"create_request":{"key":"YQ==","start_revision":2}}"#,
    };
    // The first response has `created`, the second has all three events.
    let responses = watch.send_for_lines(address, 2).expect("a response");
    assert!(responses.body.contains("events"), "{}", responses.body);
    let events = value(&page(address), "etcd_debugging_mvcc_events_total");
    assert_eq!(events, Some(3));
}

/// Sends a request to each health check and returns the metrics of health checks.
fn probe(address: SocketAddr, expected: u16) -> [i64; 4] {
    for (path, expected) in [
        ("/health", expected),
        ("/readyz", expected),
        ("/livez", 200),
    ] {
        let response = http::get(address, path).expect("a response");
        assert_eq!(response.status, expected, "{path}: {}", response.body);
    }
    let page = page(address);
    [
        "etcd_server_health_success",
        "etcd_server_health_failures",
        r#"etcd_server_healthcheck{name="data_corruption",type="readyz"}"#,
        r#"etcd_server_healthcheck{name="serializable_read",type="livez"}"#,
    ]
    .map(|name| value(&page, name).expect(name))
}

fn ht_10_health_checks_are_counted(servers: &Servers) {
    let server = fresh(servers);
    let address = server.address();
    assert_eq!(probe(address, 200), [1, 0, 1, 1]);
    let corrupt = r#"{"action":"ACTIVATE","memberID":5,"alarm":"CORRUPT"}"#;
    post(address, "maintenance/alarm", corrupt);
    assert_eq!(probe(address, 503), [1, 1, 0, 1]);
}

fn ht_10_failed_promotions_are_counted(servers: &Servers) {
    let server = fresh(servers);
    let address = server.address();
    let call = |path: &str, body: &str| {
        let request = http::Request {
            method: "POST",
            path: &format!("/v3/cluster/member/{path}"),
            headers: &[],
            body,
        };
        request.send(address).expect("a response").body
    };
    let added = call(
        "add",
        r#"{"isLearner":true,"peerURLs":["http://127.0.0.1:2"]}"#,
    );
    let id = added.split(r#""member":{"ID":""#).nth(1);
    let id = id.and_then(|rest| rest.split('"').next()).expect("an id");
    for id in [id, id, "5", "10276657743932975437"] {
        call("promote", &format!(r#"{{"ID":"{id}"}}"#));
    }
    let page = page(address);
    for (reason, expected) in [
        (
            "etcdserver: can only promote a learner member which is in sync with leader",
            2,
        ),
        ("membership: ID not found", 1),
        ("membership: can only promote a learner member", 1),
    ] {
        let name = format!("etcd_server_learner_promote_failures{{Reason=\"{reason}\"}}");
        assert_eq!(value(&page, &name), Some(expected), "{name} in {page}");
    }
    assert_eq!(
        value(&page, "etcd_server_learner_promote_successes"),
        Some(0)
    );
}
