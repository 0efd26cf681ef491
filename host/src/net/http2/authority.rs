//! The authorities of older clients (LI-12).
//!
//! A call of etcd's client 3.4 to one endpoint, such as `etcdctl endpoint status`, has the whole URL of the endpoint as
//! its `:authority`. The library h2 resets streams whose authority is invalid, and etcd does not read it. So the frames
//! of such a client are rewritten before the library reads them: the authority becomes that of the URL, or is left out
//! if there is none.
//!
//! An authority is a property of a connection of gRPC. So only the first request of a connection is examined, and the
//! bytes of all other clients pass unchanged and uncopied after it. The header blocks of a client with an invalid
//! authority are decoded, and encoded again without references to the table of the connection, so that the tables of
//! both sides cannot differ.

use bytes::Bytes;
use http::uri::Authority;

use super::frame::{CONTINUATION, END_HEADERS, END_STREAM, FrameHeader, HEADERS, PADDED, PRIORITY};
use super::hpack::{Decoder, Field};

/// The maximum size of the frames of a header block that is rewritten: that of the decoded fields. A larger block ends
/// the connection like one that cannot be decoded.
const BLOCK_BYTES_MAX: usize = super::HEADER_LIST_BYTES_MAX as usize;

/// The maximum size of the frames of the first header block. A larger one is not examined.
const FIRST_BLOCK_BYTES_MAX: usize = 64 * 1024;

/// The maximum size of a frame, which this server does not change.
const FRAME_BYTES_MAX: u32 = 16_384;

/// The number of bytes of a priority.
const PRIORITY_BYTES: usize = 5;

/// A block that no decoder accepts: a reference to the index 0.
const MALFORMED_BLOCK: &[u8] = &[0x80];

/// A filter for the bytes of a client.
#[derive(Debug)]
pub(crate) struct AuthorityFilter {
    stage: Stage,
    decoder: Decoder,
    /// The number of bytes that pass before the next frame.
    passing: usize,
    /// The frames of a header block whose end has not arrived, and the beginning of the next frame.
    held: Vec<u8>,
    /// The size of the complete frames in `held`.
    complete: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first header block has not arrived.
    Examining,
    /// The authority of the client is invalid.
    Rewriting,
    /// All bytes pass.
    Passing,
}

/// A header block.
struct Block {
    stream: u32,
    flags: u8,
    priority: Vec<u8>,
    fields: Vec<u8>,
}

impl AuthorityFilter {
    /// Creates a filter that lets `preface_bytes` pass before the first frame.
    pub(crate) fn new(preface_bytes: usize) -> Self {
        Self {
            stage: Stage::Examining,
            decoder: Decoder::new(),
            passing: preface_bytes,
            held: Vec::new(),
            complete: 0,
        }
    }

    /// Returns whether all further bytes pass unchanged.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Passing
    }

    /// Takes bytes of the client, and adds to `output` those for the server.
    pub(crate) fn filter(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() && self.stage != Stage::Passing {
            if self.passing > 0 {
                let count = self.passing.min(input.len());
                let (passed, rest) = input.split_at(count);
                output.extend_from_slice(passed);
                (input, self.passing) = (rest, self.passing - count);
                continue;
            }
            let head = self.head();
            let frame_bytes = head.map_or(FrameHeader::BYTES, FrameHeader::frame_bytes);
            let missing = frame_bytes - (self.held.len() - self.complete);
            let (taken, rest) = input.split_at(missing.min(input.len()));
            self.held.extend_from_slice(taken);
            input = rest;
            if taken.len() < missing {
                break;
            }
            if head.is_none() {
                self.take_head(output);
            }
            // A frame without a payload is complete with its header.
            if let Some(head) = self.head()
                && self.held.len() - self.complete == head.frame_bytes()
            {
                self.take_frame(head, output);
            }
        }
        output.extend_from_slice(input);
    }

    /// Adds the held bytes to `output`, unchanged. All further bytes pass.
    pub(crate) fn release(&mut self, output: &mut Vec<u8>) {
        output.append(&mut self.held);
        self.complete = 0;
        self.stage = Stage::Passing;
    }

    /// Returns the header of the current frame if it has arrived.
    fn head(&self) -> Option<FrameHeader> {
        let head = self.held[self.complete..].first_chunk();
        head.copied().map(FrameHeader::parse)
    }

    /// Returns the stream of the held block.
    fn stream(&self) -> Option<u32> {
        let head = self.held.first_chunk();
        head.map(|head| FrameHeader::parse(*head).stream)
    }

    /// Decides what becomes of the frame whose header has arrived.
    fn take_head(&mut self, output: &mut Vec<u8>) {
        let Some(head) = self.head() else {
            return;
        };
        let is_block = if self.complete == 0 {
            head.kind == HEADERS
        } else {
            head.kind == CONTINUATION && Some(head.stream) == self.stream()
        };
        let bytes_max = match self.stage {
            Stage::Rewriting => BLOCK_BYTES_MAX,
            Stage::Examining | Stage::Passing => FIRST_BLOCK_BYTES_MAX,
        };
        if !is_block && self.complete == 0 {
            self.passing = head.length as usize;
            output.append(&mut self.held);
        } else if !is_block || head.length > FRAME_BYTES_MAX {
            // An error of the connection, which the library finds.
            self.release(output);
        } else if self.complete + head.frame_bytes() > bytes_max {
            self.give_up(output);
        }
    }

    /// Handles a complete frame of a header block.
    fn take_frame(&mut self, head: FrameHeader, output: &mut Vec<u8>) {
        self.complete = self.held.len();
        if head.flags & END_HEADERS == 0 {
            return;
        }
        let Some(block) = Block::parse(&self.held) else {
            // An error of the connection.
            return self.release(output);
        };
        let Some((is_repaired, fields)) = self.repair(&block.fields) else {
            return self.give_up(output);
        };
        if self.stage == Stage::Examining && !is_repaired {
            return self.release(output);
        }
        self.stage = Stage::Rewriting;
        block.write(&fields, output);
        self.held.clear();
        self.complete = 0;
    }

    /// Ends the examination. The library gets what it has to answer with an error.
    fn give_up(&mut self, output: &mut Vec<u8>) {
        if self.stage == Stage::Rewriting
            && let Some(stream) = self.stream()
        {
            self.held.clear();
            write_frame(HEADERS, END_HEADERS, stream, &[MALFORMED_BLOCK], output);
        }
        self.release(output);
    }

    /// Decodes the fields of a block and encodes them again. Returns whether an authority was invalid.
    fn repair(&mut self, fields: &[u8]) -> Option<(bool, Vec<u8>)> {
        let mut is_repaired = false;
        let (mut repaired, mut bytes) = (Vec::new(), 0);
        let decoded = self.decoder.decode(fields, |field| {
            // What follows would only be refused by the library, which has got enough for that.
            if bytes > BLOCK_BYTES_MAX {
                return;
            }
            bytes += field.len();
            match field.as_authority() {
                Some(value) if Authority::try_from(value).is_err() => {
                    is_repaired = true;
                    if let Some(authority) = authority_of_url(value) {
                        Field::authority(authority).encode(&mut repaired);
                    }
                }
                _ => field.encode(&mut repaired),
            }
        });
        decoded.ok().map(|()| (is_repaired, repaired))
    }
}

/// Returns the authority of a URL if it is valid.
fn authority_of_url(url: &[u8]) -> Option<Bytes> {
    let scheme = url.windows(3).position(|part| part == b"://")?;
    let rest = &url[scheme + 3..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let authority = &rest[..end.unwrap_or(rest.len())];
    Authority::try_from(authority).ok()?;
    Some(Bytes::copy_from_slice(authority))
}

impl Block {
    /// Parses complete frames: one HEADERS frame and its CONTINUATION frames.
    fn parse(frames: &[u8]) -> Option<Self> {
        let (mut rest, mut block) = (frames, None::<Self>);
        while let Some((head, after)) = rest.split_first_chunk() {
            let FrameHeader {
                length,
                flags,
                stream,
                ..
            } = FrameHeader::parse(*head);
            let mut payload;
            (payload, rest) = after.split_at_checked(length as usize)?;
            if let Some(block) = &mut block {
                block.fields.extend_from_slice(payload);
                continue;
            }
            if flags & PADDED != 0 {
                let (padding, padded) = payload.split_first()?;
                payload = padded.get(..padded.len().checked_sub(usize::from(*padding))?)?;
            }
            let priority_bytes = if flags & PRIORITY == 0 {
                0
            } else {
                PRIORITY_BYTES
            };
            let (priority, fields) = payload.split_at_checked(priority_bytes)?;
            block = Some(Self {
                stream,
                flags: flags & (END_STREAM | PRIORITY),
                priority: priority.to_vec(),
                fields: fields.to_vec(),
            });
        }
        block
    }

    /// Writes frames with these fields instead of those of the block.
    fn write(&self, fields: &[u8], output: &mut Vec<u8>) {
        let frame_bytes_max = FRAME_BYTES_MAX as usize;
        let first = fields.len().min(frame_bytes_max - self.priority.len());
        let (first, mut rest) = fields.split_at(first);
        let last = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
        let flags = self.flags | last(rest);
        write_frame(
            HEADERS,
            flags,
            self.stream,
            &[&self.priority, first],
            output,
        );
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(frame_bytes_max));
            rest = after;
            write_frame(CONTINUATION, last(rest), self.stream, &[part], output);
        }
    }
}

/// Writes a frame with a payload of less than 2^24 bytes, in parts.
fn write_frame(kind: u8, flags: u8, stream: u32, payload: &[&[u8]], output: &mut Vec<u8>) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let head = FrameHeader {
        length: u32::try_from(length).expect("a frame of at most FRAME_BYTES_MAX bytes"),
        kind,
        flags,
        stream,
    };
    output.extend_from_slice(&head.to_bytes());
    for part in payload {
        output.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, Request, Response};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::net::http2::frame::PREFACE;

    /// `:method: POST`, `:scheme: http`, `:path: /`, from the static table.
    const REQUEST: &[u8] = &[0x83, 0x86, 0x84];

    /// The newest field that a client has stored.
    const NEWEST: &[u8] = &[0x80 | 0x3e];

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(kind, flags, stream, &[payload], &mut bytes);
        bytes
    }

    /// `:authority` with a value of up to 126 bytes, stored.
    fn authority(value: &str) -> Vec<u8> {
        let length = u8::try_from(value.len()).unwrap();
        [&[0x41, length], value.as_bytes()].concat()
    }

    /// Filters bytes in parts of a size.
    fn filter_parts(bytes: &[u8], size: usize) -> (Vec<u8>, AuthorityFilter) {
        let (mut filter, mut output) = (AuthorityFilter::new(PREFACE.len()), Vec::new());
        for part in bytes.chunks(size) {
            filter.filter(part, &mut output);
        }
        (output, filter)
    }

    fn filter(bytes: &[u8]) -> Vec<u8> {
        let (output, _) = filter_parts(bytes, usize::MAX);
        for size in [1, 2, 7, 100] {
            assert!(filter_parts(bytes, size).0 == output, "parts of {size}");
        }
        output
    }

    fn opening() -> Vec<u8> {
        [PREFACE, &frame(4, 0, 0, &[])].concat()
    }

    /// Checks the authority of a request, which is the last field.
    fn check(sent: &str, expected: Option<&str>) {
        let first = [REQUEST, &authority(sent)].concat();
        let second = [REQUEST, NEWEST].concat();
        let data = frame(0, 1, 1, b"data");
        let sent = [
            opening(),
            frame(HEADERS, END_HEADERS, 1, &first),
            data.clone(),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, &second),
        ];
        let fields = match expected {
            Some(expected) => {
                let field = [
                    &[1, u8::try_from(expected.len()).unwrap()],
                    expected.as_bytes(),
                ];
                [REQUEST, &field.concat()].concat()
            }
            None => REQUEST.to_vec(),
        };
        let expected = [
            opening(),
            frame(HEADERS, END_HEADERS, 1, &fields),
            data,
            frame(HEADERS, END_HEADERS | END_STREAM, 3, &fields),
        ];
        assert!(filter(&sent.concat()) == expected.concat(), "{sent:?}");
    }

    #[test]
    fn li_12_an_authority_with_a_scheme_loses_it() {
        check("http://127.0.0.1:2379", Some("127.0.0.1:2379"));
        check("https://node.example:2379/path", Some("node.example:2379"));
        check("http://[::1]:2379", Some("[::1]:2379"));
        check("unix:///run/etcd.sock", None);
        check("unix://localhost:0/x?y#z", Some("localhost:0"));
        check("/run/etcd.sock", None);
        check("", None);
        check("http://user@node:1", Some("user@node:1"));
        check("http://no de:1", None);
    }

    #[test]
    fn li_12_a_client_with_a_valid_authority_is_not_changed() {
        let first = [REQUEST, &authority("127.0.0.1:2379")].concat();
        let cut = first.len() / 2;
        let requests = [
            // In two frames, the first one with padding and a priority.
            frame(
                HEADERS,
                PADDED | PRIORITY,
                1,
                &[&[2, 0, 0, 0, 0, 9], &first[..cut], &[0; 2]].concat(),
            ),
            frame(CONTINUATION, END_HEADERS, 1, &first[cut..]),
            frame(
                HEADERS,
                END_HEADERS,
                3,
                &[REQUEST, &authority("http://late")].concat(),
            ),
        ];
        let sent = [opening(), requests.concat()].concat();
        assert!(filter(&sent) == sent);
        assert!(filter_parts(&sent, 50).1.is_done());
        // A request without an authority, one that is not complete, and bytes that are no frames.
        for bytes in [
            frame(HEADERS, END_HEADERS, 1, REQUEST),
            frame(HEADERS, 0, 1, REQUEST),
            vec![255; 99],
        ] {
            let sent = [opening(), bytes].concat();
            let (mut output, mut filter) = filter_parts(&sent, 10);
            filter.release(&mut output);
            assert!(output == sent);
        }
    }

    #[test]
    fn li_12_blocks_of_several_frames_are_rewritten() {
        let field = [&[0x40, 1, b'a', 0x7f, 0xd1, 0x0e], &[b'v'; 2_000][..]].concat();
        let block = [REQUEST, &authority("http://a"), &field.repeat(10)].concat();
        let (first, rest) = block.split_at(9);
        let sent = [
            opening(),
            frame(
                HEADERS,
                END_STREAM | PADDED | PRIORITY,
                1,
                &[&[1, 0, 0, 0, 0, 9], first, &[0]].concat(),
            ),
            frame(CONTINUATION, 0, 1, &rest[..9_000]),
            frame(CONTINUATION, 0, 1, &[]),
            frame(CONTINUATION, END_HEADERS, 1, &rest[9_000..]),
        ];
        let unstored = [&[0x00], &field[1..]].concat();
        let fields = [REQUEST, &[1, 1, b'a'], &unstored.repeat(10)].concat();
        let (first, rest) = fields.split_at(FRAME_BYTES_MAX as usize - PRIORITY_BYTES);
        let expected = [
            opening(),
            frame(
                HEADERS,
                END_STREAM | PRIORITY,
                1,
                &[&[0, 0, 0, 0, 9], first].concat(),
            ),
            frame(CONTINUATION, END_HEADERS, 1, rest),
        ];
        assert!(filter(&sent.concat()) == expected.concat());
    }

    /// The library gets what it has to refuse.
    #[test]
    fn li_12_blocks_that_cannot_be_decoded_stay_errors() {
        let first = frame(
            HEADERS,
            END_HEADERS,
            1,
            &[REQUEST, &authority("http://a")].concat(),
        );
        let repaired = [REQUEST, &[1, 1, b'a']].concat();
        let start = [opening(), frame(HEADERS, END_HEADERS, 1, &repaired)].concat();
        let malformed = frame(HEADERS, END_HEADERS, 3, MALFORMED_BLOCK);
        let check = |sent: Vec<u8>, expected: Vec<u8>| {
            let output = filter(&[opening(), first.clone(), sent].concat());
            assert!(output == [start.clone(), expected].concat());
        };
        // A reference to a field that does not exist, a string that is too short, a table that is too large.
        for block in [&[0x80 | 63][..], &[0x41, 9, b'a'], &[0x3f, 0xe2, 0x1f]] {
            check(frame(HEADERS, END_HEADERS, 3, block), malformed.clone());
        }
        // Frames in a block that do not belong there, and padding that is longer than its frame.
        let open = frame(HEADERS, 0, 3, REQUEST);
        for other in [
            frame(0, 0, 3, b"data"),
            frame(CONTINUATION, 0, 5, &[]),
            frame(HEADERS, 0, 3, &[]),
        ] {
            check(
                [open.clone(), other.clone()].concat(),
                [open.clone(), other].concat(),
            );
        }
        let padded = frame(HEADERS, END_HEADERS | PADDED, 3, &[2, 0]);
        check(padded.clone(), padded);
        let long = frame(
            HEADERS,
            END_HEADERS,
            3,
            &vec![0; FRAME_BYTES_MAX as usize + 1],
        );
        check(long.clone(), long);
    }

    #[test]
    fn li_12_what_a_client_sends_without_an_end_is_bounded() {
        let first = frame(
            HEADERS,
            END_HEADERS,
            1,
            &[REQUEST, &authority("http://a")].concat(),
        );
        let (mut filter, mut output) = (AuthorityFilter::new(0), Vec::new());
        filter.filter(&first, &mut output);
        output.clear();
        filter.filter(&frame(HEADERS, 0, 3, REQUEST), &mut output);
        let more = frame(CONTINUATION, 0, 3, &[0x86; FRAME_BYTES_MAX as usize]);
        while !filter.is_done() {
            assert!(output.is_empty() && filter.held.len() <= BLOCK_BYTES_MAX);
            filter.filter(&more, &mut output);
        }
        assert!(output.starts_with(&frame(HEADERS, END_HEADERS, 3, MALFORMED_BLOCK)));
        // One byte can stand for a field of 4 KiB.
        let (mut filter, mut output) = (AuthorityFilter::new(0), Vec::new());
        filter.filter(&first, &mut output);
        let value = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e], &[b'v'; 4_000][..]].concat();
        filter.filter(&frame(HEADERS, END_HEADERS, 3, &value), &mut output);
        output.clear();
        filter.filter(
            &frame(HEADERS, END_HEADERS, 5, &[0x80 | 0x3e; 16_000]),
            &mut output,
        );
        assert!((BLOCK_BYTES_MAX / 2..BLOCK_BYTES_MAX + 8_192).contains(&output.len()));
    }

    /// The library h2 encodes requests, and decodes what the filter has made of them.
    #[tokio::test]
    async fn requests_of_a_client_that_compresses_them_arrive() {
        const REQUESTS: usize = 300;
        let (client_end, mut client_socket) = tokio::io::duplex(1 << 20);
        let (server_end, server_socket) = tokio::io::duplex(1 << 20);
        let (mut from_server, mut to_server) = tokio::io::split(server_end);
        let (mut from_client, mut to_client) = tokio::io::split(client_end);
        tokio::spawn(async move {
            let mut filter = AuthorityFilter::new(PREFACE.len());
            filter.stage = Stage::Rewriting;
            let (mut bytes, mut output) = ([0; 1_000], Vec::new());
            while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                filter.filter(&bytes[..count], &mut output);
                to_server.write_all(&output).await.unwrap();
                output.clear();
            }
        });
        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        tokio::spawn(async move {
            let mut server = h2::server::handshake(server_socket).await.unwrap();
            while let Some(request) = server.accept().await {
                let (request, mut respond) = request.unwrap();
                let mut response = Response::new(());
                *response.headers_mut() = request.headers().clone();
                respond.send_response(response, true).unwrap();
            }
        });
        // Reads and writes of the client, through its own end of the socket.
        let mut random = fastrand::Rng::with_seed(1);
        let (mut requests, connection) = h2::client::handshake(&mut client_socket).await.unwrap();
        let session = async move {
            for _ in 0..REQUESTS {
                let mut request = Request::new(());
                *request.method_mut() = Method::POST;
                *request.uri_mut() = "http://node:1/path".parse().unwrap();
                *request.headers_mut() = random_fields(&mut random);
                let expected = request.headers().clone();
                let (response, _) = requests.send_request(request, true).unwrap();
                assert_eq!(*response.await.unwrap().headers(), expected);
            }
        };
        tokio::select! {
            () = session => {}
            end = connection => panic!("the connection has ended: {end:?}"),
        }
    }

    /// Returns fields whose names and values repeat now and then. They contain all bytes that are allowed.
    fn random_fields(random: &mut fastrand::Rng) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for _ in 0..random.usize(..12) {
            let name = [
                "user-agent",
                "grpc-timeout",
                "authorization",
                "accept",
                "x-a",
                "x-long-name",
            ];
            let length = [3, 20, 300][random.usize(..3)];
            let value: Vec<u8> = match random.u8(..3) {
                0 => vec![b'v'; length],
                1 => (0..length).map(|_| random.u8(b' '..127)).collect(),
                _ => (0..length).map(|_| random.u8(128..)).collect(),
            };
            let mut value = HeaderValue::from_bytes(value.trim_ascii()).unwrap();
            value.set_sensitive(random.u8(..5) == 0);
            fields.append(*random.choice(name.iter()).unwrap(), value);
        }
        fields
    }
}
