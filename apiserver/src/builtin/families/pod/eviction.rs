//! Evictions of pods, and the disruption budgets that forbid and count them.

use serde_json::json;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{
    CauseReason, Reason, ResourceName, Status, StatusCause, StatusDetails,
};

use super::subresource::{name_of, set_condition};
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::selector;

/// What the eviction of a pod depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionCase {
    /// The pod has ended, or its deletion has begun: nothing.
    Ended,
    /// The pod does not run yet: it must not have begun to.
    Pending,
    /// The pod runs: the disruption budgets.
    Running,
}

impl EvictionCase {
    /// Returns the case of a pod.
    pub fn of(pod: &JsonObject) -> Self {
        let phase = edit::text_at(pod, &["status", "phase"]);
        if ["Succeeded", "Failed"].contains(&phase)
            || edit::at(pod, &["metadata", "deletionTimestamp"]).is_some()
        {
            Self::Ended
        } else if phase == "Pending" {
            Self::Pending
        } else {
            Self::Running
        }
    }
}

/// Returns a pod with the condition of one that is evicted, which matters if it keeps running for a while. `pod` is the
/// latest version, for which the preconditions of the deletion must hold.
///
/// # Errors
/// 409.
pub fn mark_evicted(
    pod: &JsonObject,
    preconditions: &Preconditions,
    now: &str,
) -> Result<JsonObject, RequestError> {
    let conflict = |detail: String| {
        let resource = ResourceName::new("", "Pod");
        RequestError::from(Status::conflict(&resource, name_of(pod), &detail))
    };
    let (uid, version) = (&preconditions.uid, &preconditions.resource_version);
    let differs = |expected: &Option<String>, field: &str| {
        let found = edit::text_at(pod, &["metadata", field]);
        let expected = expected.as_deref().filter(|expected| !expected.is_empty());
        let expected = expected.filter(|expected| *expected != found);
        expected.map(|expected| (expected.to_owned(), found.to_owned()))
    };
    if let Some((expected, found)) = differs(uid, "uid") {
        return Err(conflict(format!(
            "the UID in the precondition ({expected}) does not match the UID in record ({found}). The object might have \
             been deleted and then recreated"
        )));
    }
    if let Some((expected, found)) = differs(version, "resourceVersion") {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record \
             ({found}). The object might have been modified"
        )));
    }
    let mut evicted = pod.clone();
    set_condition(
        &mut evicted,
        json!({
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": null,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }),
        now,
    );
    Ok(evicted)
}

/// Returns the disruption budget of a pod among those of its namespace.
///
/// # Errors
/// 500 if several budgets select the pod.
pub fn budget_of<'a>(
    pod: &JsonObject,
    budgets: &'a [JsonObject],
) -> Result<Option<&'a JsonObject>, RequestError> {
    let labels = Field::root(pod).at(&["metadata", "labels"]);
    let mut selecting = budgets.iter().filter(|budget| {
        selector::matches(&Field::root(budget).at(&["spec", "selector"]), &labels)
    });
    let (first, second) = (selecting.next(), selecting.next());
    if second.is_some() {
        return Err(Status::internal_error(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
             support.",
        ).into());
    }
    Ok(first)
}

/// Returns whether a budget counts the eviction of a pod. It need not if the pod is not ready anyway.
pub fn counts_eviction(budget: &JsonObject, pod: &JsonObject) -> bool {
    let ready = Field::root(pod)
        .at(&["status", "conditions"])
        .items()
        .any(|condition| {
            condition.child("type").text() == "Ready" && condition.child("status").text() == "True"
        });
    if ready {
        return true;
    }
    let status = Field::root(budget).child("status");
    let number = |name| status.child(name).int().unwrap_or_default();
    let always = edit::text_at(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
    let is_undisrupted =
        number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
    !always && !is_undisrupted
}

/// The seconds after which a client may try again while a budget is unprocessed.
const RETRY_SECONDS: u32 = 10;
/// The maximum number of evictions that a budget counts and its controller has not seen.
const DISRUPTED_MAX: usize = 2000;

/// Returns the error of an eviction whose budget does not say yet whether it is allowed.
pub fn unprocessed_budget(name: &str) -> RequestError {
    let cause = format!("The disruption budget {name} is still being processed by the server.");
    refused(cause, RETRY_SECONDS)
}

fn refused(cause: String, retry_seconds: u32) -> RequestError {
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::failure(Reason::TooManyRequests, text)
        .with_details(StatusDetails {
            retry_after_seconds: retry_seconds,
            ..StatusDetails::default()
        })
        .with_causes([StatusCause::new(
            CauseReason("DisruptionBudget".into()),
            cause,
        )])
        .into()
}

/// Returns a disruption budget that counts the eviction of a pod.
///
/// # Errors
/// 429 while it forbids the eviction, 403 if it is invalid or counts too many.
pub fn count_eviction(
    budget: &JsonObject,
    pod: &str,
    now: &str,
) -> Result<JsonObject, RequestError> {
    let (root, name) = (Field::root(budget), name_of(budget));
    let status = root.child("status");
    let number = |name| status.child(name).int().unwrap_or_default();
    let generation = root
        .at(&["metadata", "generation"])
        .int()
        .unwrap_or_default();
    if number("observedGeneration") < generation {
        return Err(unprocessed_budget(name));
    }
    let forbidden = |detail: &str| {
        let resource = ResourceName::new("policy", "poddisruptionbudget");
        RequestError::from(Status::forbidden(&resource, name, detail))
    };
    if number("disruptionsAllowed") < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if status.child("disruptedPods").len() > DISRUPTED_MAX {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    let allowed = number("disruptionsAllowed");
    if allowed == 0 {
        let (needed, healthy) = (number("desiredHealthy"), number("currentHealthy"));
        let mut conditions = status.child("conditions").items();
        let told = conditions.find(|condition| {
            condition.child("type").text() == "DisruptionAllowed"
                && condition.child("status").text() == "False"
                && !condition.child("message").text().is_empty()
        });
        let told = told.map(|told| (told.child("reason").text(), told.child("message").text()));
        let cause = match told {
            Some(("SyncFailed", message)) => format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed \
                 sync: {message}"
            ),
            _ if healthy <= needed => format!(
                "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            ),
            Some((reason, message)) => format!(
                "The disruption budget {name} does not allow evicting pods currently ({reason}): \
                 {message}"
            ),
            None => {
                format!("The disruption budget {name} does not allow evicting pods currently")
            }
        };
        return Err(refused(cause, 0));
    }
    let mut counted = budget.clone();
    if let Some(status) = edit::ensure(&mut counted, "status") {
        status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
        if let Some(pods) = edit::ensure(status, "disruptedPods") {
            pods.insert(pod.to_owned(), now.into());
        }
    }
    if allowed == 1 {
        set_condition(
            &mut counted,
            json!({
                "type": "DisruptionAllowed",
                "status": "False",
                "reason": "InsufficientPods",
                "message": "",
                "observedGeneration": generation,
            }),
            now,
        );
    }
    Ok(counted)
}
