//! Open streams, and the rules by which a stream has delivered everything that a step caused.
//!
//! A scenario assigns each message to the step that caused it. So after each step a stream is *settled*: it
//! gets a request whose response can arrive only after everything that the step caused. No wait relies on
//! the absence of messages.
//!
//! - Responses to the requests of a stream arrive in order. So a watch that is created and cancelled again,
//!   the *fence*, shows that all earlier responses have arrived.
//! - The response to a progress request shows that all watches have delivered their events (WA-55).
//! - That response needs all watches to be synced. While a watch may be unsynced, a fence that starts at the
//!   last revision is created next to it: etcd delivers history in rounds, so when the fence has its events,
//!   the round of the other watch is complete too.
//! - That response never arrives while a watch starts at a future revision (WA-53), or after a compaction has
//!   cancelled a watch. Then a fence, which is delivered to last, takes its place.
//!
//! Fences have an id that no scenario uses, and their messages are not shown.

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

/// The id of the watches that serve as fences.
const FENCE: i64 = 0x5e77_1e00_5e77_1e00;

/// The id of messages that concern the whole stream (WA-53).
pub const WHOLE_STREAM: i64 = -1;

/// The number of progress requests without a response after which a stream counts as broken.
const PROGRESS_ATTEMPTS: usize = 60;

/// The wait for the response to a progress request. Without a response the request was dropped, because a
/// watch without events is unsynced; etcd syncs those every 100 ms.
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

/// The watches of a stream, as far as requests and responses show.
#[derive(Debug, Default)]
struct Watches {
    /// The watches that were created and have not ended, with their start revisions.
    live: BTreeMap<i64, i64>,
    /// The start revision of the last create request.
    requested_start: i64,
    /// Whether a watch may not have delivered its history yet.
    unsynced: bool,
    /// The watches that a compaction has cancelled and the client has not.
    compacted: BTreeSet<i64>,
}

/// The cause of messages on a stream, as far as it decides how the stream is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The stream got a request to create a watch, which has exactly one response.
    WatchCreate,
    /// The stream got another request, which may or may not have a response.
    Request,
    /// A step that does not concern the stream.
    OtherStep,
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl ClientStream {
    /// Opens a stream. The server opens its side with its first response.
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

    /// Sends a request and returns its kind, by which the stream is settled.
    ///
    /// # Errors
    /// If the client side is closed.
    pub fn send(&mut self, request: &DynamicMessage) -> Result<Trigger, String> {
        let bytes = Bytes::from(request.encode_to_vec());
        let mut trigger = Trigger::Request;
        if self.is_watch() {
            let union = WatchRequest::decode(bytes.clone()).ok();
            if let Some(RequestUnion::CreateRequest(create)) = union.and_then(|r| r.request_union) {
                self.watches.requested_start = create.start_revision;
                trigger = Trigger::WatchCreate;
            }
        }
        self.send_bytes(bytes)?;
        Ok(trigger)
    }

    /// Closes the client side.
    pub fn close(&mut self) {
        self.requests = None;
    }

    /// Waits for the next message, or the end.
    ///
    /// # Errors
    /// If nothing arrives within [`poll::LIMIT`].
    pub async fn next(&mut self) -> Result<StreamItem, String> {
        if self.ended {
            return Err("the stream has ended".to_owned());
        }
        let item = timeout(poll::LIMIT, self.items.recv()).await;
        let item = item.map_err(|_elapsed| "no message arrived".to_owned())?;
        let item = item.unwrap_or(StreamItem::End(None));
        self.observe(&item);
        Ok(item)
    }

    /// Returns all messages that a step has caused. `revision` is the current revision of the store. A stream
    /// whose client side is closed cannot be settled; its messages are left to [`Self::next`].
    ///
    /// # Errors
    /// If an expected message does not arrive within [`poll::LIMIT`].
    pub async fn settle(
        &mut self,
        trigger: Trigger,
        revision: i64,
    ) -> Result<Vec<StreamItem>, String> {
        let mut items = self.responses(trigger).await?;
        // The response to a progress request of the step would look like the response to ours.
        let without_progress = trigger == Trigger::Request;
        items.extend(self.drain(revision, without_progress).await?);
        Ok(items)
    }

    /// Returns the messages up to the response to the last request.
    ///
    /// # Errors
    /// If an expected message does not arrive within [`poll::LIMIT`].
    pub async fn responses(&mut self, trigger: Trigger) -> Result<Vec<StreamItem>, String> {
        let mut items = Vec::new();
        if self.ended || self.requests.is_none() {
            return Ok(items);
        }
        match trigger {
            Trigger::WatchCreate => {
                self.collect_until(&mut items, |response| response.created)
                    .await?;
            }
            Trigger::Request if self.is_watch() => self.fence(&mut items, 0).await?,
            Trigger::Request => items.push(self.next().await?),
            Trigger::OtherStep => {}
        }
        Ok(items)
    }

    /// Returns all events up to `revision`. With `without_progress` it sends no progress requests.
    ///
    /// # Errors
    /// If an expected message does not arrive within [`poll::LIMIT`].
    pub async fn drain(
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
            self.fence(&mut items, revision).await?;
            self.watches.unsynced = false;
        }
        if self.watches.live.is_empty() {
            return Ok(items);
        }
        let future = self.watches.live.values().any(|start| *start > revision);
        if !without_progress && !future && self.watches.compacted.is_empty() {
            self.progress(&mut items, revision).await?;
        } else if written {
            self.fence(&mut items, revision).await?;
        }
        Ok(items)
    }

    /// Cancels the watches that a compaction has cancelled; their ids stay in use until then (WA-42).
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
        self.responses(Trigger::Request).await
    }

    /// Requests progress until there is a response.
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
        Err("progress requests have no response".to_owned())
    }

    /// Creates a fence, waits for its history if it starts in the past, and cancels it.
    async fn fence(
        &mut self,
        items: &mut Vec<StreamItem>,
        start_revision: i64,
    ) -> Result<(), String> {
        self.request(RequestUnion::CreateRequest(WatchCreateRequest {
            key: "\0".into(),
            range_end: "\0".into(),
            start_revision,
            watch_id: FENCE,
            ..WatchCreateRequest::default()
        }))?;
        self.collect_until(items, |response| {
            response.watch_id == FENCE && response.created
        })
        .await?;
        if start_revision > 0 {
            self.collect_until(items, |response| response.watch_id == FENCE)
                .await?;
        }
        self.request(RequestUnion::CancelRequest(WatchCancelRequest {
            watch_id: FENCE,
        }))?;
        self.collect_until(items, |response| {
            response.watch_id == FENCE && response.canceled
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
            if response.watch_id != FENCE {
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
        let requests = self.requests.as_ref().ok_or("the stream is closed")?;
        // Sending fails if the stream has ended, which the next received item reports.
        let _ = requests.send(bytes);
        Ok(())
    }

    fn is_watch(&self) -> bool {
        self.method.name() == "Watch"
    }
}

impl Watches {
    fn observe(&mut self, response: &WatchResponse) {
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

/// Forwards requests to a server and its responses back, until either side ends.
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
