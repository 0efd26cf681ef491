//! Two managers of one list: its items are known by their name.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use revstore_structured_merge::{
    ApplyError, FieldSchema, FieldSet, FieldShape, ListKey, Untyped, Write, apply,
};
use serde_json::{Map, Value, json};

/// The schema: `spec.containers` is a list of objects with a name.
#[derive(Clone, Copy)]
enum Schema {
    Object,
    Spec,
    Containers,
    Other,
}

impl FieldSchema for Schema {
    fn shape(self, value: Option<&Value>) -> FieldShape {
        match self {
            Self::Object | Self::Spec => FieldShape::Object,
            Self::Containers => FieldShape::Map(vec![ListKey {
                name: "name".into(),
                default: None,
            }]),
            Self::Other => Untyped.shape(value),
        }
    }

    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object, "spec") => Self::Spec,
            (Self::Spec, "containers") => Self::Containers,
            _ => Self::Other,
        }
    }

    fn item(self) -> Self {
        Self::Other
    }

    fn names(self, member: &str) -> bool {
        match self {
            Self::Object => ["apiVersion", "kind", "metadata", "spec"].contains(&member),
            Self::Spec => member == "containers",
            _ => false,
        }
    }

    fn declares(self, _: &str) -> bool {
        true
    }

    fn check(self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

fn main() -> Result<(), ApplyError> {
    let empty = Map::new();
    let nothing = FieldSet::default();
    let apply_as = |manager: &str, live: &Map<String, Value>, containers: Value| {
        let config = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"containers": containers},
        });
        let write = Write {
            manager,
            api_version: "example.com/v1",
            subresource: "",
            time: "2026-01-01T00:00:00Z",
            ignored: &nothing,
        };
        let config = config.as_object().cloned().unwrap_or_default();
        apply((live, &empty), &config, &Schema::Object, &write, false)
    };
    let show = |title: &str, object: &Map<String, Value>| {
        println!("{title}: {}", object["spec"]["containers"]);
    };

    let live = apply_as("alice", &empty, json!([{"name": "web", "image": "web:1"}]))?;
    show("alice applies web", &live);
    let live = apply_as(
        "injector",
        &live,
        json!([{"name": "proxy", "image": "proxy:7"}]),
    )?;
    show("injector applies proxy", &live);
    let live = apply_as("alice", &live, json!([{"name": "web", "image": "web:2"}]))?;
    show("alice changes web", &live);
    let conflict = apply_as(
        "injector",
        &live,
        json!([{"name": "web", "image": "web:3"}]),
    );
    if let Err(error) = conflict {
        println!("injector wants another image: {error}");
    }
    let live = apply_as("injector", &live, json!([]))?;
    show("injector applies nothing", &live);
    Ok(())
}
