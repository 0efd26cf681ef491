//! Compressed answers.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};

use crate::http::{Answer, Body};
use crate::stream::SIZE_MIN;

/// Returns whether a client accepts compressed answers.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    let mut accepted = accepted.unwrap_or_default().split(',').map(str::trim);
    accepted.any(|encoding| encoding == "gzip")
}

/// Returns an answer whose body is compressed.
pub(crate) fn marked(answer: Answer) -> Answer {
    answer
        .header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        .header(VARY, HeaderValue::from_static("Accept-Encoding"))
}

/// Compresses an answer to a get if it is large and the client accepts that.
pub(crate) fn compressed(mut answer: Answer, headers: &HeaderMap) -> Answer {
    match &answer.body {
        Body::Full(Some(bytes)) if bytes.len() >= SIZE_MIN && is_accepted(headers) => {
            // The level of kube-apiserver: speed matters more than size.
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            // Writing to memory does not fail.
            let _ = encoder.write_all(bytes);
            answer.body = Body::from(encoder.finish().unwrap_or_default());
            marked(answer)
        }
        _ => answer,
    }
}
