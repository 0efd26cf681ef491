//! The policies and bindings of the store. Their changes are read when a request needs them, so that a policy applies to
//! the requests that follow its creation.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use parking_lot::Mutex;
use revstore_watch_cache::api::CacheWatcher;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{EventType, Object, RequestError, Scope, WatchEvent, WatchOptions};

use super::definition::{Binding, Definition};
use crate::catalog::{Catalog, Resource, Stored};
use crate::verbs::decoded;

/// The group of the resources.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// A policy with its bindings.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    pub(crate) policy: Arc<Definition>,
    pub(crate) bindings: Vec<Arc<Binding>>,
}

/// The policies of one of the two kinds, with their bindings.
#[derive(Debug)]
pub(crate) struct Index {
    policies: &'static str,
    bindings: &'static str,
    // A leaf lock: it is held while changes are read, which never waits.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    policies: Followed<Definition>,
    bindings: Followed<Binding>,
    /// `None`: something has changed.
    hooks: Option<Arc<[Hook]>>,
}

/// The objects of one resource, by their names.
#[derive(Debug)]
struct Followed<T> {
    /// `None`: the changes are not followed.
    watcher: Option<CacheWatcher>,
    objects: BTreeMap<String, Arc<T>>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self {
            watcher: None,
            objects: BTreeMap::new(),
        }
    }
}

/// The resource of policies or bindings.
struct Source {
    resource: Arc<Resource>,
    stored: Arc<Stored>,
}

impl Source {
    fn find(catalog: &Catalog, plural: &str) -> Option<Self> {
        let resource = catalog.find(GROUP, "v1", plural).ok()?;
        let stored = resource.stored.clone()?;
        Some(Self { resource, stored })
    }

    /// Returns a watcher that begins with all objects.
    async fn watch(&self) -> Result<CacheWatcher, RequestError> {
        let options = WatchOptions::default().resource_version("0");
        self.stored.cache.watch(&Scope::All, &options).await
    }
}

impl Index {
    /// Returns the index of the validating policies.
    pub(crate) fn validating() -> Self {
        Self::new(
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        )
    }

    /// Returns the index of the mutating policies.
    pub(crate) fn mutating() -> Self {
        Self::new(
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        )
    }

    fn new(policies: &'static str, bindings: &'static str) -> Self {
        Self {
            policies,
            bindings,
            state: Mutex::default(),
        }
    }

    /// Returns whether there are bindings.
    pub(crate) fn is_used(&self, catalog: &Catalog) -> bool {
        let bindings = Source::find(catalog, self.bindings);
        bindings.is_some_and(|bindings| bindings.stored.cache.object_count() > 0)
    }

    /// Returns the policies that have bindings, in the order of their names.
    ///
    /// # Errors
    /// The caches cannot be read.
    pub(crate) async fn hooks(&self, catalog: &Catalog) -> Result<Arc<[Hook]>, RequestError> {
        let (Some(policies), Some(bindings)) = (
            Source::find(catalog, self.policies),
            Source::find(catalog, self.bindings),
        ) else {
            return Ok(Arc::new([]));
        };
        loop {
            let (needs_policies, needs_bindings) = {
                let mut state = self.state.lock();
                match state.read(&policies, &bindings) {
                    (false, false) => return Ok(state.hooks()),
                    needs => needs,
                }
            };
            if needs_policies {
                let watcher = policies.watch().await?;
                self.state.lock().policies.begin(watcher);
            }
            if needs_bindings {
                let watcher = bindings.watch().await?;
                self.state.lock().bindings.begin(watcher);
            }
        }
    }
}

impl State {
    /// Reads the changes. Returns of what the changes are not followed.
    fn read(&mut self, policies: &Source, bindings: &Source) -> (bool, bool) {
        let read = self.policies.read(policies, Definition::read);
        let has_new_policies = read.unwrap_or(true);
        let needs_policies = self.policies.watcher.is_none();
        let has_new_bindings = self.bindings.read(bindings, Binding::read).unwrap_or(true);
        if has_new_policies || has_new_bindings {
            self.hooks = None;
        }
        (needs_policies, self.bindings.watcher.is_none())
    }

    fn hooks(&mut self) -> Arc<[Hook]> {
        if let Some(hooks) = &self.hooks {
            return hooks.clone();
        }
        let mut bound: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
        for binding in self.bindings.objects.values() {
            let list = bound.entry(&binding.policy).or_default();
            list.push(binding.clone());
        }
        let hooks = bound.into_iter().filter_map(|(name, bindings)| {
            let policy = self.policies.objects.get(name)?.clone();
            Some(Hook { policy, bindings })
        });
        let hooks: Arc<[Hook]> = hooks.collect();
        self.hooks = Some(hooks.clone());
        hooks
    }
}

impl<T> Followed<T> {
    /// Begins anew, with a watcher that has all objects first.
    fn begin(&mut self, watcher: CacheWatcher) {
        self.watcher = Some(watcher);
        self.objects.clear();
    }

    /// Reads the changes. Returns whether there were some; `None` if they are not followed any more.
    fn read(&mut self, source: &Source, read: fn(&str, &mut JsonObject) -> T) -> Option<bool> {
        let mut has_changed = false;
        loop {
            match next(self.watcher.as_mut()?) {
                Next::Changed(event, object) => {
                    has_changed = true;
                    let name = object.name();
                    // What cannot be read is absent.
                    let decoded = decoded(&source.resource, &source.stored, &object);
                    match decoded {
                        Ok(mut decoded) if event != EventType::Deleted => {
                            let read = Arc::new(read(name, &mut decoded));
                            self.objects.insert(name.to_owned(), read);
                        }
                        _ => {
                            self.objects.remove(name);
                        }
                    }
                }
                Next::Nothing => return Some(has_changed),
                Next::End => {
                    self.watcher = None;
                    self.objects.clear();
                }
            }
        }
    }
}

/// What a watcher has next.
enum Next {
    Changed(EventType, Object),
    Nothing,
    End,
}

fn next(watcher: &mut CacheWatcher) -> Next {
    loop {
        let event = watcher.try_next().or_else(|| {
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(&mut *watcher).poll_next(&mut context) {
                Poll::Ready(None) => Some(WatchEvent::Error(RequestError::Stopped)),
                Poll::Ready(event) => event,
                Poll::Pending => None,
            }
        });
        match event {
            Some(WatchEvent::Object { event, object, .. }) => return Next::Changed(event, object),
            Some(WatchEvent::Bookmark { .. }) => {}
            Some(WatchEvent::Error(_)) => return Next::End,
            None => return Next::Nothing,
        }
    }
}
