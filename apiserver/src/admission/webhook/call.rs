//! The call of one webhook, and the errors of requests that follow from it.

use std::time::Instant;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{Reason, Status};
use serde_json::Value;

use super::hook::Hook;
use super::matches::Invocation;
use super::review::{ReviewVersion, Verdict};
use crate::admission::Attributes;
use crate::metrics::{Outcome, WebhookCall};
use crate::webhook::new_uid;

/// The lowest code of a denial.
const DENIAL_CODE_MIN: u16 = 400;
/// The code of a call that has failed without one.
pub(super) const UNAVAILABLE: u16 = 503;

/// Why a webhook did not allow a request.
#[derive(Debug)]
pub(super) enum Failure {
    /// The webhook could not be asked, which its failure policy may ignore. The code is that of metrics.
    Call { reason: String, code: u16 },
    /// The webhook denies the request.
    Denied(Box<Status>),
    /// The server fails to do what the webhook wants.
    Internal(RequestError),
}

impl Failure {
    /// Returns the failure of a call.
    pub(super) fn call(hook: &Hook, code: u16, reason: impl std::fmt::Display) -> Self {
        Self::Call {
            reason: format!("failed calling webhook {:?}: {reason}", hook.name),
            code,
        }
    }

    /// Returns the error of the request, or `None` if the webhook is ignored.
    pub(super) fn error(self, hook: &Hook) -> Option<RequestError> {
        match self {
            Self::Call { .. } if hook.ignores_failures => None,
            Self::Call { reason, .. } => Some(RequestError::Internal(reason)),
            Self::Denied(status) => Some((*status).into()),
            Self::Internal(error) => Some(error),
        }
    }
}

/// A call that is counted with its time: as a failure if its request ends before it does.
#[must_use]
pub(super) struct Observed<'a, 'b> {
    request: &'a Attributes<'b>,
    hook: &'a Hook,
    is_mutating: bool,
    began: Instant,
    outcome: Outcome,
}

impl<'a, 'b> Observed<'a, 'b> {
    /// Begins a call.
    pub(super) fn begin(request: &'a Attributes<'b>, hook: &'a Hook, is_mutating: bool) -> Self {
        Self {
            request,
            hook,
            is_mutating,
            began: Instant::now(),
            outcome: Outcome::Failed {
                code: UNAVAILABLE,
                ignored: hook.ignores_failures,
            },
        }
    }

    /// Ends the call.
    pub(super) fn end(mut self, failure: Option<&Failure>) {
        self.outcome = match failure {
            None => Outcome::Allowed,
            Some(Failure::Call { code, .. }) => Outcome::Failed {
                code: *code,
                ignored: self.hook.ignores_failures,
            },
            Some(Failure::Denied(status)) => Outcome::Denied(status.code),
            Some(Failure::Internal(_)) => Outcome::Internal,
        };
    }
}

impl Drop for Observed<'_, '_> {
    fn drop(&mut self) {
        let call = WebhookCall {
            name: &self.hook.name,
            is_mutating: self.is_mutating,
            operation: self.request.operation.name(),
        };
        let metrics = &self.request.front.webhook_metrics;
        metrics.observe(call, self.began.elapsed(), self.outcome);
    }
}

/// Asks a webhook about the objects in the version that it wants.
///
/// # Errors
/// [`Failure`], also if the webhook denies the request.
pub(super) async fn call(
    request: &Attributes<'_>,
    invocation: &Invocation<'_>,
    is_mutating: bool,
    object: Option<&JsonObject>,
    old: Option<&JsonObject>,
) -> Result<Verdict, Failure> {
    let hook = invocation.hook;
    if request.dry_run {
        match hook.allows_dry_run {
            Some(true) => {}
            Some(false) => {
                let message = format!("admission webhook {:?} does not support dry run", hook.name);
                return Err(Failure::Internal(RequestError::BadRequest(message)));
            }
            None => return Err(Failure::call(hook, 400, "Webhook SideEffects is nil")),
        }
    }
    let version = ReviewVersion::of(&hook.review_versions).ok_or_else(|| {
        Failure::call(
            hook,
            400,
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)",
        )
    })?;
    let endpoint = hook
        .endpoint
        .as_ref()
        .map_err(|error| Failure::call(hook, 500, format!("could not get REST client: {error}")))?;
    let uid = new_uid();
    let body = version.request(&uid, request, invocation, object, old);
    let failed = |code: Option<u16>, error: &dyn std::fmt::Display| {
        let code = code.unwrap_or(UNAVAILABLE);
        Failure::call(hook, code, format!("failed to call webhook: {error}"))
    };
    let clients = &request.front.webhooks;
    let left = request.exchange.deadline;
    let left = left.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let answer = clients.call(endpoint, body, hook.timeout, left).await;
    let answer = answer.map_err(|error| failed(error.code(), &error))?;
    let review = version
        .decode(&answer)
        .map_err(|error| failed(None, &error))?;
    let verdict = version
        .verdict(&uid, is_mutating, review)
        .map_err(|error| {
            let reason = format!("received invalid webhook response: {error}");
            Failure::call(hook, UNAVAILABLE, reason)
        })?;
    for (key, value) in &verdict.annotations {
        request
            .exchange
            .annotate(format!("{}/{key}", hook.name), value.as_str());
    }
    for warning in &verdict.warnings {
        request.exchange.warn(warning.as_str());
    }
    if verdict.allowed {
        return Ok(verdict);
    }
    let denial = denial(&hook.name, &verdict.result);
    Err(Failure::Denied(Box::new(denial)))
}

/// Returns the status of a denied request.
fn denial(name: &str, result: &Value) -> Status {
    let text = |field: &str| {
        result
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let by = format!("admission webhook {name:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let mut status = Status::default();
    let code = result
        .get("code")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    status.code = u16::try_from(code).unwrap_or_default().max(DENIAL_CODE_MIN);
    status.reason = Reason::from_name(text("reason"));
    status.message = message;
    let details = result.get("details").filter(|details| details.is_object());
    status.details = details.and_then(|details| serde_json::from_value(details.clone()).ok());
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn denials_have_the_status_of_the_webhook() {
        let check = |result: Value, code: u16, reason: Option<Reason>, message: &str| {
            let status = denial("x", &result);
            assert_eq!((status.code, status.reason), (code, reason));
            assert_eq!(
                status.message,
                format!("admission webhook \"x\" denied the request{message}")
            );
        };
        check(Value::Null, 400, None, " without explanation");
        check(json!({"message": "no"}), 400, None, ": no");
        let forbidden = json!({"reason": "Forbidden", "code": 403});
        check(forbidden, 403, Some(Reason::Forbidden), ": Forbidden");
        check(json!({"code": 200}), 400, None, " without explanation");
        check(json!({"code": -1}), 400, None, " without explanation");
    }
}
