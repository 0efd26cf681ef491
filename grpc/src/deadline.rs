//! Deadlines of calls: the header `grpc-timeout`, and the end of a call when its time has passed.

use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use crate::methods::{RpcKind, RpcMethod};
use crate::status::{self, EtcdError};

/// The name of the header, and of the gateway's header with the same meaning.
pub(crate) const TIMEOUT_HEADER: &str = "grpc-timeout";

/// The maximum length of a timeout: eight digits and a unit.
const TIMEOUT_BYTES_MAX: usize = 9;

/// The time by which a call must end.
///
/// A deadline that has passed before the call is handled prevents it. Afterwards, it ends a call that waits, and
/// a stream, but does not replace a result that is known: a client is not informed of a timeout if its write was
/// executed at once.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Instant,
    /// Created when the call waits for the first time. Most calls do not wait.
    sleep: Option<Pin<Box<Sleep>>>,
    method: &'static RpcMethod,
    write: WriteStart,
}

/// The start of the write of a call, in the extensions of its request if the call has a deadline. Either the
/// write starts, and its result is awaited at every deadline, or the deadline ends the call, and the write never
/// starts. A worker may start it on another thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteStart(Arc<AtomicU8>);

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const PREVENTED: u8 = 2;

impl WriteStart {
    /// Returns whether the write may start.
    pub(crate) fn start(&self) -> bool {
        self.decide(STARTED)
    }

    /// Starts the write of a call, which may have a deadline.
    ///
    /// # Errors
    /// [`EtcdError::DeadlineExceeded`] if the deadline has ended the call.
    pub(crate) fn check(start: Option<&Self>) -> Result<(), EtcdError> {
        match start {
            Some(start) if !start.start() => Err(EtcdError::DeadlineExceeded),
            _ => Ok(()),
        }
    }

    /// Returns whether the write will never start.
    fn prevent(&self) -> bool {
        self.decide(PREVENTED)
    }

    fn decide(&self, state: u8) -> bool {
        // Relaxed: only one side succeeds, and the state orders no other memory accesses.
        let decided =
            (self.0).compare_exchange(WAITING, state, Ordering::Relaxed, Ordering::Relaxed);
        decided.is_ok()
    }
}

impl Deadline {
    /// Returns the deadline of a call with this timeout; `None` if it is too far away to be reached.
    ///
    /// # Errors
    /// The timeout is malformed.
    pub(crate) fn of_call(
        timeout: &HeaderValue,
        method: &'static RpcMethod,
    ) -> Result<Option<Self>, Status> {
        // A time that the clock cannot represent is never reached.
        let at = Instant::now().checked_add(parse_header(timeout)?);
        Ok(at.map(|at| Self {
            at,
            sleep: None,
            method,
            write: WriteStart::default(),
        }))
    }

    /// Returns the start of the call's write.
    pub(crate) fn write_start(&self) -> WriteStart {
        self.write.clone()
    }

    pub(crate) fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }

    /// Polls for the deadline while the call waits.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        ready!(sleep.as_mut().poll(context));
        if self.write.prevent() {
            Poll::Ready(())
        } else {
            // The end of the write wakes the task.
            Poll::Pending
        }
    }

    /// Returns the status of a call that the deadline has ended.
    pub(crate) fn status(&self) -> Status {
        status::deadline_exceeded(self.method)
    }

    /// Ends the response at the deadline if it is a stream.
    pub(crate) fn limit(
        self,
        response: http::Response<tonic::body::Body>,
    ) -> http::Response<tonic::body::Body> {
        if self.method.kind() == RpcKind::Unary {
            return response;
        }
        response.map(|body| {
            tonic::body::Body::new(LimitedStream {
                body: Some(body),
                deadline: self,
            })
        })
    }
}

/// Returns the timeout of a call. As in Go's gRPC library, a negative timeout has passed already, and a sign is
/// accepted.
pub(crate) fn parse_header(value: &HeaderValue) -> Result<Duration, Status> {
    let value = value.as_bytes();
    if value.len() > TIMEOUT_BYTES_MAX {
        let text = format!("transport: timeout string is too long: {}", quote(value));
        return Err(status::malformed_timeout(&text));
    }
    parse(value).map_err(|error| {
        let text = match error {
            TimeoutError::TooShort => {
                format!("transport: timeout string is too short: {}", quote(value))
            }
            TimeoutError::UnknownUnit => {
                format!(
                    "transport: timeout unit is not recognized: {}",
                    quote(value)
                )
            }
            TimeoutError::NoNumber(digits) => {
                format!(
                    "strconv.ParseInt: parsing {}: invalid syntax",
                    quote(digits)
                )
            }
        };
        status::malformed_timeout(&text)
    })
}

/// The reason for which a timeout is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutError<'a> {
    TooShort,
    UnknownUnit,
    NoNumber(&'a [u8]),
}

/// Parses a number and a unit.
pub(crate) fn parse(timeout: &[u8]) -> Result<Duration, TimeoutError<'_>> {
    let Some((unit, digits)) = timeout
        .split_last()
        .filter(|(_, digits)| !digits.is_empty())
    else {
        return Err(TimeoutError::TooShort);
    };
    let unit = match unit {
        b'H' => Duration::from_secs(60 * 60),
        b'M' => Duration::from_secs(60),
        b'S' => Duration::from_secs(1),
        b'm' => Duration::from_millis(1),
        b'u' => Duration::from_micros(1),
        b'n' => Duration::from_nanos(1),
        _ => return Err(TimeoutError::UnknownUnit),
    };
    let number = str::from_utf8(digits).ok();
    let number: Option<i64> = number.and_then(|digits| digits.parse().ok());
    let number = number.ok_or(TimeoutError::NoNumber(digits))?;
    // A negative number has passed, and a number above the range of `u32` is longer than any process runs.
    let number = u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    Ok(unit.saturating_mul(number))
}

/// Quotes bytes as Go's `%q`.
fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\\' => quoted.extend(['\\', char]),
                // The only control character that a header may contain.
                '\t' => quoted.push_str("\\t"),
                _ => quoted.push(char),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted + "\""
}

/// The body of a stream that ends at a deadline.
#[derive(Debug)]
struct LimitedStream {
    /// `None` after the deadline.
    body: Option<tonic::body::Body>,
    deadline: Deadline,
}

impl Body for LimitedStream {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let stream = &mut *self;
        let Some(body) = &mut stream.body else {
            return Poll::Ready(None);
        };
        // Also checked while the stream is always ready.
        if !stream.deadline.has_passed() {
            if let ready @ Poll::Ready(_) = Pin::new(body).poll_frame(context) {
                return ready;
            }
            ready!(stream.deadline.poll(context));
        }
        stream.body = None;
        let mut trailers = HeaderMap::new();
        stream.deadline.status().add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn timeout_of(value: &[u8]) -> Result<Duration, Status> {
        parse_header(&HeaderValue::from_bytes(value).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn li_9_a_deadline_does_not_end_a_call_whose_write_has_started() {
        let timeout = HeaderValue::from_static("1S");
        let method = RpcMethod::of_path("/etcdserverpb.KV/Txn").unwrap();
        let deadline = || Deadline::of_call(&timeout, method).unwrap().unwrap();
        let (mut of_started, mut of_waiting) = (deadline(), deadline());
        assert!(of_started.write_start().start());
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(of_waiting.poll(&mut context).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(of_started.poll(&mut context).is_pending());
        assert!(of_waiting.poll(&mut context).is_ready());
        assert!(!of_waiting.write_start().start());
    }

    #[test]
    fn li_9_a_timeout_is_a_number_and_a_unit() {
        for (value, expected) in [
            ("2H", Duration::from_secs(7_200)),
            ("3M", Duration::from_secs(180)),
            ("00000001S", Duration::from_secs(1)),
            ("+4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("7n", Duration::from_nanos(7)),
            ("0S", Duration::ZERO),
            ("-1S", Duration::ZERO),
            ("99999999H", Duration::from_secs(99_999_999 * 3_600)),
        ] {
            assert_eq!(timeout_of(value.as_bytes()).unwrap(), expected, "{value}");
        }
    }

    /// The expected texts are those of etcd 3.5.16.
    #[test]
    fn li_9_a_malformed_timeout_has_the_error_of_grpc_go() {
        for (value, text) in [
            (
                &b"1x"[..],
                r#"transport: timeout unit is not recognized: "1x""#,
            ),
            (b"1s", r#"transport: timeout unit is not recognized: "1s""#),
            (
                b"1\"",
                r#"transport: timeout unit is not recognized: "1\"""#,
            ),
            (b"1%", r#"transport: timeout unit is not recognized: "1%""#),
            (b"S", r#"transport: timeout string is too short: "S""#),
            (b"5", r#"transport: timeout string is too short: "5""#),
            (b"", r#"transport: timeout string is too short: """#),
            (
                b"123456789S",
                r#"transport: timeout string is too long: "123456789S""#,
            ),
            (b"1 S", r#"strconv.ParseInt: parsing "1 ": invalid syntax"#),
            (
                b"1.5S",
                r#"strconv.ParseInt: parsing "1.5": invalid syntax"#,
            ),
            (b"S1S", r#"strconv.ParseInt: parsing "S1": invalid syntax"#),
            (
                b"1\"S",
                r#"strconv.ParseInt: parsing "1\"": invalid syntax"#,
            ),
            (
                b"\xe4S",
                r#"strconv.ParseInt: parsing "\xe4": invalid syntax"#,
            ),
        ] {
            let status = timeout_of(value).unwrap_err();
            let expected = format!("malformed grpc-timeout: {text}");
            assert_eq!(
                (status.code(), status.message()),
                (Code::Internal, &*expected)
            );
        }
    }
}
