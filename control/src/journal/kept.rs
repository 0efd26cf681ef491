//! Requests that records keep, so that they can be sent to another server.

use bytes::Bytes;

use super::Outcome;

/// The maximum number of bytes of the body of a request that is kept.
pub const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A request as its client has sent it, and what is needed to repeat it on another server.
///
/// It has no headers but those that are named here, so it has no credentials.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptRequest {
    /// The message of a call, or the body of a request to a Kubernetes API.
    pub body: KeptBody,
    /// The rest of a request to a Kubernetes API.
    pub http: Option<KeptHttp>,
    /// Whether it is one of the requests on a stream: the creation of a watch, or a keep-alive.
    pub is_on_stream: bool,
    /// Whether the server has got it to execute it. A rule may have failed it before that.
    pub is_executed: bool,
    /// The answer of the server, which a rule may have replaced. `None` if the client has gone before it.
    pub answer: Option<KeptAnswer>,
    /// The revision of the store after it: that of the answer, or else that when it was answered.
    pub at: i64,
    /// Whether the request has made this revision.
    pub has_written: bool,
    /// The number of replacements of the store before it.
    pub store: u64,
}

/// The body of a request, or the reason why it is not kept.
#[derive(Clone, Debug, PartialEq)]
pub enum KeptBody {
    /// The bytes, which share no memory with what was received.
    Kept(Bytes),
    /// It is not kept.
    LeftOut(LeftOut),
}

/// The reason why the body of a request is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftOut {
    /// The server has not received or understood it.
    #[default]
    Unread,
    /// It is larger than [`KEPT_BYTES_MAX`].
    Size,
    /// It has a password or a token.
    Secret,
}

/// What a request to a Kubernetes API has besides its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptHttp {
    /// The method, such as `GET`.
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The header `Content-Type`.
    pub content_type: Option<String>,
    /// The header `Accept`.
    pub accept: Option<String>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptAnswer {
    /// The outcome. The text of a Kubernetes API is the message of its `Status` in JSON.
    pub outcome: Outcome,
    /// The revision in the answer.
    pub revision: Option<i64>,
    /// The HTTP status of a Kubernetes API.
    pub status: Option<u16>,
}

impl KeptBody {
    /// Returns a copy of the bytes, unless there are too many.
    pub fn copy_of(bytes: &[u8]) -> Self {
        if bytes.len() > KEPT_BYTES_MAX {
            return Self::LeftOut(LeftOut::Size);
        }
        Self::Kept(Bytes::copy_from_slice(bytes))
    }
}

impl Default for KeptBody {
    fn default() -> Self {
        Self::LeftOut(LeftOut::default())
    }
}

impl LeftOut {
    /// Returns the reason as journals have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Size => "size",
            Self::Secret => "secret",
        }
    }
}

impl KeptRequest {
    /// Estimates the memory of the request.
    pub(super) fn bytes(&self) -> usize {
        let body = match &self.body {
            KeptBody::Kept(bytes) => bytes.len(),
            KeptBody::LeftOut(_) => 0,
        };
        let http = self.http.as_ref().map_or(0, |http| {
            let headers = [&http.content_type, &http.accept];
            let headers = headers.into_iter().flatten().map(String::len);
            http.method.len() + http.path.len() + headers.sum::<usize>()
        });
        let answer = self.answer.as_ref().map_or(0, |it| it.outcome.text.len());
        size_of::<Self>() + body + http + answer
    }
}

/// Returns the message of a `Status` of a Kubernetes API in JSON, empty for other answers.
pub fn status_message(answer: &[u8]) -> String {
    let object: Option<serde_json::Value> = serde_json::from_slice(answer).ok();
    let is_status = |object: &serde_json::Value| object["kind"] == "Status";
    let message = object.filter(is_status).map(|mut it| it["message"].take());
    match message {
        Some(serde_json::Value::String(message)) => message,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_kept_up_to_their_limit() {
        let whole = vec![7; KEPT_BYTES_MAX + 1];
        assert_eq!(KeptBody::copy_of(&whole), KeptBody::LeftOut(LeftOut::Size));
        let KeptBody::Kept(kept) = KeptBody::copy_of(&whole[1..]) else {
            panic!("expected a copy");
        };
        assert_eq!(kept.len(), KEPT_BYTES_MAX);
        let request = KeptRequest {
            body: KeptBody::Kept(kept),
            ..KeptRequest::default()
        };
        assert!(request.bytes() > KEPT_BYTES_MAX);
    }

    #[test]
    fn messages_of_statuses_are_found() {
        let status = br#"{"kind":"Status","message":"no such pod"}"#;
        assert_eq!(status_message(status), "no such pod");
        for other in [
            &br#"{"kind":"Event","message":"x"}"#[..],
            b"",
            b"404",
            b"{}",
        ] {
            assert_eq!(status_message(other), "");
        }
    }
}
