//! Requests and responses in the terms of the Kubernetes API: get, list and watch with their options,
//! watch events, errors and continue tokens. [`ResourceCache`] answers requests from the cache;
//! [`Storage`] is the trait that it has in common with [`RawStore`](crate::source::RawStore).

pub(crate) mod cache_watcher;
pub(crate) mod continue_token;
pub(crate) mod corrupt;
pub(crate) mod event;
pub(crate) mod initial_objects;
pub(crate) mod keys;
pub(crate) mod list;
pub(crate) mod live_watch;
pub(crate) mod options;
pub(crate) mod query;
pub(crate) mod resource_cache;
pub(crate) mod starting_watch;
pub(crate) mod status;
pub(crate) mod storage;
pub(crate) mod target;

pub use cache_watcher::CacheWatcher;
pub use continue_token::ContinueToken;
pub use corrupt::{CorruptList, CorruptObject};
pub use event::{EventType, SharedEncoding, WatchEvent};
pub use keys::{KeyLayout, ObjectRef, Scope};
pub use list::{ListItems, ObjectList};
pub use options::{GetOptions, ListOptions, WatchOptions};
pub use query::{CollectionOptions, Query};
pub use resource_cache::ResourceCache;
pub use status::{Conflict, Expired, InvalidDelete, RequestError};
pub use storage::{
    DeleteOptions, EventStream, Preconditions, Storage, StoreStats, Update, UpdateFn,
    UpdateOptions, ValidateFn,
};
