//! Validation of the status of jobs, whose rules also apply to controllers of other managers.

use revstore_watch_cache::status::{CauseReason, StatusCause};

use super::indexes;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::table::age::seconds;

/// What the conditions of a job say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "conditions are independent of each other"
)]
struct Conditions {
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_criteria_met: bool,
}

impl Conditions {
    fn of(status: &Field<'_>) -> Self {
        let is_true = |kind: &str| has_condition(status, kind, "True");
        Self {
            complete: is_true("Complete"),
            failed: is_true("Failed"),
            failure_target: is_true("FailureTarget"),
            success_criteria_met: is_true("SuccessCriteriaMet"),
        }
    }

    fn finished(self) -> bool {
        self.complete || self.failed
    }
}

/// Returns whether a condition has a value.
pub(super) fn has_condition(status: &Field<'_>, kind: &str, value: &str) -> bool {
    status.child("conditions").items().any(|condition| {
        condition.child("type").text() == kind && condition.child("status").text() == value
    })
}

/// A status with its previous version. Most rules apply only when a field that they are about has changed,
/// so that other changes of a status remain possible.
struct Transition<'a> {
    spec: Field<'a>,
    status: Field<'a>,
    old: Field<'a>,
    now: Conditions,
    before: Conditions,
}

impl Transition<'_> {
    fn count(&self, name: &'static str) -> i64 {
        self.status.child(name).int().unwrap_or_default()
    }

    fn has_changed(&self, name: &'static str) -> bool {
        let (new, old) = (self.status.child(name), self.old.child(name));
        match (new.int(), old.int()) {
            (None, None) => new.text() != old.text() || new.is_set() != old.is_set(),
            (new, old) => new != old,
        }
    }

    /// Returns whether a number that is 0 if it is absent has changed.
    fn has_count_changed(&self, name: &'static str) -> bool {
        self.count(name) != self.old.child(name).int().unwrap_or_default()
    }

    fn has_time_changed(&self, name: &'static str) -> bool {
        !same_time(&self.status.child(name), &self.old.child(name))
    }

    fn indexed(&self) -> bool {
        self.spec.child("completionMode").text() == "Indexed"
    }

    /// Adds a cause about the conditions.
    fn refuse_conditions(&self, detail: &str, causes: &mut Causes) {
        causes.invalid_part(&self.status.child("conditions"), detail);
    }
}

fn same_time(one: &Field<'_>, two: &Field<'_>) -> bool {
    one.is_set() == two.is_set() && seconds(one.text()) == seconds(two.text())
}

/// Checks a new status of a job.
pub(super) fn check(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (status, old) = (new.child("status"), old.child("status"));
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        causes.check_not_negative(&status.child(name));
    }
    check_uncounted(&status, causes);
    let transition = Transition {
        spec: new.child("spec"),
        now: Conditions::of(&status),
        before: Conditions::of(&old),
        status,
        old,
    };
    check_completion(&transition, causes);
    check_finished(&transition, causes);
    check_indexes(&transition, causes);
    check_pods(&transition, causes);
    check_criteria(&transition, causes);
    check_lasting(&transition, causes);
}

/// Checks that the pods that are not counted yet are named once.
fn check_uncounted(status: &Field<'_>, causes: &mut Causes) {
    let uncounted = status.child("uncountedTerminatedPods");
    let mut seen = std::collections::HashSet::new();
    for list in ["succeeded", "failed"] {
        for uid in uncounted.child(list).items() {
            if uid.text().is_empty() {
                causes.invalid(&uid, "must not be empty");
            }
            causes.check_unique(&uid, &mut seen);
        }
    }
}

fn check_completion(transition: &Transition<'_>, causes: &mut Causes) {
    let (now, before) = (transition.now, transition.before);
    let complete_changed = now.complete != before.complete;
    if (complete_changed || now.failed != before.failed) && now.complete && now.failed {
        let detail = "cannot set Complete=True and Failed=true conditions";
        transition.refuse_conditions(detail, causes);
    }
    if (complete_changed || now.failure_target != before.failure_target)
        && now.complete
        && now.failure_target
    {
        let detail = "cannot set Complete=True and FailureTarget=true conditions";
        transition.refuse_conditions(detail, causes);
    }
    let (start, completion) = (
        transition.status.child("startTime"),
        transition.status.child("completionTime"),
    );
    let time_changed = transition.has_time_changed("completionTime");
    if complete_changed || time_changed {
        if completion.is_set() && !now.complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            causes.invalid(&completion, detail);
        }
        if !completion.is_set() && now.complete {
            causes.required(&completion, "completionTime is required for Complete jobs");
        }
    }
    if (transition.has_time_changed("startTime") || time_changed)
        && start.is_set()
        && completion.is_set()
        && seconds(completion.text()) < seconds(start.text())
    {
        causes.invalid(&completion, "must be equal to or after `startTime`");
    }
}

fn check_finished(transition: &Transition<'_>, causes: &mut Causes) {
    let (now, before) = (transition.now, transition.before);
    let (spec, status) = (&transition.spec, &transition.status);
    if (now.failed != before.failed || transition.has_changed("failedIndexes"))
        && now.failed
        && !now.failure_target
    {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        transition.refuse_conditions(detail, causes);
    }
    if (now.complete != before.complete || now.success_criteria_met != before.success_criteria_met)
        && now.complete
        && !now.success_criteria_met
    {
        let detail =
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        transition.refuse_conditions(detail, causes);
    }
    if !now.finished() {
        return;
    }
    let finished_changed = now.finished() != before.finished();
    let active = status.child("active");
    if (finished_changed || transition.has_count_changed("active"))
        && transition.count("active") > 0
    {
        causes.invalid(&active, "active>0 is invalid for finished job");
    }
    let start = status.child("startTime");
    let needs_no_start = spec.child("suspend").flag() && spec.child("completions").int() == Some(0);
    if (finished_changed || transition.has_time_changed("startTime"))
        && !needs_no_start
        && !start.is_set()
    {
        causes.required(&start, "startTime is required for finished job");
    }
    let uncounted = status.child("uncountedTerminatedPods");
    let changed = !uncounted.equals(&transition.old.child("uncountedTerminatedPods"));
    let pods = uncounted.child("succeeded").len() + uncounted.child("failed").len();
    if (finished_changed || changed) && pods > 0 {
        // The value is in the form of upstream's internal type.
        let list = |name: &'static str| uncounted.child(name).value();
        let message = format!(
            "Invalid value: {{\"Succeeded\":{},\"Failed\":{}}}: must be empty for finished job",
            list("succeeded"),
            list("failed")
        );
        causes.push(StatusCause {
            field: uncounted.path().into(),
            ..StatusCause::new(CauseReason::INVALID, message)
        });
    }
}

fn check_indexes(transition: &Transition<'_>, causes: &mut Causes) {
    let (spec, status) = (&transition.spec, &transition.status);
    let completions = spec.child("completions").int();
    let per_index = spec.child("backoffLimitPerIndex").is_set();
    let (completed, failed) = (
        status.child("completedIndexes"),
        status.child("failedIndexes"),
    );
    let completed_changed = completed.text() != transition.old.child("completedIndexes").text();
    let failed_changed = transition.has_changed("failedIndexes");
    if let Some(completions) = completions {
        if completed_changed && let Err(error) = indexes::count(completed.text(), completions) {
            let detail = format!("error parsing completedIndexes: {error}");
            causes.invalid(&completed, &detail);
        }
        if failed_changed
            && per_index
            && failed.is_set()
            && let Err(error) = indexes::count(failed.text(), completions)
        {
            causes.invalid(&failed, &format!("error parsing failedIndexes: {error}"));
        }
    }
    if completed_changed && !completed.text().is_empty() && !transition.indexed() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        causes.invalid(&completed, detail);
    }
    if failed_changed && !per_index && failed.is_set() {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        causes.invalid(&failed, detail);
    }
    if (failed_changed || completed_changed)
        && let Some(completions) = completions
        && failed.is_set()
        && let Some(index) = indexes::overlap(completed.text(), failed.text(), completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        causes.invalid(&failed, &detail);
    }
}

fn check_pods(transition: &Transition<'_>, causes: &mut Causes) {
    let status = &transition.status;
    let (ready, terminating) = (status.child("ready"), status.child("terminating"));
    let finished_changed = transition.now.finished() != transition.before.finished();
    if (finished_changed || transition.has_changed("terminating"))
        && transition.count("terminating") > 0
        && transition.now.finished()
    {
        causes.invalid(&terminating, "terminating>0 is invalid for finished job");
    }
    if (transition.has_changed("ready") || transition.has_count_changed("active"))
        && ready.is_set()
        && transition.count("ready") > transition.count("active")
    {
        causes.invalid(&ready, "cannot set more ready pods than active");
    }
}

fn check_criteria(transition: &Transition<'_>, causes: &mut Causes) {
    let now = transition.now;
    if now.success_criteria_met && now.failed {
        let detail = "cannot set SuccessCriteriaMet=True and Failed=true conditions";
        transition.refuse_conditions(detail, causes);
    }
    if now.success_criteria_met && now.failure_target {
        let detail = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
        transition.refuse_conditions(detail, causes);
    }
    let has_policy = transition.spec.child("successPolicy").is_set();
    if has_policy && !now.success_criteria_met && now.complete {
        let detail =
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        transition.refuse_conditions(detail, causes);
    }
}

/// Checks what cannot be taken back.
fn check_lasting(transition: &Transition<'_>, causes: &mut Causes) {
    let (now, before) = (transition.now, transition.before);
    let (spec, status, old) = (&transition.spec, &transition.status, &transition.old);
    for (kind, was, is) in [
        ("Failed", before.failed, now.failed),
        ("Complete", before.complete, now.complete),
        ("FailureTarget", before.failure_target, now.failure_target),
    ] {
        if was && !is {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            transition.refuse_conditions(&detail, causes);
        }
    }
    let decreases =
        |name: &'static str| transition.count(name) < old.child(name).int().unwrap_or_default();
    let refuse = |name: &'static str, causes: &mut Causes| {
        let detail = format!("cannot decrease the {name} counter");
        causes.invalid_at(status.child(name).path(), transition.count(name), &detail);
    };
    if decreases("failed") {
        refuse("failed", causes);
    }
    // An indexed job with as many pods as indexes can be scaled down.
    let scales =
        transition.indexed() && spec.child("completions").int() == spec.child("parallelism").int();
    if !scales && decreases("succeeded") {
        refuse("succeeded", causes);
    }
    let (completion, start) = (status.child("completionTime"), status.child("startTime"));
    if completion.is_set()
        && old.child("completionTime").is_set()
        && transition.has_time_changed("completionTime")
    {
        causes.invalid(&completion, names::IMMUTABLE);
    }
    let resuming =
        has_condition(old, "Suspended", "True") && has_condition(status, "Suspended", "False");
    if transition.has_time_changed("startTime")
        && !resuming
        && old.child("startTime").is_set()
        && !spec.child("suspend").flag()
    {
        let detail = "field is immutable for unsuspended job once set";
        causes.invalid(&start, detail);
    }
    if before.success_criteria_met && !now.success_criteria_met {
        let detail = "cannot disable the SuccessCriteriaMet=True condition";
        transition.refuse_conditions(detail, causes);
    }
    if before.complete && !before.success_criteria_met && now.success_criteria_met {
        let detail =
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        transition.refuse_conditions(detail, causes);
    }
}
