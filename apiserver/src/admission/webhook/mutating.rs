//! The plugin `MutatingAdmissionWebhook`.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use super::call::{Failure, Observed, UNAVAILABLE, call};
use super::hook::Hook;
use super::is_exempt;
use super::matches::{Invocation, invocation};
use super::review::Verdict;
use super::source::Source;
use super::validating::shown;
use super::versions::equivalents;
use crate::admission::{Attributes, Calls, Decision, Phase, Plugin};
use crate::patch::JsonPatch;

/// The name of the plugin.
const NAME: &str = "MutatingAdmissionWebhook";
/// What the keys of audit annotations begin with.
const MUTATION: &str = "mutation.webhook.admission.k8s.io";
const PATCH: &str = "patch.webhook.admission.k8s.io";
const FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io";

/// Lets webhooks change the objects of requests, one after the other.
#[derive(Debug)]
pub(crate) struct MutatingWebhooks(Source);

impl Default for MutatingWebhooks {
    fn default() -> Self {
        Self(Source::new("mutatingwebhookconfigurations"))
    }
}

/// The webhooks that were asked, by their identifiers.
type Asked = Calls<String>;

impl MutatingWebhooks {
    async fn dispatch(
        &self,
        request: &Attributes<'_>,
        mut object: Option<&mut JsonObject>,
    ) -> Result<(), RequestError> {
        let memory = request.memory;
        let is_second = memory.is_reinvocation();
        let hooks = self.0.hooks(request).await?;
        if hooks.is_empty() {
            return Ok(());
        }
        if is_second {
            memory.with(NAME, |asked: &mut Asked| {
                asked.begin_again(object.as_deref());
            });
        }
        for (index, hook) in hooks.iter().enumerate() {
            let Some(invocation) = invocation(hook, request, object.as_deref()).await? else {
                continue;
            };
            let is_due = |asked: &mut Asked| asked.is_due(&hook.uid);
            if is_second && memory.with(NAME, is_due) != Some(true) {
                continue;
            }
            let round = format!("round_{}_index_{index}", u8::from(is_second));
            let observed = Observed::begin(request, hook, true);
            let changed = self
                .ask(request, &invocation, &round, object.as_deref_mut())
                .await;
            observed.end(changed.as_ref().err());
            let is_changed = matches!(changed, Ok(true));
            annotate(
                request,
                MUTATION,
                &round,
                &json!({
                    "configuration": hook.configuration, "webhook": hook.name, "mutated": is_changed,
                }),
            );
            memory.with(NAME, |asked: &mut Asked| {
                if is_changed {
                    asked.repeat();
                }
                if hook.is_reinvocable {
                    asked.add(hook.uid.clone());
                }
            });
            if is_changed {
                memory.request_reinvocation();
            }
            if let Err(failure) = changed {
                match failure.error(hook) {
                    Some(error) => return Err(error),
                    None => request
                        .exchange
                        .annotate(format!("{FAILED_OPEN}/{round}"), hook.name.as_str()),
                }
            }
        }
        memory.with(NAME, |asked: &mut Asked| asked.end(object.as_deref()));
        Ok(())
    }

    /// Asks one webhook. Returns whether it has changed the object.
    async fn ask(
        &self,
        request: &Attributes<'_>,
        invocation: &Invocation<'_>,
        round: &str,
        object: Option<&mut JsonObject>,
    ) -> Result<bool, Failure> {
        let hook = invocation.hook;
        let new = shown(request, invocation, object.as_deref()).await;
        let new = new.map_err(Failure::Internal)?;
        let old = shown(request, invocation, request.old).await;
        let old = old.map_err(Failure::Internal)?;
        let asked = call(request, invocation, true, new.as_deref(), old.as_deref());
        let verdict = asked.await?;
        let Some(patch) = patch(hook, &verdict)? else {
            return Ok(false);
        };
        let Some(new) = new else {
            let message = format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                hook.name
            );
            return Err(Failure::Internal(RequestError::Internal(message)));
        };
        let before = new.into_owned();
        let patched = patched(request, invocation, &patch, &before).map_err(Failure::Internal)?;
        let shown: Value = serde_json::from_slice(verdict.patch.as_deref().unwrap_or_default())
            .unwrap_or_default();
        annotate(
            request,
            PATCH,
            round,
            &json!({
                "configuration": hook.configuration,
                "webhook": hook.name,
                "patch": shown,
                "patchType": "JSONPatch",
            }),
        );
        let is_changed = patched != before;
        if let (true, Some(object)) = (is_changed, object) {
            *object = match &invocation.other {
                Some(other) if request.kind.kind == request.resource.names.kind => {
                    let back = other.convert_to(request.resource, patched).await;
                    back.map_err(|error| {
                        Failure::Internal(RequestError::Internal(error.to_string()))
                    })?
                }
                _ => patched,
            };
        }
        Ok(is_changed)
    }
}

/// Returns the patch of an answer, or `None` if it has no operations.
fn patch(hook: &Hook, verdict: &Verdict) -> Result<Option<JsonPatch>, Failure> {
    let Some(bytes) = &verdict.patch else {
        return Ok(None);
    };
    let (patch, _) = JsonPatch::from_body(bytes, false).map_err(|error| {
        Failure::call(
            hook,
            UNAVAILABLE,
            format!("received undecodable patch in webhook response: {error}"),
        )
    })?;
    if patch.is_empty() {
        return Ok(None);
    }
    if verdict.patch_type != "JSONPatch" {
        return Err(Failure::call(
            hook,
            400,
            format!("unsupported patch type {:?}", verdict.patch_type),
        ));
    }
    Ok(Some(patch))
}

/// Returns an object with the changes of a webhook, which has the fields and defaults of its kind.
fn patched(
    request: &Attributes<'_>,
    invocation: &Invocation<'_>,
    patch: &JsonPatch,
    before: &JsonObject,
) -> Result<JsonObject, RequestError> {
    let internal = |text: String| RequestError::Internal(text);
    let result = patch.apply(&Value::Object(before.clone()));
    let Value::Object(mut new) = result.map_err(|error| internal(error.to_string()))? else {
        return Err(internal(
            "the result of the patch is not an object".to_owned(),
        ));
    };
    let text = |object: &JsonObject, field: &str| {
        let text = object.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let is_other_version = text(&new, "kind") == text(before, "kind")
        && equivalents(request)
            .iter()
            .any(|other| other.names.api_version() == text(&new, "apiVersion"));
    if is_other_version {
        // What it has is read as the version that the webhook was asked about.
        new.insert("apiVersion".to_owned(), text(before, "apiVersion").into());
    }
    for field in ["apiVersion", "kind"] {
        if text(&new, field).is_empty() {
            new.insert(field.to_owned(), text(before, field).into());
        }
        if text(&new, field) != text(before, field) {
            return Err(internal(format!(
                "no kind {:?} is registered for version {:?} in scheme \"pkg/runtime/scheme.go:111\"",
                text(&new, "kind"),
                text(&new, "apiVersion")
            )));
        }
    }
    let resource = invocation.other.as_deref().unwrap_or(request.resource);
    if request.kind.kind == request.resource.names.kind {
        resource
            .rules
            .conform(&mut new)
            .map_err(|error| internal(without_kind(&error.to_string()).to_owned()))?;
    }
    Ok(new)
}

/// Returns the text of an error without the kind that it names, as a decoder says it.
fn without_kind(text: &str) -> &str {
    let (_, rest) = text
        .split_once(" cannot be handled as a ")
        .unwrap_or(("", text));
    match rest.split_once(": ") {
        Some((_, detail)) if rest.len() < text.len() => detail,
        _ => text,
    }
}

fn annotate(request: &Attributes<'_>, prefix: &str, round: &str, value: &Value) {
    request
        .exchange
        .annotate(format!("{prefix}/{round}"), value.to_string());
}

impl Plugin for MutatingWebhooks {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate && !self.0.is_empty(request) && !is_exempt(request)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(self.dispatch(request, object))
    }
}
