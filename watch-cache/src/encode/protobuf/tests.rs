//! Tests of the kind of objects in the protobuf envelope.

use bytes::Bytes;
use prost::Message;

use revstore_engine::Revision;

use super::form::ProtobufForm;
use super::wire::write_bytes;
use super::*;
use crate::api::event::EventType;
use crate::api::keys::KeyLayout;
use crate::api::status::RequestError;
use crate::encode::form::{ControlEvent, ListHead};
use crate::encode::kind::encoded_with;
use crate::encode::object::{Object, StoredObject};
use crate::source::StoredKeyValue;

// The messages of Kubernetes as prost decodes them, to compare with.

#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
    #[prost(string, tag = "3")]
    content_encoding: String,
    #[prost(string, tag = "4")]
    content_type: String,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: std::collections::BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSpec {
    #[prost(string, tag = "10")]
    node_name: String,
    #[prost(bool, optional, tag = "11")]
    host_network: Option<bool>,
    #[prost(double, tag = "90")]
    other: f64,
}

#[derive(Clone, PartialEq, Message)]
struct PodStatus {
    #[prost(string, tag = "1")]
    phase: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct WatchEventMessage {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

fn pod() -> Pod {
    let labels = [("app", "web"), ("empty", "")];
    Pod {
        metadata: Some(ObjectMeta {
            name: "a".into(),
            namespace: "ns".into(),
            uid: "uid-a".into(),
            generation: -3,
            deletion_timestamp: Some(Time {
                seconds: 1_700_000_000,
            }),
            labels: labels.map(|(key, value)| (key.into(), value.into())).into(),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            node_name: "n1".into(),
            host_network: Some(true),
            other: 1.5,
        }),
        status: Some(PodStatus {
            phase: "Running".into(),
        }),
    }
}

fn unknown(kind: &str, raw: Vec<u8>) -> Unknown {
    Unknown {
        type_meta: Some(TypeMeta {
            api_version: "v1".into(),
            kind: kind.into(),
        }),
        raw,
        ..Unknown::default()
    }
}

fn stored_form(unknown: &Unknown) -> Vec<u8> {
    [PREFIX, &unknown.encode_to_vec()].concat()
}

fn stored_pod() -> Vec<u8> {
    stored_form(&unknown("Pod", pod().encode_to_vec()))
}

fn kind() -> ProtobufKind {
    ProtobufKind::new("v1", "Pod")
        .field("spec.nodeName", ProtobufField::text([2, 10]))
        .field("spec.hostNetwork", ProtobufField::bool([2, 11]))
        .field("metadata.generation", ProtobufField::int([1, 7]))
        .field("metadata.deletionTimestamp", ProtobufField::int([1, 9, 1]))
        .field("status.absent", ProtobufField::text([3, 99]))
}

fn form() -> ProtobufForm {
    ProtobufForm::new("v1", "Pod")
}

fn object(value: Vec<u8>) -> Object {
    let stored = StoredKeyValue {
        key: Bytes::from_static(b"/pods/ns/a"),
        value: value.into(),
        create_revision: Revision(3),
        mod_revision: Revision(4),
    };
    let object = StoredObject::decode(stored, &kind(), &KeyLayout::namespaced("/pods"));
    Object::new(Arc::new(object)).at_revision(Revision(9))
}

fn opened<T: Message + Default>(envelope: &[u8], kind: &str) -> T {
    let unknown = Unknown::decode(envelope.strip_prefix(PREFIX).unwrap()).unwrap();
    assert_eq!(unknown.type_meta.unwrap().kind, kind);
    T::decode(unknown.raw.as_slice()).unwrap()
}

/// Returns the type of a frame of a watch, and its object.
fn event_of(frame: &[u8]) -> (String, Vec<u8>) {
    let (length, event) = frame.split_at(4);
    assert_eq!(
        u32::from_be_bytes(length.try_into().unwrap()) as usize,
        event.len()
    );
    let event = WatchEventMessage::decode(event).unwrap();
    (event.r#type, event.object.unwrap().raw)
}

#[test]
fn wc_149_uid_labels_and_declared_fields_are_extracted() {
    let found = kind().extract(&stored_pod()).unwrap();
    assert_eq!(&*found.uid, "uid-a");
    let object = object(stored_pod());
    assert_eq!(object.label("app"), Some("web"));
    assert_eq!(object.label("empty"), Some(""));
    let fields: Vec<_> = found.fields.iter().map(Option::as_deref).collect();
    let expected = [
        Some("n1"),
        Some("true"),
        Some("-3"),
        Some("1700000000"),
        None,
    ];
    assert_eq!(fields, expected);
}

#[test]
fn wc_202_the_resource_version_is_inserted_or_replaced() {
    let mut with_version = pod();
    if let Some(metadata) = &mut with_version.metadata {
        metadata.resource_version = "123".into();
    }
    let with_version = stored_form(&unknown("Pod", with_version.encode_to_vec()));
    for stored in [stored_pod(), with_version] {
        let object = object(stored);
        let written = encoded_with(|out| form().write_object(&object, out));
        let mut expected = pod();
        if let Some(metadata) = &mut expected.metadata {
            metadata.resource_version = "9".into();
        }
        assert_eq!(opened::<Pod>(&written, "Pod"), expected);
    }
}

#[test]
fn wc_334_events_are_frames_with_their_length() {
    let stored = object(stored_pod());
    let frame = encoded_with(|out| {
        form().write_event(EventType::Deleted, &stored, false, out);
    });
    let (name, pod) = event_of(&frame);
    assert_eq!(name, "DELETED");
    let metadata = opened::<Pod>(&pod, "Pod").metadata.unwrap();
    assert_eq!(metadata.resource_version, "9");

    let bookmark = ControlEvent::Bookmark {
        revision: Revision(7),
        initial_events_end: true,
    };
    let frame = encoded_with(|out| form().write_control_event(bookmark, false, out));
    let (name, pod) = event_of(&frame);
    assert_eq!(name, "BOOKMARK");
    let metadata = opened::<Pod>(&pod, "Pod").metadata.unwrap();
    assert_eq!(metadata.resource_version, "7");
    assert_eq!(metadata.annotations["k8s.io/initial-events-end"], "true");

    let error = RequestError::Expired(crate::api::Expired::Watch);
    let error = ControlEvent::Error(&error);
    let frame = encoded_with(|out| form().write_control_event(error, false, out));
    let (name, status) = event_of(&frame);
    assert_eq!(name, "ERROR");
    let status = opened::<StatusMessage>(&status, "Status");
    assert_eq!(
        (status.code, &*status.reason, &*status.status),
        (410, "Expired", "Failure")
    );
    assert!(status.message.contains("too old"));
}

#[derive(Clone, PartialEq, Message)]
struct PodListMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMetaMessage>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<Pod>,
}

#[derive(Clone, PartialEq, Message)]
struct ListMetaMessage {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    r#continue: String,
    #[prost(int64, optional, tag = "4")]
    remaining_item_count: Option<i64>,
}

#[test]
fn wc_334_lists_are_one_message_in_an_envelope() {
    let object = object(stored_pod());
    let mut item = Vec::new();
    form().write_item(&object, &mut item);
    for count in [0, 1, 300] {
        let head = ListHead {
            revision: Revision(12),
            continue_token: (count == 1).then(|| "token".to_owned()),
            remaining_item_count: (count == 1).then_some(3),
            items_bytes: Some(count * item.len()),
        };
        let list = encoded_with(|out| {
            form().write_list_head(&head, out);
            out.extend(item.repeat(count));
            form().write_list_tail(&head, out);
        });
        let list = opened::<PodListMessage>(&list, "PodList");
        assert_eq!(list.items.len(), count);
        for item in list.items {
            assert_eq!(item.metadata.unwrap().resource_version, "9");
        }
        let metadata = list.metadata.unwrap();
        assert_eq!(metadata.resource_version, "12");
        assert_eq!(metadata.r#continue == "token", count == 1);
        assert_eq!(metadata.remaining_item_count, (count == 1).then_some(3));
    }
}

#[test]
fn wc_149_bytes_that_are_not_an_object_of_the_kind_are_rejected() {
    let refused = |value: &[u8]| kind().extract(value).unwrap_err().0;
    let base = || unknown("Pod", pod().encode_to_vec());
    let changed = |change: &dyn Fn(&mut Unknown)| {
        let mut unknown = base();
        change(&mut unknown);
        refused(&stored_form(&unknown))
    };
    assert!(refused(b"{\"metadata\":{}}").contains("missing prefix"));
    assert!(refused(b"").contains("missing prefix"));
    assert!(refused(PREFIX).contains("missing field `typeMeta`"));
    assert!(changed(&|unknown| unknown.raw.clear()).contains("missing field `metadata`"));
    let other = stored_form(&unknown("Secret", Vec::new()));
    assert!(refused(&other).contains("missing field `metadata`"));
    let other = stored_form(&unknown("Secret", pod().encode_to_vec()));
    assert!(refused(&other).contains("of kind \"Secret\" in \"v1\""));
    let gzip = changed(&|unknown| unknown.content_encoding = "gzip".into());
    assert!(gzip.contains("unknown encoding \"gzip\""));
    let json = changed(&|unknown| unknown.content_type = "application/json".into());
    assert!(json.contains("unknown type \"application/json\""));
    let mut twice = base();
    twice.raw.extend(pod().encode_to_vec());
    assert!(refused(&stored_form(&twice)).contains("occurs twice"));
    // Another API version, unless it is named.
    let beta = |unknown: &mut Unknown| {
        let type_meta = unknown.type_meta.get_or_insert_default();
        type_meta.api_version = "v1beta1".into();
    };
    assert!(changed(&beta).contains("in \"v1beta1\""));
    let mut older = base();
    beta(&mut older);
    let accepting = kind().stored_version("v1beta1");
    assert!(accepting.extract(&stored_form(&older)).is_ok());
    // A number where the declared field is a string.
    let wrong = ProtobufKind::new("v1", "Pod").field("x", ProtobufField::text([1, 7]));
    let error = wrong.extract(&stored_pod()).unwrap_err();
    assert!(error.0.contains("field 7 has an unexpected wire type"));
}

#[test]
fn damaged_bytes_are_decoded_or_rejected_without_a_panic() {
    let mut rng = fastrand::Rng::with_seed(1);
    let original = stored_pod();
    let (mut decoded, mut rejected) = (0, 0);
    let cases = if cfg!(miri) { 100 } else { 50_000 };
    for _ in 0..cases {
        let mut value = original.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(0..value.len());
            match rng.u8(0..5) {
                0 => value[at] = rng.u8(..),
                1 => value[at] ^= 1 << rng.u8(0..8),
                2 => value.insert(at, rng.u8(..)),
                // A large length or number.
                3 => value.splice(at..at, [0xff; 9]).for_each(drop),
                _ => value.truncate(at.max(1)),
            }
        }
        let object = object(value);
        let frame = encoded_with(|out| {
            form().write_event(EventType::Added, &object, false, out);
        });
        if object.decode_error().is_some() {
            rejected += 1;
            continue;
        }
        decoded += 1;
        // What is written can be read again, with the same attributes.
        let (_, written) = event_of(&frame);
        assert_eq!(
            kind().extract(&written).map(|mut found| {
                found.labels.sort_unstable();
                found
            }),
            Ok(object.attributes().unwrap().clone())
        );
    }
    assert!(decoded > 0 && rejected > 0, "{decoded} {rejected}");
}

#[test]
fn an_object_of_many_small_parts_is_decoded_in_linear_time() {
    // 1.5 MB, the largest value of etcd. In quadratic time this would take minutes.
    let mut metadata = Vec::new();
    for number in 0_u32..100_000 {
        let mut label = Vec::new();
        write_bytes(1, number.to_string().as_bytes(), &mut label);
        write_bytes(object_meta::LABELS, &label, &mut metadata);
    }
    let mut raw = Vec::new();
    write_bytes(METADATA, &metadata, &mut raw);
    for _ in 0..100_000 {
        write_bytes(2, b"", &mut raw);
    }
    let found = kind().extract(&stored_form(&unknown("Pod", raw))).unwrap();
    assert_eq!(found.labels.len(), 100_000);
}
