//! Leases: keys that are deleted when their lease expires.

mod guard;
mod keys;
mod lessor;

pub use guard::LeaseGuard;
pub(crate) use lessor::{Granted, Lessor, expire_first, revoke};
pub use lessor::{
    LEASE_TTL_MAX_SECONDS, LeaseChange, LeaseCounts, LeaseGrant, LeaseLeft, LeaseStatus,
};
