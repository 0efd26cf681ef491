//! Requests and their answers: get, list and watch with their options, events, errors and continue
//! tokens, in the terms of the Kubernetes API. `resource_cache` answers them from the cache;
//! [`storage`] is the trait that the cache and the raw store have in common.

pub(crate) mod continue_token;
pub(crate) mod event;
pub(crate) mod keys;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod resource_cache;
pub(crate) mod status;
pub(crate) mod storage;
pub(crate) mod target;
pub(crate) mod watch;
