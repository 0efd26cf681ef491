//! Tests of the metrics at `/metrics` (HT-10) with revstore and, if it is installed, with a real etcd.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use revstore_tests::server::{Endpoint, Options, Servers};
use revstore_tests::{http, poll};

revstore_tests::on_every_server! {
    needs: [];
    ht_10_metrics_have_the_types_of_etcd,
    ht_10_operations_are_counted,
    ht_10_lease_operations_are_counted,
    ht_10_delivered_events_are_counted,
    ht_10_health_checks_are_counted,
}

fn fresh(servers: &Servers) -> Box<dyn Endpoint> {
    servers.fresh(&Options {
        json_gateway: true,
        ..Options::default()
    })
}

fn page(address: SocketAddr) -> String {
    let response = http::get(address, "/metrics").expect("a response");
    assert_eq!(response.status, 200);
    response.body
}

/// Dashboards compute rates of counters and show the values of gauges, so the types are checked.
fn ht_10_metrics_have_the_types_of_etcd(servers: &Servers) {
    let server = fresh(servers);
    // The metric of a health check exists after the first request of the check.
    http::get(server.address(), "/readyz").expect("a response");
    let page = page(server.address());
    for (kind, names) in [
        (
            "gauge",
            &[
                "etcd_server_has_leader",
                "etcd_server_is_leader",
                "etcd_server_version",
                "etcd_cluster_version",
                "etcd_server_id",
                "etcd_server_proposals_committed_total",
                "etcd_server_proposals_applied_total",
                "etcd_server_proposals_pending",
                "etcd_server_quota_backend_bytes",
                "etcd_server_healthcheck",
                "etcd_mvcc_db_total_size_in_bytes",
                "etcd_mvcc_db_total_size_in_use_in_bytes",
                "etcd_debugging_mvcc_keys_total",
                "etcd_debugging_mvcc_watcher_total",
                "etcd_debugging_mvcc_watch_stream_total",
                "etcd_debugging_mvcc_slow_watcher_total",
                "etcd_debugging_mvcc_pending_events_total",
                "etcd_debugging_mvcc_current_revision",
                "etcd_debugging_mvcc_compact_revision",
                "process_open_fds",
                "process_resident_memory_bytes",
                "process_start_time_seconds",
            ] as &[&str],
        ),
        (
            "counter",
            &[
                "etcd_server_leader_changes_seen_total",
                "etcd_server_proposals_failed_total",
                "etcd_server_health_success",
                "etcd_server_health_failures",
                "etcd_server_slow_apply_total",
                "etcd_mvcc_put_total",
                "etcd_mvcc_delete_total",
                "etcd_mvcc_txn_total",
                "etcd_mvcc_range_total",
                "etcd_debugging_mvcc_events_total",
                "etcd_debugging_lease_granted_total",
                "etcd_debugging_lease_revoked_total",
                "etcd_debugging_lease_renewed_total",
                "etcd_network_client_grpc_sent_bytes_total",
                "etcd_network_client_grpc_received_bytes_total",
                "grpc_server_started_total",
                "grpc_server_handled_total",
                "grpc_server_msg_sent_total",
                "grpc_server_msg_received_total",
                "process_cpu_seconds_total",
            ],
        ),
        (
            "histogram",
            &[
                "etcd_disk_wal_fsync_duration_seconds",
                "etcd_disk_backend_commit_duration_seconds",
            ],
        ),
    ] {
        for name in names {
            let line = format!("# TYPE {name} {kind}");
            assert!(page.lines().any(|it| it == line), "missing line {line:?}");
        }
    }
}

/// The counted operations, each with the name of its metric.
const COUNTED: [(&str, &str); 7] = [
    ("put", "etcd_mvcc_put_total"),
    ("delete", "etcd_mvcc_delete_total"),
    ("txn", "etcd_mvcc_txn_total"),
    ("keys", "etcd_debugging_mvcc_keys_total"),
    ("granted", "etcd_debugging_lease_granted_total"),
    ("revoked", "etcd_debugging_lease_revoked_total"),
    ("renewed", "etcd_debugging_lease_renewed_total"),
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
