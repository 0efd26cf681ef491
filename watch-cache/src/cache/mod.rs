//! The cache itself: the feeder that applies the changes of the source, the objects and the window
//! of recent events of each resource, and the watermark that says up to which revision all resources
//! are complete. Requests are in [`api`](crate::api), the data comes from [`source`](crate::source).

pub(crate) mod config;
pub(crate) mod consistency;
pub(crate) mod feeder;
pub(crate) mod interest;
pub(crate) mod objects;
pub(crate) mod readiness;
pub(crate) mod resource;
pub(crate) mod shared;
pub(crate) mod watch_cache;
pub(crate) mod watermark;
pub(crate) mod window;
