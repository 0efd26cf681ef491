//! The generated types encode to the bytes that etcd's clients expect, and decode them without copying.
//! The expected bytes are written by hand: the first byte of a field is `number << 3 | wire type`, with
//! wire type 0 for a varint and 2 for a length with that many bytes.

use std::fmt::Debug;

use bytes::Bytes;
use prost::Message;
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::watch_create_request::FilterType;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    Compare, PutRequest, RangeRequest, RangeResponse, ResponseHeader, WatchCreateRequest,
    WatchProgressRequest, WatchRequest, WatchResponse,
};
use revstore_proto::health::HealthCheckResponse;
use revstore_proto::health::health_check_response::ServingStatus;
use revstore_proto::mvccpb::event::EventType;
use revstore_proto::mvccpb::{Event, KeyValue};

/// Checks that a message encodes to exactly these bytes, and that they decode to the message.
fn check<M: Message + Default + PartialEq + Debug>(message: &M, wire: &[u8]) {
    assert_eq!(message.encode_to_vec(), wire, "{message:?}");
    assert_eq!(&M::decode(wire).expect("encoded bytes decode"), message);
}

#[test]
fn key_value_encodes_every_field() {
    check(
        &KeyValue {
            key: "k".into(),
            create_revision: 2,
            mod_revision: 300,
            version: 3,
            value: "val".into(),
            lease: 7,
        },
        b"\x0a\x01k\x10\x02\x18\xac\x02\x20\x03\x2a\x03val\x30\x07",
    );
}

#[test]
fn tombstone_omits_fields_that_are_zero() {
    check(
        &KeyValue {
            key: "k".into(),
            mod_revision: 5,
            ..KeyValue::default()
        },
        b"\x0a\x01k\x18\x05",
    );
}

#[test]
fn range_end_of_a_compare_is_field_64() {
    check(
        &Compare {
            result: CompareResult::NotEqual.into(),
            target: CompareTarget::Value.into(),
            key: "a".into(),
            target_union: Some(TargetUnion::Value("v".into())),
            range_end: "b".into(),
        },
        b"\x08\x03\x10\x03\x1a\x01a\x3a\x01v\x82\x04\x01b",
    );
}

#[test]
fn compare_distinguishes_zero_from_a_missing_operand() {
    let of_version = |target_union| Compare {
        key: "a".into(),
        target_union,
        ..Compare::default()
    };
    check(
        &of_version(Some(TargetUnion::Version(0))),
        b"\x1a\x01a\x20\x00",
    );
    check(&of_version(None), b"\x1a\x01a");
}

#[test]
fn filters_of_a_watch_create_request_are_packed() {
    check(
        &WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
                key: "k".into(),
                start_revision: 9,
                filters: vec![FilterType::Noput.into(), FilterType::Nodelete.into()],
                prev_kv: true,
                fragment: true,
                ..WatchCreateRequest::default()
            })),
        },
        b"\x0a\x0d\x0a\x01k\x18\x09\x2a\x02\x00\x01\x30\x01\x40\x01",
    );
}

#[test]
fn empty_progress_request_keeps_its_field_number() {
    check(
        &WatchRequest {
            request_union: Some(RequestUnion::ProgressRequest(WatchProgressRequest {})),
        },
        b"\x1a\x00",
    );
}

#[test]
fn watch_id_minus_one_takes_ten_bytes() {
    check(
        &WatchResponse {
            header: Some(ResponseHeader {
                revision: 4,
                ..ResponseHeader::default()
            }),
            watch_id: -1,
            ..WatchResponse::default()
        },
        b"\x0a\x02\x18\x04\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    );
}

#[test]
fn events_of_a_watch_response_are_field_11() {
    check(
        &WatchResponse {
            events: vec![Event {
                r#type: EventType::Delete.into(),
                kv: Some(KeyValue {
                    key: "k".into(),
                    ..KeyValue::default()
                }),
                prev_kv: None,
            }],
            ..WatchResponse::default()
        },
        b"\x5a\x07\x08\x01\x12\x03\x0a\x01k",
    );
}

#[test]
fn health_check_response_encodes_its_status() {
    check(
        &HealthCheckResponse {
            status: ServingStatus::Serving.into(),
        },
        b"\x08\x01",
    );
}

#[test]
fn enum_fields_keep_unknown_numbers() {
    check(
        &RangeRequest {
            sort_target: 9,
            ..RangeRequest::default()
        },
        b"\x30\x09",
    );
}

#[test]
fn decoded_bytes_share_the_incoming_buffer() {
    let wire = Bytes::from_static(b"\x0a\x03key\x12\x05value");
    let request = PutRequest::decode(wire.clone()).expect("the bytes are a valid message");

    assert_eq!(request.value, "value");
    assert_eq!(request.value.as_ptr(), wire[7..].as_ptr());
}

#[test]
fn decoded_bytes_of_nested_messages_share_the_incoming_buffer() {
    let wire = Bytes::from_static(b"\x12\x08\x0a\x01k\x2a\x03val\x20\x01");
    let response = RangeResponse::decode(wire.clone()).expect("the bytes are a valid message");

    assert_eq!(response.count, 1);
    assert_eq!(response.kvs[0].value.as_ptr(), wire[7..].as_ptr());
}
