//! Connections to a server, and requests on them in a closed loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::{PutRequest, RangeRequest};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::Failure;

/// Bytes in every value.
const VALUE_BYTES: usize = 256;

/// No load lasts longer, however slow the server is.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Windows that a client with much to read would ask for.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    channels: Vec<Channel>,
}

impl Clients {
    pub(crate) async fn connect(endpoint: &str, connections: usize) -> Result<Self, Failure> {
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

    /// A connection for each number, in turns.
    pub(crate) fn channel(&self, number: usize) -> Channel {
        self.channels[number % self.channels.len()].clone()
    }

    fn kv(&self, number: usize) -> KvClient<Channel> {
        KvClient::new(self.channel(number)).max_decoding_message_size(usize::MAX)
    }

    /// The current revision.
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

/// The key of a number among those of a group: 33 bytes as object keys of Kubernetes have them.
pub(crate) fn key(group: &str, number: u64) -> Bytes {
    format!("/registry/pods/default{group}/k{number:09}").into()
}

/// The end of the range of a group's keys.
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

/// A number below `bound` that looks random and depends on nothing but `number`.
pub(crate) fn scattered(number: u64, bound: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % bound
}

/// What came of a load.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Ascending.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) took: Duration,
}

impl Done {
    pub(crate) fn operations(&self) -> usize {
        self.latencies.len()
    }

    /// The latency that a share of the operations stays below.
    pub(crate) fn quantile(&self, per_mille: usize) -> Duration {
        let at =
            (self.latencies.len() * per_mille / 1_000).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(at).copied().unwrap_or_default()
    }
}

/// When a load is over, and how it is spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) in_flight: usize,
    /// Operations, or none at all to go on for the whole time.
    pub(crate) operations: Option<u64>,
    /// How long it goes on at most.
    pub(crate) lasts: Duration,
}

impl Load {
    /// So many operations.
    pub(crate) fn of(in_flight: usize, operations: u64) -> Self {
        Self {
            in_flight,
            operations: Some(operations),
            lasts: LOAD_TIMEOUT,
        }
    }

    /// As many operations as there is time for.
    pub(crate) fn during(in_flight: usize, lasts: Duration) -> Self {
        Self {
            in_flight,
            operations: None,
            lasts,
        }
    }

    /// Keeps `in_flight` operations going, which are numbered from 0 on. The first that fails ends
    /// the load.
    pub(crate) async fn run<F, O>(self, clients: &Clients, operation: F) -> Result<Done, Failure>
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
                        let begun = Instant::now();
                        if self.operations.is_some_and(|all| number >= all)
                            || begun - started > self.lasts
                        {
                            return Ok::<_, Status>(latencies);
                        }
                        operation(kv.clone(), number).await?;
                        latencies.push(begun.elapsed());
                    }
                })
            })
            .collect();
        let mut done = Done::default();
        for worker in workers {
            done.latencies.extend(worker.await??);
        }
        done.took = started.elapsed();
        done.latencies.sort_unstable();
        Ok(done)
    }
}
