//! Objects as rows of a table.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use revstore_engine::Revision;

use crate::api::event::EventType;
use crate::api::keys::ObjectRef;
use crate::encode::form::json::{
    push, quoted, type_members, write_bookmark_metadata, write_error, write_frame,
    write_list_metadata,
};
use crate::encode::form::metadata::{MetaVersion, write_partial};
use crate::encode::form::{ControlEvent, Form, ListHead};
use crate::encode::json::JsonKind;
use crate::encode::object::Object;

/// The time for which the rows of a table are shared by default.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The definition of a column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableColumn {
    /// The heading.
    pub name: String,
    /// The type of the cells, such as `string`, `integer` or `date`.
    pub type_name: String,
    /// The format of the cells, such as `name`, or empty.
    pub format: String,
    /// What the column shows.
    pub description: String,
    /// 0 for a column that is always shown; the larger, the less important.
    pub priority: i32,
}

impl TableColumn {
    /// Returns a column without a format and a description that is always shown.
    pub fn new(name: impl Into<String>, type_name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            type_name: type_name.into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
        }
    }

    /// Sets the format of the cells.
    #[must_use]
    pub fn format(mut self, format: impl Into<String>) -> Self {
        self.format = format.into();
        self
    }

    /// Sets what the column shows.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    fn to_json(&self) -> String {
        format!(
            "{{\"name\":{},\"type\":{},\"format\":{},\"description\":{},\"priority\":{}}}",
            quoted(&self.name),
            quoted(&self.type_name),
            quoted(&self.format),
            quoted(&self.description),
            self.priority
        )
    }
}

/// What a row of a table contains of its object, as the parameter `includeObject` selects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// What a table shows of an object.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TableRow {
    /// One value for each column.
    pub cells: Vec<Value>,
    /// The `conditions` of the row, such as that of an object whose work is completed. Rows without any have no such
    /// member.
    pub conditions: Vec<Value>,
}

impl TableRow {
    /// Returns a row without conditions.
    pub fn new(cells: Vec<Value>) -> Self {
        Self {
            cells,
            conditions: Vec::new(),
        }
    }

    /// Sets the conditions.
    #[must_use]
    pub fn conditions(mut self, conditions: Vec<Value>) -> Self {
        self.conditions = conditions;
        self
    }
}

/// A function from an object to its row.
type Rows = Arc<dyn Fn(&Object) -> TableRow + Send + Sync>;

/// Objects as rows of a `Table` of `meta.k8s.io`, as kubectl prints them. A copy shares the columns.
///
/// In a watch each event is a table with one row; only the first event has the definitions of the
/// columns. Errors are a `Status` also there.
///
/// ```
/// use std::sync::Arc;
/// use revstore_watch_cache::encode::{Form, IncludeObject, JsonForm, TableColumn, TableForm};
/// use revstore_watch_cache::{EventType, JsonKind, Object, ObjectRef, Revision};
///
/// let whole = Arc::new(JsonForm::new("v1", "Pod"));
/// let columns = vec![TableColumn::new("Name", "string").format("name")];
/// let table = TableForm::new(whole, &columns, |pod| vec![pod.name().into()])
///     .include(IncludeObject::None);
///
/// let kind = JsonKind::new("v1", "Pod");
/// let value = r#"{"metadata":{"name":"a"}}"#;
/// let pod = Object::from_parts(&ObjectRef::cluster("a"), Revision(7), value, &kind);
/// let mut out = Vec::new();
/// table.write_event(EventType::Added, &pod, false, &mut out);
/// assert_eq!(
///     String::from_utf8(out).unwrap(),
///     concat!(
///         r#"{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","#,
///         r#""metadata":{"resourceVersion":"7"},"columnDefinitions":null,"#,
///         r#""rows":[{"cells":["a"],"object":null}]}}"#,
///         "\n"
///     )
/// );
/// ```
// WC-333, WC-421.
#[derive(Clone)]
pub struct TableForm {
    whole: Arc<dyn Form>,
    version: MetaVersion,
    /// The members `kind` and `apiVersion`.
    type_members: String,
    /// The definitions of the columns as JSON.
    columns: Arc<str>,
    rows: Rows,
    include: IncludeObject,
    shared_for: Option<Duration>,
}

impl fmt::Debug for TableForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableForm")
            .field("columns", &self.columns)
            .field("include", &self.include)
            .finish_non_exhaustive()
    }
}

impl TableForm {
    /// Returns a table of objects that `whole` writes as JSON. `cells` returns one value for each column.
    ///
    /// It is also called for the object of a bookmark, which has nothing but a resource version and
    /// annotations in its metadata.
    pub fn new(
        whole: Arc<dyn Form>,
        columns: &[TableColumn],
        cells: impl Fn(&Object) -> Vec<Value> + Send + Sync + 'static,
    ) -> Self {
        Self::of_rows(whole, columns, move |object| TableRow::new(cells(object)))
    }

    /// Returns a table as [`new`](Self::new) does, whose rows may have conditions.
    pub fn of_rows(
        whole: Arc<dyn Form>,
        columns: &[TableColumn],
        rows: impl Fn(&Object) -> TableRow + Send + Sync + 'static,
    ) -> Self {
        let columns: Vec<_> = columns.iter().map(TableColumn::to_json).collect();
        let version = MetaVersion::default();
        Self {
            whole,
            version,
            type_members: type_members("Table", version.api_version()),
            columns: format!("[{}]", columns.join(",")).into(),
            rows: Arc::new(rows),
            include: IncludeObject::default(),
            shared_for: Some(SHARED_FOR),
        }
    }

    /// Sets the version: by default `meta.k8s.io/v1`.
    #[must_use]
    pub fn version(mut self, version: MetaVersion) -> Self {
        self.version = version;
        self.type_members = type_members("Table", version.api_version());
        self
    }

    /// Sets what rows contain of their objects: by default their metadata.
    #[must_use]
    pub fn include(mut self, include: IncludeObject) -> Self {
        self.include = include;
        self
    }

    /// Sets the time for which a row is sent to further clients: by default one second, because tables
    /// usually have a column with the age of objects. With `None` there is no limit.
    #[must_use]
    pub fn shared_for(mut self, time: Option<Duration>) -> Self {
        self.shared_for = time;
        self
    }

    fn write_head(
        &self,
        has_columns: bool,
        out: &mut Vec<u8>,
        metadata: impl FnOnce(&mut Vec<u8>),
    ) {
        push(out, &["{", &self.type_members, ",\"metadata\":"]);
        metadata(out);
        let columns = if has_columns { &self.columns } else { "null" };
        push(out, &[",\"columnDefinitions\":", columns, ",\"rows\":["]);
    }

    /// Writes a table with one row.
    fn write_table(&self, object: &Object, has_columns: bool, out: &mut Vec<u8>) {
        let version = object.revision().to_string();
        self.write_head(has_columns, out, |out| match object.revision() {
            Revision(0) => push(out, &["{}"]),
            _ => push(out, &["{\"resourceVersion\":\"", &version, "\"}"]),
        });
        self.write_item(object, out);
        push(out, &["]}"]);
    }
}

impl Form for TableForm {
    fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        self.write_table(object, true, out);
    }

    fn write_event(&self, event: EventType, object: &Object, is_first: bool, out: &mut Vec<u8>) {
        write_frame(event.as_str(), out, |out| {
            self.write_table(object, is_first, out);
        });
    }

    fn write_control_event(&self, event: ControlEvent<'_>, is_first: bool, out: &mut Vec<u8>) {
        let revision = match event {
            ControlEvent::Bookmark { revision, .. } => revision,
            ControlEvent::Error(error) => return write_error(error, out),
        };
        let mut value = b"{\"metadata\":".to_vec();
        write_bookmark_metadata(event, &mut value);
        value.push(b'}');
        let name = ObjectRef::cluster("");
        let object = Object::from_parts(&name, revision, value, &JsonKind::new("", ""));
        write_frame("BOOKMARK", out, |out| {
            self.write_table(&object, is_first, out);
        });
    }

    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>) {
        self.write_head(true, out, |out| write_list_metadata(list, out));
    }

    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        let row = (self.rows)(object);
        push(out, &["{\"cells\":", &Value::Array(row.cells).to_string()]);
        if !row.conditions.is_empty() {
            let conditions = Value::Array(row.conditions).to_string();
            push(out, &[",\"conditions\":", &conditions]);
        }
        push(out, &[",\"object\":"]);
        match self.include {
            IncludeObject::None => push(out, &["null"]),
            IncludeObject::Metadata => write_partial(&*self.whole, self.version, object, out),
            IncludeObject::Object => self.whole.write_object(object, out),
        }
        out.push(b'}');
    }

    fn write_list_tail(&self, _: &ListHead, out: &mut Vec<u8>) {
        push(out, &["]}"]);
    }

    fn differs_in_first_event(&self) -> bool {
        true
    }

    fn shared_for(&self) -> Option<Duration> {
        self.shared_for
    }
}
