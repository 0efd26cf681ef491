//! One version of a custom resource.

pub(super) mod list;
pub(super) mod v1beta1;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use super::priority;
use crate::custom::resource::{Column, JsonPath, Scale};
use crate::custom::rules::Rules;
use crate::custom::schema::{Schema, SchemaError};

/// A version of a custom resource, as its definition describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Version {
    /// The name, such as `v1`.
    pub name: String,
    /// Whether clients can use the version.
    pub served: bool,
    /// Whether objects are stored in the version.
    pub storage: bool,
    /// The text with which requests are warned, if the version is deprecated.
    pub deprecation: Option<String>,
    /// The schema of objects.
    pub schema: Option<Schema>,
    /// The rules of the schema in CEL.
    pub(crate) rules: Option<Rules>,
    /// Whether the status is a resource of its own.
    pub has_status: bool,
    /// Where the replicas stand, if there is a scale.
    pub scale: Option<Scale>,
    /// The columns of tables after the name.
    pub columns: Vec<Column>,
    /// The fields by which lists and watches can select objects.
    pub selectable: Vec<SelectableField>,
}

/// A field by which objects can be selected.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectableField {
    /// The name in a selector, such as `spec.color`.
    pub name: String,
    path: Option<JsonPath>,
}

impl SelectableField {
    fn parse(field: &Value) -> Self {
        let path = field
            .get("jsonPath")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Self {
            name: path.trim_start_matches('.').to_owned(),
            path: JsonPath::parse(path).ok(),
        }
    }

    /// Returns the value of the field in an object; empty if it is not set.
    pub fn value(&self, object: &JsonObject) -> String {
        match self
            .path
            .as_ref()
            .and_then(|path| path.first_of(object))
            .as_deref()
        {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

impl Version {
    /// Reads a version of a definition whose versions are `all`.
    pub(super) fn parse(
        version: &Value,
        group: &str,
        kind: &str,
        all: &[Value],
    ) -> Result<Self, SchemaError> {
        let text = |name: &str| version.get(name).and_then(Value::as_str);
        let flag = |name: &str| {
            version
                .get(name)
                .and_then(Value::as_bool)
                .unwrap_or_default()
        };
        let list = |name: &str| {
            version
                .get(name)
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice)
        };
        let name = text("name").unwrap_or_default();
        let schema = version
            .get("schema")
            .and_then(|schema| schema.get("openAPIV3Schema"));
        let schema = schema.filter(|schema| !schema.is_null());
        let subresources = version.get("subresources");
        let subresource = |name: &str| subresources?.get(name).filter(|value| !value.is_null());
        let mut columns: Vec<Column> = list("additionalPrinterColumns")
            .iter()
            .map(Column::parse)
            .collect();
        if columns.is_empty() {
            columns.push(Column::age());
        }
        let deprecation = || match text("deprecationWarning") {
            Some(warning) => warning.to_owned(),
            None => default_warning(name, group, kind, all),
        };
        Ok(Self {
            name: name.to_owned(),
            served: flag("served"),
            storage: flag("storage"),
            deprecation: flag("deprecated").then(deprecation),
            schema: schema.map(Schema::parse).transpose()?,
            rules: schema.and_then(Rules::of),
            has_status: subresource("status").is_some(),
            scale: subresource("scale").map(Scale::parse),
            columns,
            selectable: list("selectableFields")
                .iter()
                .map(SelectableField::parse)
                .collect(),
        })
    }
}

/// Returns the warning of a deprecated version without a text of its own.
fn default_warning(name: &str, group: &str, kind: &str, all: &[Value]) -> String {
    let flag = |version: &Value, name: &str| {
        version
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    };
    let newest = all
        .iter()
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .filter_map(|other| other.get("name").and_then(Value::as_str))
        .filter(|other| priority::compare(name, other).is_lt())
        .max_by(|one, other| priority::compare(one, other));
    let message = format!("{group}/{name} {kind} is deprecated");
    match newest {
        Some(newest) => format!("{message}; use {group}/{newest} {kind}"),
        None => message,
    }
}
