//! The plugin `ValidatingAdmissionWebhook`.

use std::borrow::Cow;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;

use super::call::{Observed, call};
use super::is_exempt;
use super::matches::{Invocation, invocation};
use super::source::Source;
use crate::admission::{Attributes, Decision, Phase, Plugin};

/// What the key of the audit annotation of an ignored failure begins with.
const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io";

/// Asks webhooks whether a request is allowed, all of them at the same time.
#[derive(Debug)]
pub(crate) struct ValidatingWebhooks(Source);

impl Default for ValidatingWebhooks {
    fn default() -> Self {
        Self(Source::new("validatingwebhookconfigurations"))
    }
}

impl ValidatingWebhooks {
    async fn dispatch(
        &self,
        request: &Attributes<'_>,
        object: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        let hooks = self.0.hooks(request).await?;
        let mut invocations = Vec::new();
        for hook in hooks.iter() {
            invocations.extend(invocation(hook, request, object).await?);
        }
        let mut asked: FuturesUnordered<_> = invocations
            .iter()
            .enumerate()
            .map(|(index, invocation)| ask(request, invocation, index, object))
            .collect();
        // All are awaited, and the first error counts.
        let mut first = Ok(());
        while let Some(answer) = asked.next().await {
            first = first.and(answer);
        }
        first
    }
}

/// Asks one webhook. `index` is its number among those that are asked.
async fn ask(
    request: &Attributes<'_>,
    invocation: &Invocation<'_>,
    index: usize,
    object: Option<&JsonObject>,
) -> Result<(), RequestError> {
    let hook = invocation.hook;
    let new = shown(request, invocation, object).await?;
    let old = shown(request, invocation, request.old).await?;
    let observed = Observed::begin(request, hook, false);
    let asked = call(request, invocation, false, new.as_deref(), old.as_deref()).await;
    observed.end(asked.as_ref().err());
    let Err(failure) = asked else {
        return Ok(());
    };
    if let Some(error) = failure.error(hook) {
        return Err(error);
    }
    let key = format!("{FAILED_OPEN}/round_0_index_{index}");
    request.exchange.annotate(key, hook.name.as_str());
    Ok(())
}

/// Returns an object in the version that a webhook wants.
pub(super) async fn shown<'a>(
    request: &Attributes<'_>,
    invocation: &Invocation<'_>,
    object: Option<&'a JsonObject>,
) -> Result<Option<Cow<'a, JsonObject>>, RequestError> {
    // Objects of another kind, such as scales, have one version.
    let is_own = request.kind.kind == request.resource.names.kind;
    match (&invocation.other, object) {
        (Some(other), Some(object)) if is_own => {
            let converted = request.resource.convert_to(other, object.clone()).await;
            let converted = converted.map_err(|error| RequestError::Internal(error.to_string()))?;
            Ok(Some(Cow::Owned(converted)))
        }
        (_, object) => Ok(object.map(Cow::Borrowed)),
    }
}

impl Plugin for ValidatingWebhooks {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate && !self.0.is_empty(request) && !is_exempt(request)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(self.dispatch(request, object))
    }
}
