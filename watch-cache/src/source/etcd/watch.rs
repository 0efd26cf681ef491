//! A watch of an etcd cluster.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use revstore_proto::mvccpb::Event;
use revstore_proto::mvccpb::event::EventType;
use tokio::sync::{mpsc, watch};
use tonic::{Code, Request, Status, Streaming};

use super::client::{CallError, Connection, EtcdClient, Repeat, WATCH};
use super::{copied, stored};
use crate::source::{Batch, Change, SourceError};
use revstore_engine::Revision;

/// The interval at which an idle watch requests progress. Without progress the watch does not report
/// revisions that changed no key in its range.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of requests on a watch stream that the connection has not taken. If it is
/// reached, the server does not read, and progress is not requested again.
const QUEUED_REQUESTS_MAX: usize = 4;
/// The id in a response that concerns all watches of a stream.
const ALL_WATCHES: i64 = -1;

/// An open watch of etcd.
pub(super) struct EtcdWatch {
    client: Arc<EtcdClient>,
    /// The position of the endpoint.
    position: usize,
    open: OpenStream,
    progress_requests: watch::Receiver<()>,
    /// The time of the first progress request since the last response.
    unanswered: Option<Duration>,
    /// The changes of a response whose last fragment has not arrived.
    fragments: Vec<Change>,
    through: Revision,
}

/// The stream of a watch that the server has created.
struct OpenStream {
    /// Keeps the connection open.
    _connection: Connection,
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    watch_id: i64,
    /// Whether progress is requested, because the server answers with a revision up to which all
    /// events were sent.
    requests_progress: bool,
}

/// Returns whether the answer of a server of this version to a progress request follows all events up
/// to its revision. Older versions could send it earlier (etcd issue 15220).
fn is_progress_reliable(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(str::parse::<u32>);
    let mut number = || numbers.next().and_then(Result::ok);
    match (number(), number(), number()) {
        (Some(3), Some(4), Some(patch)) => patch >= 31,
        (Some(3), Some(5), Some(patch)) => patch >= 13,
        (Some(3), Some(minor), _) => minor >= 6,
        (Some(major), ..) => major > 3,
        (None, ..) => false,
    }
}

impl EtcdWatch {
    /// Opens a watch that starts after `after`. Returns when the server has created it.
    pub(super) async fn open(
        client: Arc<EtcdClient>,
        create: WatchCreateRequest,
        after: Revision,
        progress_requests: watch::Receiver<()>,
    ) -> Result<Self, CallError> {
        let create = &create;
        let calls = &*client;
        let opened = calls.over_members(Repeat::Always, |member| {
            let connection = member.own_connection();
            Box::pin(open_stream(calls, connection, create.clone()))
        });
        let (position, open) = opened.await?;
        Ok(Self {
            client,
            position,
            open,
            progress_requests,
            unanswered: None,
            fragments: Vec::new(),
            through: after,
        })
    }

    /// Returns whether progress is requested from the server of the watch.
    pub(super) fn requests_progress(&self) -> bool {
        self.open.requests_progress
    }

    /// Returns the next batch, or `None` if the server has ended the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        loop {
            let timers = &self.client.timers;
            let now = timers.now();
            let limit = self.client.request_timeout;
            if let Some(requested) = self.unanswered
                && now.saturating_sub(requested) >= limit
            {
                self.client.leave_silent(self.position);
                let text = format!("the watch did not answer a progress request within {limit:?}");
                return Err(self.failed(Status::deadline_exceeded(text)));
            }
            let response = {
                let message = pin!(self.open.responses.message());
                let requested = pin!(self.progress_requests.changed());
                let elapsed = pin!(timers.sleep_until(now + PROGRESS_INTERVAL, "progress"));
                match select(message, select(requested, elapsed)).await {
                    Either::Left((response, _)) => Some(response),
                    Either::Right(_) => None,
                }
            };
            match response {
                None => self.request_progress(),
                Some(Ok(Some(response))) => {
                    self.unanswered = None;
                    if let Some(batch) = self.batch(response).await? {
                        return Ok(Some(batch));
                    }
                }
                Some(Ok(None)) => return Ok(None),
                Some(Err(status)) => {
                    self.client.leave(self.position);
                    return Err(self.failed(status));
                }
            }
        }
    }

    fn request_progress(&mut self) {
        if !self.open.requests_progress {
            return;
        }
        // If the queue is full, the server has not read earlier requests, which is also detected by
        // the missing response. If the queue is closed, the stream has ended.
        let _ = self
            .open
            .requests
            .try_send(request(RequestUnion::ProgressRequest(
                WatchProgressRequest {},
            )));
        let now = self.client.timers.now();
        self.unanswered.get_or_insert(now);
    }

    fn failed(&self, status: Status) -> SourceError {
        SourceError::Unavailable(self.client.error(self.position, status).to_string())
    }

    async fn batch(&mut self, response: WatchResponse) -> Result<Option<Batch>, SourceError> {
        if response.compact_revision > 0 {
            return Err(SourceError::Compacted);
        }
        if ![self.open.watch_id, ALL_WATCHES].contains(&response.watch_id) {
            return Ok(None);
        }
        if response.canceled {
            let status = cancellation(&response);
            // The next watch has a new token.
            self.client.discards_token(&status).await;
            self.client.leave(self.position);
            return Err(self.failed(status));
        }
        if response.events.is_empty() && !self.fragments.is_empty() {
            // Progress between the fragments of a response, which are not complete.
            return Ok(None);
        }
        let is_progress = response.events.is_empty();
        for event in response.events {
            let change = change(event).ok_or_else(|| {
                self.failed(Status::internal("the server sent an invalid watch event"))
            })?;
            self.fragments.push(change);
        }
        if response.fragment {
            return Ok(None);
        }
        let changes = std::mem::take(&mut self.fragments);
        if changes.iter().any(|change| change.revision <= self.through) {
            // The server had reported a later revision as complete. What was applied since may lack
            // this change, so everything is read again.
            return Err(SourceError::Compacted);
        }
        let through = match changes.last() {
            Some(last) => last.revision,
            // The revision of an unrequested answer is not reliable.
            None if response.watch_id == ALL_WATCHES && !self.open.requests_progress => {
                return Ok(None);
            }
            None => Revision(response.header.map_or(0, |header| header.revision)),
        };
        if is_progress && through <= self.through {
            return Ok(None);
        }
        self.through = self.through.max(through);
        Ok(Some(Batch { through, changes }))
    }
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest {
        request_union: Some(union),
    }
}

async fn open_stream(
    client: &EtcdClient,
    mut connection: Connection,
    create: WatchCreateRequest,
) -> Result<OpenStream, Status> {
    // An endpoint that does not report its version can still be watched.
    let version = connection.version().await.unwrap_or_default();
    let (requests, mut queue) = mpsc::channel(QUEUED_REQUESTS_MAX);
    let create = request(RequestUnion::CreateRequest(create));
    requests
        .try_send(create)
        .map_err(|_| Status::internal("the queue of a new watch has no room"))?;
    let queue = futures_util::stream::poll_fn(move |context| queue.poll_recv(context));
    let queue = client.authorized(&mut connection, queue).await?;
    match create_watch(&mut connection, queue).await {
        Ok((watch_id, responses)) => Ok(OpenStream {
            _connection: connection,
            requests,
            responses,
            watch_id,
            requests_progress: is_progress_reliable(&version),
        }),
        Err(status) => {
            // The next attempt has a new token.
            client.discards_token(&status).await;
            Err(status)
        }
    }
}

/// Opens the stream and waits until the server has created the watch, whose id is returned.
async fn create_watch(
    connection: &mut Connection,
    queue: Request<impl futures_core::Stream<Item = WatchRequest> + Send + 'static>,
) -> Result<(i64, Streaming<WatchResponse>), Status> {
    let mut responses: Streaming<WatchResponse> = connection.streaming(WATCH, queue).await?;
    loop {
        let Some(response) = responses.message().await? else {
            return Err(Status::unavailable("the server ended the watch"));
        };
        if response.created {
            if response.canceled && response.compact_revision > 0 {
                return Err(Status::out_of_range(super::COMPACTED));
            }
            if response.canceled {
                return Err(cancellation(&response));
            }
            return Ok((response.watch_id, responses));
        }
        // Progress of the stream, which has no watch yet.
        if !response.events.is_empty() {
            return Err(Status::internal(
                "the server sent events of an unknown watch",
            ));
        }
    }
}

/// Returns the reason of a response that cancels a watch, as the status that it was made from.
fn cancellation(response: &WatchResponse) -> Status {
    let reason = &response.cancel_reason;
    // Before 3.5.10 a watch with an expired token ends as one without permission.
    let code = if reason.contains("permission denied") {
        Code::Unauthenticated
    } else {
        Code::Unavailable
    };
    Status::new(code, format!("the server cancelled the watch: {reason}"))
}

/// Returns the change of an event, or `None` if the event is invalid.
fn change(event: Event) -> Option<Change> {
    let kind = EventType::try_from(event.r#type).ok()?;
    let kv = event.kv?;
    Some(Change {
        key: copied(&kv.key),
        revision: Revision(kv.mod_revision),
        new: (kind == EventType::Put).then(|| stored(&kv)),
        previous: event.prev_kv.as_ref().map(stored),
    })
}

/// Whether the watches of a source request progress; see
/// [`Source::requests_progress`](crate::source::Source::requests_progress).
#[derive(Debug, Default)]
pub(super) struct ProgressSupport(AtomicBool);

impl ProgressSupport {
    // Relaxed: the flag only selects between two correct ways to read.

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, supported: bool) {
        self.0.store(supported, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::is_progress_reliable;

    #[test]
    fn progress_is_requested_from_fixed_versions_only() {
        for version in [
            "3.4.31",
            "3.5.13",
            "3.5.30",
            "3.6.0-alpha.0",
            "3.7.2",
            "4.0.0",
        ] {
            assert!(is_progress_reliable(version), "{version}");
        }
        for version in [
            "3.4.30",
            "3.5.12",
            "3.5",
            "3.3.27",
            "2.3.8",
            "",
            "not_decided",
        ] {
            assert!(!is_progress_reliable(version), "{version}");
        }
    }
}
