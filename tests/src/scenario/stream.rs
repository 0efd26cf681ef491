//! Client streams of a scenario. After each step, a stream is drained of all messages that the step caused.
//!
//! A scenario assigns each message to the step that caused it. To drain a stream, the client sends a request
//! whose response arrives after all messages of the step. It never relies on a timeout to conclude that no
//! more messages follow. The request depends on the step and on the watches of the stream:
//!
//! 1. The step sent a request that may have no response: the client creates a *barrier watch* and cancels it.
//!    A server responds to the requests of a stream in order, so the response to the cancel request is the
//!    last one. (A create request always has a response.)
//! 2. All watches are synced: the client requests progress. The server responds after it has sent the events
//!    of all watches of the stream (WA-55).
//! 3. A watch may be unsynced: the server drops progress requests until the watch is synced. The client first
//!    creates a barrier watch that starts at the current revision. etcd sends the history of all unsynced
//!    watches in rounds, so when the events of the barrier watch arrive, the round of the other watch is
//!    complete.
//! 4. A watch starts at a future revision (WA-53), or a compaction has cancelled a watch: the server never
//!    responds to a progress request. The client creates a barrier watch that starts at the current revision.
//!    Its events arrive last.
//!
//! The barrier watch has an id that no scenario uses. Its messages are not part of the scenario.

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

/// The id of barrier watches.
const BARRIER_WATCH_ID: i64 = 0x5e77_1e00_5e77_1e00;

/// The watch id in messages that concern the whole stream (WA-53).
pub const WHOLE_STREAM: i64 = -1;

/// The number of progress requests without a response after which the test fails.
const PROGRESS_ATTEMPTS: usize = 60;

/// The time limit for the response to a progress request. etcd drops the request while a watch is unsynced,
/// which may be a watch without events. It syncs watches every 100 ms.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// A message of a stream, or its end.
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// A message.
    Message(DynamicMessage),
    /// The end of the stream: an error, or `None` for OK. Nothing follows.
    End(Option<Status>),
}

/// An open stream.
#[derive(Debug)]
pub struct ClientStream {
    method: Method,
    requests: Option<mpsc::UnboundedSender<Bytes>>,
    items: mpsc::UnboundedReceiver<StreamItem>,
    forwarder: JoinHandle<()>,
    watches: Watches,
    ended: bool,
}

/// The watches of a stream, derived from its requests and responses.
#[derive(Debug, Default)]
struct Watches {
    /// The start revisions of the watches that were created and not cancelled, by watch id.
    live: BTreeMap<i64, i64>,
    /// The start revision of the last create request.
    requested_start: i64,
    /// Whether a watch may not have delivered its history yet.
    unsynced: bool,
    /// The ids of the watches that a compaction has cancelled and the client has not cancelled yet.
    compacted: BTreeSet<i64>,
}

/// The kind of step that was executed; it selects how the stream is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The client sent a request to create a watch, which has exactly one response.
    WatchCreate,
    /// The client sent another request, which may or may not have a response.
    Request,
    /// The client sent nothing on the stream.
    OtherStep,
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl ClientStream {
    /// Opens a stream. Its connection is established in the background: a server may send the response
    /// headers only with its first message.
    pub fn open(transport: &Transport, method: &Method) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let (sender, items) = mpsc::unbounded_channel();
        let forward = forward(transport.clone(), method.clone(), receiver, sender);
        Self {
            method: method.clone(),
            requests: Some(requests),
            items,
            forwarder: tokio::spawn(forward),
            watches: Watches::default(),
            ended: false,
        }
    }

    /// Returns the method of the stream.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Sends a request and returns its kind, which selects how the stream is drained.
    ///
    /// # Errors
    /// If the client has closed its side of the stream.
    pub fn send(&mut self, request: &DynamicMessage) -> Result<StepKind, String> {
        let bytes = Bytes::from(request.encode_to_vec());
        let mut step = StepKind::Request;
        if self.is_watch() {
            let union = WatchRequest::decode(bytes.clone()).ok();
            if let Some(RequestUnion::CreateRequest(create)) = union.and_then(|r| r.request_union) {
                self.watches.requested_start = create.start_revision;
                step = StepKind::WatchCreate;
            }
        }
        self.send_bytes(bytes)?;
        Ok(step)
    }

    /// Closes the client's side of the stream.
    pub fn close(&mut self) {
        self.requests = None;
    }

    /// Waits for the next message, or the end of the stream.
    ///
    /// # Errors
    /// If no message arrives within [`poll::LIMIT`], or the stream has ended before.
    pub async fn next(&mut self) -> Result<StreamItem, String> {
        if self.ended {
            return Err("the stream has ended".to_owned());
        }
        let item = timeout(poll::LIMIT, self.items.recv())
            .await
            .map_err(|_elapsed| format!("no message within {} s", poll::LIMIT.as_secs()))?;
        let item = item.unwrap_or(StreamItem::End(None));
        self.observe(&item);
        Ok(item)
    }

    /// Returns all messages that a step has caused. `revision` is the current revision of the store. Returns
    /// no messages if the client has closed its side of the stream; [`Self::next`] returns them.
    ///
    /// # Errors
    /// If an expected message does not arrive within [`poll::LIMIT`].
    pub async fn drain(
        &mut self,
        step: StepKind,
        revision: i64,
    ) -> Result<Vec<StreamItem>, String> {
        let mut items = self.responses(step).await?;
        // The response to a progress request of the step would look like the response to ours.
        let without_progress = step == StepKind::Request;
        items.extend(self.drain_events(revision, without_progress).await?);
        Ok(items)
    }

    /// Returns the messages up to the response to the last request.
    ///
    /// # Errors
    /// If an expected message does not arrive within [`poll::LIMIT`].
    pub async fn responses(&mut self, step: StepKind) -> Result<Vec<StreamItem>, String> {
        let mut items = Vec::new();
        if self.ended || self.requests.is_none() {
            return Ok(items);
        }
        match step {
            StepKind::WatchCreate => {
                self.collect_until(&mut items, |response| response.created)
                    .await?;
            }
            StepKind::Request if self.is_watch() => self.barrier(&mut items, 0).await?,
            StepKind::Request => items.push(self.next().await?),
            StepKind::OtherStep => {}
        }
        Ok(items)
    }

    /// Returns all events up to `revision`. If `without_progress` is true, the client sends no progress
    /// requests.
    ///
    /// # Errors
    /// If an expected message does not arrive within [`poll::LIMIT`].
    pub async fn drain_events(
        &mut self,
        revision: i64,
        without_progress: bool,
    ) -> Result<Vec<StreamItem>, String> {
        let mut items = Vec::new();
        if self.ended || self.requests.is_none() || !self.is_watch() {
            return Ok(items);
        }
        // A store at revision 1 has no events.
        let written = revision > 1;
        if written && self.watches.unsynced && !self.watches.live.is_empty() {
            self.barrier(&mut items, revision).await?;
            self.watches.unsynced = false;
        }
        if self.watches.live.is_empty() {
            return Ok(items);
        }
        let future = self.watches.live.values().any(|start| *start > revision);
        if !without_progress && !future && self.watches.compacted.is_empty() {
            self.progress(&mut items, revision).await?;
        } else if written {
            self.barrier(&mut items, revision).await?;
        }
        Ok(items)
    }

    /// Cancels the watches that a compaction has cancelled. The server does not free their ids before
    /// (WA-42).
    ///
    /// # Errors
    /// If the responses do not arrive within [`poll::LIMIT`].
    pub async fn release_compacted(&mut self) -> Result<Vec<StreamItem>, String> {
        if self.watches.compacted.is_empty() {
            return Ok(Vec::new());
        }
        for watch_id in self.watches.compacted.clone() {
            self.request(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }))?;
        }
        self.responses(StepKind::Request).await
    }

    /// Sends progress requests until a response arrives.
    async fn progress(&mut self, items: &mut Vec<StreamItem>, revision: i64) -> Result<(), String> {
        let before = items.len();
        for _ in 0..PROGRESS_ATTEMPTS {
            self.request(RequestUnion::ProgressRequest(WatchProgressRequest {}))?;
            // A response with an older revision belongs to an earlier request.
            let is_current = |response: &WatchResponse| {
                let header = response.header.map_or(0, |header| header.revision);
                is_progress(response) && header >= revision
            };
            if let Ok(result) =
                timeout(PROGRESS_TIMEOUT, self.collect_until(items, is_current)).await
            {
                let mut added = items.split_off(before);
                added.retain(|item| match item {
                    StreamItem::Message(message) => !is_progress(&response_of(message)),
                    StreamItem::End(_) => true,
                });
                items.append(&mut added);
                return result;
            }
        }
        Err(format!(
            "no response to {PROGRESS_ATTEMPTS} progress requests, each within {} s",
            PROGRESS_TIMEOUT.as_secs()
        ))
    }

    /// Creates a barrier watch, waits for its events if `start_revision` is positive, and cancels it.
    async fn barrier(
        &mut self,
        items: &mut Vec<StreamItem>,
        start_revision: i64,
    ) -> Result<(), String> {
        self.request(RequestUnion::CreateRequest(WatchCreateRequest {
            key: "\0".into(),
            range_end: "\0".into(),
            start_revision,
            watch_id: BARRIER_WATCH_ID,
            ..WatchCreateRequest::default()
        }))?;
        self.collect_until(items, |response| {
            response.watch_id == BARRIER_WATCH_ID && response.created
        })
        .await?;
        if start_revision > 0 {
            self.collect_until(items, |response| response.watch_id == BARRIER_WATCH_ID)
                .await?;
        }
        self.request(RequestUnion::CancelRequest(WatchCancelRequest {
            watch_id: BARRIER_WATCH_ID,
        }))?;
        self.collect_until(items, |response| {
            response.watch_id == BARRIER_WATCH_ID && response.canceled
        })
        .await
    }

    /// Collects messages up to the first one for which `is_last` returns true, or to the end of the stream.
    async fn collect_until(
        &mut self,
        items: &mut Vec<StreamItem>,
        is_last: impl Fn(&WatchResponse) -> bool,
    ) -> Result<(), String> {
        while !self.ended {
            let next = self.next().await?;
            let response = match &next {
                StreamItem::Message(message) => response_of(message),
                StreamItem::End(_) => WatchResponse::default(),
            };
            if response.watch_id != BARRIER_WATCH_ID {
                items.push(next);
            }
            if is_last(&response) {
                break;
            }
        }
        Ok(())
    }

    fn observe(&mut self, item: &StreamItem) {
        match item {
            StreamItem::Message(message) if self.is_watch() => {
                self.watches.observe(&response_of(message));
            }
            StreamItem::Message(_) => {}
            StreamItem::End(_) => self.ended = true,
        }
    }

    fn request(&mut self, union: RequestUnion) -> Result<(), String> {
        let request = WatchRequest {
            request_union: Some(union),
        };
        self.send_bytes(request.encode_to_vec().into())
    }

    fn send_bytes(&mut self, bytes: Bytes) -> Result<(), String> {
        let requests = self
            .requests
            .as_ref()
            .ok_or("the client has closed its side of the stream")?;
        // Sending fails if the stream has ended; the next received item is the end.
        let _ = requests.send(bytes);
        Ok(())
    }

    fn is_watch(&self) -> bool {
        self.method.name() == "Watch"
    }
}

impl Watches {
    fn observe(&mut self, response: &WatchResponse) {
        if response.watch_id == BARRIER_WATCH_ID {
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
            self.live.insert(response.watch_id, self.requested_start);
            self.unsynced |= self.requested_start != 0;
        }
    }
}

fn is_progress(response: &WatchResponse) -> bool {
    let is_empty = response.events.is_empty() && !response.created && !response.canceled;
    is_empty && response.watch_id == WHOLE_STREAM
}

fn response_of(message: &DynamicMessage) -> WatchResponse {
    debug_assert_eq!(message.descriptor().name(), "WatchResponse");
    message.transcode_to().unwrap_or_default()
}

/// Forwards requests to a server and responses from it until either side ends.
async fn forward(
    transport: Transport,
    method: Method,
    requests: mpsc::UnboundedReceiver<Bytes>,
    items: mpsc::UnboundedSender<StreamItem>,
) {
    let requests = UnboundedReceiverStream::new(requests);
    let end = match transport.streaming(&method, requests).await {
        Err(status) => Some(status),
        Ok(mut stream) => loop {
            match stream.message().await {
                Ok(Some(bytes)) => {
                    let message = DynamicMessage::decode(method.output(), bytes);
                    let item = match message {
                        Ok(message) => StreamItem::Message(message),
                        Err(error) => StreamItem::End(Some(Status::internal(error.to_string()))),
                    };
                    if items.send(item).is_err() {
                        return;
                    }
                }
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        },
    };
    // Sending fails if the stream was dropped.
    let _ = items.send(StreamItem::End(end));
}
