//! The causes that the validation of an object collects, and the checks that many kinds share.

use std::collections::HashSet;

use serde_json::Value;

use revstore_watch_cache::status::{CauseReason, FieldPath, StatusCause};

use super::field::Field;
use super::names;
use super::quantity::Quantity;

/// The causes found so far.
#[derive(Debug, Default)]
pub(crate) struct Causes(Vec<StatusCause>);

impl Causes {
    /// Returns the causes.
    pub(crate) fn into_vec(self) -> Vec<StatusCause> {
        self.0
    }

    /// Returns the number of causes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a cause.
    pub(crate) fn push(&mut self, cause: StatusCause) {
        self.0.push(cause);
    }

    /// The field must be set.
    pub(crate) fn required(&mut self, field: &Field<'_>, detail: &str) {
        self.push(StatusCause::required(field.path(), detail));
    }

    /// The value is malformed.
    pub(crate) fn invalid(&mut self, field: &Field<'_>, detail: &str) {
        self.push(StatusCause::invalid(field.path(), field.value(), detail));
    }

    /// A part of the value is wrong. The value is not repeated in the message.
    pub(crate) fn invalid_part(&mut self, field: &Field<'_>, detail: &str) {
        self.push(StatusCause {
            field: field.path().into(),
            ..StatusCause::new(CauseReason::INVALID, format!("Invalid value: {detail}"))
        });
    }

    /// The field is not allowed here.
    pub(crate) fn forbidden(&mut self, field: &Field<'_>, detail: &str) {
        self.push(StatusCause::forbidden(field.path(), detail));
    }

    /// The value is none of the supported ones.
    pub(crate) fn not_supported(&mut self, field: &Field<'_>, supported: &[&str]) {
        let value = match field.value() {
            Value::Null => "".into(),
            value => value,
        };
        self.push(StatusCause::not_supported(field.path(), value, supported));
    }

    /// The value must be unique.
    pub(crate) fn duplicate(&mut self, field: &Field<'_>) {
        self.push(StatusCause::duplicate(field.path(), field.value()));
    }

    /// Checks that a field is not empty. Returns whether it is not.
    pub(crate) fn check_required(&mut self, field: &Field<'_>) -> bool {
        let set = !field.is_zero();
        if !set {
            self.required(field, "");
        }
        set
    }

    /// Checks that a text that is set is one of several.
    pub(crate) fn check_one_of(&mut self, field: &Field<'_>, supported: &[&str]) {
        if field.is_set() && !supported.contains(&field.text()) {
            self.not_supported(field, supported);
        }
    }

    /// Checks that a text is set and one of several.
    pub(crate) fn check_required_one_of(&mut self, field: &Field<'_>, supported: &[&str]) {
        if self.check_required(field) {
            self.check_one_of(field, supported);
        }
    }

    /// Checks a text that is set with a function that returns what is wrong with it.
    pub(crate) fn check_text(&mut self, field: &Field<'_>, error: fn(&str) -> Option<String>) {
        if field.text().is_empty() {
            return;
        }
        if let Some(detail) = error(field.text()) {
            self.invalid(field, &detail);
        }
    }

    /// Checks a text with a function that returns what is wrong with it. An absent one is empty.
    pub(crate) fn check_present_text(
        &mut self,
        field: &Field<'_>,
        error: fn(&str) -> Option<String>,
    ) {
        if let Some(detail) = error(field.text()) {
            self.invalid_at(field.path(), field.text(), &detail);
        }
    }

    /// Checks a name with an optional domain that must be set. An empty one has two causes.
    pub(crate) fn check_qualified_name(&mut self, field: &Field<'_>) {
        self.check_qualified_text(field, field.text());
    }

    /// Checks a text that is a name with an optional domain, and belongs to a field.
    pub(crate) fn check_qualified_text(&mut self, field: &Field<'_>, text: &str) {
        if let Some(detail) = names::qualified_name_error(text) {
            self.invalid_at(field.path(), text, &detail);
        }
        if (text.is_empty() || text.ends_with('/'))
            && !text.starts_with('/')
            && let Some(detail) = names::qualified_name_error("-")
        {
            self.invalid_at(field.path(), text, &detail);
        }
    }

    /// Checks a text that consists of a domain and a path below it, such as `example.com/name`.
    pub(crate) fn check_domain_prefixed_path(&mut self, field: &Field<'_>) {
        if !self.check_required(field) {
            return;
        }
        for (part, detail) in names::domain_prefixed_path_errors(field.text()) {
            self.invalid_at(field.path(), part, &detail);
        }
    }

    /// Checks that a number that is set is not negative.
    pub(crate) fn check_not_negative(&mut self, field: &Field<'_>) {
        self.check_min(field, 0, names::NOT_NEGATIVE);
    }

    /// Checks that a number that is set has a minimum.
    pub(crate) fn check_min(&mut self, field: &Field<'_>, min: i64, detail: &str) {
        if field.int().is_some_and(|number| number < min) {
            self.invalid(field, detail);
        }
    }

    /// Checks that a number that is set is in a range.
    pub(crate) fn check_range(&mut self, field: &Field<'_>, min: i64, max: i64, detail: &str) {
        if field
            .int()
            .is_some_and(|number| !(min..=max).contains(&number))
        {
            self.invalid(field, detail);
        }
    }

    /// Checks that a number is a port.
    pub(crate) fn check_port(&mut self, field: &Field<'_>) {
        let number = field.int().unwrap_or_default();
        if !(1..=65535).contains(&number) {
            let path = field.path();
            self.push(StatusCause::invalid(path, number, names::PORT_RANGE));
        }
    }

    /// Checks that a value is the number or the name of a port.
    pub(crate) fn check_port_or_name(&mut self, field: &Field<'_>) {
        if field.int().is_some() || !field.is_set() {
            self.check_port(field);
            return;
        }
        for detail in names::port_name_errors(field.text()) {
            self.invalid(field, detail);
        }
    }

    /// Checks that a value that is set is a number that is not negative, or a percentage.
    pub(crate) fn check_int_or_percent(&mut self, field: &Field<'_>) {
        if !field.is_set() {
            return;
        }
        if field.int().is_some() {
            self.check_not_negative(field);
        } else if !names::is_percentage(field.text()) {
            self.invalid(
                field,
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  \
                 or '93%', regex used for validation is '[0-9]+%')",
            );
        }
    }

    /// Checks that a percentage is not more than 100 %.
    pub(crate) fn check_percent_max(&mut self, field: &Field<'_>) {
        let percent = field
            .text()
            .strip_suffix('%')
            .and_then(|text| text.parse::<i64>().ok());
        if percent.is_some_and(|percent| percent > 100) {
            self.invalid(field, "must not be greater than 100%");
        }
    }

    /// Checks that a field is as in the previous version.
    pub(crate) fn check_immutable(&mut self, new: &Field<'_>, old: &Field<'_>) {
        if !new.equals(old) {
            self.invalid(new, names::IMMUTABLE);
        }
    }

    /// Checks that a text, which is empty if it is absent, is as in the previous version.
    pub(crate) fn check_immutable_text(&mut self, new: &Field<'_>, old: &Field<'_>) {
        if new.text() != old.text() {
            self.invalid_at(new.path(), new.text(), names::IMMUTABLE);
        }
    }

    /// Checks that a text is set and a DNS label.
    pub(crate) fn check_required_label(&mut self, field: &Field<'_>) {
        if self.check_required(field) {
            self.check_text(field, names::dns_label_error);
        }
    }

    /// Checks that the text of a field is unique among those seen.
    pub(crate) fn check_unique<'a>(&mut self, field: &Field<'a>, seen: &mut HashSet<&'a str>) {
        if !field.text().is_empty() && !seen.insert(field.text()) {
            self.duplicate(field);
        }
    }

    /// Checks the keys and values of labels.
    pub(crate) fn check_labels(&mut self, labels: &Field<'_>) {
        for (key, value) in labels.entries() {
            self.check_qualified_text(labels, key);
            if let Some(detail) = names::label_value_error(value.text()) {
                self.push(StatusCause::invalid(labels.path(), value.value(), &detail));
            }
        }
    }

    /// Checks the keys of annotations.
    pub(crate) fn check_annotations(&mut self, annotations: &Field<'_>) {
        for (key, _) in annotations.entries() {
            if let Some(detail) = names::qualified_name_error(&key.to_lowercase()) {
                self.push(StatusCause::invalid(annotations.path(), key, &detail));
            }
        }
    }

    /// Checks the syntax of a label selector.
    pub(crate) fn check_selector(&mut self, selector: &Field<'_>) {
        self.check_labels(&selector.child("matchLabels"));
        for requirement in selector.child("matchExpressions").items() {
            let values = requirement.child("values");
            match requirement.child("operator").text() {
                "In" | "NotIn" if values.len() == 0 => self.required(
                    &values,
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ),
                "Exists" | "DoesNotExist" if values.len() > 0 => self.forbidden(
                    &values,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ),
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                operator => self.push(StatusCause::invalid(
                    requirement.child("operator").path(),
                    operator,
                    "not a valid selector operator",
                )),
            }
            self.check_qualified_name(&requirement.child("key"));
            for value in values.items() {
                if let Some(detail) = names::label_value_error(value.text()) {
                    self.invalid(&value, &detail);
                }
            }
        }
    }

    /// Checks that a quantity is well-formed. Returns it.
    pub(crate) fn check_quantity(&mut self, field: &Field<'_>) -> Option<Quantity> {
        let quantity = Quantity::of(&field.value());
        if quantity.is_none() && field.is_set() {
            self.invalid(
                field,
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            );
        }
        quantity
    }

    /// Checks that a quantity is well-formed and not negative. Returns it.
    pub(crate) fn check_quantity_not_negative(&mut self, field: &Field<'_>) -> Option<Quantity> {
        let quantity = self.check_quantity(field)?;
        if quantity.is_negative() {
            self.invalid(field, names::NOT_NEGATIVE);
        }
        Some(quantity)
    }

    /// Checks a quantity of a resource: resources that are counted have whole numbers.
    pub(crate) fn check_resource_quantity(&mut self, resource: &str, field: &Field<'_>) {
        if let Some(quantity) = self.check_quantity_not_negative(field)
            && !quantity.is_whole()
            && (is_counted(resource) || is_extended(resource))
        {
            self.invalid(field, "must be an integer");
        }
    }

    /// The value is malformed, and the error has another path or value than the field.
    pub(crate) fn invalid_at(
        &mut self,
        path: impl Into<FieldPath>,
        value: impl Into<Value>,
        detail: &str,
    ) {
        self.push(StatusCause::invalid(path, value, detail));
    }
}

/// Returns whether a name without a domain is that of a resource.
pub(crate) fn is_standard(name: &str) -> bool {
    const AMOUNTS: [&str; 11] = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "storage",
        "requests.storage",
    ];
    is_counted(name)
        || AMOUNTS.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Returns whether a resource counts objects.
fn is_counted(resource: &str) -> bool {
    const COUNTED: [&str; 9] = [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTED.contains(&resource)
}

/// Returns whether a resource belongs to Kubernetes: it has no domain, or one of Kubernetes.
pub(crate) fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Returns whether a resource is one that nodes advertise under a domain of their own.
pub(crate) fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && names::qualified_name_error(&format!("requests.{resource}")).is_none()
}
