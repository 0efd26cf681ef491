//! JSON of transactions that are nested more deeply than the libraries for JSON and protobuf allow.
//!
//! `serde_json` stops at 128 levels of JSON, prost at 100 levels of messages. A nested transaction takes three of
//! the former and two of the latter.

use std::{mem, thread, vec};

use bytes::{Buf, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost_reflect::{Kind, MessageDescriptor};
use tonic::Status;

use super::{json_objects, transcode};
use crate::request::nesting::{NESTING_MAX, nested_txn, take_message};
use crate::status::{self, EtcdError};

/// The number of levels of JSON that `serde_json` accepts.
const PLAIN_JSON_DEPTH_MAX: usize = 127;

/// The number of levels of JSON of a transaction with [`NESTING_MAX`] others in one another: three for each,
/// one for the outermost, and three for an operation of the innermost.
const JSON_DEPTH_MAX: usize = 3 * NESTING_MAX + 4;

/// The size of the stack for the conversion of one object of up to [`JSON_DEPTH_MAX`] levels. Only the pages
/// that are used take memory.
const STACK_BYTES: usize = 16 * 1024 * 1024;

/// The full names of the messages.
const REQUEST: &str = "etcdserverpb.TxnRequest";
const RESPONSE: &str = "etcdserverpb.TxnResponse";

/// The number of the field `responses`, and the start of this field and of a nested response in JSON.
const RESPONSES_FIELD: u32 = 3;
const RESPONSES: &[u8] = br#""responses":["#;
const RESPONSE_TXN: &[u8] = br#"{"response_txn":"#;

/// Converts the JSON of a transaction that `serde_json` does not accept. `None` if its depth is not the reason.
pub(super) fn to_message(
    descriptor: &MessageDescriptor,
    json: &[u8],
) -> Option<Result<Bytes, Status>> {
    let depth = json_objects::depth(json);
    if depth <= PLAIN_JSON_DEPTH_MAX || descriptor.full_name() != REQUEST {
        return None;
    }
    if depth > JSON_DEPTH_MAX {
        // TXN-2
        return Some(Err(EtcdError::TooManyOps.to_status()));
    }
    // serde_json and prost-reflect are recursive. The calling thread waits, so that there is at most one such
    // thread for each thread that serves requests.
    let converted = thread::scope(|scope| {
        let convert = || transcode::to_message_of_any_depth(descriptor, json);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, convert);
        let thread = thread.map_err(|error| status::gateway_broken(&error))?;
        let panicked = |_| EtcdError::Internal.to_status();
        thread.join().map_err(panicked)?
    });
    Some(converted)
}

/// The responses of a transaction that is being written.
struct Responses {
    unwritten: vec::IntoIter<Bytes>,
    is_first: bool,
    /// The end of the object.
    end: &'static [u8],
}

/// Returns whether a message has the form that [`write_response`] writes.
pub(super) fn is_response(descriptor: &MessageDescriptor) -> bool {
    descriptor.full_name() == RESPONSE
}

/// Appends an encoded `TxnResponse` of any depth as a JSON object, without recursion.
pub(super) fn write_response(
    descriptor: &MessageDescriptor,
    message: Bytes,
    json: &mut Vec<u8>,
) -> Result<(), Status> {
    let broken = |error: DecodeError| status::gateway_broken(&error);
    let responses = descriptor.get_field(RESPONSES_FIELD);
    let Some(Kind::Message(op)) = responses.map(|field| field.kind()) else {
        return Err(EtcdError::Internal.to_status());
    };
    let mut open = vec![write_start(descriptor, message, json)?];
    while let Some(innermost) = open.last_mut() {
        let Some(response) = innermost.unwritten.next() else {
            json.extend_from_slice(innermost.end);
            open.pop();
            if !open.is_empty() {
                json.push(b'}');
            }
            continue;
        };
        if !mem::take(&mut innermost.is_first) {
            json.push(b',');
        }
        if let Some(nested) = nested_txn(&response).map_err(broken)? {
            json.extend_from_slice(RESPONSE_TXN);
            open.push(write_start(descriptor, nested, json)?);
        } else {
            transcode::write_json(&op, response, json)?;
        }
    }
    Ok(())
}

/// Writes the fields of a `TxnResponse` before the responses, and returns the responses.
fn write_start(
    descriptor: &MessageDescriptor,
    message: Bytes,
    json: &mut Vec<u8>,
) -> Result<Responses, Status> {
    let (others, responses) = split(message).map_err(|error| status::gateway_broken(&error))?;
    transcode::write_decoded(&transcode::decode(descriptor, others.into())?, json)?;
    // Continues the object.
    json.pop();
    let mut end = &b"}"[..];
    if !responses.is_empty() {
        if !json.ends_with(b"{") {
            json.push(b',');
        }
        json.extend_from_slice(RESPONSES);
        end = b"]}";
    }
    Ok(Responses {
        unwritten: responses.into_iter(),
        is_first: true,
        end,
    })
}

/// Separates the responses of a `TxnResponse` from the other fields.
fn split(mut message: Bytes) -> Result<(Vec<u8>, Vec<Bytes>), DecodeError> {
    let (mut others, mut responses) = (Vec::new(), Vec::new());
    while message.has_remaining() {
        let start = message.clone();
        let (field, wire_type) = decode_key(&mut message)?;
        if field == RESPONSES_FIELD {
            responses.push(take_message(wire_type, &mut message)?);
        } else {
            skip_field(wire_type, field, &mut message, DecodeContext::default())?;
            others.extend_from_slice(&start[..start.len() - message.len()]);
        }
    }
    Ok((others, responses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::routes::Route;

    /// Returns an encoded response in `levels` others.
    fn nested_response(levels: usize) -> Bytes {
        let delimited = |field: u8, message: &[u8]| {
            let mut bytes = vec![field << 3 | 2];
            prost::encoding::encode_varint(message.len() as u64, &mut bytes);
            [&bytes, message].concat()
        };
        // A put with an empty header, and the flag `succeeded`.
        let put = delimited(3, &delimited(2, &delimited(1, b"")));
        let mut response = [&put[..], &put, b"\x10\x01"].concat();
        for _ in 0..levels {
            let nested = delimited(3, &delimited(4, &response));
            response = [&nested[..], &put].concat();
        }
        response.into()
    }

    #[test]
    fn nested_responses_are_written_as_by_prost_reflect() {
        let descriptor = Route::of_path("/v3/kv/txn").unwrap().method.output();
        let written = |message: Bytes| {
            let mut json = Vec::new();
            write_response(&descriptor, message, &mut json).unwrap();
            String::from_utf8(json).unwrap()
        };
        assert_eq!(written(Bytes::new()), "{}");
        for levels in [0, 1, 2, 40] {
            let mut plain = Vec::new();
            let message = nested_response(levels);
            transcode::write_json(&descriptor, message.clone(), &mut plain).unwrap();
            assert_eq!(written(message), String::from_utf8(plain).unwrap());
        }
        let deep = written(nested_response(10_000));
        assert_eq!(deep.matches("response_txn").count(), 10_000);
        assert_eq!(deep.matches('{').count(), deep.matches('}').count());
    }

    #[test]
    fn txn_2_the_json_of_a_transaction_nests_128_levels() {
        let descriptor = Route::of_path("/v3/kv/txn").unwrap().method.input();
        let nested = |levels: usize, innermost: &str| {
            let (start, end) = (r#"{"success":[{"requestTxn":"#, "}]}");
            let json = start.repeat(levels) + innermost + &end.repeat(levels);
            transcode::to_message(&descriptor, json.as_bytes())
        };
        let put = r#"{"failure":[{"request_put":{"key":"aw=="}}]}"#;
        for levels in [41, 42, 43, NESTING_MAX] {
            let message = nested(levels, put).unwrap();
            let txn = crate::request::nesting::decode_txn(&message).unwrap();
            assert_eq!(txn.success.len(), 1, "{levels} levels");
        }
        for (levels, text) in [
            (60, "proto: "),
            (NESTING_MAX, "proto: "),
            (10_000, "etcdserver: too many operations in txn request"),
        ] {
            let status = nested(levels, r#"{"failure":7}"#).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().starts_with(text), "{status:?}");
        }
    }
}
