//! One request of an HTTP/2 connection, and its response.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use http::{Response, header};
use http_body::Body;
use tracing::{debug, warn};

use crate::net::BoxError;

/// Header fields that concern one connection, which HTTP/2 forbids.
const CONNECTION_FIELDS: [header::HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HeaderName::from_static("keep-alive"),
    header::HeaderName::from_static("proxy-connection"),
];

/// The client's side of the exchange. The stream is reset when it is dropped before the end of the response, for
/// example because the service has panicked.
struct Reply {
    respond: SendResponse<Bytes>,
    has_ended: bool,
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.has_ended {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// Waits for the response of the service, and sends it. Ends early if the client resets the stream.
///
/// A response with `Connection: close` sets `is_last`: the connection accepts no further requests, as in Go.
pub(super) async fn run<F, B, E>(
    response: F,
    respond: SendResponse<Bytes>,
    is_last: Arc<AtomicBool>,
) where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    E: Into<BoxError>,
{
    let mut reply = Reply {
        respond,
        has_ended: false,
    };
    let response = {
        let mut response = pin!(response);
        poll_fn(|context| match response.as_mut().poll(context) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => reply.respond.poll_reset(context).map(|_| None),
        })
        .await
    };
    let response = match response {
        Some(Ok(response)) => response,
        Some(Err(error)) => {
            let error: BoxError = error.into();
            warn!(%error, "the service failed");
            return;
        }
        None => {
            reply.has_ended = true;
            return;
        }
    };
    let mut options = response.headers().get_all(header::CONNECTION).iter();
    if options.any(|option| option.as_bytes().eq_ignore_ascii_case(b"close")) {
        // Relaxed: the lock of the library orders it before the wake-up of the connection, which sends the response.
        is_last.store(true, Ordering::Relaxed);
    }
    if let Err(error) = send(&mut reply, response).await {
        debug!(%error, "stream failed");
    }
}

/// Sends a response.
async fn send<B>(reply: &mut Reply, response: Response<B>) -> Result<(), BoxError>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (mut parts, body) = response.into_parts();
    for field in &CONNECTION_FIELDS {
        parts.headers.remove(field);
    }
    let has_body = !body.is_end_stream();
    if has_body && let Some(bytes) = body.size_hint().exact() {
        let length = parts.headers.entry(header::CONTENT_LENGTH);
        length.or_insert_with(|| bytes.into());
    }
    let head = Response::from_parts(parts, ());
    let mut stream = reply.respond.send_response(head, !has_body)?;
    if has_body {
        let mut body = pin!(body);
        let mut chunk = None;
        poll_fn(|context| poll_send(context, &mut stream, body.as_mut(), &mut chunk)).await?;
    }
    reply.has_ended = true;
    Ok(())
}

/// A part of a body, and whether it is the last one.
type Chunk = (Bytes, bool);

/// Sends a body. It is polled for one chunk, and then for the next one when the client has room for more.
fn poll_send<B>(
    context: &mut Context<'_>,
    stream: &mut SendStream<Bytes>,
    mut body: Pin<&mut B>,
    chunk: &mut Option<Chunk>,
) -> Poll<Result<(), BoxError>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    // First, so that the body of a client that is gone is dropped, and does not see the error of the request. Also wakes the
    // task that waits for its body. To send to a stream that is reset meanwhile fails.
    if let Poll::Ready(reason) = stream.poll_reset(context)? {
        return Poll::Ready(Err(h2::Error::from(reason).into()));
    }
    loop {
        if chunk.is_some() {
            while stream.capacity() == 0 {
                match ready!(stream.poll_capacity(context)) {
                    Some(capacity) => capacity?,
                    None => return Poll::Ready(Err("the stream was closed".into())),
                };
            }
        }
        if let Some((data, is_last)) = chunk.take() {
            stream.send_data(data, is_last)?;
            if is_last {
                return Poll::Ready(Ok(()));
            }
        }
        // The body is polled before room is reserved: streams that wait for their bodies reserve nothing, and could
        // otherwise use up the window of the connection.
        let Some(frame) = ready!(body.as_mut().poll_frame(context)) else {
            stream.send_data(Bytes::new(), true)?;
            return Poll::Ready(Ok(()));
        };
        match frame.map_err(Into::into)?.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                if data.is_empty() && !is_last {
                    continue;
                }
                if data.is_empty() {
                    stream.send_data(data, true)?;
                    return Poll::Ready(Ok(()));
                }
                // The library asks for the rest when the data is sent.
                stream.reserve_capacity(1);
                *chunk = Some((data, is_last));
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    stream.reserve_capacity(0);
                    stream.send_trailers(trailers)?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}
