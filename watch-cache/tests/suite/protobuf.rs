//! Tests of a resource whose objects are in the protobuf envelope.

use revstore_watch_cache::cache::ObjectIndex;
use revstore_watch_cache::encode::{ProtobufField, ProtobufKind};
use revstore_watch_cache::{ListOptions, ResourceConfig, Scope, WatchOptions};

use crate::support::{Fixture, PODS, Side, selector};

/// Returns a field with bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 0x80 && number < 16);
    [&[number << 3 | 2, length], content].concat()
}

fn pod(app: &str, node: &str) -> Vec<u8> {
    let label = [field(1, b"app"), field(2, app.as_bytes())].concat();
    let metadata = [field(5, b"uid-a"), field(11, &label)].concat();
    let spec = field(10, node.as_bytes());
    let raw = [field(1, &metadata), field(2, &spec)].concat();
    let type_meta = [field(1, b"v1"), field(2, b"Pod")].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw)].concat()
}

fn fixture() -> Fixture {
    let kind = ProtobufKind::new("v1", "Pod").field("spec.nodeName", ProtobufField::text([2, 10]));
    let config = ResourceConfig::namespaced(kind, "pods", PODS)
        .index(ObjectIndex::Field("spec.nodeName".into()));
    Fixture::with(config, |builder| builder)
}

fn put(fixture: &Fixture, name: &str, value: Vec<u8>) {
    let put = fixture.engine().put(format!("{PODS}/ns/{name}"), value);
    put.unwrap();
}

#[test]
fn wc_149_protobuf_objects_are_selected_by_labels_and_declared_fields() {
    let fixture = fixture();
    put(&fixture, "a", pod("web", "n1"));
    put(&fixture, "b", pod("web", "n2"));
    put(&fixture, "c", pod("db", "n1"));
    for side in [Side::Raw, Side::Cached] {
        let store = fixture.store(side);
        let found = |labels: &str, fields: &str| {
            let options = ListOptions::default().selector(selector(labels, fields));
            fixture.list(store, &Scope::All, &options).unwrap().items
        };
        assert_eq!(found("app=web", "spec.nodeName=n1"), ["ns/a@2"]);
        assert_eq!(found("", "spec.nodeName=n1"), ["ns/a@2", "ns/c@4"]);
        let options = WatchOptions::default().selector(selector("app=db", ""));
        let mut events = fixture.watch(store, &Scope::All, &options);
        assert_eq!(events.word(), "ADDED ns/c@4");
    }
}

#[test]
fn wc_149_other_bytes_are_a_corrupt_object() {
    let fixture = fixture();
    put(&fixture, "a", b"{\"metadata\":{\"name\":\"a\"}}".to_vec());
    for side in [Side::Raw, Side::Cached] {
        let options = ListOptions::default();
        let error = fixture.list(fixture.store(side), &Scope::All, &options);
        let error = error.unwrap_err();
        assert_eq!(error.code(), 500);
        let cause = &error.status().details.unwrap().causes[0];
        assert!(cause.message.contains("missing prefix"), "{cause:?}");
    }
}
