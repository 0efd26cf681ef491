//! Compressed answers.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use revstore_watch_cache::RequestError;

use crate::http::{Accepted, Answer, Body, Chunks};

/// The size of an answer from which it is compressed.
const SIZE_MIN: usize = 128 << 10;

/// Compresses an answer to a get or a list if it is large and the client accepts that.
pub(crate) fn compressed(mut answer: Answer, headers: &HeaderMap) -> Answer {
    let accepted = headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    let mut accepted = accepted.unwrap_or_default().split(',').map(str::trim);
    if !accepted.any(|encoding| encoding == "gzip") {
        return answer;
    }
    let is_compressed = match answer.body {
        Body::Full(Some(bytes)) if bytes.len() >= SIZE_MIN => {
            let mut encoder = encoder();
            // Writing to memory does not fail.
            let _ = encoder.write_all(&bytes);
            answer.body = Body::from(encoder.finish().unwrap_or_default());
            true
        }
        Body::Chunks(mut chunks) => {
            // A list: its first chunks decide.
            let mut first = Vec::new();
            let mut ended = false;
            let mut context = Context::from_waker(std::task::Waker::noop());
            while first.len() < SIZE_MIN && !ended {
                match chunks.as_mut().poll_chunk(&mut context) {
                    Poll::Ready(Some(Ok(bytes))) => first.extend_from_slice(&bytes),
                    Poll::Ready(Some(Err(error))) => {
                        first.clear();
                        return Answer::error(Accepted::default(), &error.status());
                    }
                    Poll::Ready(None) | Poll::Pending => ended = true,
                }
            }
            if ended {
                answer.body = Body::from(first);
                false
            } else {
                let mut encoder = encoder();
                let _ = encoder.write_all(&first);
                answer.body = Body::chunks(GzipChunks {
                    chunks,
                    encoder: Some(encoder),
                });
                true
            }
        }
        body @ Body::Full(_) => {
            answer.body = body;
            false
        }
    };
    if is_compressed {
        answer = answer
            .header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
            .header(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    answer
}

fn encoder() -> GzEncoder<Vec<u8>> {
    // The level of kube-apiserver: speed matters more than size.
    GzEncoder::new(Vec::new(), Compression::fast())
}

/// Compressed chunks.
struct GzipChunks {
    chunks: Pin<Box<dyn Chunks>>,
    /// `None` at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Chunks for GzipChunks {
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let this = self.get_mut();
        loop {
            let Some(encoder) = &mut this.encoder else {
                return Poll::Ready(None);
            };
            match this.chunks.as_mut().poll_chunk(context) {
                Poll::Ready(Some(Ok(bytes))) => {
                    // Writing to memory does not fail.
                    let _ = encoder.write_all(&bytes);
                    if !encoder.get_ref().is_empty() {
                        let ready = std::mem::take(encoder.get_mut());
                        return Poll::Ready(Some(Ok(ready.into())));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    this.encoder = None;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    let rest = this
                        .encoder
                        .take()
                        .and_then(|encoder| encoder.finish().ok());
                    return Poll::Ready(rest.map(|rest| Ok(rest.into())));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
