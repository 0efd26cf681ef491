//! Tests `etcdctl` over a Unix socket.

use revstore::{Config, EndpointUrl, Server};
use revstore_tests::etcdctl::Etcdctl;
use revstore_tests::tools::{self, Tool};

#[test]
fn tl_3_etcdctl_works_over_a_unix_socket() {
    if !tools::available("tl_3_etcdctl_works_over_a_unix_socket", &[Tool::Etcdctl]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("unix://{}/localhost:1", directory.path().display());
    let url = EndpointUrl::parse(&endpoint).unwrap();
    let mut config = Config::default();
    config.listen_client_urls = vec![url.try_into().unwrap()];
    config.listen_peer_urls = Vec::new();
    let _server = Server::builder().config(config).start().unwrap();
    let ctl = Etcdctl::at(&endpoint).unwrap();
    let run = |arguments: &[&str]| {
        let output = ctl.run(arguments, "").unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout
    };
    assert_eq!(run(&["put", "foo", "bar"]), "OK\n");
    assert_eq!(run(&["get", "foo"]), "foo\nbar\n");
}
