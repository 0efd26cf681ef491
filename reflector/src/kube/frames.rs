//! The documents of a watch: a stream of bytes is split into JSON objects.

use bytes::{Buf as _, Bytes, BytesMut};

/// The maximum size of one event of a watch in bytes. kube-apiserver refuses objects above 3 MiB.
pub const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream of JSON objects, cut anywhere. Between them there may be white space.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: BytesMut,
    /// The number of bytes of `buffer` that were examined.
    examined: usize,
    /// The number of open braces and brackets.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

/// The error of a stream that contains no JSON objects, or too large ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    NotAnObject(u8),
    TooLarge,
}

impl Frames {
    /// Adds bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete object.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.depth == 0 {
            let blank = |byte: &&u8| byte.is_ascii_whitespace();
            let blanks = self.buffer.iter().take_while(blank).count();
            self.buffer.advance(blanks);
            match self.buffer.first() {
                None => return Ok(None),
                Some(b'{') => {}
                Some(other) => return Err(FrameError::NotAnObject(*other)),
            }
        }
        for (index, byte) in self.buffer.iter().enumerate().skip(self.examined) {
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                if index >= EVENT_BYTES_MAX {
                    return Err(FrameError::TooLarge);
                }
                let object = self.buffer.split_to(index + 1).freeze();
                self.examined = 0;
                return Ok(Some(object));
            }
        }
        self.examined = self.buffer.len();
        if self.examined > EVENT_BYTES_MAX {
            return Err(FrameError::TooLarge);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn objects_are_found_wherever_the_stream_is_cut() {
        let objects = [
            "{}",
            r#"{"a":"}{]\"[","b":[{"c":"\\"},[]]}"#,
            "{\"line\":\n1}",
            r#"{"text":"ü 雪 \u007d \\\""}"#,
        ];
        let stream = objects.join("\n") + objects[1] + " \r\n\t" + objects[0];
        let expected = [&objects[..], &[objects[1], objects[0]]].concat();
        for seed in 0..500 {
            let mut random = Rng::with_seed(seed);
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            let mut rest = stream.as_bytes();
            while !rest.is_empty() {
                let (part, next) = rest.split_at(random.usize(1..=rest.len().min(9)));
                frames.push(part);
                rest = next;
                while let Some(object) = frames.next().unwrap() {
                    found.push(String::from_utf8(object.to_vec()).unwrap());
                }
            }
            assert_eq!(found, expected, "seed {seed}");
        }
    }

    #[test]
    fn what_is_no_object_and_what_is_too_large_is_an_error() {
        for text in ["[1]", "null", "}", "\"{\"", "<html>"] {
            let mut frames = Frames::default();
            frames.push(b" {} ");
            frames.push(text.as_bytes());
            assert_eq!(frames.next().unwrap().as_deref(), Some(&b"{}"[..]));
            let first = text.as_bytes()[0];
            assert_eq!(frames.next(), Err(FrameError::NotAnObject(first)));
        }
        let mut frames = Frames::default();
        frames.push(b"{\"a\":\"");
        assert_eq!(frames.next(), Ok(None));
        frames.push(&vec![b'x'; EVENT_BYTES_MAX]);
        assert_eq!(frames.next(), Err(FrameError::TooLarge));
        // Also if its end arrives with its beginning.
        let mut frames = Frames::default();
        frames.push(format!("{{\"a\":\"{}\"}}", "x".repeat(EVENT_BYTES_MAX - 7)).as_bytes());
        assert_eq!(frames.next(), Err(FrameError::TooLarge));
        let mut frames = Frames::default();
        frames.push(format!("{{\"a\":\"{}\"}}", "x".repeat(EVENT_BYTES_MAX - 8)).as_bytes());
        assert!(matches!(frames.next(), Ok(Some(object)) if object.len() == EVENT_BYTES_MAX));
    }
}
