//! The columns and cells of built-in kinds in the `Table` form that `kubectl get` asks for.

pub(crate) mod age;
mod certificate;
mod cluster;
mod network;
mod pod;
mod policy;
mod storage;
mod workload;

pub(crate) use age::human;
pub(crate) use workload::CUSTOM_SCALE;

use serde_json::{Value, json};

use revstore_watch_cache::encode::TableColumn;
use revstore_watch_cache::registry::JsonObject;

use crate::builtin::field::Field;
use age::Clock;

/// The definition of a column. Corresponds to `metav1.TableColumnDefinition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// The type of the cells: `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// The format of the cells: `name` for the name of the object, else empty.
    pub format: &'static str,
    /// What the cells tell.
    pub description: &'static str,
    /// 0 for columns that are always shown, and 1 for those of the wide output.
    pub priority: i32,
}

impl Column {
    const fn new(name: &'static str, kind: &'static str, description: &'static str) -> Self {
        Self {
            name,
            kind,
            format: "",
            description,
            priority: 0,
        }
    }

    /// Returns the definition for a table.
    pub(crate) fn definition(&self) -> TableColumn {
        TableColumn::new(self.name, self.kind)
            .format(self.format)
            .description(self.description)
            .priority(self.priority)
    }

    const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    const fn with_format(mut self, format: &'static str) -> Self {
        self.format = format;
        self
    }
}

/// A column of texts.
const fn text(name: &'static str, description: &'static str) -> Column {
    Column::new(name, "string", description)
}

/// A column of numbers.
const fn integer(name: &'static str, description: &'static str) -> Column {
    Column::new(name, "integer", description)
}

/// A column of booleans.
const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column::new(name, "boolean", description)
}

const NAME: Column = text("Name", "The name of the object.").with_format("name");
const AGE: Column = text("Age", "The time since the object was created.");
const CONTAINERS: Column = text("Containers", "The names of the containers.").wide();
const IMAGES: Column = text("Images", "The images of the containers.").wide();
const SELECTOR: Column = text("Selector", "The labels that select the pods.").wide();

/// The columns and cells of a kind.
struct Printer {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    /// Returns all cells but the first one, the name. Kinds whose first column is another one have it here,
    /// too.
    cells: fn(&Field<'_>, Clock) -> Vec<Value>,
}

const FAMILIES: [&[Printer]; 7] = [
    pod::PRINTERS,
    workload::PRINTERS,
    network::PRINTERS,
    storage::PRINTERS,
    certificate::PRINTERS,
    cluster::PRINTERS,
    policy::PRINTERS,
];

/// The columns of kinds without columns of their own.
const DEFAULT: [Column; 2] = [
    NAME,
    Column::new(
        "Created At",
        "date",
        "The time when the object was created.",
    ),
];

fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    let mut printers = FAMILIES.iter().flat_map(|family| family.iter());
    printers.find(|printer| printer.kind == kind && printer.group == group)
}

/// Returns the columns of a kind.
pub fn columns(group: &str, kind: &str) -> &'static [Column] {
    printer(group, kind).map_or(&DEFAULT, |printer| printer.columns)
}

/// Returns the cells of an object in the order of the columns. `now` is the time of day in seconds since
/// 1970, from which ages are computed.
pub fn cells(group: &str, kind: &str, object: &JsonObject, now: i64) -> Vec<Value> {
    let root = Field::root(object);
    let Some(printer) = printer(group, kind) else {
        let created = root.at(&["metadata", "creationTimestamp"]);
        return vec![name(&root), created.value()];
    };
    let mut cells = (printer.cells)(&root, Clock::new(now));
    if printer.columns[0].format == "name" && cells.len() < printer.columns.len() {
        cells.insert(0, name(&root));
    }
    cells
}

/// Returns the `conditions` of the row of an object, which are empty for most objects.
pub fn row_conditions(group: &str, kind: &str, object: &JsonObject) -> Vec<Value> {
    let phase = Field::root(object).at(&["status", "phase"]).text();
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    if !group.is_empty() || kind != "Pod" {
        return Vec::new();
    }
    vec![json!({"type": "Completed", "status": "True", "reason": phase, "message": message})]
}

fn name(root: &Field<'_>) -> Value {
    root.at(&["metadata", "name"]).text().into()
}

/// Returns the age of an object.
fn age(root: &Field<'_>, clock: Clock) -> Value {
    clock
        .since(&root.at(&["metadata", "creationTimestamp"]))
        .into()
}

/// Returns a text, or another one if it is empty.
fn or(text: &str, other: &str) -> Value {
    if text.is_empty() { other } else { text }.into()
}

/// Returns a number, or 0.
fn number(field: &Field<'_>) -> Value {
    field.int().unwrap_or_default().into()
}

/// Returns a quantity, a number or a text as text.
fn shown(field: &Field<'_>) -> String {
    match field.value() {
        Value::String(text) => text,
        Value::Null => "0".to_owned(),
        other => other.to_string(),
    }
}

/// Joins the first items of a list, and tells how many there are more.
fn first_of(items: &[String], max: usize) -> String {
    let shown = items[..items.len().min(max)].join(",");
    if items.len() > max {
        format!("{shown} + {} more...", items.len() - max)
    } else {
        shown
    }
}

/// Returns whether a status has a condition that is true.
fn has_condition(root: &Field<'_>, kind: &str) -> bool {
    let mut conditions = root.at(&["status", "conditions"]).items();
    conditions.any(|condition| {
        condition.child("type").text() == kind && condition.child("status").text() == "True"
    })
}

/// Returns the names and the images of the containers of a pod template.
fn containers(template: &Field<'_>) -> [Value; 2] {
    let join = |field: &'static str| {
        let containers = template.at(&["spec", "containers"]).items();
        let texts: Vec<&str> = containers
            .map(|container| container.child(field).text())
            .collect();
        Value::from(texts.join(","))
    };
    [join("name"), join("image")]
}

/// Returns a label selector as text: `<none>` if it is empty.
fn selector(field: &Field<'_>) -> Value {
    or(&crate::builtin::selector::text(field), "<none>")
}

/// Returns labels as text: `<none>` if there are none.
fn labels(field: &Field<'_>) -> Value {
    or(&crate::builtin::selector::map_text(field), "<none>")
}

#[cfg(test)]
mod tests;
