//! A watch cache in the manner of kube-apiserver's.
//!
//! A [`WatchCache`] follows a [`Source`] - the engine in this process, or any etcd v3 endpoint - and
//! answers get, list and watch by resource version without asking the source. Any number of clients
//! watch: each is a position in one shared window of recent events, woken only by what it may want.
//!
//! ```
//! use std::sync::Arc;
//! use revstore_engine::Engine;
//! use revstore_watch_cache::{
//!     EngineSource, EventType, ResourceConfig, Scope, Selector, WatchCache, WatchEvent,
//!     WatchOptions, block_on,
//! };
//!
//! let engine = Engine::builder().build();
//! let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
//! let pods = cache.add(ResourceConfig::namespaced("", "pods", "/pods"))?;
//! let running = feeder.spawn();
//! block_on(pods.wait_until_ready())?;
//!
//! let options = WatchOptions { selector: Selector::parse("app=web", "")?, ..Default::default() };
//! let mut watch = block_on(pods.watch(&Scope::All, &options))?;
//! let pod = |app| format!(r#"{{"metadata":{{"name":"a","labels":{{"app":"{app}"}}}}}}"#);
//! engine.put("/pods/ns/a", pod("web"))?;
//! engine.put("/pods/ns/a", pod("db"))?;
//!
//! // It comes into the selector, and leaves it again (WC-350).
//! for expected in [EventType::Added, EventType::Deleted] {
//!     match watch.next_blocking() {
//!         Some(WatchEvent::Object { event, object, .. }) => {
//!             assert_eq!((event, object.label("app")), (expected, Some("web")));
//!         }
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # drop(running);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! There is no runtime here: futures run on any executor or under [`block_on`], time comes from a
//! [`Clock`]. Clause ids such as WC-131 name rules of the behaviour specification, ids such as
//! INV-1 its invariants.
//!
//! Over an etcd cluster it is the same with another source: the feature `etcd` brings `EtcdSource`.
//! Its build needs a `protoc`, as the crate `etcd-client` compiles etcd's definitions.
//!
//! # When things go wrong
//! - The source cannot be reached: requests are answered from what there is, except those for the most
//!   recent state or for that of one revision, further pages among them, which end with 500; the feeder
//!   tries again every second and goes on where it was.
//! - The source has compacted what the feeder needs: the cache loads anew, its watches end (WC-115).
//! - The source is another store than before, restored from a backup or begun anew: the cache loads
//!   it, its watches end with 410, and so do those from revisions that only the old store had. Who was
//!   not connected then and comes back with a revision that the new store has reached as well cannot
//!   be told from its own clients.
//! - The cache differs from its source, which a check every few minutes would find (WC-135): the source
//!   answers until the cache is loaded anew.
//! - The feeder is gone, because it was dropped or panicked: the cache is stopped.
//! - A client is slow: it is behind, and ends with 410 once the window has passed it (WC-124).
//!
//! # Reading the source
//! `feeder.rs` is the heart: apply, publish, wake. `resource.rs` holds what it applies to: the
//! objects (`tree.rs`), the window (`window.rs`) and who watches (`interest.rs`); `watermark.rs` is
//! what it publishes. `consistency.rs` looks now and then whether all of it is true. `cache.rs`
//! answers requests: `options.rs` decides which row of the tables one is, `list.rs` puts lists
//! together, `watch.rs` is the cursor. `raw.rs` and `write.rs` do the same without a cache. `source/`
//! is where data comes from. The client's side is the crate `revstore-reflector`. `metrics.rs`
//! and `histogram.rs` hold what is counted (section H).

mod api;
mod blocking;
mod cache;
mod encode;
mod histogram;
mod metrics;
mod random;
mod selector;
mod source;
mod wake;

pub use api::continue_token::ContinueToken;
pub use api::event::{EventType, SharedEvent, WatchEvent};
pub use api::keys::{KeyLayout, ObjectRef, Scope};
pub use api::list::{Items, List};
pub use api::options::{GetOptions, ListOptions, WatchOptions};
pub use api::resource_cache::ResourceCache;
pub use api::status::{Cause, Conflict, Details, Expired, RequestError, ResourceName, Status};
pub use api::storage::{
    EventStream, Preconditions, Storage, StoreStats, Update, UpdateFn, UpdateOptions, ValidateFn,
};
pub use api::watch::Watch;
pub use blocking::{block_on, next_blocking};
pub use cache::config::ResourceConfig;
pub use cache::consistency::ConsistencyReport;
pub use cache::feeder::{Feeder, FeederThread};
pub use cache::objects::index::Index;
pub use cache::readiness::Readiness;
pub use cache::watch_cache::{WatchCache, WatchCacheBuilder};
pub use cache::window::WindowLimits;
pub use encode::json::JsonKind;
pub use encode::kind::{Attributes, Kind, Notice, Splice, Undecodable};
pub use encode::object::{Entry, Object};
pub use histogram::Histogram;
pub use metrics::Metrics;
pub use random::Random;
pub use revstore_engine::{Clock, ManualClock, Revision, SystemClock, Timed};
pub use selector::{
    FieldRequirement, FieldSelector, LabelOp, LabelRequirement, LabelSelector, Selector,
};
#[cfg(feature = "etcd")]
pub use source::EtcdSource;
pub use source::raw_store::RawStore;
pub use source::{
    Action, Batch, BatchStream, Change, EngineSource, ListPage, ListRequest, Source, SourceError,
    Stored, WatchRequest, Write, WriteOutcome,
};
