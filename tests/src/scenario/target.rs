//! The two that scenarios run against: a real etcd and our services.

use std::io;
use std::time::Duration;

use revstore_engine::{Engine, ManualClock};
use revstore_grpc::{Identity, Services};
use tonic::transport::{Channel, Endpoint};

use crate::etcd::Etcd;
use crate::scenario::wire::Transport;
use crate::server::{
    ADVERTISED_CLIENT_URL, ADVERTISED_PEER_URL, ELECTION_TIMEOUT, Endpoint as _,
    HEARTBEAT_INTERVAL, NAME, Options,
};

/// The cluster id that follows from [`ADVERTISED_PEER_URL`] (DM-11).
pub const CLUSTER_ID: u64 = 14_841_639_068_965_178_418;

/// The member id that follows from [`ADVERTISED_PEER_URL`] (DM-11).
pub const MEMBER_ID: u64 = 10_276_657_743_932_975_437;

/// The raft term of a single node that was never restarted (DM-12).
pub const RAFT_TERM: u64 = 2;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The real etcd, in a process of its own.
    Etcd,
    /// Our services, in this process.
    Ours,
}

/// A server with a fresh store.
#[derive(Debug)]
pub struct Target {
    transport: Transport,
    time: Time,
}

/// How a [`Target`]'s time passes.
#[derive(Debug)]
enum Time {
    /// By itself, in a process that ends with this value.
    Real(#[expect(dead_code, reason = "held for its end")] Box<Etcd>),
    /// As told.
    Manual(ManualClock),
}

impl Target {
    /// Starts one; of the options ours knows the interval of progress only. Must be called in a tokio
    /// runtime.
    ///
    /// # Errors
    /// When etcd does not start.
    pub fn fresh(kind: Kind, options: &Options) -> io::Result<Self> {
        match kind {
            Kind::Etcd => Self::etcd(options),
            Kind::Ours => Ok(Self::ours(options)),
        }
    }

    fn etcd(options: &Options) -> io::Result<Self> {
        let etcd = Etcd::start(options)?;
        let endpoint = Endpoint::from_shared(format!("http://{}", etcd.address()));
        let channel: Channel = endpoint.map_err(io::Error::other)?.connect_lazy();
        Ok(Self {
            transport: Transport::Remote(channel),
            time: Time::Real(Box::new(etcd)),
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
        let identity = Identity {
            cluster_id: CLUSTER_ID,
            member_id: MEMBER_ID,
            name: NAME.to_owned(),
            peer_urls: vec![ADVERTISED_PEER_URL.to_owned()],
            client_urls: vec![ADVERTISED_CLIENT_URL.to_owned()],
        };
        let services = Services::builder(engine.build()).identity(identity).build();
        Self {
            transport: Transport::Local(services),
            time: Time::Manual(clock),
        }
    }

    /// Where its calls go.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Lets a moment pass: really where time is real.
    pub async fn pass(&self, moment: Duration) {
        match &self.time {
            Time::Real(_) => tokio::time::sleep(moment).await,
            Time::Manual(clock) => {
                clock.advance(moment);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The shortest lease, which follows from the timing that every server under test has (LE-1).
fn lease_ttl_min() -> Duration {
    let ticks = ELECTION_TIMEOUT.as_millis() / HEARTBEAT_INTERVAL.as_millis();
    let milliseconds = 3 * ticks / 2 * HEARTBEAT_INTERVAL.as_millis();
    Duration::from_secs(u64::try_from(milliseconds.div_ceil(1000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn le_1_the_shortest_lease_is_one_second() {
        assert_eq!(lease_ttl_min(), Duration::from_secs(1));
    }
}
