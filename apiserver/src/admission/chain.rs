//! All plugins that are on, in their order.

use revstore_structured_merge::read_entries;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;

use crate::admission::{Attributes, Phase, Plugin, PluginNames, TolerationSeconds};

/// The plugins of a server.
#[derive(Debug, Default)]
pub(crate) struct Chain(Vec<Box<dyn Plugin>>);

impl Chain {
    /// Returns the chain of the plugins with some names.
    pub(crate) fn new(names: &PluginNames, seconds: TolerationSeconds) -> Self {
        Self(names.make(seconds))
    }

    /// Returns whether a plugin does something for a request in a phase.
    pub(crate) fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        self.0.iter().any(|plugin| plugin.handles(phase, request))
    }

    /// Changes a new object.
    ///
    /// # Errors
    /// Those of the plugins.
    pub(crate) async fn mutate(
        &self,
        request: &Attributes<'_>,
        mut object: Option<&mut JsonObject>,
    ) -> Result<(), RequestError> {
        loop {
            for plugin in &self.0 {
                if !plugin.handles(Phase::Mutate, request) {
                    continue;
                }
                let before = match &object {
                    Some(object) if plugin.is_foreign() => Some(entries(object)),
                    _ => None,
                };
                plugin.mutate(request, object.as_deref_mut()).await?;
                if let (Some(before), Some(object)) = (before, object.as_deref_mut()) {
                    check_entries(request, object, before);
                }
            }
            if !request.memory.begin_reinvocation() {
                return Ok(());
            }
        }
    }

    /// Checks a complete object, or a deletion.
    ///
    /// # Errors
    /// Those of the plugins.
    pub(crate) async fn validate(
        &self,
        request: &Attributes<'_>,
        object: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        for plugin in &self.0 {
            if plugin.handles(Phase::Validate, request) {
                plugin.validate(request, object).await?;
            }
        }
        Ok(())
    }
}

/// Returns `managedFields` of an object.
fn entries(object: &JsonObject) -> Option<serde_json::Value> {
    object.get("metadata")?.get("managedFields").cloned()
}

/// Restores `managedFields`, with a warning, if they cannot be read any more.
fn check_entries(
    request: &Attributes<'_>,
    object: &mut JsonObject,
    before: Option<serde_json::Value>,
) {
    let Err(error) = read_entries(object) else {
        return;
    };
    request.exchange.warn(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {error}"
    ));
    let metadata = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.as_object_mut());
    if let Some(metadata) = metadata {
        metadata.remove("managedFields");
        metadata.extend(before.map(|entries| ("managedFields".to_owned(), entries)));
    }
}
