//! `etcdctl make-mirror` between two servers of the same kind.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::poll;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    existing_keys_and_changes_are_mirrored, the_prefix_can_be_replaced,
}

/// Waits until `get <arguments>` at the destination prints `expected`.
#[track_caller]
fn wait_until_mirrored(destination: &Session, arguments: &[&str], expected: &str) {
    let mut seen = String::new();
    let equal = poll::until(poll::LIMIT, || {
        seen = destination.stdout(&[&["get"], arguments].concat());
        (seen == expected).then_some(())
    });
    assert!(
        equal.is_some(),
        "expected at the destination:\n{expected}\nactual:\n{seen}"
    );
}

fn existing_keys_and_changes_are_mirrored(servers: &Servers) {
    let source = Session::fresh(servers);
    let destination = Session::fresh(servers);
    source.replay("$ put a 1\nOK\n$ put b 2\nOK");
    let _mirror = source.start(&["make-mirror", &destination.address().to_string()]);
    let everything = ["", "--prefix"];
    wait_until_mirrored(&destination, &everything, "a\n1\nb\n2\n");
    source.replay("$ put c 3\nOK\n$ del a\n1\n$ put b 4\nOK");
    wait_until_mirrored(&destination, &everything, "b\n4\nc\n3\n");
}

fn the_prefix_can_be_replaced(servers: &Servers) {
    let source = Session::fresh(servers);
    let destination = Session::fresh(servers);
    source.replay("$ put from/a 1\nOK\n$ put other 2\nOK");
    let _mirror = source.start(&[
        "make-mirror",
        "--prefix=from/",
        "--dest-prefix=to/",
        &destination.address().to_string(),
    ]);
    let everything = ["", "--prefix"];
    wait_until_mirrored(&destination, &everything, "to/a\n1\n");
    source.replay("$ put from/b 3\nOK");
    wait_until_mirrored(&destination, &everything, "to/a\n1\nto/b\n3\n");
}
