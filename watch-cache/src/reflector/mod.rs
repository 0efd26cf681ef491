//! The client's side: a copy of some objects that keeps itself up to date (section F).
//!
//! [`Reflector`] lists, then watches, for ever; [`Informer`] puts what it tells into a
//! [`Store`] and tells it to any number of [`Subscription`]s.

mod backoff;
mod informer;
mod list_watch;
mod machine;
mod metrics;
mod queue;
mod store;
mod subscription;

pub use backoff::Backoff;
pub use informer::{Informer, InformerBuilder, InformerHandle, InformerThread};
pub use list_watch::{ListWatch, Scoped};
pub use machine::{Reflector, ReflectorBuilder, ReflectorEvent, ReflectorMode};
pub use metrics::ReflectorMetrics;
pub use queue::{Delta, DeltaQueue, Tombstone};
pub use store::{IndexFn, Store};
pub use subscription::{Handler, Notification, Subscription};
