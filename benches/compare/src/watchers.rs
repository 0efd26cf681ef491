//! Streams of watches that count the events they are told.

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

use crate::Failure;
use crate::client::Clients;

/// Streams on one connection: some servers allow no more than a hundred.
const STREAMS_PER_CONNECTION: usize = 80;

/// How long watches may take to be created.
const SETUP_TIMEOUT: Duration = Duration::from_secs(15);

/// How long events may fail to come before they count as lost.
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks at how many came.
const DRAIN_PAUSE: Duration = Duration::from_millis(5);

/// Watches on several streams. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Watchers {
    told: Arc<AtomicU64>,
    _readers: JoinSet<()>,
    /// Streams end when the client's half does.
    _requests: Vec<mpsc::Sender<WatchRequest>>,
}

impl Watchers {
    /// Creates `watches` of the range that `range` names for each number, `per_stream` on a stream.
    pub(crate) async fn start(
        endpoint: &str,
        watches: usize,
        per_stream: usize,
        range: impl Fn(u64) -> (Bytes, Bytes),
    ) -> Result<Self, Failure> {
        let streams = watches.div_ceil(per_stream);
        let connections = streams.div_ceil(STREAMS_PER_CONNECTION);
        let clients = Clients::connect(endpoint, connections).await?;
        let told = Arc::new(AtomicU64::new(0));
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
            let (told, created) = (told.clone(), created.clone());
            readers.spawn(async move {
                let requests = ReceiverStream::new(requests);
                let Ok(responses) = client.watch(requests).await else {
                    return;
                };
                let mut responses = responses.into_inner();
                while let Ok(Some(response)) = responses.message().await {
                    if response.created {
                        // Whoever waits has given up otherwise.
                        let _ = created.send(());
                    }
                    told.fetch_add(response.events.len() as u64, Ordering::Relaxed);
                }
            });
        }
        drop(created);
        let all = async {
            for _ in 0..watches {
                creations.recv().await.ok_or("a watch stream ended")?;
            }
            Ok::<_, Failure>(())
        };
        time::timeout(SETUP_TIMEOUT, all).await??;
        Ok(Self {
            told,
            _readers: readers,
            _requests: senders,
        })
    }

    /// Waits until all watches together were told of `events`.
    pub(crate) async fn wait_for(&self, events: u64) -> Result<(), Failure> {
        let mut last = (0, Instant::now());
        loop {
            let told = self.told.load(Ordering::Relaxed);
            if told >= events {
                return Ok(());
            }
            if told > last.0 {
                last = (told, Instant::now());
            } else if last.1.elapsed() > QUIET_TIMEOUT {
                return Err(format!("{told} of {events} events came").into());
            }
            time::sleep(DRAIN_PAUSE).await;
        }
    }
}
