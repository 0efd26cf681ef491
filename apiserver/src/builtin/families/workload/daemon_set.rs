//! Daemon sets.

use serde_json::Value;

use revstore_watch_cache::registry::JsonObject;

use super::super::pod::{Owner, check_template, default_template};
use super::{check_counts, check_not_empty, check_selected, int_or_percent, selects};
use crate::builtin::causes::Causes;
use crate::builtin::edit::{at, ensure, set_unset, set_zero, text};
use crate::builtin::field::{Field, values_equal};
use crate::builtin::rules::Kind;

/// The annotation that counts the versions of the template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) const KIND: Kind = Kind {
    default: default_set,
    create: |set, _| set_template_generation(set, 1),
    update: |new, old| {
        let template = |set: &JsonObject| at(set, &["spec", "template"]).cloned();
        let same = values_equal(
            &template(new).unwrap_or_default(),
            &template(old).unwrap_or_default(),
        );
        let count = template_generation(old);
        set_template_generation(new, if same { count } else { count + 1 });
    },
    validate: check_set,
    validate_update: |new, old, causes| {
        let path = ["spec", "selector"];
        causes.check_immutable(&new.at(&path), &old.at(&path));
    },
    validate_status: |new, _, causes| {
        let names = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        check_counts(&new.child("status"), &names, causes);
    },
    ..Kind::new("apps", "DaemonSet")
        .with_status()
        .with_generation()
};

fn template_generation(set: &JsonObject) -> i64 {
    let text = at(set, &["metadata", "annotations", TEMPLATE_GENERATION]);
    text.and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

fn set_template_generation(set: &mut JsonObject, count: i64) {
    let annotations = ensure(set, "metadata").and_then(|metadata| ensure(metadata, "annotations"));
    if let Some(annotations) = annotations {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), count.to_string().into());
    }
}

fn default_set(set: &mut JsonObject) {
    let Some(spec) = ensure(set, "spec") else {
        return;
    };
    if let Some(strategy) = ensure(spec, "updateStrategy") {
        set_zero(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = ensure(strategy, "rollingUpdate")
        {
            set_unset(rolling, "maxUnavailable", 1);
            set_unset(rolling, "maxSurge", 0);
        }
    }
    set_unset(spec, "revisionHistoryLimit", 10);
    default_template(spec, "template");
}

fn check_set(set: &Field<'_>, causes: &mut Causes) {
    let spec = set.child("spec");
    let (labels, template) = (spec.child("selector"), spec.child("template"));
    causes.check_selector(&labels);
    let matches = selects(&labels, &template.at(&["metadata", "labels"]));
    check_selected(&template, matches, causes);
    check_not_empty(&labels, "daemonset", causes);
    check_template(&template, Owner::Running("DaemonSet"), causes);
    causes.check_not_negative(&spec.child("minReadySeconds"));
    check_strategy(&spec.child("updateStrategy"), causes);
    causes.check_not_negative(&spec.child("revisionHistoryLimit"));
}

fn check_strategy(strategy: &Field<'_>, causes: &mut Causes) {
    match strategy.child("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = strategy.child("rollingUpdate");
            let (unavailable, surge) = (rolling.child("maxUnavailable"), rolling.child("maxSurge"));
            for field in [unavailable, surge] {
                causes.check_int_or_percent(&field);
                causes.check_percent_max(&field);
            }
            match (
                int_or_percent(&unavailable) != 0,
                int_or_percent(&surge) != 0,
            ) {
                (true, true) => {
                    causes.invalid(&surge, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => {
                    causes.required(&unavailable, "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        _ => causes.not_supported(strategy, &["RollingUpdate", "OnDelete"]),
    }
}
