//! The messages of watch streams.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use revstore_engine::KeyRange;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    ResponseHeader, WatchCancelRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};

use super::keys::watch_keys;
use super::{header_revision, varint_field};
use crate::prefix::MessagePrefix;

/// A request on a watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchRequestInfo {
    /// A watch is created. Each such request has one response with the field `created`, in order.
    Create {
        /// The key in the request.
        key: Bytes,
        /// The end of the range in the request.
        range_end: Bytes,
        /// The watched keys.
        range: KeyRange,
        /// The revision from which on the client wants events; 0 for now.
        start: i64,
    },
    /// The client cancels the watch with this id.
    Cancel(i64),
    /// The client asks for a progress notification.
    Progress,
}

impl WatchRequestInfo {
    /// Reads a message. `None` if it is malformed or contains no request.
    pub fn of(message: &Bytes) -> Option<Self> {
        let request = WatchRequest::decode(message.clone()).ok()?;
        Some(match request.request_union? {
            RequestUnion::CreateRequest(create) => Self::Create {
                range: watch_keys(&create),
                start: create.start_revision,
                key: create.key,
                range_end: create.range_end,
            },
            RequestUnion::CancelRequest(cancel) => Self::Cancel(cancel.watch_id),
            RequestUnion::ProgressRequest(_) => Self::Progress,
        })
    }
}

/// A response on a watch stream, without its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchResponseInfo {
    /// The revision in the header.
    pub revision: i64,
    /// The id of the watch; -1 for all of the stream.
    pub watch_id: i64,
    /// Whether it is the response to the creation of a watch.
    pub is_created: bool,
    /// Whether the watch has ended.
    pub is_canceled: bool,
    /// The compacted revision, if the watch has ended because of it.
    pub compact_revision: i64,
    /// Whether further fragments of the response follow.
    pub is_fragment: bool,
    /// The revision of the last event, if there are events.
    pub last_event: Option<i64>,
}

impl WatchResponseInfo {
    /// Reads a message, without a copy. Costs one step for each event. `None` if it is malformed.
    pub fn of(message: &[u8]) -> Option<Self> {
        let mut info = Self::default();
        let (mut rest, mut last_event) = (message, None);
        while !rest.is_empty() {
            let (field, wire_type) = decode_key(&mut rest).ok()?;
            match (field, wire_type) {
                (1, WireType::LengthDelimited) => {
                    info.revision = header_revision(take(&mut rest)?);
                }
                (2..=5 | 7, WireType::Varint) => {
                    let value = decode_varint(&mut rest).ok()?;
                    match field {
                        2 => info.watch_id = value.cast_signed(),
                        3 => info.is_created = value != 0,
                        4 => info.is_canceled = value != 0,
                        5 => info.compact_revision = value.cast_signed(),
                        _ => info.is_fragment = value != 0,
                    }
                }
                (11, WireType::LengthDelimited) => last_event = Some(take(&mut rest)?),
                _ => skip_field(wire_type, field, &mut rest, DecodeContext::default()).ok()?,
            }
        }
        info.last_event = last_event.map(|event| mod_revision(event).unwrap_or(0));
        Some(info)
    }

    /// Returns whether the response is a progress notification.
    pub fn is_progress(&self) -> bool {
        !self.is_created && !self.is_canceled && self.last_event.is_none()
    }
}

/// Returns the revision of an encoded event.
fn mod_revision(mut event: &[u8]) -> Option<i64> {
    while !event.is_empty() {
        let (field, wire_type) = decode_key(&mut event).ok()?;
        if field == 2 && wire_type == WireType::LengthDelimited {
            return varint_field(take(&mut event)?, 3).map(u64::cast_signed);
        }
        skip_field(wire_type, field, &mut event, DecodeContext::default()).ok()?;
    }
    None
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// Returns a request, with its prefix, that cancels a watch.
pub fn cancel_request(watch_id: i64) -> Bytes {
    let cancel = WatchCancelRequest { watch_id };
    request(RequestUnion::CancelRequest(cancel))
}

/// Returns a request, with its prefix, for a progress notification.
pub fn progress_request() -> Bytes {
    request(RequestUnion::ProgressRequest(WatchProgressRequest {}))
}

fn request(request: RequestUnion) -> Bytes {
    with_prefix(&WatchRequest {
        request_union: Some(request),
    })
}

/// Returns the response, with its prefix, for a watch whose revision was compacted, on a stream on which `message` was a
/// response.
pub fn compacted_response(message: &[u8], watch_id: i64, compact_revision: i64) -> Bytes {
    with_prefix(&WatchResponse {
        // WA-40
        header: Some(ResponseHeader {
            revision: 0,
            ..header_of(message)
        }),
        watch_id,
        canceled: true,
        compact_revision,
        ..WatchResponse::default()
    })
}

/// Returns a progress notification, with its prefix, for one watch, made of `message`, one for all watches of the
/// stream.
pub fn progress_response(message: &[u8], watch_id: i64) -> Bytes {
    with_prefix(&WatchResponse {
        header: Some(header_of(message)),
        watch_id,
        ..WatchResponse::default()
    })
}

/// Returns the header of a response.
fn header_of(message: &[u8]) -> ResponseHeader {
    let mut rest = message;
    while !rest.is_empty() {
        let Ok((field, wire_type)) = decode_key(&mut rest) else {
            break;
        };
        if field == 1 && wire_type == WireType::LengthDelimited {
            let header = take(&mut rest).and_then(|it| ResponseHeader::decode(it).ok());
            return header.unwrap_or_default();
        }
        if skip_field(wire_type, field, &mut rest, DecodeContext::default()).is_err() {
            break;
        }
    }
    ResponseHeader::default()
}

fn with_prefix(message: &impl Message) -> Bytes {
    let encoded = message.encode_to_vec();
    let prefix = MessagePrefix {
        flag: 0,
        // Messages of this file have less than 100 bytes.
        length: u32::try_from(encoded.len()).unwrap_or(u32::MAX),
    };
    [&prefix.to_bytes()[..], &encoded].concat().into()
}

#[cfg(test)]
mod tests {
    use revstore_proto::etcdserverpb::WatchCreateRequest;
    use revstore_proto::mvccpb::{Event, KeyValue};

    use super::*;

    fn header(revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: 1,
            member_id: 2,
            revision,
            raft_term: 3,
        }
    }

    fn message(framed: &Bytes) -> &[u8] {
        &framed[MessagePrefix::BYTES..]
    }

    #[test]
    fn responses_are_read_without_their_events() {
        let event = |mod_revision| Event {
            kv: Some(KeyValue {
                key: "k".into(),
                mod_revision,
                ..KeyValue::default()
            }),
            ..Event::default()
        };
        let response = WatchResponse {
            header: Some(header(9)),
            watch_id: 7,
            fragment: true,
            events: vec![event(5), event(6)],
            ..WatchResponse::default()
        };
        let info = WatchResponseInfo::of(&response.encode_to_vec()).unwrap();
        let expected = WatchResponseInfo {
            revision: 9,
            watch_id: 7,
            is_fragment: true,
            last_event: Some(6),
            ..WatchResponseInfo::default()
        };
        assert_eq!(info, expected);
        assert_eq!(WatchResponseInfo::of(b"\xff"), None);
    }

    #[test]
    fn responses_are_made_of_the_header_of_another_one() {
        let progress = WatchResponse {
            header: Some(header(9)),
            watch_id: -1,
            ..WatchResponse::default()
        };
        let progress = progress.encode_to_vec();
        assert!(WatchResponseInfo::of(&progress).unwrap().is_progress());
        let made = progress_response(&progress, 4);
        let made = WatchResponse::decode(message(&made)).unwrap();
        assert_eq!((made.header, made.watch_id), (Some(header(9)), 4));
        let made = compacted_response(&progress, 4, 8);
        let made = WatchResponse::decode(message(&made)).unwrap();
        assert_eq!(made.header, Some(header(0)));
        assert_eq!(
            (made.watch_id, made.canceled, made.compact_revision),
            (4, true, 8)
        );
    }

    #[test]
    fn requests_are_read_and_made() {
        let create = WatchCreateRequest {
            range_end: Bytes::from_static(b"\0"),
            start_revision: 3,
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let read = WatchRequestInfo::of(&request.encode_to_vec().into());
        let expected = WatchRequestInfo::Create {
            key: Bytes::new(),
            range_end: Bytes::from_static(b"\0"),
            range: KeyRange::From(Bytes::from_static(b"\0")),
            start: 3,
        };
        assert_eq!(read, Some(expected));
        let read = |framed: Bytes| WatchRequestInfo::of(&framed.slice(MessagePrefix::BYTES..));
        assert_eq!(read(cancel_request(5)), Some(WatchRequestInfo::Cancel(5)));
        assert_eq!(read(progress_request()), Some(WatchRequestInfo::Progress));
    }
}
