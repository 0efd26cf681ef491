//! All plugins that are on, in their order.

use std::time::Instant;

use revstore_structured_merge::read_entries;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;

use crate::admission::{Attributes, Phase, Plugin, PluginNames, TolerationSeconds};

/// The plugins of a server, with their names.
#[derive(Debug, Default)]
pub(crate) struct Chain(Vec<(&'static str, Box<dyn Plugin>)>);

impl Chain {
    /// Returns the chain of the plugins with some names.
    pub(crate) fn new(names: &PluginNames, seconds: TolerationSeconds) -> Self {
        Self(names.make(seconds))
    }

    /// Returns whether a plugin does something for a request in a phase.
    pub(crate) fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        self.0
            .iter()
            .any(|(_, plugin)| plugin.handles(phase, request))
    }

    /// Changes a new object.
    ///
    /// # Errors
    /// Those of the plugins.
    pub(crate) async fn mutate(
        &self,
        request: &Attributes<'_>,
        object: Option<&mut JsonObject>,
    ) -> Result<(), RequestError> {
        let started = Instant::now();
        let result = self.mutate_by_all(request, object).await;
        observe(request, None, Phase::Mutate, started, &result);
        result
    }

    async fn mutate_by_all(
        &self,
        request: &Attributes<'_>,
        mut object: Option<&mut JsonObject>,
    ) -> Result<(), RequestError> {
        loop {
            for (name, plugin) in &self.0 {
                if !plugin.handles(Phase::Mutate, request) {
                    continue;
                }
                let before = match &object {
                    Some(object) if plugin.is_foreign() => Some(entries(object)),
                    _ => None,
                };
                let started = Instant::now();
                let result = plugin.mutate(request, object.as_deref_mut()).await;
                observe(request, Some(name), Phase::Mutate, started, &result);
                result?;
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
        let started = Instant::now();
        let result = self.validate_by_all(request, object).await;
        observe(request, None, Phase::Validate, started, &result);
        result
    }

    async fn validate_by_all(
        &self,
        request: &Attributes<'_>,
        object: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        for (name, plugin) in &self.0 {
            if plugin.handles(Phase::Validate, request) {
                let started = Instant::now();
                let result = plugin.validate(request, object).await;
                observe(request, Some(name), Phase::Validate, started, &result);
                result?;
            }
        }
        Ok(())
    }
}

/// Measures a phase of one plugin, or of all.
fn observe(
    request: &Attributes<'_>,
    plugin: Option<&str>,
    phase: Phase,
    started: Instant,
    result: &Result<(), RequestError>,
) {
    let kind = match phase {
        Phase::Mutate => "admit",
        Phase::Validate => "validate",
    };
    let labels = (request.operation.name(), kind);
    let elapsed = started.elapsed();
    let metrics = &request.front.metrics;
    metrics.admitted(plugin, labels, result.is_err(), elapsed);
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
