//! The targets of scenarios: a real etcd, or the revstore services in this process.

use std::io;
use std::time::Duration;

use revstore_engine::{Engine, ManualClock};
use revstore_grpc::{Identity, Services};
use tonic::transport::{Channel, Endpoint};

use crate::scenario::wire::Transport;
use crate::server::etcd::Etcd;
use crate::server::{
    ADVERTISED_CLIENT_URL, ADVERTISED_PEER_URL, ELECTION_TIMEOUT, Endpoint as _,
    HEARTBEAT_INTERVAL, NAME, Options,
};

/// The cluster id that is computed from [`ADVERTISED_PEER_URL`] (DM-11).
pub const CLUSTER_ID: u64 = 14_841_639_068_965_178_418;

/// The member id that is computed from [`ADVERTISED_PEER_URL`] (DM-11).
pub const MEMBER_ID: u64 = 10_276_657_743_932_975_437;

/// The raft term of a single node that was never restarted (DM-12).
pub const RAFT_TERM: u64 = 2;

/// A kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// The real etcd, in its own process.
    Etcd,
    /// The revstore services, in this process.
    Ours,
}

/// A server with an empty store.
#[derive(Debug)]
pub struct Target {
    transport: Transport,
    time: TargetClock,
}

/// The clock of a [`Target`].
#[derive(Debug)]
enum TargetClock {
    /// The system clock. Dropping the value kills the etcd process.
    Real(#[expect(dead_code, reason = "dropping it ends the process")] Box<Etcd>),
    /// A manual clock.
    Manual(ManualClock),
}

impl Target {
    /// Starts a target. Must be called in a tokio runtime. The revstore services use only the progress
    /// interval of the options.
    ///
    /// # Errors
    /// If etcd does not start.
    pub fn fresh(kind: TargetKind, options: &Options) -> io::Result<Self> {
        match kind {
            TargetKind::Etcd => Self::etcd(options),
            TargetKind::Ours => Ok(Self::ours(options)),
        }
    }

    fn etcd(options: &Options) -> io::Result<Self> {
        let etcd = Etcd::start(options)?;
        let endpoint = Endpoint::from_shared(format!("http://{}", etcd.address()));
        let channel: Channel = endpoint.map_err(io::Error::other)?.connect_lazy();
        Ok(Self {
            transport: Transport::Remote(channel),
            time: TargetClock::Real(Box::new(etcd)),
        })
    }

    fn ours(options: &Options) -> Self {
        let clock = ManualClock::new();
        let mut engine = Engine::builder()
            .clock(clock.clone())
            .lease_ttl_min(lease_ttl_min());
        if let Some(interval) = options.watch_progress_interval {
            engine = engine.progress_interval(interval);
        }
        let identity = Identity::new(CLUSTER_ID, MEMBER_ID)
            .name(NAME)
            .peer_urls([ADVERTISED_PEER_URL])
            .client_urls([ADVERTISED_CLIENT_URL]);
        let services = Services::builder(engine.build()).identity(identity).build();
        Self {
            transport: Transport::Local(services),
            time: TargetClock::Manual(clock),
        }
    }

    /// Returns the destination of calls.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Waits for a duration, or advances the manual clock by it.
    pub async fn advance(&self, duration: Duration) {
        match &self.time {
            TargetClock::Real(_) => tokio::time::sleep(duration).await,
            TargetClock::Manual(clock) => {
                clock.advance(duration);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Returns the minimum time to live of a lease, which depends on the election timeout (LE-1).
fn lease_ttl_min() -> Duration {
    let ticks = ELECTION_TIMEOUT.as_millis() / HEARTBEAT_INTERVAL.as_millis();
    let milliseconds = 3 * ticks / 2 * HEARTBEAT_INTERVAL.as_millis();
    Duration::from_secs(u64::try_from(milliseconds.div_ceil(1000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn le_1_the_minimum_ttl_is_one_second() {
        assert_eq!(lease_ttl_min(), Duration::from_secs(1));
    }
}
