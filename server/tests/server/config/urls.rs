//! The URLs of a server, and the ids that follow from them.

use revstore::{Config, EndpointUrl};

use super::{check, check_error, check_warning, serve};

#[test]
fn fl_8_listening_demands_advertising() {
    let expected =
        "--advertise-client-urls is required when --listen-client-urls is set explicitly";
    check_error("--listen-client-urls http://127.0.0.1:1", 1, expected);
    check(
        "--listen-client-urls http://127.0.0.1:1 --advertise-client-urls http://127.0.0.1:1",
        |config| config.advertise_client_urls.clone(),
        vec![EndpointUrl::parse("http://127.0.0.1:1").unwrap()],
    );
}

#[test]
fn fl_10_listen_urls_are_addresses() {
    // Before FL-8.
    check_error(
        "--listen-client-urls http://example.com:2379",
        1,
        "expected IP in URL for binding (http://example.com:2379)",
    );
    check_error(
        "--listen-peer-urls http://example.com:2380",
        1,
        "expected IP in URL for binding (http://example.com:2380)",
    );
    check_error(
        "--listen-metrics-urls http://example.com:2381",
        1,
        "expected IP in URL for binding (http://example.com:2381)",
    );
}

#[test]
fn tl_3_an_absolute_socket_path_fails() {
    check_error(
        "--listen-client-urls unix:///run/e.sock --advertise-client-urls unix:///run/e.sock",
        1,
        "--advertise-client-urls \"unix:///run/e.sock\" must be \"host:port\" (missing port in \
         address)",
    );
    check_error(
        "--advertise-client-urls http://:1",
        1,
        "--advertise-client-urls \"http://:1\" must be \"host:port\" (unexpected empty host \
         (http://:1))",
    );
}

#[test]
fn ht_12_and_ht_13_ports_for_http() {
    check(
        "--listen-metrics-urls http://127.0.0.1:2381,http://127.0.0.1:2382",
        |config| config.listen_metrics_urls.len(),
        2,
    );
    check(
        "--listen-client-http-urls http://127.0.0.1:2378",
        Config::has_separate_http,
        true,
    );
    check(
        "--listen-client-http-urls=",
        Config::has_separate_http,
        false,
    );
    check_error(
        "--listen-client-http-urls http://127.0.0.1:2379",
        1,
        "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url \
         http://127.0.0.1:2379",
    );
}

#[test]
fn dm_11_the_cluster_gives_the_ids() {
    let ids = |config: &Config| (config.member_id(), config.cluster_id());
    let default = ids(&Config::default());
    check("--name other", ids, default);
    check(
        "--name a --initial-cluster a=http://localhost:2380",
        ids,
        default,
    );

    let (config, warnings) = serve(
        "--name a --initial-advertise-peer-urls http://localhost:2380 \
         --initial-cluster b=http://localhost:2390,a=http://localhost:2380",
    );
    assert_eq!(config.member_id(), default.0);
    assert_ne!(config.cluster_id(), default.1);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("1 other members"));

    assert_ne!(serve("--initial-cluster-token x").0.member_id(), default.0);
    check_error(
        "--name b --initial-cluster a=http://localhost:2380",
        1,
        "couldn't find local name \"b\" in the initial cluster configuration",
    );
    check_error(
        "--initial-cluster default",
        1,
        "error setting up initial cluster: URL scheme must be http, https, unix, or unixs: ",
    );
    check_warning("--initial-cluster default=http://localhost:1", "differs");
}

#[test]
fn dm_11_ids_of_the_default_member() {
    let config = Config::default();
    assert_eq!(config.member_id(), 0x8e9e_05c5_2164_694d);
    assert_eq!(config.cluster_id(), 0xcdf8_1819_4e3a_8c32);
}
