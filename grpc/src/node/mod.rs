//! The node: the state that all services share.
//!
//! [`Node`] contains the engine, the limits, the alarms, the users and roles, counters and the
//! shutdown signal, like `EtcdServer` in etcd. `admission` checks the requests that change it.

pub(crate) mod admission;
pub(crate) mod buckets;
pub(crate) mod compaction_log;
pub(crate) mod counters;
pub(crate) mod durability;
pub(crate) mod identity;
pub(crate) mod members;
pub(crate) mod shutdown;
mod signal;
pub(crate) mod slow;
pub(crate) mod state;
pub(crate) mod version;
pub(crate) mod wake_filter;

use std::sync::Arc;
use std::time::Duration;

use revstore_engine::Engine;
use revstore_proto::etcdserverpb::ResponseHeader;

use self::admission::{Alarms, Limits, RaftIndex};
use self::counters::AtomicCounters;
use self::durability::Durability;
use self::identity::Identity;
use self::members::Members;
use self::shutdown::Shutdown;
use self::slow::SlowRequests;
use crate::auth::Auth;
use crate::encode::response::Headers;
use crate::heavy::Heavy;

/// An etcd node with one engine.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    /// The identity at the start. `members` has the current peer URLs.
    pub(crate) identity: Identity,
    pub(crate) members: Members,
    pub(crate) headers: Headers,
    pub(crate) version: String,
    pub(crate) limits: Limits,
    pub(crate) alarms: Alarms,
    pub(crate) auth: Auth,
    pub(crate) raft_index: RaftIndex,
    pub(crate) counters: AtomicCounters,
    pub(crate) heavy: Arc<Heavy>,
    pub(crate) shutdown: Shutdown,
    pub(crate) watch_catch_up_delay: Duration,
    pub(crate) slow: SlowRequests,
    /// `None` for a node that keeps its data in memory only.
    pub(crate) durability: Option<Durability>,
}

impl Node {
    /// Returns a header with the current revision (DM-25).
    pub(crate) fn current_header(&self) -> ResponseHeader {
        self.headers.at(self.engine.current_revision())
    }
}

/// Returns a number of bytes with a unit of 1,000 and up to two digits, as etcd's log has it: `2.1 GB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    // The unit in tenths, and the next smaller one. 64 bits have no more than 20 digits.
    let power = bytes.ilog10() / 3;
    let tenth = u128::from(1_000_u64.pow(power)) / 10;
    let tenths = (u128::from(bytes) + tenth / 2) / tenth;
    let unit = UNITS[power as usize - 1];
    let (whole, rest) = (tenths / 10, tenths % 10);
    if whole < 10 {
        return format!("{whole}.{rest} {unit}");
    }
    // As in Go, a half is rounded to the even number.
    let is_rounded_up = rest > 5 || (rest == 5 && whole % 2 == 1);
    format!("{} {unit}", whole + u128::from(is_rounded_up))
}

#[cfg(test)]
mod tests {
    use super::human_bytes;

    #[test]
    fn sizes_are_rounded_to_the_digits_of_etcd() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (20_480, "20 kB"),
            (1_500, "1.5 kB"),
            (2_147_483_648, "2.1 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(human_bytes(bytes), expected);
        }
    }
}
