//! The cache itself: the feeder, which applies the changes of the source; the current objects and the
//! window of recent events of each resource; and the watermark, which is the revision up to which all
//! resources are complete. Requests are in [`api`](crate::api), and the data comes from
//! [`source`](crate::source).

pub(crate) mod config;
pub(crate) mod consistency;
pub(crate) mod contents;
pub(crate) mod feeder;
pub(crate) mod interest;
pub(crate) mod load;
pub(crate) mod loads;
pub(crate) mod objects;
pub(crate) mod readiness;
pub(crate) mod resource;
pub(crate) mod shared;
pub(crate) mod watch_cache;
pub(crate) mod watermark;
pub(crate) mod window;

pub use config::ResourceConfig;
pub use consistency::ConsistencyReport;
pub use feeder::{Feeder, FeederThread};
pub use objects::index::ObjectIndex;
pub use readiness::Readiness;
pub use watch_cache::{WatchCache, WatchCacheBuilder};
pub use window::WindowLimits;
