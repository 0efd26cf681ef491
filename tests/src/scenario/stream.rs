//! An open stream, and how to know that it has told everything.
//!
//! A scenario says after which step an answer comes, so after each step a stream is *settled*: it is
//! asked for something that can come only after all that the step caused. Nothing waits for silence.
//!
//! - Replies to a stream's own requests come in order, so a watch that is created and cancelled
//!   again shows that all replies before it are there.
//! - A reply to a progress request shows that all watches have told all they have (WA-55).
//! - It comes only if all watches are caught up. While one may be behind, a watch of the last
//!   revision is put beside it: history is delivered in rounds, so once that one has told what it
//!   has, the other's round is over too.
//! - It never comes while a watch waits for a future revision (WA-53), or after a compaction has
//!   ended one. Then such a watch, told last, shows what a reply would.
//!
//! The watches that are put there have an id that no scenario uses, and nothing of theirs is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _};
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use crate::poll;
use crate::scenario::wire::{Method, Transport};

/// The id of the watches that settle a stream.
const FENCE: i64 = 0x5e77_1e00_5e77_1e00;

/// The id under which a stream speaks as a whole (WA-53).
pub const WHOLE_STREAM: i64 = -1;

/// How often a progress request is repeated before the stream is held to be broken.
const PROGRESS_ATTEMPTS: usize = 60;

/// How long to wait for the answer to a progress request. Where it does not come the request was
/// dropped, because a watch without events has not caught up; etcd looks after those every 100 ms.
const PROGRESS_PATIENCE: Duration = Duration::from_secs(1);

/// What a stream tells.
#[derive(Clone, Debug)]
pub enum Told {
    /// A message.
    Message(DynamicMessage),
    /// Its end: an error, or none if all went well. Nothing follows.
    End(Option<Status>),
}

/// An open stream.
#[derive(Debug)]
pub struct Stream {
    method: Method,
    requests: Option<mpsc::UnboundedSender<Bytes>>,
    answers: mpsc::UnboundedReceiver<Told>,
    pump: JoinHandle<()>,
    watches: Watches,
    ended: bool,
}

/// What is known of the watches on a stream.
#[derive(Debug, Default)]
struct Watches {
    /// Watches that were created and have not ended, and the revision each begins with.
    live: BTreeMap<i64, i64>,
    /// The start revision of the watch that was asked for last.
    asked: i64,
    /// One of them may not have told its history yet.
    behind: bool,
    /// Watches that a compaction ended and that were not cancelled since.
    compacted: BTreeSet<i64>,
}

/// What the last step did to a stream, as far as that decides how it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A watch was asked for: there is one reply.
    Create,
    /// Another request, that may or may not have a reply.
    Other,
    /// Something outside of the stream.
    Elsewhere,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl Stream {
    /// Opens a stream; the server's side opens with its first answer.
    pub fn open(transport: &Transport, method: &Method) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let (sender, answers) = mpsc::unbounded_channel();
        let pump = pump(transport.clone(), method.clone(), receiver, sender);
        Self {
            method: method.clone(),
            requests: Some(requests),
            answers,
            pump: tokio::spawn(pump),
            watches: Watches::default(),
            ended: false,
        }
    }

    /// The method that it was opened with.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Sends a request and returns what it was, to settle by.
    ///
    /// # Errors
    /// When the client's side is closed.
    pub fn send(&mut self, request: &DynamicMessage) -> Result<Cause, String> {
        let bytes = Bytes::from(request.encode_to_vec());
        let mut cause = Cause::Other;
        if self.is_watch() {
            let union = WatchRequest::decode(bytes.clone()).ok();
            if let Some(RequestUnion::CreateRequest(create)) = union.and_then(|r| r.request_union) {
                self.watches.asked = create.start_revision;
                cause = Cause::Create;
            }
        }
        self.send_bytes(bytes)?;
        Ok(cause)
    }

    /// Ends the client's side.
    pub fn close(&mut self) {
        self.requests = None;
    }

    /// The next thing told.
    ///
    /// # Errors
    /// When nothing comes within [`poll::LIMIT`].
    pub async fn next(&mut self) -> Result<Told, String> {
        if self.ended {
            return Err("the stream has ended".to_owned());
        }
        let told = timeout(poll::LIMIT, self.answers.recv()).await;
        let told = told.map_err(|_late| "nothing came".to_owned())?;
        let told = told.unwrap_or(Told::End(None));
        self.note(&told);
        Ok(told)
    }

    /// Everything that is told until it is certain that nothing else follows from what was done.
    /// `revision` is the store's current one. A stream whose client's side is closed cannot be
    /// settled: what it tells is for [`Self::next`].
    ///
    /// # Errors
    /// When what has to come does not within [`poll::LIMIT`].
    pub async fn settle(&mut self, cause: Cause, revision: i64) -> Result<Vec<Told>, String> {
        let mut told = self.replies(cause).await?;
        // What may have been a progress request cannot be told from ours.
        let silent = cause == Cause::Other;
        told.extend(self.drain(revision, silent).await?);
        Ok(told)
    }

    /// The replies to what was sent last, with all that is told on the way.
    ///
    /// # Errors
    /// When what has to come does not within [`poll::LIMIT`].
    pub async fn replies(&mut self, cause: Cause) -> Result<Vec<Told>, String> {
        let mut told = Vec::new();
        if self.ended || self.requests.is_none() {
            return Ok(told);
        }
        match cause {
            Cause::Create => {
                self.until(&mut told, |response| response.created).await?;
            }
            Cause::Other if self.is_watch() => self.fence(&mut told, 0).await?,
            Cause::Other => told.push(self.next().await?),
            Cause::Elsewhere => {}
        }
        Ok(told)
    }

    /// All events up to now. If `silent`, without progress requests.
    ///
    /// # Errors
    /// When what has to come does not within [`poll::LIMIT`].
    pub async fn drain(&mut self, revision: i64, silent: bool) -> Result<Vec<Told>, String> {
        let mut told = Vec::new();
        if self.ended || self.requests.is_none() || !self.is_watch() {
            return Ok(told);
        }
        // Nothing happens in a store before its first write.
        let written = revision > 1;
        if written && self.watches.behind && !self.watches.live.is_empty() {
            self.fence(&mut told, revision).await?;
            self.watches.behind = false;
        }
        if self.watches.live.is_empty() {
            return Ok(told);
        }
        let future = self.watches.live.values().any(|start| *start > revision);
        if !silent && !future && self.watches.compacted.is_empty() {
            self.progress(&mut told, revision).await?;
        } else if written {
            self.fence(&mut told, revision).await?;
        }
        Ok(told)
    }

    /// Cancels the watches that a compaction has ended, which keeps their ids until then (WA-42).
    ///
    /// # Errors
    /// When the replies do not come within [`poll::LIMIT`].
    pub async fn bury(&mut self) -> Result<Vec<Told>, String> {
        if self.watches.compacted.is_empty() {
            return Ok(Vec::new());
        }
        for watch_id in self.watches.compacted.clone() {
            self.request(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }))?;
        }
        self.replies(Cause::Other).await
    }

    /// Asks for progress until it is answered.
    async fn progress(&mut self, told: &mut Vec<Told>, revision: i64) -> Result<(), String> {
        let before = told.len();
        for _ in 0..PROGRESS_ATTEMPTS {
            self.request(RequestUnion::ProgressRequest(WatchProgressRequest {}))?;
            // One that speaks of the past answers an earlier request.
            let now = |response: &WatchResponse| {
                let header = response.header.map_or(0, |header| header.revision);
                is_progress(response) && header >= revision
            };
            if let Ok(answered) = timeout(PROGRESS_PATIENCE, self.until(told, now)).await {
                let mut asked = told.split_off(before);
                asked.retain(|told| match told {
                    Told::Message(message) => !is_progress(&response_of(message)),
                    Told::End(_) => true,
                });
                told.append(&mut asked);
                return answered;
            }
        }
        Err("a progress request is not answered".to_owned())
    }

    /// Creates a watch, takes what it has to tell if it starts in history, and cancels it.
    async fn fence(&mut self, told: &mut Vec<Told>, start_revision: i64) -> Result<(), String> {
        self.request(RequestUnion::CreateRequest(WatchCreateRequest {
            key: "\0".into(),
            range_end: "\0".into(),
            start_revision,
            watch_id: FENCE,
            ..WatchCreateRequest::default()
        }))?;
        self.until(told, |response| {
            response.watch_id == FENCE && response.created
        })
        .await?;
        if start_revision > 0 {
            self.until(told, |response| response.watch_id == FENCE)
                .await?;
        }
        self.request(RequestUnion::CancelRequest(WatchCancelRequest {
            watch_id: FENCE,
        }))?;
        self.until(told, |response| {
            response.watch_id == FENCE && response.canceled
        })
        .await
    }

    /// Keeps what is told up to the first response that `last` accepts, or the stream's end.
    async fn until(
        &mut self,
        told: &mut Vec<Told>,
        last: impl Fn(&WatchResponse) -> bool,
    ) -> Result<(), String> {
        while !self.ended {
            let next = self.next().await?;
            let response = match &next {
                Told::Message(message) => response_of(message),
                Told::End(_) => WatchResponse::default(),
            };
            if response.watch_id != FENCE {
                told.push(next);
            }
            if last(&response) {
                break;
            }
        }
        Ok(())
    }

    fn note(&mut self, told: &Told) {
        match told {
            Told::Message(message) if self.is_watch() => {
                self.watches.note(&response_of(message));
            }
            Told::Message(_) => {}
            Told::End(_) => self.ended = true,
        }
    }

    fn request(&mut self, union: RequestUnion) -> Result<(), String> {
        let request = WatchRequest {
            request_union: Some(union),
        };
        self.send_bytes(request.encode_to_vec().into())
    }

    fn send_bytes(&mut self, bytes: Bytes) -> Result<(), String> {
        let requests = self.requests.as_ref().ok_or("the stream is closed")?;
        // One that nobody takes any more was sent to a stream that has ended, which will be told.
        let _ = requests.send(bytes);
        Ok(())
    }

    fn is_watch(&self) -> bool {
        self.method.name() == "Watch"
    }
}

impl Watches {
    fn note(&mut self, response: &WatchResponse) {
        if response.watch_id == FENCE {
            return;
        }
        if response.canceled {
            self.live.remove(&response.watch_id);
            if response.compact_revision != 0 {
                self.compacted.insert(response.watch_id);
            } else if !response.created {
                self.compacted.remove(&response.watch_id);
            }
        } else if response.created {
            self.live.insert(response.watch_id, self.asked);
            self.behind |= self.asked != 0;
        }
    }
}

fn is_progress(response: &WatchResponse) -> bool {
    let silent = response.events.is_empty() && !response.created && !response.canceled;
    silent && response.watch_id == WHOLE_STREAM
}

fn response_of(message: &DynamicMessage) -> WatchResponse {
    debug_assert_eq!(message.descriptor().name(), "WatchResponse");
    message.transcode_to().unwrap_or_default()
}

/// Carries requests to a server and its answers back, until either side ends.
async fn pump(
    transport: Transport,
    method: Method,
    requests: mpsc::UnboundedReceiver<Bytes>,
    answers: mpsc::UnboundedSender<Told>,
) {
    let requests = UnboundedReceiverStream::new(requests);
    let end = match transport.streaming(&method, requests).await {
        Err(status) => Some(status),
        Ok(mut stream) => loop {
            match stream.message().await {
                Ok(Some(bytes)) => {
                    let message = DynamicMessage::decode(method.output(), bytes);
                    let told = match message {
                        Ok(message) => Told::Message(message),
                        Err(error) => Told::End(Some(Status::internal(error.to_string()))),
                    };
                    if answers.send(told).is_err() {
                        return;
                    }
                }
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        },
    };
    // Nobody is interested any more if this fails.
    let _ = answers.send(Told::End(end));
}
