//! Watch streams that count the received events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{WatchCreateRequest, WatchRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};
use tokio_stream::wrappers::ReceiverStream;

use crate::BoxError;
use crate::client::Clients;

/// The maximum number of streams on one connection. Some servers allow at most 100.
const STREAMS_PER_CONNECTION: usize = 80;

/// The longest time until all watches are created.
const SETUP_TIMEOUT: Duration = Duration::from_secs(15);

/// The time without an event after which missing events count as lost.
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two checks of the number of events.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Watches on several streams. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Watchers {
    received: Arc<AtomicU64>,
    _readers: JoinSet<()>,
    /// Keeps the streams open: some servers end a stream when the client half-closes it.
    _requests: Vec<mpsc::Sender<WatchRequest>>,
}

impl Watchers {
    /// Creates `watches` watches, `per_stream` on each stream. `range` returns the key and range
    /// end of each.
    pub(crate) async fn start(
        endpoint: &str,
        watches: usize,
        per_stream: usize,
        range: impl Fn(u64) -> (Bytes, Bytes),
    ) -> Result<Self, BoxError> {
        let streams = watches.div_ceil(per_stream);
        let connections = streams.div_ceil(STREAMS_PER_CONNECTION);
        let clients = Clients::connect(endpoint, connections).await?;
        let received = Arc::new(AtomicU64::new(0));
        let (created, mut creations) = mpsc::unbounded_channel();
        let mut readers = JoinSet::new();
        let mut senders = Vec::new();
        for stream in 0..streams {
            let (sender, requests) = mpsc::channel(per_stream);
            for number in stream * per_stream..((stream + 1) * per_stream).min(watches) {
                let (key, range_end) = range(number as u64);
                let create = WatchCreateRequest {
                    key,
                    range_end,
                    ..WatchCreateRequest::default()
                };
                sender.try_send(WatchRequest {
                    request_union: Some(RequestUnion::CreateRequest(create)),
                })?;
            }
            senders.push(sender);
            let mut client =
                WatchClient::new(clients.channel(stream)).max_decoding_message_size(usize::MAX);
            let (received, created) = (received.clone(), created.clone());
            readers.spawn(async move {
                let requests = ReceiverStream::new(requests);
                let Ok(responses) = client.watch(requests).await else {
                    return;
                };
                let mut responses = responses.into_inner();
                while let Ok(Some(response)) = responses.message().await {
                    if response.created {
                        // The receiver is dropped after the timeout.
                        let _ = created.send(());
                    }
                    received.fetch_add(response.events.len() as u64, Ordering::Relaxed);
                }
            });
        }
        drop(created);
        let all = async {
            for _ in 0..watches {
                creations.recv().await.ok_or("a watch stream ended")?;
            }
            Ok::<_, BoxError>(())
        };
        time::timeout(SETUP_TIMEOUT, all).await??;
        Ok(Self {
            received,
            _readers: readers,
            _requests: senders,
        })
    }

    /// Waits until all watches together have received `events` events.
    pub(crate) async fn wait_for(&self, events: u64) -> Result<(), BoxError> {
        wait_for_events(&self.received, events, QUIET_TIMEOUT).await
    }
}

/// Waits until a counter has reached a number of events.
///
/// # Errors
/// No event has come for the time `quiet`.
pub(crate) async fn wait_for_events(
    received: &AtomicU64,
    events: u64,
    quiet: Duration,
) -> Result<(), BoxError> {
    let mut last = (0, Instant::now());
    loop {
        let received = received.load(Ordering::Relaxed);
        if received >= events {
            return Ok(());
        }
        if received > last.0 {
            last = (received, Instant::now());
        } else if last.1.elapsed() > quiet {
            return Err(format!("received {received} of {events} events").into());
        }
        time::sleep(DRAIN_POLL_INTERVAL).await;
    }
}
