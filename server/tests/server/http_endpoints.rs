//! Tests of the HTTP endpoints: section H. The expected bodies are those of etcd.

use std::net::SocketAddr;

use revstore::Server;
use revstore_proto::etcdserverpb::{
    AlarmRequest, AlarmType, MemberAddRequest, StatusRequest, alarm_request::AlarmAction,
    cluster_client::ClusterClient, maintenance_client::MaintenanceClient,
};

use crate::support::{ANY_PORT, ServerProcess, block_on, connect, get, http, put, watch};

fn server() -> (Server, SocketAddr) {
    let server = Server::builder().start().unwrap();
    let address = server.address().unwrap();
    (server, address)
}

fn raise_alarm(address: SocketAddr, alarm: AlarmType) {
    block_on(async {
        let request = AlarmRequest {
            action: AlarmAction::Activate.into(),
            member_id: 5,
            alarm: alarm.into(),
        };
        let mut client = MaintenanceClient::new(connect(address).await);
        client.alarm(request).await.unwrap();
    });
}

fn check(address: SocketAddr, path: &str, status: u16, body: &str) {
    let response = get(address, path);
    assert_eq!(
        (response.status, response.body.as_str()),
        (status, body),
        "{path}"
    );
}

const HEALTHY: &str = r#"{"health":"true","reason":""}"#;

#[test]
fn ht_5_health_is_true_without_alarms() {
    let (_server, address) = server();
    check(address, "/health", 200, HEALTHY);
    check(address, "/health?serializable=true", 200, HEALTHY);
    check(address, "/health?exclude=NOSPACE", 200, HEALTHY);
    let response = get(address, "/health");
    assert_eq!(
        response.header("Content-Type"),
        Some("text/plain; charset=utf-8")
    );
}

#[test]
fn ht_7_a_server_that_listens_is_ready() {
    for path in ["/health", "/readyz", "/livez"] {
        let (_server, address) = server();
        assert_eq!(get(address, path).status, 200, "{path}");
    }
}

#[test]
fn ht_6_health_reports_alarms() {
    let (_server, address) = server();
    raise_alarm(address, AlarmType::Nospace);
    let no_space = "{\"health\":\"false\",\"reason\":\"ALARM NOSPACE\"}\n";
    check(address, "/health", 503, no_space);
    check(address, "/health?serializable=true", 503, no_space);
    check(address, "/health?exclude=NOSPACE", 200, HEALTHY);
    check(address, "/health?exclude=CORRUPT", 503, no_space);
    raise_alarm(address, AlarmType::Corrupt);
    check(
        address,
        "/health?exclude=NOSPACE",
        503,
        "{\"health\":\"false\",\"reason\":\"ALARM CORRUPT\"}\n",
    );
    check(
        address,
        "/health?exclude=NOSPACE&exclude=CORRUPT",
        200,
        HEALTHY,
    );
}

#[test]
fn ht_6_only_get_is_allowed() {
    let (_server, address) = server();
    for path in [
        "/health",
        "/livez",
        "/readyz",
        "/livez/serializable_read",
        "/version",
    ] {
        for method in ["POST", "PUT", "HEAD"] {
            let response = http(address, method, path);
            assert_eq!(response.status, 405, "{method} {path}");
            assert_eq!(response.header("Allow"), Some("GET"), "{method} {path}");
        }
        assert_eq!(http(address, "POST", path).body, "Method Not Allowed\n");
    }
}

#[test]
fn ht_8_livez_and_readyz_list_their_checks() {
    let (_server, address) = server();
    check(address, "/livez", 200, "ok\n");
    check(
        address,
        "/livez?verbose",
        200,
        "[+]serializable_read ok\nok\n",
    );
    check(address, "/livez/serializable_read", 200, "ok\n");
    check(
        address,
        "/livez/data_corruption",
        404,
        "404 page not found\n",
    );
    check(address, "/livez/", 404, "404 page not found\n");
    check(address, "/readyz", 200, "ok\n");
    check(
        address,
        "/readyz?verbose",
        200,
        "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n\
         [+]non_learner ok\nok\n",
    );
    check(
        address,
        "/readyz?verbose&exclude=linearizable_read&exclude=non_learner",
        200,
        "[+]data_corruption ok\n[+]serializable_read ok\nok\n",
    );
    check(
        address,
        "/readyz/linearizable_read?verbose",
        200,
        "[+]linearizable_read ok\nok\n",
    );
    check(address, "/readyz/nope", 404, "404 page not found\n");
}

#[test]
fn ht_8_readyz_fails_with_the_corrupt_alarm_and_not_with_nospace() {
    let (_server, address) = server();
    raise_alarm(address, AlarmType::Nospace);
    check(address, "/readyz", 200, "ok\n");
    raise_alarm(address, AlarmType::Corrupt);
    check(
        address,
        "/readyz",
        503,
        "[-]data_corruption failed: alarm activated: CORRUPT\n[+]serializable_read ok\n\
         [+]linearizable_read ok\n[+]non_learner ok\n\n",
    );
    check(
        address,
        "/readyz/data_corruption",
        503,
        "[-]data_corruption failed: alarm activated: CORRUPT\n\n",
    );
    check(address, "/readyz?exclude=data_corruption", 200, "ok\n");
    check(address, "/livez", 200, "ok\n");
}

#[test]
fn ht_9_version_returns_server_and_cluster_version() {
    let (_server, address) = server();
    check(
        address,
        "/version",
        200,
        r#"{"etcdserver":"3.5.30","etcdcluster":"3.5.0"}"#,
    );
    let response = get(address, "/version");
    assert_eq!(response.header("Content-Type"), Some("application/json"));
}

#[test]
fn mt_2_status_and_the_version_endpoint_agree() {
    let (_server, address) = server();
    let status = block_on(async {
        let mut client = MaintenanceClient::new(connect(address).await);
        client.status(StatusRequest {}).await.unwrap().into_inner()
    });
    let version = format!(r#""etcdserver":"{}""#, status.version);
    assert!(
        get(address, "/version").body.contains(&version),
        "{version}"
    );
}

/// Returns the value of a metric. `name` contains its labels, if it has any.
fn metric(page: &str, name: &str) -> Option<f64> {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

#[test]
fn ht_10_metrics_have_the_names_of_etcd() {
    let (_server, address) = server();
    let response = get(address, "/metrics");
    assert_eq!(response.status, 200);
    let content_type = response.header("Content-Type").unwrap();
    assert!(content_type.starts_with("text/plain; version=0.0.4"));
    let page = response.body;
    for (name, value) in [
        ("etcd_server_has_leader", 1.0),
        ("etcd_server_is_leader", 1.0),
        (r#"etcd_server_version{server_version="3.5.30"}"#, 1.0),
        (r#"etcd_cluster_version{cluster_version="3.5"}"#, 1.0),
        (r#"etcd_server_id{server_id="8e9e05c52164694d"}"#, 1.0),
        ("etcd_server_leader_changes_seen_total", 1.0),
        ("etcd_server_proposals_committed_total", 4.0),
        ("etcd_server_proposals_applied_total", 4.0),
        ("etcd_server_proposals_pending", 0.0),
        ("etcd_server_proposals_failed_total", 0.0),
        ("etcd_server_quota_backend_bytes", 2_147_483_648.0),
        ("etcd_server_health_success", 0.0),
        ("etcd_server_health_failures", 0.0),
        (
            r#"etcd_server_healthcheck{name="data_corruption",type="readyz"}"#,
            1.0,
        ),
        ("etcd_server_slow_apply_total", 0.0),
        ("etcd_mvcc_db_total_size_in_bytes", 0.0),
        ("etcd_mvcc_db_total_size_in_use_in_bytes", 0.0),
        ("etcd_mvcc_put_total", 0.0),
        ("etcd_mvcc_delete_total", 0.0),
        ("etcd_mvcc_txn_total", 0.0),
        ("etcd_mvcc_range_total", 0.0),
        ("etcd_debugging_mvcc_keys_total", 0.0),
        ("etcd_debugging_mvcc_watcher_total", 0.0),
        ("etcd_debugging_mvcc_watch_stream_total", 0.0),
        ("etcd_debugging_mvcc_slow_watcher_total", 0.0),
        ("etcd_debugging_mvcc_events_total", 0.0),
        ("etcd_debugging_mvcc_pending_events_total", 0.0),
        ("etcd_debugging_mvcc_current_revision", 1.0),
        ("etcd_debugging_mvcc_compact_revision", -1.0),
        ("etcd_debugging_lease_granted_total", 0.0),
        ("etcd_debugging_lease_revoked_total", 0.0),
        ("etcd_debugging_lease_renewed_total", 0.0),
        ("etcd_disk_wal_fsync_duration_seconds_count", 0.0),
        ("etcd_disk_backend_commit_duration_seconds_count", 0.0),
        ("etcd_network_client_grpc_sent_bytes_total", 0.0),
        ("etcd_network_client_grpc_received_bytes_total", 0.0),
    ] {
        assert_eq!(metric(&page, name), Some(value), "{name}");
    }
    for name in [
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_resident_memory_bytes",
        "process_open_fds",
    ] {
        assert_eq!(
            metric(&page, name).is_some(),
            cfg!(target_os = "linux"),
            "{name}"
        );
    }
}

#[test]
fn ht_10_metrics_count_requests_and_watches() {
    let (_server, address) = server();
    block_on(async {
        let channel = connect(address).await;
        put(channel.clone(), "a").await.unwrap();
        put(channel.clone(), "").await.unwrap_err();
        let _watch = watch(channel, "a").await;
        get(address, "/health");

        let page = get(address, "/metrics").body;
        let of_put = |name: &str, code: &str| {
            let code = match code {
                "" => String::new(),
                code => format!(r#"grpc_code="{code}","#),
            };
            let labels = r#"grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
            metric(&page, &format!("{name}{{{code}{labels}}}"))
        };
        assert_eq!(of_put("grpc_server_started_total", ""), Some(2.0));
        assert_eq!(of_put("grpc_server_handled_total", "OK"), Some(1.0));
        assert_eq!(
            of_put("grpc_server_handled_total", "InvalidArgument"),
            Some(1.0)
        );
        assert_eq!(of_put("grpc_server_msg_received_total", ""), Some(2.0));
        assert_eq!(of_put("grpc_server_msg_sent_total", ""), Some(1.0));
        for (name, value) in [
            ("etcd_mvcc_put_total", 1.0),
            ("etcd_debugging_mvcc_keys_total", 1.0),
            ("etcd_debugging_mvcc_watcher_total", 1.0),
            ("etcd_debugging_mvcc_watch_stream_total", 1.0),
            ("etcd_debugging_mvcc_current_revision", 2.0),
            ("etcd_server_health_success", 1.0),
        ] {
            assert_eq!(metric(&page, name), Some(value), "{name}");
        }
        let received = metric(&page, "etcd_network_client_grpc_received_bytes_total");
        assert!(received > Some(0.0), "{received:?}");
    });
}

#[test]
fn ht_11_unknown_paths_return_404() {
    let (_server, address) = server();
    for path in [
        "/",
        "/nope",
        "/v2/keys",
        "/metrics/",
        "/version/",
        "/debug/pprof/",
    ] {
        check(address, path, 404, "404 page not found\n");
    }
    let moved = get(address, "/v3");
    assert_eq!(
        (moved.status, moved.header("Location")),
        (301, Some("/v3/"))
    );
    let vars = get(address, "/debug/vars");
    assert_eq!(vars.status, 200);
    assert!(vars.body.contains("\"cmdline\": ["), "{}", vars.body);
    let response = http(address, "POST", "/debug/vars");
    assert_eq!(
        (response.status, response.header("Allow")),
        (405, Some("GET"))
    );
}

#[test]
fn ht_11_cors_allows_all_origins() {
    let (_server, address) = server();
    for path in ["/health", "/nope"] {
        let response = get(address, path);
        assert_eq!(response.header("Access-Control-Allow-Origin"), Some("*"));
        let preflight = http(address, "OPTIONS", path);
        assert_eq!(
            (preflight.status, preflight.body.as_str()),
            (200, ""),
            "{path}"
        );
        assert_eq!(
            preflight.header("Access-Control-Allow-Methods"),
            Some("POST, GET, OPTIONS, PUT, DELETE")
        );
        assert_eq!(
            preflight.header("Access-Control-Allow-Headers"),
            Some("accept, content-type, authorization")
        );
    }
}

#[test]
fn ht_11_pprof_is_served_if_enabled() {
    let mut process = ServerProcess::start(ANY_PORT.iter().chain([&"--enable-pprof"]));
    let address = process.address_of("client");
    assert_eq!(get(address, "/debug/pprof/").status, 200);
    let command_line = get(address, "/debug/pprof/cmdline").body;
    assert!(command_line.contains("--enable-pprof"), "{command_line}");
}

#[test]
fn ht_12_metrics_urls_serve_metrics_and_health_only() {
    let metrics = "--listen-metrics-urls=http://127.0.0.1:0";
    let mut process = ServerProcess::start(ANY_PORT.iter().chain([&metrics]));
    let address = process.address_of("metrics");
    for path in ["/metrics", "/health", "/livez", "/readyz"] {
        assert_eq!(get(address, path).status, 200, "{path}");
    }
    for path in ["/version", "/debug/vars", "/v3", "/v3/kv/range", "/"] {
        assert_eq!(get(address, path).status, 404, "{path}");
    }
    let response = get(address, "/health");
    assert_eq!(response.header("Access-Control-Allow-Origin"), None);
}

#[test]
fn ht_13_with_client_http_urls_the_client_port_serves_grpc_only() {
    // Another address, because two URLs with port 0 and the same address would be equal.
    let client_http = "--listen-client-http-urls=http://127.0.0.2:0";
    let mut process = ServerProcess::start(ANY_PORT.iter().chain([&client_http]));
    let grpc = process.address_of("client");
    let http = process.address_of("client HTTP");
    assert_eq!(get(http, "/health").status, 200);
    block_on(async {
        put(connect(grpc).await, "a").await.unwrap();
        put(connect(http).await, "a").await.unwrap_err();
    });
    // An HTTP/1.1 request is not an HTTP/2 preface, so it gets no HTTP/1.1 response.
    let mut stream = std::net::TcpStream::connect(grpc).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut response = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut response);
    assert!(!response.starts_with(b"HTTP/1.1 200"), "{response:?}");
}

#[test]
fn ht_14_the_peer_port_serves_version_and_members_only() {
    let mut process = ServerProcess::start(ANY_PORT);
    let address = process.address_of("peer");
    let version = get(address, "/version");
    assert_eq!(version.status, 200);
    assert!(version.body.contains("etcdserver"));
    let members = get(address, "/members");
    assert_eq!(members.status, 200);
    assert!(
        members.body.contains(
            r#""peerURLs":["http://localhost:2380"],"name":"default","clientURLs":["http://127.0.0.1:0"]"#
        ),
        "{}",
        members.body
    );
    let client = process.address_of("client");
    block_on(async {
        let mut cluster = ClusterClient::new(connect(client).await);
        let learner = MemberAddRequest {
            peer_ur_ls: vec!["http://a:1".to_owned()],
            is_learner: true,
        };
        cluster.member_add(learner).await.unwrap();
    });
    let members = get(address, "/members").body;
    let learner = r#","peerURLs":["http://a:1"],"isLearner":true}"#;
    assert!(members.contains(learner), "{members}");
    for path in ["/health", "/metrics", "/"] {
        assert_eq!(get(address, path).status, 404, "{path}");
    }
}
