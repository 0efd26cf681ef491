//! The store of one resource: updates.

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::keys::ObjectRef;
use crate::api::options::GetOptions;
use crate::api::status::{Conflict, RequestError};
use crate::api::storage::{Preconditions, Update, UpdateOptions};
use crate::encode::object::Object;
use crate::registry::allocator::ATTEMPTS_MAX;
use crate::registry::change::ChangeFn;
use crate::registry::managed_fields::{self, keep_times};
use crate::registry::metadata;
use crate::registry::object_store::{decode, is_finalized, show_revision, show_stored};
use crate::registry::{Change, JsonObject, ObjectStore, WriteRequest, Written};
use crate::source::ConditionalWrite;

/// The text of the error by which a write ends that replaces another version than the one it was computed for.
const STALE: &str = "another write was faster";

/// The member of the metadata with the resource version.
const VERSION: &str = "resourceVersion";

/// The version of an object for which a new one is computed.
struct Base {
    object: Option<Object>,
    /// Whether it was read from the store.
    is_fresh: bool,
}

/// A version to write.
struct Computed {
    new: JsonObject,
    /// The version that it replaces, without its resource version.
    old: Option<JsonObject>,
    /// Whether nothing differs.
    is_unchanged: bool,
    others: Vec<ConditionalWrite>,
}

/// What came of a write.
enum Outcome {
    Written(Written),
    /// Another write was faster. The version that it has left, if it is known.
    Stale(Option<Object>),
}

impl ObjectStore {
    /// Replaces an object. The resource version of `new`, if it is set, must be the current one.
    ///
    /// # Errors
    /// As [`update_with`](Self::update_with), and [`RequestError::Conflict`] if `new` has another uid.
    // WC-414.
    pub async fn update(
        &self,
        object: &ObjectRef,
        mut new: JsonObject,
        request: &WriteRequest,
    ) -> Result<Written, RequestError> {
        // An object that is not that of the request is refused whether that of the request exists or not.
        self.check_target(object, &mut new)?;
        let preconditions = Preconditions::of_update(&new);
        let mut change = ChangeFn(|_: Option<&JsonObject>| Ok(new.clone()));
        self.update_if(object, request, &preconditions, &mut change)
            .await
    }

    /// Replaces an object by the version that `change` returns for the current one, such as a patch of
    /// it. If another write changes the object meanwhile, `change` is called again. `None` is an object
    /// that does not exist, for a strategy that
    /// [creates on update](crate::registry::Strategy::creates_on_update).
    ///
    /// A version without changes is not written. An object whose last finalizer was removed after its
    /// deletion is removed.
    ///
    /// # Errors
    /// - [`RequestError::NotFound`].
    /// - [`RequestError::BadRequest`] if the kind, the name or the namespace of the new version are not
    ///   those of the request.
    /// - [`RequestError::Conflict`] if the resource version of the new version is not the current one.
    /// - 422, as [`RequestError::Reported`], if the new version is invalid.
    /// - Errors of `change`, of the strategy and of the storage.
    // WC-415, WC-441, WC-442, WC-447.
    pub async fn update_with(
        &self,
        object: &ObjectRef,
        request: &WriteRequest,
        change: impl FnMut(Option<&JsonObject>) -> Result<JsonObject, RequestError> + Send,
    ) -> Result<Written, RequestError> {
        let (preconditions, mut change) = (Preconditions::default(), ChangeFn(change));
        self.update_if(object, request, &preconditions, &mut change)
            .await
    }

    /// Replaces an object as [`update_with`](Self::update_with) does, if preconditions hold for the current version and
    /// the new version is admitted.
    ///
    /// # Errors
    /// As [`update_with`](Self::update_with), and [`RequestError::Conflict`] if a precondition does not hold.
    pub async fn update_if(
        &self,
        object: &ObjectRef,
        request: &WriteRequest,
        preconditions: &Preconditions,
        change: &mut dyn Change,
    ) -> Result<Written, RequestError> {
        // The writes of other keys are computed from the store, too.
        let reads = request.dry_run || self.allocator.is_some();
        let assumed = (!reads).then(|| self.storage.assumed(object)).flatten();
        let mut base = match assumed {
            Some(object) => Base {
                object: Some(object),
                is_fresh: false,
            },
            None => self.read_base(object).await?,
        };
        let mut drops_entries = false;
        for _ in 0..ATTEMPTS_MAX {
            let current = base.object.as_ref();
            let computed = self.compute(object, current, request, preconditions, change);
            let mut computed = match computed.await {
                Ok(computed) => computed,
                Err(error) if base.is_fresh => return Err(error),
                Err(error) => {
                    let fresh = self.read_base(object).await?;
                    let revision = |base: &Base| base.object.as_ref().map(Object::revision);
                    if revision(&fresh) == revision(&base) {
                        return Err(error);
                    }
                    base = fresh;
                    continue;
                }
            };
            if drops_entries {
                managed_fields::remove(&mut computed.new);
                computed.is_unchanged = false;
            }
            let committed = self.commit(object, current, computed, request).await;
            if let Err(error) = &committed
                && !drops_entries
                && request.can_drop(error)
            {
                drops_entries = true;
                continue;
            }
            base = match committed? {
                Outcome::Written(written) => return Ok(written),
                Outcome::Stale(None) => self.read_base(object).await?,
                Outcome::Stale(newer) => Base {
                    object: newer,
                    is_fresh: true,
                },
            };
        }
        Err(self.conflict(object, Conflict::Modified))
    }

    async fn read_base(&self, object: &ObjectRef) -> Result<Base, RequestError> {
        let found = self.storage.get(object, &GetOptions::default()).await?;
        Ok(Base {
            object: found,
            is_fresh: true,
        })
    }

    /// Returns the version that an update makes of the current one, complete, valid and admitted.
    async fn compute(
        &self,
        object: &ObjectRef,
        current: Option<&Object>,
        request: &WriteRequest,
        preconditions: &Preconditions,
        change: &mut dyn Change,
    ) -> Result<Computed, RequestError> {
        match current {
            Some(current) => {
                let held = preconditions.check(current);
                held.map_err(|reason| self.conflict(object, reason))?;
            }
            None if !self.strategy.creates_on_update() => return Err(self.not_found(object)),
            None => {}
        }
        let mut old = current.map(decode).transpose()?;
        let mut new = change.change(old.as_ref()).await?;
        let has_version = self.begin_update(object, old.as_ref(), &mut new)?;
        let others = match &self.allocator {
            Some(allocator) => {
                let allocated = allocator.allocate(&mut new, old.as_ref(), request.dry_run);
                allocated.await?
            }
            None => Vec::new(),
        };
        self.complete_update(old.as_ref(), &mut new, has_version)?;
        if let Some(old) = &old {
            // What is admitted has the resource version of what it replaces.
            let version = metadata::field(old, VERSION).cloned();
            metadata::set(&mut new, VERSION, version);
            keep_times(&mut new, old);
        }
        change.admit(Some(&new), old.as_ref()).await?;
        let is_unchanged = old.as_ref() == Some(&new);
        for object in old.iter_mut().chain([&mut new]) {
            metadata::set(object, VERSION, None);
        }
        Ok(Computed {
            new,
            old,
            is_unchanged,
            others,
        })
    }

    /// Writes a version, or removes the object if nothing holds it any more.
    async fn commit(
        &self,
        object: &ObjectRef,
        current: Option<&Object>,
        computed: Computed,
        request: &WriteRequest,
    ) -> Result<Outcome, RequestError> {
        let Computed {
            new,
            old,
            is_unchanged,
            others,
        } = computed;
        let replaced = current.map(Object::revision);
        let written = |mut new: JsonObject, revision: Option<Revision>| {
            if let Some(revision) = revision {
                show_revision(&mut new, revision);
            }
            let created = replaced.is_none();
            Ok(Outcome::Written(Written {
                object: new,
                created,
            }))
        };
        if let (Some(old), Some(replaced)) = (&old, replaced)
            && is_finalized(&new)
            && !self.strategy.is_held(&new)
        {
            if request.dry_run || self.remove(object, replaced, old).await?.is_some() {
                return written(new, Some(replaced));
            }
            return Ok(Outcome::Stale(None));
        }
        if request.dry_run {
            let mut new = new;
            self.read_back(&mut new).await?;
            return written(new, replaced);
        }
        let value = match current {
            // The storage writes nothing if the bytes are unchanged.
            Some(current) if is_unchanged && others.is_empty() => {
                Bytes::copy_from_slice(current.value())
            }
            _ => self.encode(&new)?,
        };
        let time_to_live = self.strategy.time_to_live(&new);
        let mut found = None;
        let update = |current: Option<&Object>| {
            if current.map(Object::revision) != replaced {
                found = current.cloned();
                return Err(RequestError::Unclassified(STALE.to_owned()));
            }
            Ok(Update::new(value.clone()).time_to_live(time_to_live))
        };
        let options = UpdateOptions::default()
            .create_if_missing(replaced.is_none())
            .others(others);
        let update = Box::new(update);
        match self
            .storage
            .guaranteed_update(object, &options, update)
            .await
        {
            Ok(stored) => {
                let mut new = new;
                show_stored(&mut new, &value, &stored)?;
                written(new, None)
            }
            Err(RequestError::Unclassified(text)) if text == STALE => Ok(Outcome::Stale(found)),
            Err(
                RequestError::Conflict { .. }
                | RequestError::NotFound { .. }
                | RequestError::AlreadyExists { .. },
            ) => Ok(Outcome::Stale(None)),
            Err(error) => Err(error),
        }
    }
}
