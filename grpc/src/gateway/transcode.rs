//! Conversion between JSON and encoded messages: protobuf's JSON mapping, in the form of etcd's
//! gateway (HT-21).
//!
//! Output has the field names of the `.proto` files, 64-bit integers as strings, bytes in base64
//! and enums by name, and omits fields that are zero. Input may have all forms of the JSON mapping.
//! Unknown fields and enum names are ignored.

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::de::{Deserializer, SliceRead};
use serde_json::ser::Serializer;
use tonic::Status;

use super::nested_txn;
use crate::status;

/// Converts a JSON object to an encoded message.
pub(super) fn to_message(descriptor: &MessageDescriptor, json: &[u8]) -> Result<Bytes, Status> {
    let message = convert(descriptor, Deserializer::from_slice(json));
    message.or_else(|status| nested_txn::to_message(descriptor, json).unwrap_or(Err(status)))
}

/// Converts a JSON object of any depth. Recursive: a level takes some KiB of the stack.
pub(super) fn to_message_of_any_depth(
    descriptor: &MessageDescriptor,
    json: &[u8],
) -> Result<Bytes, Status> {
    let mut json = Deserializer::from_slice(json);
    json.disable_recursion_limit();
    convert(descriptor, json)
}

fn convert(
    descriptor: &MessageDescriptor,
    mut json: Deserializer<SliceRead<'_>>,
) -> Result<Bytes, Status> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(descriptor.clone(), &mut json, &options);
    let message = message.map_err(|error| status::malformed_json(&error))?;
    Ok(message.encode_to_vec().into())
}

/// Appends an encoded message as a JSON object.
pub(super) fn write_json(
    descriptor: &MessageDescriptor,
    message: Bytes,
    json: &mut Vec<u8>,
) -> Result<(), Status> {
    match decode(descriptor, message.clone()) {
        Ok(decoded) => write_decoded(&decoded, json),
        Err(_) if nested_txn::is_response(descriptor) => {
            nested_txn::write_response(descriptor, message, json)
        }
        Err(status) => Err(status),
    }
}

/// Decodes a message of up to 100 levels.
pub(super) fn decode(
    descriptor: &MessageDescriptor,
    message: Bytes,
) -> Result<DynamicMessage, Status> {
    let decoded = DynamicMessage::decode(descriptor.clone(), message);
    decoded.map_err(|error| status::gateway_broken(&error))
}

/// Appends a message as a JSON object.
pub(super) fn write_decoded(message: &DynamicMessage, json: &mut Vec<u8>) -> Result<(), Status> {
    let options = SerializeOptions::new().use_proto_field_name(true);
    let written = message.serialize_with_options(&mut Serializer::new(json), &options);
    written.map_err(|error| status::gateway_broken(&error))
}

#[cfg(test)]
mod tests {
    use revstore_proto::etcdserverpb::{
        AlarmMember, AlarmRequest, AlarmResponse, AlarmType, Compare, HashResponse, PutRequest,
        RangeRequest, ResponseHeader, TxnRequest, compare,
    };
    use tonic::Code;

    use super::*;
    use crate::gateway::routes::Route;

    fn input(path: &str) -> MessageDescriptor {
        Route::of_path(path).unwrap().method.input()
    }

    fn check_read<M>(path: &str, json: &str, expected: &M)
    where
        M: Message + Default + PartialEq + std::fmt::Debug,
    {
        let message = to_message(&input(path), json.as_bytes()).unwrap();
        assert_eq!(M::decode(message).unwrap(), *expected, "{json}");
    }

    fn check_rejected(path: &str, json: &str) {
        let status = to_message(&input(path), json.as_bytes()).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{json}");
    }

    fn check_written(path: &str, message: &impl Message, expected: &str) {
        let output = Route::of_path(path).unwrap().method.output();
        let mut json = Vec::new();
        write_json(&output, message.encode_to_vec().into(), &mut json).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }

    #[test]
    fn ht_21_all_forms_of_the_json_mapping_are_accepted() {
        let put = PutRequest {
            key: "foo".into(),
            prev_kv: true,
            lease: -9_223_372_036_854_775_808,
            ..PutRequest::default()
        };
        for json in [
            r#"{"key":"Zm9v","prev_kv":true,"lease":"-9223372036854775808"}"#,
            r#"{"lease":-9223372036854775808,"prevKv":true,"key":"Zm9v","none":{"a":[1]}}"#,
            r#"{"value":null,"key":"Zm9v","prev_kv":true,"lease":-9223372036854775808}"#,
        ] {
            check_read("/v3/kv/put", json, &put);
        }
        let bytes = |json: &str, key: &'static [u8]| {
            let put = PutRequest {
                key: key.into(),
                ..PutRequest::default()
            };
            check_read("/v3/kv/put", json, &put);
        };
        bytes(r#"{"key":"/+8="}"#, b"\xff\xef");
        bytes(r#"{"key":"_-8"}"#, b"\xff\xef");
        let sorted = |order| RangeRequest {
            sort_order: order,
            ..RangeRequest::default()
        };
        check_read("/v3/kv/range", r#"{"sort_order":"DESCEND"}"#, &sorted(2));
        check_read("/v3/kv/range", r#"{"sortOrder":2}"#, &sorted(2));
        check_read("/v3/kv/range", r#"{"sort_order":77}"#, &sorted(77));
        check_read("/v3/kv/range", r#"{"sort_order":"NONE?"}"#, &sorted(0));
        let compare = Compare {
            target_union: Some(compare::TargetUnion::Version(0)),
            ..Compare::default()
        };
        let txn = TxnRequest {
            compare: vec![compare],
            ..TxnRequest::default()
        };
        check_read("/v3/kv/txn", r#"{"compare":[{"version":"0"}]}"#, &txn);
        let alarm = AlarmRequest {
            member_id: u64::MAX,
            ..AlarmRequest::default()
        };
        let json = r#"{"memberID":"18446744073709551615"}"#;
        check_read("/v3/maintenance/alarm", json, &alarm);
    }

    #[test]
    fn ht_21_invalid_values_are_rejected() {
        check_rejected("/v3/kv/put", r#"{"key":"!!"}"#);
        check_rejected("/v3/kv/put", r#"{"key":5}"#);
        check_rejected("/v3/kv/put", r#"{"key":"Zm9v",}"#);
        check_rejected("/v3/kv/put", r#"{"prev_kv":"true"}"#);
        check_rejected("/v3/kv/range", r#"{"limit":1.5}"#);
        check_rejected("/v3/kv/range", r#"{"limit":99999999999999999999}"#);
        check_rejected("/v3/kv/range", r#"{"limit":" 1"}"#);
        check_rejected(
            "/v3/kv/txn",
            r#"{"compare":[{"version":1,"value":"YQ=="}]}"#,
        );
        let nested = r#"{"success":[{"request_txn":"#;
        check_rejected("/v3/kv/txn", &nested.repeat(1_000));
    }

    #[test]
    fn ht_21_output_has_the_form_of_etcds_gateway() {
        let header = ResponseHeader {
            cluster_id: u64::MAX,
            revision: 7,
            ..ResponseHeader::default()
        };
        let alarms = AlarmResponse {
            header: Some(header),
            alarms: vec![
                AlarmMember {
                    member_id: 5,
                    alarm: AlarmType::Corrupt.into(),
                },
                AlarmMember::default(),
                AlarmMember {
                    member_id: 0,
                    alarm: 9,
                },
            ],
        };
        check_written(
            "/v3/maintenance/alarm",
            &alarms,
            concat!(
                r#"{"header":{"cluster_id":"18446744073709551615","revision":"7"},"#,
                r#""alarms":[{"memberID":"5","alarm":"CORRUPT"},{},{"alarm":9}]}"#
            ),
        );
        let hash = HashResponse {
            header: None,
            hash: u32::MAX,
        };
        check_written("/v3/maintenance/hash", &hash, r#"{"hash":4294967295}"#);
    }
}
