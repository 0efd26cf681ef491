//! The frames of `WebSocket`s (RFC 6455).
//!
//! A watch sends messages of one frame each and ignores those of its client. So nothing of what the client sends has to
//! be kept, except the payload of a ping. The libraries that were compared assemble whole messages, and queue the
//! answers to pings without a limit.

/// The maximum length of a frame of the client: that of kube-apiserver.
pub(super) const FRAME_BYTES_MAX: u64 = 32 << 20;

/// The maximum length of the payload of a ping. kube-apiserver, too, answers a longer one with its beginning.
const PING_BYTES_MAX: usize = 125;

/// The maximum length of the head of a frame: two bytes, a length of eight, a mask of four.
const HEAD_BYTES_MAX: usize = 14;

/// A kind of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Text = 1,
    Binary = 2,
    Close = 8,
    Pong = 10,
}

/// The opcodes of frames of clients that have an effect.
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// The reason for which a WebSocket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseCode {
    Normal = 1000,
    ProtocolError = 1002,
}

/// What a client has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A ping, with the payload of its answer.
    Ping(Vec<u8>),
    /// The client, or an error of it, ends the WebSocket.
    End(CloseCode),
}

/// Reads the frames of a client.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    head: [u8; HEAD_BYTES_MAX],
    /// The number of bytes of the head that were read.
    head_bytes: usize,
    /// The bytes of the payload that follow, after the head.
    left: Option<u64>,
    mask: [u8; 4],
    /// The number of bytes of the payload that were read, modulo 4.
    phase: usize,
    /// The payload of a ping.
    ping: Vec<u8>,
}

impl FrameReader {
    /// Reads bytes up to the next frame that has an effect. Returns `None` when all bytes were read.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Received> {
        loop {
            let left = match self.left {
                Some(left) => left,
                None => match self.read_head(bytes)? {
                    Ok(left) => left,
                    Err(code) => return Some(Received::End(code)),
                },
            };
            let count = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (payload, rest) = bytes.split_at(count);
            *bytes = rest;
            let opcode = self.head[0] & 15;
            if opcode == PING {
                let room = PING_BYTES_MAX - self.ping.len();
                for (index, byte) in payload.iter().take(room).enumerate() {
                    self.ping.push(byte ^ self.mask[(self.phase + index) % 4]);
                }
            }
            self.phase = (self.phase + count) % 4;
            let left = left - count as u64;
            self.left = Some(left);
            if left > 0 {
                return None;
            }
            (self.left, self.head_bytes, self.phase) = (None, 0, 0);
            match opcode {
                PING => return Some(Received::Ping(std::mem::take(&mut self.ping))),
                CLOSE => return Some(Received::End(CloseCode::Normal)),
                _ => {}
            }
        }
    }

    /// Reads the head of a frame. Returns the length of the payload, or `None` if more bytes are needed.
    fn read_head(&mut self, bytes: &mut &[u8]) -> Option<Result<u64, CloseCode>> {
        loop {
            let known = &self.head[..self.head_bytes];
            let length_bytes = match known.get(1) {
                // RFC 6455, 5.1: a client masks its frames.
                Some(second) if second & 128 == 0 => return Some(Err(CloseCode::ProtocolError)),
                Some(second) => match second & 127 {
                    127 => 8,
                    126 => 2,
                    _ => 0,
                },
                None => 0,
            };
            if known.len() == 6 + length_bytes {
                let (length, mask) = known[2..].split_at(length_bytes);
                self.mask.copy_from_slice(mask);
                let length = match length {
                    [] => u64::from(known[1] & 127),
                    length => length
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
                };
                self.left = Some(length);
                let is_small = length <= FRAME_BYTES_MAX;
                return Some(is_small.then_some(length).ok_or(CloseCode::Normal));
            }
            let (first, rest) = bytes.split_first()?;
            self.head[self.head_bytes] = *first;
            self.head_bytes += 1;
            *bytes = rest;
        }
    }
}

/// Adds a frame of the server, which has no mask.
pub(super) fn write_frame(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    out.push(128 | opcode as u8);
    let length = payload.len();
    if let Ok(length @ ..126) = u8::try_from(length) {
        out.push(length);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(126);
        out.extend(length.to_be_bytes());
    } else {
        out.push(127);
        out.extend((length as u64).to_be_bytes());
    }
    out.extend(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        write_frame(Opcode::Text, payload, &mut frame);
        frame[0] = first;
        frame[1] |= 128;
        let head = frame.len() - payload.len();
        let mask = [1, 2, 3, 4];
        frame.splice(head..head, mask);
        for (index, byte) in frame[head + 4..].iter_mut().enumerate() {
            *byte ^= mask[index % 4];
        }
        frame
    }

    /// Reads bytes in pieces of each size.
    fn check(bytes: &[u8], expected: &[Received]) {
        for size in [1, 2, 3, 7, 1_000, bytes.len()] {
            let mut reader = FrameReader::default();
            let mut received = Vec::new();
            for mut piece in bytes.chunks(size) {
                while let Some(next) = reader.next(&mut piece) {
                    let is_end = matches!(next, Received::End(_));
                    received.push(next);
                    if is_end {
                        break;
                    }
                }
                if matches!(received.last(), Some(Received::End(_))) {
                    break;
                }
            }
            assert_eq!(received, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn pings_and_closes_are_found_between_messages_that_are_ignored() {
        let mut bytes = masked(0x81, b"hello");
        bytes.extend(masked(0x02, &[7; 200]));
        bytes.extend(masked(0x89, b"ping"));
        bytes.extend(masked(0x80, &vec![7; 70_000]));
        bytes.extend(masked(0x89, b""));
        bytes.extend(masked(0x88, &[3, 232]));
        let ping = Received::Ping(b"ping".to_vec());
        let end = Received::End(CloseCode::Normal);
        check(&bytes, &[ping, Received::Ping(Vec::new()), end]);
    }

    #[test]
    fn errors_of_the_client_end_the_websocket() {
        let unmasked = Received::End(CloseCode::ProtocolError);
        check(&[0x81, 5, 1, 2, 3, 4, 5], &[unmasked]);
        let mut large = vec![0x82, 0xff];
        large.extend((FRAME_BYTES_MAX + 1).to_be_bytes());
        large.extend([0; 4]);
        check(&large, &[Received::End(CloseCode::Normal)]);
        large[2..10].fill(0xff);
        check(&large, &[Received::End(CloseCode::Normal)]);
    }

    #[test]
    fn the_beginning_of_a_long_ping_is_answered() {
        let expected = Received::Ping(vec![9; PING_BYTES_MAX]);
        check(&masked(0x89, &[9; 3_000]), &[expected]);
    }
}
