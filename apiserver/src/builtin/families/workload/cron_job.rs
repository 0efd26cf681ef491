//! Cron jobs.

use revstore_watch_cache::registry::JsonObject;

use super::super::pod::default_template;
use super::job;
use crate::builtin::causes::Causes;
use crate::builtin::edit::{ensure, set_unset, set_zero};
use crate::builtin::field::Field;
use crate::builtin::rules::Kind;

/// The maximum length of the name of a cron job: those of its jobs have 11 more characters.
const NAME_BYTES_MAX: usize = 52;

pub(super) const KIND: Kind = Kind {
    default: default_cron_job,
    validate: check_cron_job,
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
    let zone = spec.child("timeZone");
    if zone.is_set() && zone.text().is_empty() {
        causes.invalid(&zone, "timeZone must be nil or non-empty string");
    }
    causes.check_required_one_of(
        &spec.child("concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
    );
    let template = spec.at(&["jobTemplate", "spec"]);
    if template.child("manualSelector").flag() {
        let field = template.child("manualSelector");
        causes.not_supported(&field, &["nil", "false"]);
    }
    job::check_spec(&template, causes);
    causes.check_not_negative(&spec.child("successfulJobsHistoryLimit"));
    causes.check_not_negative(&spec.child("failedJobsHistoryLimit"));
    let name = cron_job.at(&["metadata", "name"]);
    if name.text().len() > NAME_BYTES_MAX {
        causes.invalid(&name, "must be no more than 52 characters");
    }
}

/// The fields of a schedule: their names and ranges.
const FIELDS: [(&str, u32, u32); 5] = [
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Returns what is wrong with a schedule in the format of cron.
fn schedule_error(schedule: &str) -> Option<String> {
    if let Some(descriptor) = schedule.strip_prefix('@') {
        let known = [
            "yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly",
        ];
        let is_known = known.contains(&descriptor) || descriptor.starts_with("every ");
        return (!is_known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let mut words: Vec<&str> = schedule.split_whitespace().collect();
    if words
        .first()
        .is_some_and(|word| word.starts_with("TZ=") || word.starts_with("CRON_TZ="))
    {
        words.remove(0);
    }
    if words.len() != FIELDS.len() {
        return Some(format!(
            "expected exactly 5 fields, found {}: [{}]",
            words.len(),
            words.join(" ")
        ));
    }
    words
        .iter()
        .zip(FIELDS)
        .flat_map(|(word, field)| word.split(',').map(move |part| (part, field)))
        .find_map(|(part, field)| part_error(part, field))
}

fn part_error(part: &str, (name, min, max): (&str, u32, u32)) -> Option<String> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    if let Some(step) = step
        && !step.parse::<u32>().is_ok_and(|step| step > 0)
    {
        return Some(format!(
            "failed to parse int from {step}: invalid step in {part}"
        ));
    }
    if range == "*" || range == "?" {
        return None;
    }
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| {
        let named = |names: &[&str], first: u32| {
            let index = names
                .iter()
                .position(|known| text.eq_ignore_ascii_case(known))?;
            u32::try_from(index).ok().map(|index| index + first)
        };
        let of_name = match name {
            "month" => named(&MONTHS, 1),
            "weekday" => named(&WEEKDAYS, 0),
            _ => None,
        };
        of_name.or_else(|| text.parse().ok())
    };
    let (Some(from), Some(to)) = (number(from), number(to)) else {
        return Some(format!("failed to parse int from {range}: invalid syntax"));
    };
    if from < min {
        Some(format!(
            "beginning of range ({from}) below minimum ({min}): {part}"
        ))
    } else if to > max {
        Some(format!("end of range ({to}) above maximum ({max}): {part}"))
    } else if from > to {
        Some(format!(
            "beginning of range ({from}) beyond end of range ({to}): {part}"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::schedule_error;

    #[test]
    fn schedules_are_checked() {
        for good in ["*/5 * * * *", "0 0 1,15 jan-mar MON", "@daily", "@every 5m"] {
            assert_eq!(schedule_error(good), None, "{good}");
        }
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "*/0 * * * *",
            "5-1 * * * *",
            "@never",
            "a * * * *",
        ] {
            assert!(schedule_error(bad).is_some(), "{bad}");
        }
    }
}
