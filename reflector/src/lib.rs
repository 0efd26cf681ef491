#![doc = include_str!("../README.md")]
//!
//! # Names in client-go and kube-rs
//!
//! | client-go | kube-rs | This crate |
//! |---|---|---|
//! | `ListerWatcher` | | [`ListWatch`] |
//! | `ListWatch` | `Api` with `watcher::Config` | [`StorageListWatch`], `kube::KubeListWatch` (feature `http`) |
//! | `Reflector` | `watcher` | [`Reflector`] |
//! | | `watcher::Event` | [`ReflectorEvent`] |
//! | `RealFIFO` (before: `DeltaFIFO`), `Delta` | | [`delta_queue::DeltaQueue`], [`delta_queue::Delta`] |
//! | `DeletedFinalStateUnknown` | | [`FinalState::Unknown`] |
//! | `Indexer`, `Store`, `ThreadSafeStore` | `reflector::Store` | [`ObjectStore`] |
//! | `SharedIndexInformer` | `reflector` | [`Informer`], [`InformerHandle`] |
//! | `SharedInformerFactory` | | [`InformerFactory`] |
//! | generated listers | `reflector::Store<K>` | [`Lister`] |
//! | `ResourceEventHandler`, `ResourceEventHandlerFuncs` | | [`EventHandler`], [`Handlers`] |
//! | `processorListener` | `ReflectHandle` | [`Subscription`] |
//! | `WaitForCacheSync`, `HasSynced` | `Store::wait_until_ready` | [`InformerHandle::synced`], [`InformerHandle::has_synced`] |
//! | `workqueue.TypedRateLimitingInterface` | `scheduler` | [`WorkQueue`] |
//! | the worker loop of a controller | `Controller` | [`Controller`] |
//! | `LastSyncResourceVersion` | | [`Reflector::last_revision`], [`ObjectStore::revision`] |
//!
//! # Source files
//!
//! An event passes through these files in this order: `list_watch.rs` (the source),
//! `list_and_watch.rs` (the state machine, with the pauses of `backoff.rs` and `timer.rs`),
//! `reflector.rs` (the public type), and in `shared_informer/`: `informer.rs`, `delta_queue.rs`,
//! `store.rs`, `subscription.rs`. `metrics.rs` has the metrics of a reflector. A controller is
//! separate from that: `work_queue/` has the queue of keys, `controller.rs` the workers.

mod backoff;
pub mod controller;
#[cfg(feature = "http")]
pub mod kube;
mod list_and_watch;
mod list_watch;
pub mod metrics;
pub mod reflector;
mod shared_informer;
mod timer;
pub mod work_queue;

pub use controller::{Action, Controller};
pub use list_watch::{ListWatch, StorageListWatch};
pub use reflector::{Reflector, ReflectorEvent, ReflectorMode};
pub use shared_informer::delta_queue::{self, FinalState};
pub use shared_informer::factory::{Collection, InformerFactory};
pub use shared_informer::handler::{EventHandler, HandlerRegistration, Handlers};
pub use shared_informer::informer::{self, Informer, InformerHandle};
pub use shared_informer::lister::{DecodeFailure, Listed, Lister, TypedHandlers};
pub use shared_informer::store::{self, ObjectStore};
pub use shared_informer::subscription::{Delivery, Notification, PENDING_MAX, Subscription};
pub use work_queue::WorkQueue;
