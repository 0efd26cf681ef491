//! What subresources show and change of an object.

use std::borrow::Cow;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, ObjectStore};

use crate::builtin;
use crate::catalog::{Resource, Rules, Stored};

/// The part of an object that a path shows and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Facet {
    /// All of it; the status, if the resource has a subresource for that, is not changed.
    Whole,
    /// The status.
    Status,
    /// The number of replicas.
    Scale,
    /// The finalizers of a namespace.
    Finalize,
    /// The conditions of a certificate request.
    Approval,
    /// The ephemeral containers of a pod.
    EphemeralContainers,
    /// The resources of the containers of a pod.
    Resize,
}

impl Facet {
    /// Returns the facet of a subresource, or `None` for another kind of subresource.
    pub(crate) fn of(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Self::Whole,
            "status" => Self::Status,
            "scale" => Self::Scale,
            "finalize" => Self::Finalize,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            _ => return None,
        })
    }

    /// Returns the store whose rules are those of the facet.
    pub(crate) fn store(self, stored: &Stored) -> &ObjectStore {
        match self {
            Self::Whole | Self::Scale => &stored.store,
            Self::Status => stored.status.as_ref().unwrap_or(&stored.store),
            Self::Finalize | Self::Approval => &stored.prepared,
            Self::EphemeralContainers | Self::Resize => &stored.prepared_counted,
        }
    }

    /// Returns whether bodies have the kind of the object.
    pub(crate) fn is_object(self) -> bool {
        self != Self::Scale
    }

    /// Returns what a client sees of an object.
    ///
    /// # Errors
    /// 500 if the object has no scale.
    pub(crate) fn show(
        self,
        rules: &dyn Rules,
        object: &JsonObject,
        complete: bool,
    ) -> Result<JsonObject, RequestError> {
        match self {
            Self::Scale => rules.scale_of(object, complete),
            _ => Ok(object.clone()),
        }
    }

    /// Returns what a client sees of a stored object, in the version of the resource.
    ///
    /// # Errors
    /// 500 if the object has no scale.
    pub(crate) fn shown<'a>(
        self,
        resource: &Resource,
        object: &'a JsonObject,
    ) -> Result<Cow<'a, JsonObject>, RequestError> {
        let shown = match &resource.view {
            Some(view) => Cow::Owned(view.to_shown(object.clone())),
            None => Cow::Borrowed(object),
        };
        match self {
            Self::Scale => Ok(Cow::Owned(resource.rules.scale_of(&shown, false)?)),
            _ => Ok(shown),
        }
    }

    /// Returns a new version of an object, with what a client has requested.
    ///
    /// # Errors
    /// The request is invalid.
    pub(crate) fn change(
        self,
        rules: &dyn Rules,
        object: &JsonObject,
        requested: JsonObject,
        now: &str,
    ) -> Result<JsonObject, RequestError> {
        let mut new = match self {
            Self::Whole | Self::Status => return Ok(requested),
            Self::Scale => rules.set_scale(object, &requested)?,
            Self::Finalize => builtin::finalize_namespace(object, &requested)?,
            Self::Approval => builtin::approve(object, &requested, now)?,
            Self::EphemeralContainers => builtin::set_ephemeral_containers(object, &requested)?,
            Self::Resize => builtin::resize(object, &requested)?,
        };
        // The condition on the version is that of the request, if it has one. The entries are those of this write.
        if self != Self::Scale
            && let Some(metadata) = new.get_mut("metadata").and_then(|it| it.as_object_mut())
        {
            metadata.remove("managedFields");
        }
        for field in ["name", "resourceVersion", "managedFields"] {
            let value = requested
                .get("metadata")
                .and_then(|metadata| metadata.get(field));
            let Some(metadata) = new.get_mut("metadata").and_then(|it| it.as_object_mut()) else {
                continue;
            };
            if let Some(value) = value.filter(|value| value.as_str() != Some("")) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        Ok(new)
    }
}
