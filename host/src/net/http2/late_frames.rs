//! Frames that a client has sent before it knew of the last GOAWAY.

use tokio::io::ReadBuf;

use super::frame::{FrameHeader, WINDOW_UPDATE};

/// The payload of the ping by which the library finds out that the client knows of the first GOAWAY frame of a shutdown.
/// When it is acknowledged, the library sends the last one, and ignores requests on later streams.
pub(crate) const SHUTDOWN_PING: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

/// A filter that drops the window updates of streams above the last one of a connection that shuts down.
///
/// A client may write a request that it had begun behind the acknowledgement. The library ignores its headers and data, but
/// treats a window update as one of a stream that was never opened, which would end the connection with all its streams:
/// `PROTOCOL_ERROR`.
///
/// Begins at a frame. A client that sends such an acknowledgement without being asked only loses its own updates.
#[derive(Debug)]
pub(crate) struct LateFrames {
    /// The last stream that the client has opened before.
    last_stream: u32,
    /// The bytes of a header that has not arrived wholly. They are passed on with the rest of it.
    header: Vec<u8>,
    /// The number of bytes of the current frame's payload that have not arrived.
    payload: usize,
    is_dropped: bool,
}

impl LateFrames {
    pub(crate) fn after(last_stream: u32) -> Self {
        Self {
            last_stream,
            header: Vec::new(),
            payload: 0,
            is_dropped: false,
        }
    }

    /// Returns the number of bytes that were kept of the earlier input: the output is at most so much longer than the input.
    pub(crate) fn kept(&self) -> usize {
        self.header.len()
    }

    /// Passes on what is not dropped of the next bytes of the client.
    pub(crate) fn filter(&mut self, mut bytes: &[u8], output: &mut ReadBuf<'_>) {
        while !bytes.is_empty() {
            let (payload, rest) = bytes.split_at(self.payload.min(bytes.len()));
            self.payload -= payload.len();
            if !self.is_dropped {
                output.put_slice(payload);
            }
            let missing = FrameHeader::BYTES - self.header.len();
            let (header, rest) = rest.split_at(missing.min(rest.len()));
            self.header.extend_from_slice(header);
            bytes = rest;
            let Ok(header) = <[u8; FrameHeader::BYTES]>::try_from(&*self.header) else {
                continue;
            };
            self.header.clear();
            let frame = FrameHeader::parse(header);
            self.payload = frame.length as usize;
            self.is_dropped = frame.kind == WINDOW_UPDATE && frame.stream > self.last_stream;
            if !self.is_dropped {
                output.put_slice(&header);
            }
        }
    }

    /// Passes on what was kept, at the end of the client.
    pub(crate) fn release(&mut self, output: &mut ReadBuf<'_>) {
        output.put_slice(&self.header);
        self.header.clear();
    }
}
