//! A splitter of a request body into JSON objects.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use tonic::Status;
use tonic::codegen::StdError;

use crate::status;

/// Splits a body into objects. The body is a sequence of objects, with optional whitespace between
/// them. The contents of an object are not validated.
#[derive(Debug)]
pub(super) struct JsonObjects<B> {
    body: B,
    /// The received part of the next object.
    buffer: BytesMut,
    /// The length of the scanned part of the buffer.
    scanned: usize,
    /// The state at the end of the scanned part.
    state: ScanState,
    /// The maximum length of an object.
    bytes_max: usize,
    /// Whether the rest of the body is discarded.
    discards_rest: bool,
    is_disconnected: bool,
}

/// The state of the scanner between two bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    /// Between two objects.
    #[default]
    Between,
    /// In an object, at a nesting depth of braces and brackets.
    Inside(usize),
    /// In a string at a nesting depth.
    InString(usize),
    /// In a string at a nesting depth, after a backslash.
    Escaped(usize),
}

impl<B: Body<Data = Bytes, Error: Into<StdError>> + Unpin> JsonObjects<B> {
    /// Splits `body` into objects of at most `bytes_max` bytes.
    pub(super) fn new(body: B, bytes_max: usize) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            scanned: 0,
            state: ScanState::default(),
            bytes_max,
            discards_rest: false,
            is_disconnected: false,
        }
    }

    /// Polls the next object; `None` at the end of the body.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            match self.split() {
                Ok(Some(object)) => return Poll::Ready(Some(Ok(object))),
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref()
                        && !self.discards_rest
                    {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    self.discard_rest();
                    self.is_disconnected = true;
                    return Poll::Ready(Some(Err(status::gateway_broken(error.into().as_ref()))));
                }
                None if self.state == ScanState::Between => return Poll::Ready(None),
                None => {
                    self.state = ScanState::Between;
                    return Poll::Ready(Some(Err(status::json_ends_early())));
                }
            }
        }
    }

    /// Discards the rest of the body. It is read to its end without returning objects.
    pub(super) fn discard_rest(&mut self) {
        self.discards_rest = true;
        self.state = ScanState::Between;
        self.buffer = BytesMut::new();
        self.scanned = 0;
    }

    /// Returns whether reading the body has failed, for example because the client has
    /// disconnected.
    pub(super) fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    /// Removes the first object from the buffer and returns it, if it is complete.
    fn split(&mut self) -> Result<Option<Bytes>, Status> {
        let found = self.state.scan(&self.buffer[self.scanned..])?;
        let end = found.map_or(self.buffer.len(), |end| self.scanned + end);
        if end > self.bytes_max {
            return Err(status::message_too_large(end, self.bytes_max));
        }
        if found.is_none() {
            if self.state == ScanState::Between {
                // The buffer contains only whitespace.
                self.buffer.clear();
            }
            self.scanned = self.buffer.len();
            return Ok(None);
        }
        self.scanned = 0;
        Ok(Some(self.buffer.split_to(end).freeze()))
    }
}

impl ScanState {
    /// Scans `data` up to the end of an object. Returns the position after the object, if it ends
    /// in `data`.
    fn scan(&mut self, data: &[u8]) -> Result<Option<usize>, Status> {
        for (index, byte) in data.iter().enumerate() {
            *self = match (*self, byte) {
                (Self::Between, b' ' | b'\t' | b'\n' | b'\r') => Self::Between,
                (Self::Between, b'{') => Self::Inside(1),
                (Self::Between, other) => return Err(status::no_json_object(*other)),
                (Self::Inside(1), b'}' | b']') => {
                    *self = Self::Between;
                    return Ok(Some(index + 1));
                }
                (Self::Inside(depth), b'}' | b']') => Self::Inside(depth - 1),
                (Self::Inside(depth), b'{' | b'[') => Self::Inside(depth + 1),
                (Self::InString(depth), b'"') => Self::Inside(depth),
                (Self::InString(depth), b'\\') => Self::Escaped(depth),
                (Self::Inside(depth), b'"') | (Self::Escaped(depth), _) => Self::InString(depth),
                (same @ (Self::Inside(_) | Self::InString(_)), _) => same,
            };
        }
        Ok(None)
    }
}

/// Returns the maximum nesting depth of braces and brackets in an object.
pub(super) fn depth(object: &[u8]) -> usize {
    let (mut state, mut depth_max) = (ScanState::default(), 0);
    for byte in object {
        // What is not an object ends the scan.
        if state.scan(&[*byte]).is_err() {
            break;
        }
        if let ScanState::Inside(depth) = state {
            depth_max = depth_max.max(depth);
        }
    }
    depth_max
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http_body::Frame;
    use tonic::Code;

    use super::*;

    /// A body that is received in several parts.
    struct Parts(VecDeque<Bytes>);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
        }
    }

    /// Returns all objects, and the code of the error after them.
    fn read(parts: VecDeque<Bytes>, bytes_max: usize) -> (Vec<String>, Option<Code>) {
        let mut objects = JsonObjects::new(Parts(parts), bytes_max);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut found = Vec::new();
        loop {
            match objects.poll_next(&mut context) {
                Poll::Ready(Some(Ok(object))) => {
                    let object = String::from_utf8(object.to_vec()).unwrap();
                    found.push(object.trim().to_owned());
                }
                Poll::Ready(Some(Err(status))) => return (found, Some(status.code())),
                Poll::Ready(None) => return (found, None),
                Poll::Pending => panic!("expected a ready body"),
            }
        }
    }

    fn check(body: &str, bytes_max: usize, expected: &[&str], end: Option<Code>) {
        let in_one_part = VecDeque::from([Bytes::copy_from_slice(body.as_bytes())]);
        let bytewise = body.bytes().map(|byte| Bytes::copy_from_slice(&[byte]));
        for parts in [in_one_part, bytewise.collect()] {
            let (found, ended) = read(parts, bytes_max);
            let found: Vec<_> = found.iter().map(String::as_str).collect();
            assert_eq!((found.as_slice(), ended), (expected, end), "{body}");
        }
    }

    fn check_read(body: &str, expected: &[&str]) {
        check(body, 100, expected, None);
    }

    #[test]
    fn ht_21_a_body_contains_any_number_of_objects() {
        check_read("", &[]);
        check_read(" \r\n\t", &[]);
        check_read("{}", &["{}"]);
        check_read(" {} {}\n{}", &["{}", "{}", "{}"]);
        check_read(
            r#"{"a":[{"b":"}\"]"}]}{"c":"\\"}"#,
            &[r#"{"a":[{"b":"}\"]"}]}"#, r#"{"c":"\\"}"#],
        );
    }

    #[test]
    fn the_depth_of_an_object_is_that_of_its_braces_and_brackets() {
        for (object, expected) in [
            ("", 0),
            ("{}", 1),
            (r#"{"a":[{"b":"{{{"}],"c":[[[]]]} "#, 4),
            (r#"{"a":{"#, 2),
            ("7[[", 0),
        ] {
            assert_eq!(depth(object.as_bytes()), expected, "{object}");
        }
    }

    #[test]
    fn values_other_than_objects_are_rejected() {
        let invalid = Some(Code::InvalidArgument);
        check("{}x", 100, &["{}"], invalid);
        check("[]", 100, &[], invalid);
        check("null", 100, &[], invalid);
        check(r#"{"a"#, 100, &[], invalid);
        check("{} {", 100, &["{}"], invalid);
    }

    #[test]
    fn an_object_above_the_limit_is_rejected_before_its_end() {
        let too_large = Some(Code::ResourceExhausted);
        check("{ }{  }", 3, &["{ }"], too_large);
        check("{\"abcdefg", 3, &[], too_large);
        // Whitespace between objects does not count towards the limit.
        let whitespace = " ".repeat(50);
        let parts: VecDeque<_> = (whitespace + "{}")
            .bytes()
            .map(|b| vec![b].into())
            .collect();
        assert_eq!(read(parts, 3), (vec!["{}".to_owned()], None));
    }

    #[test]
    fn discard_rest_reads_the_body_without_objects() {
        let parts = ["{}x", "{", "{}"].map(Bytes::from);
        let mut objects = JsonObjects::new(Parts(parts.into()), 100);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(
            objects.poll_next(&mut context),
            Poll::Ready(Some(Ok(_)))
        ));
        objects.discard_rest();
        assert!(matches!(objects.poll_next(&mut context), Poll::Ready(None)));
        assert!(objects.body.0.is_empty());
    }
}
