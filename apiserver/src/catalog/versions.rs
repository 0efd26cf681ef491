//! Objects in the versions of the entries of `managedFields`.

use std::borrow::Cow;

use revstore_kinds as kinds;
use revstore_structured_merge::{Converted, VersionError, Versions};
use revstore_watch_cache::registry::JsonObject;

use crate::catalog::Presentation;
use crate::catalog::view::View;
use crate::custom::definition::{Definition, Version};
use crate::managed_fields::{Conversions, CustomSchema, KindsSchema};

/// Splits a version of the API into its group and its version.
fn group_and_version(api_version: &str) -> Result<(&str, &str), VersionError> {
    match api_version.split_once('/') {
        None => Ok(("", api_version)),
        Some((_, version)) if version.contains('/') => Err(VersionError::Failed(format!(
            "unexpected GroupVersion string: {api_version}"
        ))),
        Some(parts) => Ok(parts),
    }
}

/// The versions of a built-in kind.
pub(crate) struct KindVersions {
    pub(crate) resource: &'static kinds::Resource,
    /// What distinguishes the other versions of the kind from the one in which it is stored.
    pub(crate) views: Vec<View>,
}

impl Versions for KindVersions {
    type Schema = KindsSchema;

    fn schema(&self) -> KindsSchema {
        KindsSchema::new(self.resource.object())
    }

    fn convert<'a>(
        &'a self,
        object: &'a JsonObject,
        from: &str,
        to: &str,
    ) -> Converted<'a, KindsSchema> {
        let (group, version) = group_and_version(to)?;
        // Versions that are not served have no type in kube-apiserver, either.
        let ty = kinds::kind(group, version, self.resource.kind()).ok_or(VersionError::Unknown)?;
        let schema = KindsSchema::new(ty);
        if from == to {
            return Ok((Cow::Borrowed(object), schema));
        }
        let is_stored = |version| self.views.iter().any(|view| view.stored == version);
        let view = |version: &str| {
            let mut views = self.views.iter();
            let found = views.find(|view| view.shown == version);
            found.ok_or(VersionError::Unknown)
        };
        let mut object = object.clone();
        if !is_stored(from) {
            object = view(from)?.to_stored(object);
        }
        if !is_stored(to) {
            object = view(to)?.to_shown(object);
        }
        Ok((Cow::Owned(object), schema))
    }
}

/// The versions of a custom resource, served or not.
pub(crate) struct CustomVersions<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) version: &'a Version,
    pub(crate) conversions: &'a Conversions,
}

impl<'b> Versions for CustomVersions<'b> {
    type Schema = CustomSchema<'b>;

    fn schema(&self) -> CustomSchema<'b> {
        CustomSchema::new(self.version.schema.as_ref())
    }

    fn convert<'a>(
        &'a self,
        object: &'a JsonObject,
        from: &str,
        to: &str,
    ) -> Converted<'a, CustomSchema<'b>> {
        let (group, name) = group_and_version(to)?;
        let version = self.definition.version(name);
        let version = version.filter(|_| group == &*self.definition.group);
        let version = version.ok_or_else(|| {
            VersionError::Failed(format!(
                "request to convert CR to an invalid group/version: {to}"
            ))
        })?;
        let schema = CustomSchema::new(version.schema.as_ref());
        // Without a webhook the versions differ in nothing but their names, which are not tracked.
        if from == to || self.definition.conversion.is_none() {
            return Ok((Cow::Borrowed(object), schema));
        }
        match self.conversions.get(object, to) {
            Ok(converted) => Ok((Cow::Owned(converted), schema)),
            Err(error) => Err(VersionError::Failed(error)),
        }
    }

    fn ignores_same(&self, version: &str) -> bool {
        // The rules of a version are about its own fields only.
        let _ = version;
        false
    }
}
