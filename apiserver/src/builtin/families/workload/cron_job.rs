//! Cron jobs.

use revstore_watch_cache::registry::JsonObject;

use super::super::pod::default_template;
use super::job;
use super::schedule::{self, schedule_error};
use crate::builtin::causes::Causes;
use crate::builtin::edit::{ensure, set_unset, set_zero};
use crate::builtin::field::Field;
use crate::builtin::rules::Kind;

/// The maximum length of the name of a cron job: those of its jobs have 11 more characters.
const NAME_BYTES_MAX: usize = 52;

pub(super) const KIND: Kind = Kind {
    default: default_cron_job,
    validate: check_cron_job,
    validate_create: check_name,
    ..Kind::new("batch", "CronJob")
        .with_status()
        .with_generation()
};

fn default_cron_job(cron_job: &mut JsonObject) {
    let Some(spec) = ensure(cron_job, "spec") else {
        return;
    };
    set_zero(spec, "concurrencyPolicy", "Allow");
    set_unset(spec, "suspend", false);
    set_unset(spec, "successfulJobsHistoryLimit", 3);
    set_unset(spec, "failedJobsHistoryLimit", 1);
    let job = ensure(spec, "jobTemplate").and_then(|template| ensure(template, "spec"));
    if let Some(job) = job {
        default_template(job, "template");
        job::default_failure_policy(job);
    }
}

fn check_cron_job(cron_job: &Field<'_>, causes: &mut Causes) {
    let spec = cron_job.child("spec");
    let schedule = spec.child("schedule");
    if causes.check_required(&schedule) {
        if let Some(detail) = schedule_error(schedule.text()) {
            causes.invalid(&schedule, &detail);
        }
        if schedule.text().contains("TZ") {
            causes.invalid(
                &schedule,
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            );
        }
    }
    causes.check_not_negative(&spec.child("startingDeadlineSeconds"));
    schedule::check_zone(&spec.child("timeZone"), causes);
    causes.check_required_one_of(
        &spec.child("concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
    );
    let template = spec.at(&["jobTemplate", "spec"]);
    job::check_spec(&template, causes);
    let selector = template.child("selector");
    if selector.is_set() {
        causes.invalid(&selector, "`selector` will be auto-generated");
    }
    let manual = template.child("manualSelector");
    if manual.flag() {
        causes.not_supported(&manual, &["nil", "false"]);
    }
    causes.check_not_negative(&spec.child("successfulJobsHistoryLimit"));
    causes.check_not_negative(&spec.child("failedJobsHistoryLimit"));
}

/// Checks the name of a new cron job.
fn check_name(cron_job: &Field<'_>, causes: &mut Causes) {
    let name = cron_job.at(&["metadata", "name"]);
    if name.text().len() > NAME_BYTES_MAX {
        causes.invalid(&name, "must be no more than 52 characters");
    }
}
