//! Writes: straight to the source, with compares, and with a second look at what was stale.

use std::time::Duration;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::keys::ObjectRef;
use crate::api::status::{Conflict, RequestError};
use crate::api::storage::{Preconditions, Update, UpdateFn, UpdateOptions, ValidateFn};
use crate::encode::object::Object;
use crate::source::raw_store::{RawStore, internal};
use crate::source::{Action, ListRequest, Stored, Write, WriteOutcome};

/// Times that somebody else may be faster before a write gives up with a conflict.
const ATTEMPTS_MAX: usize = 128;

/// What a write is decided on.
struct Basis {
    object: Option<Object>,
    /// Whether it came from the source just now; what did not may be stale, and is then looked at
    /// once more before an error is believed (WC-105).
    fresh: bool,
}

/// What a write comes to, once it is decided.
enum Decision {
    /// The object stays as it is.
    Keep(Object),
    Do(Action),
}

impl RawStore {
    pub(crate) async fn create_object(
        &self,
        object: &ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> Result<Object, RequestError> {
        let key = self.config.layout.key(object)?;
        let action = Action::Put {
            value: value.clone(),
            time_to_live,
        };
        match self.write(&key, None, action).await? {
            WriteOutcome::Done(revision) => Ok(self.written(key, value, None, revision)),
            WriteOutcome::Differs(_) => Err(RequestError::AlreadyExists {
                resource: self.config.name.clone(),
                name: object.name.clone(),
            }),
        }
    }

    pub(crate) async fn update_object(
        &self,
        object: &ObjectRef,
        options: &UpdateOptions,
        guess: Option<Object>,
        mut update: UpdateFn<'_>,
    ) -> Result<Object, RequestError> {
        let (preconditions, may_be_missing) = (&options.preconditions, options.create_if_missing);
        self.decided(object, guess, |seen| {
            self.check(object, seen, preconditions, may_be_missing)?;
            let Update {
                value,
                time_to_live,
            } = update(seen)?;
            Ok(match seen {
                // WC-204: nothing to write.
                Some(seen) if value == seen.value() => Decision::Keep(seen.clone()),
                _ => Decision::Do(Action::Put {
                    value,
                    time_to_live,
                }),
            })
        })
        .await
    }

    pub(crate) async fn delete_object(
        &self,
        object: &ObjectRef,
        preconditions: &Preconditions,
        guess: Option<Object>,
        mut validate: ValidateFn<'_>,
    ) -> Result<Object, RequestError> {
        self.decided(object, guess, |seen| {
            self.check(object, seen, preconditions, false)?;
            seen.map_or(Ok(()), &mut validate)?;
            Ok(Decision::Do(Action::Delete))
        })
        .await
    }

    /// Does what `decide` makes of an object, as often as it takes until nobody else changed it in
    /// between. A refusal, or that nothing is to be done, is believed of fresh state only (WC-105).
    async fn decided(
        &self,
        object: &ObjectRef,
        guess: Option<Object>,
        mut decide: impl FnMut(Option<&Object>) -> Result<Decision, RequestError>,
    ) -> Result<Object, RequestError> {
        let key = self.config.layout.key(object)?;
        let mut basis = self.basis(&key, guess).await?;
        for _ in 0..ATTEMPTS_MAX {
            let seen = basis.object.as_ref();
            let action = match decide(seen) {
                Ok(Decision::Do(action)) => action,
                _ if !basis.fresh => {
                    basis = self.look(&key).await?;
                    continue;
                }
                Ok(Decision::Keep(object)) => return Ok(object),
                Err(error) => return Err(error),
            };
            let expected = seen.map(|seen| seen.entry().mod_revision());
            match (self.write(&key, expected, action.clone()).await?, action) {
                (WriteOutcome::Done(revision), Action::Put { value, .. }) => {
                    return Ok(self.written(key, value, seen, revision));
                }
                (WriteOutcome::Done(revision), Action::Delete) => {
                    let last = seen.ok_or_else(|| self.not_found(object))?;
                    return Ok(Object::shown_at(last.entry().clone(), revision));
                }
                (WriteOutcome::Differs(found), _) => basis = self.found(found),
            }
        }
        Err(self.conflict(object, Conflict::Modified))
    }

    async fn write(
        &self,
        key: &Bytes,
        expected: Option<Revision>,
        action: Action,
    ) -> Result<WriteOutcome, RequestError> {
        let write = Write {
            key: key.clone(),
            expected,
            action,
        };
        let outcome = self.source.write(write).await;
        outcome.map_err(|error| internal(&error))
    }

    async fn basis(&self, key: &Bytes, guess: Option<Object>) -> Result<Basis, RequestError> {
        match guess {
            Some(object) => Ok(Basis {
                object: Some(object),
                fresh: false,
            }),
            None => self.look(key).await,
        }
    }

    async fn look(&self, key: &Bytes) -> Result<Basis, RequestError> {
        let request = ListRequest {
            range: revstore_engine::KeyRange::One(key.clone()),
            at: None,
            limit: None,
        };
        let page = self.source.list(request).await;
        let page = page.map_err(|error| internal(&error))?;
        Ok(self.found(page.items.into_iter().next()))
    }

    fn found(&self, stored: Option<Stored>) -> Basis {
        let reader = self.config.reader();
        Basis {
            object: stored.map(|stored| Object::new(reader.read(stored))),
            fresh: true,
        }
    }

    /// The object that a write left behind.
    fn written(
        &self,
        key: Bytes,
        value: Bytes,
        before: Option<&Object>,
        revision: Revision,
    ) -> Object {
        let stored = Stored {
            key,
            value,
            create_revision: before.map_or(revision, |before| before.create_revision()),
            mod_revision: revision,
        };
        Object::new(self.config.reader().read(stored))
    }

    fn check(
        &self,
        object: &ObjectRef,
        seen: Option<&Object>,
        preconditions: &Preconditions,
        may_be_missing: bool,
    ) -> Result<(), RequestError> {
        let Some(seen) = seen else {
            return if may_be_missing {
                Ok(())
            } else {
                Err(self.not_found(object))
            };
        };
        if let Some(asked) = &preconditions.uid
            && asked != seen.uid()
        {
            let why = Conflict::Uid {
                asked: asked.clone(),
                found: seen.uid().to_owned(),
            };
            return Err(self.conflict(object, why));
        }
        let found = seen.revision().to_string();
        match &preconditions.resource_version {
            Some(asked) if *asked != found => {
                let asked = asked.clone();
                Err(self.conflict(object, Conflict::ResourceVersion { asked, found }))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn not_found(&self, object: &ObjectRef) -> RequestError {
        RequestError::NotFound {
            resource: self.config.name.clone(),
            name: object.name.clone(),
        }
    }

    fn conflict(&self, object: &ObjectRef, why: Conflict) -> RequestError {
        RequestError::Conflict {
            resource: self.config.name.clone(),
            name: object.name.clone(),
            why: Box::new(why),
        }
    }
}
