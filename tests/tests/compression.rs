//! Compressed messages over gRPC, byte by byte (LI-13).

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use http::HeaderMap;
use prost::Message;
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_tests::on_every_server;
use revstore_tests::raw_call::{RawClient, framed, plain, with_raw_client};
use revstore_tests::server::Servers;

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// The maximum size of a message, with the default flags.
const MESSAGE_BYTES_MAX: usize = 2_097_152;

// gRPC's numbers of codes.
const OK: &str = "0";
const RESOURCE_EXHAUSTED: &str = "8";
const UNIMPLEMENTED: &str = "12";
const INTERNAL: &str = "13";

/// The result of a call: the code and the text of its status, the encoding of the response, and its messages with their
/// flags.
struct Answer {
    code: String,
    text: String,
    encoding: Option<String>,
    messages: Vec<(u8, Bytes)>,
}

/// Makes a call with an encoding, if it is not empty, and with these bytes.
async fn call(client: &RawClient, path: &str, encoding: &str, bytes: impl Into<Bytes>) -> Answer {
    let encoding = (!encoding.is_empty()).then_some(("grpc-encoding", encoding));
    let mut call = client.call(path, encoding).await;
    call.send(bytes, true);
    let field = |fields: &HeaderMap, name: &str| {
        let value = fields.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let encoding = field(&call.head().await.headers, "grpc-encoding");
    let mut messages = Vec::new();
    while let Some(message) = call.next().await {
        messages.push(message);
    }
    let status = call.status().await;
    Answer {
        code: field(&status, "grpc-status").unwrap(),
        // Servers may encode the blanks and quotes of the text.
        text: (field(&status, "grpc-message").unwrap_or_default())
            .replace("%20", " ")
            .replace("%22", "\""),
        encoding,
        messages,
    }
}

impl Answer {
    fn check(&self, code: &str, text: &str) {
        assert_eq!((&*self.code, &*self.text), (code, text));
    }

    /// Decodes the messages of a compressed response.
    fn decode<M: Message + Default>(&self) -> Vec<M> {
        self.check(OK, "");
        assert_eq!(self.encoding.as_deref(), Some("gzip"));
        let messages = self.messages.iter();
        messages
            .map(|(flag, message)| {
                assert_eq!(*flag, 1);
                decode(message)
            })
            .collect()
    }
}

/// Decodes a compressed message.
fn decode<M: Message + Default>(message: &[u8]) -> M {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(message)
        .read_to_end(&mut bytes)
        .unwrap();
    M::decode(&bytes[..]).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn compressed(message: &impl Message) -> Bytes {
    framed(1, &gzip(&message.encode_to_vec()))
}

fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..pb::PutRequest::default()
    }
}

fn get(key: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: key.to_owned().into(),
        ..pb::RangeRequest::default()
    }
}

fn li_13_compressed_calls_get_compressed_responses(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let request = compressed(&put("k", "value"));
        let answer = call(&client, PUT, "gzip", request).await;
        assert_eq!(answer.decode::<pb::PutResponse>().len(), 1);
        // A message need not be compressed.
        let answer = call(&client, RANGE, "gzip", plain(&get("k"))).await;
        let [response] = &answer.decode::<pb::RangeResponse>()[..] else {
            panic!("one message");
        };
        assert_eq!(response.kvs[0].value, "value");
        let answer = call(&client, STATUS, "gzip", compressed(&pb::StatusRequest {})).await;
        assert_eq!(answer.decode::<pb::StatusResponse>().len(), 1);
        // Two parts of one message, as gzip allows.
        let (first, second) = (
            gzip(&put("two", "").encode_to_vec()),
            gzip(&[0x12, 1, b'v']),
        );
        let answer = call(&client, PUT, "gzip", framed(1, &[first, second].concat())).await;
        answer.check(OK, "");
        let answer = call(&client, RANGE, "identity", plain(&get("two"))).await;
        answer.check(OK, "");
        assert_eq!(answer.encoding, None);
        let (flag, message) = &answer.messages[0];
        let response = pb::RangeResponse::decode(&message[..]).unwrap();
        assert_eq!((*flag, &*response.kvs[0].value), (0, &b"v"[..]));
    });
}

fn li_13_compressed_streams_get_compressed_responses(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let alive = pb::LeaseKeepAliveRequest { id: 1 };
        let requests = [compressed(&alive), plain(&alive), compressed(&alive)].concat();
        let answer = call(&client, KEEP_ALIVE, "gzip", requests).await;
        assert_eq!(answer.decode::<pb::LeaseKeepAliveResponse>().len(), 3);
    });
}

fn li_13_encodings_and_flags_are_checked(servers: &Servers) {
    with_raw_client(servers, async |client| {
        for encoding in ["x", "deflate", "GZIP"] {
            let text =
                format!("grpc: Decompressor is not installed for grpc-encoding \"{encoding}\"");
            let answer = call(&client, PUT, encoding, plain(&put("k", "v"))).await;
            answer.check(UNIMPLEMENTED, &text);
        }
        let text = "grpc: compressed flag set with identity or empty encoding";
        for encoding in ["", "identity"] {
            for path in [PUT, WATCH] {
                let answer = call(&client, path, encoding, compressed(&put("k", "v"))).await;
                answer.check(INTERNAL, text);
            }
        }
        for encoding in ["", "gzip"] {
            let answer = call(&client, PUT, encoding, framed(2, b"")).await;
            answer.check(INTERNAL, "grpc: received unexpected payload format 2");
        }
    });
}

fn li_13_messages_that_are_not_gzip_are_refused(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let whole = gzip(&put("k", "v").encode_to_vec());
        let (mut changed, mut trailer) = (whole.clone(), whole.clone());
        // A block of an unknown type.
        changed[10] = 7;
        let last = trailer.len() - 6;
        trailer[last] ^= 1;
        for (message, reason) in [
            (&b""[..], "EOF"),
            (b"not gzip", "unexpected EOF"),
            (b"this is not gzip", "gzip: invalid header"),
            (&whole[..8], "unexpected EOF"),
            (&changed, "flate: corrupt input"),
            (&trailer, "gzip: invalid checksum"),
        ] {
            let text = format!("grpc: failed to decompress the received message: {reason}");
            for path in [PUT, WATCH] {
                let answer = call(&client, path, "gzip", framed(1, message)).await;
                assert_eq!(answer.code, INTERNAL);
                assert!(answer.text.starts_with(&text), "{}", answer.text);
            }
        }
        call(&client, PUT, "gzip", compressed(&put("k", "v")))
            .await
            .check(OK, "");
    });
}

/// The response to the creation of a watch, whose stream does not end.
fn li_13_a_compressed_watch_gets_compressed_responses(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let mut call = client.call(WATCH, [("grpc-encoding", "gzip")]).await;
        let create = pb::WatchCreateRequest {
            key: "k".into(),
            ..pb::WatchCreateRequest::default()
        };
        let create = pb::WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let create = compressed(&create);
        // The message arrives in two parts.
        let (first, second) = create.split_at(create.len() / 2);
        call.send(Bytes::copy_from_slice(first), false);
        call.send(Bytes::copy_from_slice(second), false);
        assert_eq!(call.head().await.headers["grpc-encoding"], "gzip");
        let (flag, message) = call.next().await.unwrap();
        let response: pb::WatchResponse = decode(&message);
        assert!(flag == 1 && response.created, "{response:?}");
    });
}

/// A message that grows from some kilobytes to a gigabyte when it is decompressed.
fn li_13_the_size_of_decompressed_messages_is_limited(servers: &Servers) {
    with_raw_client(servers, async |client| {
        let zeros = |bytes: usize| gzip(&vec![0; bytes]);
        let above = MESSAGE_BYTES_MAX + 1;
        for (message, bytes) in [
            (zeros(above), above),
            // The size that the message states.
            (zeros(64 << 20), 64 << 20),
            // Only the size of the last part is stated.
            (zeros(1 << 20).repeat(3), above),
        ] {
            for path in [PUT, WATCH] {
                let answer = call(&client, path, "gzip", framed(1, &message)).await;
                let text = "grpc: received message after decompression larger than max";
                let text = format!("{text} ({bytes} vs. {MESSAGE_BYTES_MAX})");
                answer.check(RESOURCE_EXHAUSTED, &text);
            }
        }
        // A message at the limit is decoded: it begins with the key, the number 0 is no field.
        let answer = call(&client, PUT, "gzip", framed(1, &zeros(MESSAGE_BYTES_MAX))).await;
        assert_eq!(answer.code, INTERNAL);
    });
}

on_every_server! {
    needs: [];
    li_13_compressed_calls_get_compressed_responses,
    li_13_compressed_streams_get_compressed_responses,
    li_13_a_compressed_watch_gets_compressed_responses,
    li_13_encodings_and_flags_are_checked,
    li_13_messages_that_are_not_gzip_are_refused,
    li_13_the_size_of_decompressed_messages_is_limited,
}
