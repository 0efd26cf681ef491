//! Connections to a server, and requests on them in a closed loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::{PutRequest, RangeRequest};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::BoxError;

/// The length of every value.
const VALUE_BYTES: usize = 256;

/// The longest time of a load with a fixed number of operations.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The HTTP/2 windows, large enough for responses with many keys.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    channels: Vec<Channel>,
}

impl Clients {
    pub(crate) async fn connect(endpoint: &str, connections: usize) -> Result<Self, BoxError> {
        let endpoint = Endpoint::from_shared(endpoint.to_owned())?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(endpoint.connect().await?);
        }
        Ok(Self { channels })
    }

    /// Returns the connection for a number, which distributes consecutive numbers over all
    /// connections.
    pub(crate) fn channel(&self, number: usize) -> Channel {
        self.channels[number % self.channels.len()].clone()
    }

    fn kv(&self, number: usize) -> KvClient<Channel> {
        KvClient::new(self.channel(number)).max_decoding_message_size(usize::MAX)
    }

    /// Returns the current revision.
    pub(crate) async fn revision(&self) -> Result<i64, Status> {
        let request = RangeRequest {
            key: key("", 0),
            ..RangeRequest::default()
        };
        let response = self.kv(0).range(request).await?.into_inner();
        Ok(response.header.map_or(0, |header| header.revision))
    }

    pub(crate) async fn compact(&self, revision: i64) -> Result<(), Status> {
        let request = revstore_proto::etcdserverpb::CompactionRequest {
            revision,
            physical: false,
        };
        self.kv(0).compact(request).await?;
        Ok(())
    }
}

/// Returns the key with a number in a group of keys: 33 bytes, like the object keys of Kubernetes.
pub(crate) fn key(group: &str, number: u64) -> Bytes {
    format!("/registry/pods/default{group}/k{number:09}").into()
}

/// Returns the end of the range of the keys of a group.
pub(crate) fn end(group: &str) -> Bytes {
    format!("/registry/pods/default{group}/l").into()
}

pub(crate) fn value() -> Bytes {
    Bytes::from_static(&[b'v'; VALUE_BYTES])
}

pub(crate) fn put(group: &str, number: u64) -> PutRequest {
    PutRequest {
        key: key(group, number),
        value: value(),
        ..PutRequest::default()
    }
}

/// Returns a pseudo-random number below `bound` that depends only on `number`.
pub(crate) fn scattered(number: u64, bound: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % bound
}

/// The latencies and the duration of a load.
#[derive(Debug, Default)]
pub(crate) struct LoadResult {
    /// The latencies of all operations, ascending.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) duration: Duration,
}

impl LoadResult {
    pub(crate) fn operations(&self) -> usize {
        self.latencies.len()
    }

    /// Returns the latency that `per_mille` of the operations do not exceed.
    pub(crate) fn quantile(&self, per_mille: usize) -> Duration {
        let index =
            (self.latencies.len() * per_mille / 1_000).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(index).copied().unwrap_or_default()
    }
}

/// The number, concurrency and duration of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) in_flight: usize,
    /// The number of operations, or `None` for as many as `time_limit` allows.
    pub(crate) operations: Option<u64>,
    /// The time after which no operation is started.
    pub(crate) time_limit: Duration,
}

impl Load {
    /// Creates a load with a fixed number of operations.
    pub(crate) fn of(in_flight: usize, operations: u64) -> Self {
        Self {
            in_flight,
            operations: Some(operations),
            time_limit: LOAD_TIMEOUT,
        }
    }

    /// Creates a load with a fixed duration.
    pub(crate) fn during(in_flight: usize, time_limit: Duration) -> Self {
        Self {
            in_flight,
            operations: None,
            time_limit,
        }
    }

    /// Keeps `in_flight` operations in progress. They are numbered from 0 on.
    ///
    /// # Errors
    /// Returns the error of the first operation that fails.
    pub(crate) async fn run<F, O>(
        self,
        clients: &Clients,
        operation: F,
    ) -> Result<LoadResult, BoxError>
    where
        F: Fn(KvClient<Channel>, u64) -> O + Clone + Send + 'static,
        O: Future<Output = Result<(), Status>> + Send,
    {
        let started = Instant::now();
        let next = Arc::new(AtomicU64::new(0));
        let workers: Vec<_> = (0..self.in_flight)
            .map(|worker| {
                let (kv, next, operation) = (clients.kv(worker), next.clone(), operation.clone());
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let sent = Instant::now();
                        if self.operations.is_some_and(|count| number >= count)
                            || sent - started > self.time_limit
                        {
                            return Ok::<_, Status>(latencies);
                        }
                        operation(kv.clone(), number).await?;
                        latencies.push(sent.elapsed());
                    }
                })
            })
            .collect();
        let mut result = LoadResult::default();
        for worker in workers {
            result.latencies.extend(worker.await??);
        }
        result.duration = started.elapsed();
        result.latencies.sort_unstable();
        Ok(result)
    }
}
