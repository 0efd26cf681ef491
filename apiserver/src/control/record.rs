//! The record of a request in the journal, and the body of its answer, until whose end the request counts as under way.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderName;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http_body_util::{BodyExt as _, Collected, Limited};
use memchr::memmem;
use revstore_control::call::FrontObject;
use revstore_control::fault::{RuleId, code_of_http};
use revstore_control::journal::{
    Event, KEPT_BYTES_MAX, KeptAnswer, KeptBody, KeptHttp, KeptRequest, LeftOut, Outcome, Record,
    status_message,
};
use revstore_control::open::{Connection, Work};
use revstore_host::net::{BodyCopy, BodyRead, RequestBody};
use revstore_watch_cache::{RequestError, Revision};
use serde::Deserialize;
use tokio::time::timeout;

use super::Interceptor;
use super::stage::StagedFront;
use crate::decode::MAX_BODY_BYTES;
use crate::http::{Answer, Body, Chunks};

/// The bytes of an answer among which its resource version is looked for.
const VERSION_BYTES: usize = 4096;

/// The time in which the body of a creation must arrive whose answer has its name.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Who sends a request, and what it is about.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(super) client: Option<Arc<str>>,
    pub(super) user: Option<Arc<str>>,
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) object: Arc<FrontObject>,
}

/// The record of a request, which is appended when this is dropped.
#[derive(Debug)]
pub(super) struct RequestRecord {
    pub(super) interceptor: Interceptor,
    pub(super) sender: Sender,
    begun: Instant,
    time: Duration,
    pub(super) rule: Option<RuleId>,
    /// `None` until there is an answer: the client may go before.
    status: Option<u16>,
    revision: Option<i64>,
    /// Whether a watch was opened, whose end has a record of its own.
    pub(super) is_watch_open: Arc<AtomicBool>,
    /// `None` after the record was appended.
    kept: Option<Box<KeptRequest>>,
    body: BodyCopy,
    /// The revision before the front got the request.
    before: Revision,
}

impl RequestRecord {
    pub(super) fn new(interceptor: Interceptor, sender: Sender, parts: &Parts) -> Self {
        let header = |name: HeaderName| {
            let value = parts.headers.get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let path = parts.uri.path_and_query();
        let kept = KeptRequest {
            http: Some(KeptHttp {
                method: parts.method.to_string(),
                path: path.map_or_else(|| "/".to_owned(), ToString::to_string),
                content_type: header(CONTENT_TYPE),
                accept: header(ACCEPT),
            }),
            is_on_stream: sender.object.verb == "watch",
            store: interceptor.journal.store(),
            ..KeptRequest::default()
        };
        Self {
            kept: Some(Box::new(kept)),
            body: BodyCopy::new(KEPT_BYTES_MAX),
            before: Revision(0),
            time: interceptor.delays.now(),
            interceptor,
            sender,
            begun: Instant::now(),
            rule: None,
            status: None,
            revision: None,
            is_watch_open: Arc::default(),
        }
    }

    /// Returns the body, of which the journal keeps what the front reads.
    pub(super) fn copy(&self, body: RequestBody) -> RequestBody {
        body.copied_to(self.body.clone())
    }

    /// Notes for the journal that the front gets the request now, at this revision.
    pub(super) fn set_executed(&mut self, before: Revision) {
        self.before = before;
        if let Some(kept) = &mut self.kept {
            kept.is_executed = true;
        }
    }

    /// Returns the request for the record of a watch that is opened, `None` for other requests.
    pub(super) fn opened_watch(&self) -> Option<Box<KeptRequest>> {
        let kept = self.kept.as_ref().filter(|kept| kept.is_on_stream)?;
        Some(Box::new(KeptRequest {
            body: KeptBody::Kept(Bytes::new()),
            answer: Some(KeptAnswer {
                outcome: Outcome::success(),
                revision: None,
                status: Some(200),
            }),
            ..KeptRequest::clone(kept)
        }))
    }

    /// Notes the answer of the front for the journal, which was made up to this revision.
    pub(super) fn set_answer(&mut self, answer: &Answer, current: Revision) {
        let before = self.before.0;
        let Some(kept) = &mut self.kept else {
            return;
        };
        let bytes = match &answer.body {
            Body::Full(Some(bytes)) => &bytes[..],
            Body::Full(None) | Body::Chunks(_) => &[],
        };
        let status = answer.status.as_u16();
        let is_success = answer.status.is_success();
        let is_write = matches!(
            self.sender.object.verb,
            "create" | "update" | "patch" | "delete" | "deletecollection"
        );
        // An object that was not changed has an earlier version.
        let revision = version_of(bytes);
        let made = revision.filter(|it| is_write && is_success && *it > before);
        kept.at = made.unwrap_or(current.0);
        kept.has_written = made.is_some() || (is_write && is_success && current.0 > before);
        kept.answer = Some(KeptAnswer {
            outcome: Outcome {
                code: code_of_http(status),
                text: if is_success {
                    String::new()
                } else {
                    status_message(bytes)
                },
            },
            revision,
            status: Some(status),
        });
    }

    /// Takes the request for the journal.
    fn take_kept(&mut self) -> Option<Box<KeptRequest>> {
        let mut kept = self.kept.take()?;
        // A review of a token has it in its body.
        let has_secret = self.sender.object.resource.starts_with("tokenreviews");
        kept.body = match self.body.take() {
            _ if has_secret => KeptBody::LeftOut(LeftOut::Secret),
            BodyRead::Whole(bytes) => KeptBody::Kept(bytes),
            BodyRead::Larger => KeptBody::LeftOut(LeftOut::Size),
            BodyRead::Part => KeptBody::LeftOut(LeftOut::Unread),
        };
        Some(kept)
    }

    /// Finds the resource version at the beginning of an answer in JSON.
    fn look_at(&mut self, bytes: &[u8]) {
        if self.revision.is_none() {
            self.revision = version_of(bytes);
        }
    }
}

fn version_of(bytes: &[u8]) -> Option<i64> {
    const FIELD: &[u8] = b"\"resourceVersion\":\"";
    let head = &bytes[..bytes.len().min(VERSION_BYTES)];
    let at = memmem::find(head, FIELD)?;
    let digits = head[at + FIELD.len()..].iter();
    let digits: String = digits
        .take_while(|byte| byte.is_ascii_digit())
        .map(|byte| char::from(*byte))
        .collect();
    digits.parse().ok()
}

impl RequestRecord {
    /// Takes the name and the revision of a created object from the answer, whose path has no name.
    fn look_at_created(&mut self, bytes: &[u8]) {
        if self.sender.object.verb != "create" || !self.sender.object.name.is_empty() {
            return;
        }
        let Some(metadata) = metadata_of(bytes) else {
            return;
        };
        self.revision = metadata.resource_version.parse().ok().or(self.revision);
        let mut object = FrontObject::clone(&self.sender.object);
        object.name = metadata.name;
        self.sender.object = Arc::new(object);
    }
}

/// The fields of the metadata of an answer that records have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
}

/// Returns the metadata of an object in JSON or protobuf; `None` for another answer.
fn metadata_of(bytes: &[u8]) -> Option<Metadata> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    const PROTOBUF: &[u8] = b"k8s\0";
    let object: Object = if bytes.starts_with(PROTOBUF) {
        let object = revstore_kinds::from_protobuf(bytes).ok()?;
        serde_json::from_value(object).ok()?
    } else {
        serde_json::from_slice(bytes).ok()?
    };
    Some(object.metadata)
}

/// Returns the name of the object in the body of a creation, empty if there is none in time.
pub(super) async fn created_name(body: &mut RequestBody) -> String {
    let read = timeout(BODY_TIME, Limited::new(body, MAX_BODY_BYTES).collect()).await;
    let bytes = read.ok().and_then(Result::ok).map(Collected::to_bytes);
    let metadata = bytes.and_then(|bytes| metadata_of(&bytes));
    metadata.map_or_else(String::new, |metadata| metadata.name)
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if self.is_watch_open.load(Ordering::Relaxed) {
            return;
        }
        let outcome = self.status.map(|status| Outcome {
            code: code_of_http(status),
            text: String::new(),
        });
        let request = self.take_kept();
        self.interceptor.journal.append(Record {
            time: self.time,
            event: Event::Request,
            method: self.sender.object.verb,
            client: self.sender.client.clone(),
            user: self.sender.user.clone(),
            connection: self.sender.connection.as_ref().map(|it| it.id()),
            outcome,
            revision: self.revision,
            duration: self.begun.elapsed(),
            rule: self.rule,
            front: Some(self.sender.object.clone()),
            status: self.status,
            request,
            ..Record::default()
        });
    }
}

/// Returns an answer whose body counts as under way until it has ended, and then appends the record. An answer whose
/// bytes are all there counts until now.
pub(super) fn finished(
    mut answer: Answer,
    mut record: RequestRecord,
    work: Work,
    staged: Arc<StagedFront>,
) -> Answer {
    record.status = Some(answer.status.as_u16());
    answer.body = match answer.body {
        Body::Chunks(chunks) => Body::chunks(Recorded {
            chunks: Some(chunks),
            record,
            work,
            _staged: staged,
        }),
        Body::Full(bytes) => {
            let content = bytes.as_deref().unwrap_or_default();
            record.look_at(content);
            if answer.status.is_success() {
                record.look_at_created(content);
            }
            Body::Full(bytes)
        }
    };
    answer
}

/// Chunks of an answer with its record.
struct Recorded {
    /// `None` after the end.
    chunks: Option<Pin<Box<dyn Chunks>>>,
    record: RequestRecord,
    work: Work,
    /// The front lives as long as its answers.
    _staged: Arc<StagedFront>,
}

impl Chunks for Recorded {
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let this = self.get_mut();
        let Some(chunks) = &mut this.chunks else {
            return Poll::Ready(None);
        };
        this.work.resume();
        let polled = chunks.as_mut().poll_chunk(context);
        match &polled {
            // It waits for the store, the clock or a command, or for a thread that makes a list, which is short.
            Poll::Pending => this.work.park(),
            // The connection asks for the next chunk when it has taken this one.
            Poll::Ready(Some(Ok(bytes))) => this.record.look_at(bytes),
            Poll::Ready(_) => {
                this.work.park();
                this.chunks = None;
            }
        }
        polled
    }
}
