#![doc = include_str!("../README.md")]
//!
//! # Modules
//! - [`cache`]: the cache, its resources and its feeder.
//! - [`api`]: requests and responses: get, list and watch with options, events and errors.
//! - [`registry`]: stores that create, update and delete objects by the rules of Kubernetes.
//! - [`selector`]: label and field selectors.
//! - [`names`]: the rules for names of objects and labels.
//! - [`status`]: the bodies of errors: reasons, causes and field paths.
//! - [`encode`]: objects, and their encoding in one or more forms.
//! - [`source`]: the store behind a cache: the engine in this process, or an etcd cluster.
//! - [`metrics`]: counters and histograms of a resource, and their export.
//! - [`clock`]: the clocks that all timeouts use.
//!
//! The types that most programs need are also at the root of the crate.
//!
//! # Names in Kubernetes
//! This crate does what `k8s.io/apiserver/pkg/storage/cacher` does in kube-apiserver:
//!
//! | Kubernetes | This crate |
//! |---|---|
//! | `storage.Interface` | [`api::Storage`] |
//! | `etcd3.store` | [`source::RawStore`] over a [`source::Source`] |
//! | `Cacher`, `CacheDelegator` | [`ResourceCache`], one per resource of a [`WatchCache`] |
//! | `DestroyFunc` of a storage, as when a custom resource definition is deleted | [`WatchCache::remove`], [`WatchCache::reconfigure`] |
//! | the `Reflector` of the cacher, `dispatchEvents` | [`Feeder`] |
//! | `watchCache`: store and cyclic buffer | the current objects of a resource, and its window ([`cache::WindowLimits`]) |
//! | `watchCache.resourceVersion` | the watermark, one for all resources ([`WatchCache::revision`]) |
//! | `watchCacheEvent` | an event in the window |
//! | `storeSnapshotter` | checkpoints of the objects, from which lists at older revisions are built |
//! | `watchCacheInterval` | the current objects that a watcher iterates, then copies of the window |
//! | `waitUntilFreshAndBlock` | [`ResourceCache::wait_until_fresh`] |
//! | progress requester | [`source::Source::request_progress`], called while a request waits |
//! | `indexedWatchers`, trigger functions | [`cache::ObjectIndex`] |
//! | `cacheWatcher` | [`CacheWatcher`], which reads from the window and has no input channel |
//! | `watcherBookmarkTimeBuckets`, `timeBudget` | a timer of each watcher; nothing, because no watcher delays another one |
//! | `SelectionPredicate`, `ListOptions` of storage | [`Selector`], [`ListOptions`], [`WatchOptions`], [`api::Query`] |
//! | `GuaranteedUpdate`, `Preconditions` | [`api::Storage::guaranteed_update`], [`api::Preconditions`] |
//! | continue tokens (`EncodeContinue`) | [`api::ContinueToken`] |
//! | `cachingObject` | [`api::SharedEncoding`] |
//! | `runtime.Decoder`, `Versioner`, `GetAttrs` | [`encode::Kind`] |
//! | `runtime.Encoder`, `TableConvertor`, transformations to `PartialObjectMetadata` | [`encode::Form`], [`encode::TableForm`], [`encode::MetadataForm`], and the [`encode::Encoder`] of a response |
//! | `ready` | [`cache::Readiness`] |
//! | consistency checker | [`ResourceCache::check_consistency`] |
//! | `cacher/metrics` | [`metrics::ResourceMetrics`], [`metrics::MetricsCollector`] |
//! | `registry.Store`, `RESTCreateStrategy`, `RESTUpdateStrategy` | [`registry::ObjectStore`], [`registry::Strategy`] |
//! | `storeElement` | [`encode::StoredObject`] |
//! | `metav1.Status`, `field.Error`, `field.Path` | [`status::Status`], [`status::StatusCause`], [`status::FieldPath`] |
//! | `Reflector`, `DeltaFIFO` (now `RealFIFO`), `SharedInformer`, `Indexer`, listers and work queues of client-go | the crate `revstore-reflector`, with a table of its own |
//!
//! # Failures
//! - The source is unavailable: requests are answered from the cache. Requests for the most recent
//!   state fail with 500, and so do lists at an exact revision, including further pages of a list, if
//!   the cache has to ask whether that revision is compacted. The feeder tries again every second and
//!   resumes after the last applied revision.
//! - The objects of a resource cannot be read: the other resources go on. The page is read again every
//!   second, and [`ResourceCache::readiness`] reports the error.
//! - The source has compacted events that the feeder needs: the cache loads all objects again, and
//!   its watchers end.
//! - The store was replaced, because it was restored from a backup or started empty: the cache loads
//!   the new store. Its watchers end with 410, and so do new watches from revisions that only the
//!   previous store has had. A client that was disconnected meanwhile may resume from a revision that
//!   the new store has also reached. Such a client cannot be distinguished from a client of the new
//!   store.
//! - A consistency check found a difference between cache and source: the source answers gets and
//!   lists until the cache is loaded again.
//! - The feeder was dropped or has panicked: the cache is stopped.
//! - A client reads slowly: its watcher lags, and ends with 410 when the window no longer contains
//!   its next event.

// How to read the source code
//
// Start with `cache/feeder.rs`: it applies a batch, publishes its revision, then wakes watchers. It
// writes to `cache/resource.rs`, which contains the objects (`cache/objects/`), the window
// (`cache/window.rs`) and the interests of the watchers (`cache/interest.rs`), and to
// `cache/watermark.rs`, which contains the published revision. `api/resource_cache.rs` answers
// requests: `api/options.rs` parses their options into a plan, `api/list.rs` builds lists, and
// `api/cache_watcher.rs` is a watcher and its states, of which `api/live_watch.rs` is the usual one.
// `encode/encoder.rs` writes responses. `source/raw_store.rs` and `source/write.rs` answer the same
// requests without a cache. Comments cite the rules in `docs/watch-cache.md` by clause, such as
// WC-131, and its invariants, such as INV-1.

pub mod api;
pub mod cache;
pub mod encode;
pub mod metrics;
pub mod names;
pub mod registry;
pub mod selector;
pub mod source;
pub mod status;
mod wake;

/// Clocks: the trait, the system clock and a clock that tests advance, re-exported from
/// `revstore-engine`.
pub mod clock {
    pub use revstore_engine::{Clock, DueWork, ManualClock, PendingWork, SystemClock, Timed};
}

pub use api::{
    CacheWatcher, EventType, GetOptions, ListOptions, ObjectRef, RequestError, ResourceCache,
    Scope, WatchEvent, WatchOptions,
};
pub use cache::{Feeder, ResourceConfig, WatchCache};
pub use encode::{JsonKind, Object};
pub use revstore_engine::Revision;
pub use selector::Selector;
pub use source::EngineSource;
