//! The client side of list and watch: reflector, store and informer over any source of lists and watches.

mod backoff;
pub mod delta_queue;
pub mod informer;
mod list_watch;
pub mod metrics;
pub mod reflector;
pub mod store;
mod subscription;
mod timer;

pub use delta_queue::FinalState;
pub use informer::{Informer, InformerHandle};
pub use list_watch::{ListWatch, StorageListWatch};
pub use reflector::{Reflector, ReflectorEvent, ReflectorMode};
pub use revstore_watch_cache::Object;
pub use store::Store;
pub use subscription::{EventHandler, Notification, Subscription};
