//! Watches that count the received events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::task::JoinSet;

use crate::BoxError;
use crate::kube::client::{Call, Connection, Version};
use crate::kube::server::ApiServer;
use crate::watchers::wait_for_events;

/// The number of watches on one connection: below the usual limit of streams.
const WATCHES_PER_CONNECTION: u64 = 80;

/// The time without an event after which missing events count as lost.
const QUIET_TIMEOUT: Duration = Duration::from_secs(10);

/// Open watches. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Watchers {
    received: Arc<AtomicU64>,
    _readers: JoinSet<()>,
    _connections: Vec<Connection>,
}

impl Watchers {
    /// Opens `count` watches of the paths that `path` returns.
    pub(crate) async fn open(
        server: &ApiServer,
        count: u64,
        path: impl Fn(u64) -> String,
    ) -> Result<Self, BoxError> {
        let received = Arc::new(AtomicU64::new(0));
        let mut readers = JoinSet::new();
        let mut connections = Vec::new();
        for number in 0..count {
            if number % WATCHES_PER_CONNECTION == 0 {
                connections.push(server.connect(Version::Http2).await?);
            }
            let connection = connections.last_mut().ok_or("no connection")?;
            let response = connection.send(Call::get(path(number))).await?;
            if !response.status().is_success() {
                return Err(format!("a watch: {}", response.status()).into());
            }
            let (received, mut body) = (received.clone(), response.into_body());
            readers.spawn(async move {
                while let Some(Ok(frame)) = body.frame().await {
                    let data = frame.into_data().unwrap_or_default();
                    let events = data.split(|byte| *byte == b'\n').skip(1).count();
                    received.fetch_add(events as u64, Ordering::Relaxed);
                }
            });
        }
        Ok(Self {
            received,
            _readers: readers,
            _connections: connections,
        })
    }

    /// Waits until all watches together have received `events` events.
    pub(crate) async fn wait_for(&self, events: u64) -> Result<(), BoxError> {
        wait_for_events(&self.received, events, QUIET_TIMEOUT).await
    }
}
