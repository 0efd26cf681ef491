//! Fields of version 2 as annotations.

use serde_json::{Value, json};

use super::{
    Names, SOURCES,
    go_text::{GoText, or_empty, or_zero},
};

pub(super) fn shown_metric(metric: &Value, names: Names) -> String {
    let mut shown = GoText::new().set("type", &or_empty(&metric["type"]));
    for source in SOURCES {
        let value = &metric[source];
        if !value.is_null() {
            shown = shown.set_text(source, &shown_source(source, value, names));
        }
    }
    shown.end()
}

fn shown_source(source: &str, value: &Value, names: Names) -> String {
    let (metric, values) = (&value["metric"], &value[names.values]);
    let amount = |text: GoText, name: &str, value: &Value, is_always: bool| {
        if is_always {
            text.set(name, &or_zero(value))
        } else {
            text.set_some(name, value)
        }
    };
    let selector = |text: GoText, name: &str| match &metric["selector"] {
        Value::Null => text,
        selector => text.set_text(name, &shown_selector(selector)),
    };
    let text = GoText::new();
    match source {
        "object" => {
            let described = &value["describedObject"];
            let target = GoText::new()
                .set("kind", &or_empty(&described["kind"]))
                .set("name", &or_empty(&described["name"]))
                .set_some("apiVersion", &described["apiVersion"]);
            let text = text
                .set_text("target", &target.end())
                .set("metricName", &or_empty(&metric["name"]))
                .set(names.value, &or_zero(&values["value"]));
            selector(text, "selector").set_some("averageValue", &values["averageValue"])
        }
        "pods" => {
            let text = text
                .set("metricName", &or_empty(&metric["name"]))
                .set(names.average, &or_zero(&values["averageValue"]));
            selector(text, "selector")
        }
        "external" => {
            let text = text.set("metricName", &or_empty(&metric["name"]));
            let text = selector(text, "metricSelector");
            let text = amount(text, names.value, &values["value"], names.has_all);
            text.set_some(names.average, &values["averageValue"])
        }
        _ => {
            let text = text
                .set("name", &or_empty(&value["name"]))
                .set_some(names.utilization, &values["averageUtilization"]);
            let text = amount(text, names.average, &values["averageValue"], names.has_all);
            if source == "containerResource" {
                text.set("container", &or_empty(&value["container"]))
            } else {
                text
            }
        }
    }
    .end()
}

fn shown_selector(selector: &Value) -> String {
    let mut text = GoText::new();
    let labels = &selector["matchLabels"];
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        text = text.set("matchLabels", labels);
    }
    let expressions = selector["matchExpressions"].as_array();
    let expressions = expressions.into_iter().flatten().map(|expression| {
        let text = GoText::new()
            .set("key", &or_empty(&expression["key"]))
            .set("operator", &or_empty(&expression["operator"]));
        match expression["values"].as_array() {
            Some(values) if !values.is_empty() => text.set("values", &expression["values"]),
            _ => text,
        }
        .end()
    });
    let expressions: Vec<_> = expressions.collect();
    match GoText::list(&expressions) {
        Some(expressions) => text.set_text("matchExpressions", &expressions),
        None => text,
    }
    .end()
}

pub(super) fn shown_condition(condition: &Value) -> String {
    GoText::new()
        .set("type", &or_empty(&condition["type"]))
        .set("status", &or_empty(&condition["status"]))
        .set("lastTransitionTime", &condition["lastTransitionTime"])
        .set_some("reason", &condition["reason"])
        .set_some("message", &condition["message"])
        .end()
}

pub(super) fn shown_behavior(behavior: &Value) -> String {
    let rules = |rules: &Value| {
        if rules.is_null() {
            return "null".to_owned();
        }
        let policies = rules["policies"].as_array().map(|policies| {
            let policies = policies.iter().map(|policy| {
                let number = |name: &str| match &policy[name] {
                    Value::Null => json!(0),
                    number => number.clone(),
                };
                GoText::new()
                    .set("Type", &or_empty(&policy["type"]))
                    .set("Value", &number("value"))
                    .set("PeriodSeconds", &number("periodSeconds"))
                    .end()
            });
            let policies: Vec<_> = policies.collect();
            format!("[{}]", policies.join(","))
        });
        GoText::new()
            .set(
                "StabilizationWindowSeconds",
                &rules["stabilizationWindowSeconds"],
            )
            .set("SelectPolicy", &rules["selectPolicy"])
            .set_text("Policies", policies.as_deref().unwrap_or("null"))
            .set("Tolerance", &rules["tolerance"])
            .end()
    };
    GoText::new()
        .set_text("ScaleUp", &rules(&behavior["scaleUp"]))
        .set_text("ScaleDown", &rules(&behavior["scaleDown"]))
        .end()
}
