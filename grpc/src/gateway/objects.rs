//! The JSON objects of a request body, each as soon as it is there.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use tonic::Status;
use tonic::codegen::StdError;

use crate::status;

/// Cuts a body into objects, which stand one behind the other with blanks between them. Whether one
/// is right inside is for whoever reads it.
#[derive(Debug)]
pub(super) struct Objects<B> {
    body: B,
    /// What has come of the next object.
    buffer: BytesMut,
    /// How much of the buffer `position` is behind.
    passed: usize,
    position: Position,
    bytes_max: usize,
    drops_rest: bool,
    is_lost: bool,
}

/// Where in a sequence of objects one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Between,
    /// Inside of this many braces and brackets.
    Inside(usize),
    /// The same, in a string.
    InString(usize),
    /// The same, behind a backslash.
    Escaped(usize),
}

impl<B: Body<Data = Bytes, Error: Into<StdError>> + Unpin> Objects<B> {
    /// Objects of up to `bytes_max` bytes.
    pub(super) fn new(body: B, bytes_max: usize) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            passed: 0,
            position: Position::default(),
            bytes_max,
            drops_rest: false,
            is_lost: false,
        }
    }

    /// The next object; nothing at the end of the body.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            match self.cut() {
                Ok(Some(object)) => return Poll::Ready(Some(Ok(object))),
                Ok(None) => {}
                Err(refused) => return Poll::Ready(Some(Err(refused))),
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref()
                        && !self.drops_rest
                    {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    self.drop_rest();
                    self.is_lost = true;
                    return Poll::Ready(Some(Err(status::gateway_broken(error.into().as_ref()))));
                }
                None if self.position == Position::Between => return Poll::Ready(None),
                None => {
                    self.position = Position::Between;
                    return Poll::Ready(Some(Err(status::json_ends_early())));
                }
            }
        }
    }

    /// From here on, the body is read to its end and nothing comes of it.
    pub(super) fn drop_rest(&mut self) {
        self.drops_rest = true;
        self.position = Position::Between;
        self.buffer = BytesMut::new();
        self.passed = 0;
    }

    /// Whether the body broke off, as it does when the client has gone.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Takes an object off the front of the buffer, if it is whole.
    fn cut(&mut self) -> Result<Option<Bytes>, Status> {
        let found = self.position.pass(&self.buffer[self.passed..])?;
        let end = found.map_or(self.buffer.len(), |end| self.passed + end);
        if end > self.bytes_max {
            return Err(status::message_too_large(end, self.bytes_max));
        }
        if found.is_none() {
            if self.position == Position::Between {
                // Blanks only.
                self.buffer.clear();
            }
            self.passed = self.buffer.len();
            return Ok(None);
        }
        self.passed = 0;
        Ok(Some(self.buffer.split_to(end).freeze()))
    }
}

impl Position {
    /// Moves on over some bytes, up to the end of an object; says where that is.
    fn pass(&mut self, data: &[u8]) -> Result<Option<usize>, Status> {
        for (at, byte) in data.iter().enumerate() {
            *self = match (*self, byte) {
                (Self::Between, b' ' | b'\t' | b'\n' | b'\r') => Self::Between,
                (Self::Between, b'{') => Self::Inside(1),
                (Self::Between, other) => return Err(status::no_json_object(*other)),
                (Self::Inside(1), b'}' | b']') => {
                    *self = Self::Between;
                    return Ok(Some(at + 1));
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http_body::Frame;
    use tonic::Code;

    use super::*;

    /// A body that comes in pieces.
    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    /// All objects, and what ended them.
    fn read(pieces: VecDeque<Bytes>, bytes_max: usize) -> (Vec<String>, Option<Code>) {
        let mut objects = Objects::new(Pieces(pieces), bytes_max);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut found = Vec::new();
        loop {
            match objects.poll_next(&mut context) {
                Poll::Ready(Some(Ok(object))) => {
                    let object = String::from_utf8(object.to_vec()).unwrap();
                    found.push(object.trim().to_owned());
                }
                Poll::Ready(Some(Err(refused))) => return (found, Some(refused.code())),
                Poll::Ready(None) => return (found, None),
                Poll::Pending => panic!("the body is there"),
            }
        }
    }

    fn check(body: &str, bytes_max: usize, expected: &[&str], end: Option<Code>) {
        let whole = VecDeque::from([Bytes::copy_from_slice(body.as_bytes())]);
        let bytewise = body.bytes().map(|byte| Bytes::copy_from_slice(&[byte]));
        for pieces in [whole, bytewise.collect()] {
            let (found, ended) = read(pieces, bytes_max);
            let found: Vec<_> = found.iter().map(String::as_str).collect();
            assert_eq!((found.as_slice(), ended), (expected, end), "{body}");
        }
    }

    fn check_read(body: &str, expected: &[&str]) {
        check(body, 100, expected, None);
    }

    #[test]
    fn ht_21_a_body_may_hold_no_object_or_many() {
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
    fn what_is_no_object_is_refused() {
        let refused = Some(Code::InvalidArgument);
        check("{}x", 100, &["{}"], refused);
        check("[]", 100, &[], refused);
        check("null", 100, &[], refused);
        check(r#"{"a"#, 100, &[], refused);
        check("{} {", 100, &["{}"], refused);
    }

    #[test]
    fn an_object_above_the_limit_is_not_waited_for() {
        let refused = Some(Code::ResourceExhausted);
        check("{ }{  }", 3, &["{ }"], refused);
        check("{\"abcdefg", 3, &[], refused);
        // Blanks between objects are not kept.
        let blanks = " ".repeat(50);
        let pieces: VecDeque<_> = (blanks + "{}").bytes().map(|b| vec![b].into()).collect();
        assert_eq!(read(pieces, 3), (vec!["{}".to_owned()], None));
    }

    #[test]
    fn the_rest_is_dropped_on_request() {
        let pieces = ["{}x", "{", "{}"].map(Bytes::from);
        let mut objects = Objects::new(Pieces(pieces.into()), 100);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(
            objects.poll_next(&mut context),
            Poll::Ready(Some(Ok(_)))
        ));
        objects.drop_rest();
        assert!(matches!(objects.poll_next(&mut context), Poll::Ready(None)));
        assert!(objects.body.0.is_empty());
    }
}
