//! Large, deep and untrue input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "callers have temporary values"
)]

use revstore_structured_merge::{
    ApplyError, FieldSchema, FieldSet, FieldShape, ListKey, Untyped, Write, apply, track_update,
};
use serde_json::{Map, Value, json};

/// The number of items of a large list.
const ITEMS: usize = 20_000;
/// The nesting of a deep object.
const LEVELS: usize = 100;

/// `spec` is a list of objects with a key.
#[derive(Clone, Copy)]
enum Schema {
    Object,
    List,
    Other,
}

impl FieldSchema for Schema {
    fn shape(self, value: Option<&Value>) -> FieldShape {
        match self {
            Self::Object => FieldShape::Object,
            Self::List => FieldShape::Map(vec![ListKey {
                name: "name".into(),
                default: None,
            }]),
            Self::Other => Untyped.shape(value),
        }
    }

    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object, "spec") => Self::List,
            _ => Self::Other,
        }
    }

    fn item(self) -> Self {
        Self::Other
    }

    fn names(self, member: &str) -> bool {
        matches!(self, Self::Object) && ["apiVersion", "kind", "metadata", "spec"].contains(&member)
    }

    fn declares(self, _: &str) -> bool {
        true
    }

    fn check(self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

static NOTHING: FieldSet = FieldSet::EMPTY;

fn write(manager: &str) -> Write<'_> {
    Write {
        manager,
        api_version: "example.com/v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
        ignored: &NOTHING,
    }
}

fn config(spec: Value) -> Map<String, Value> {
    let config = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    config.as_object().cloned().unwrap()
}

fn go(
    live: &Map<String, Value>,
    spec: Value,
    manager: &str,
) -> Result<Map<String, Value>, ApplyError> {
    apply(
        (live, &Map::new()),
        &config(spec),
        &Schema::Object,
        &write(manager),
        false,
    )
}

fn items(numbers: impl Iterator<Item = usize>, value: usize) -> Value {
    numbers
        .map(|number| json!({"name": format!("{number:05}"), "v": value}))
        .collect()
}

// With time for `n * n` items, these calls would take minutes.
#[test]
fn lists_with_many_keys_are_applied() {
    let live = go(&Map::new(), items(0..ITEMS, 1), "one").unwrap();
    let live = go(&live, items((0..ITEMS).rev(), 1), "two").unwrap();
    assert_eq!(live["spec"][0]["name"], format!("{:05}", ITEMS - 1));
    let Err(ApplyError::Conflicts(conflicts)) = go(&live, items(0..ITEMS, 2), "three") else {
        panic!("both managers own all items");
    };
    assert_eq!(conflicts.count(), 2 * ITEMS);
    let text = ApplyError::Conflicts(conflicts).to_string();
    assert!(text.len() < 50_000, "{}", text.len());
    let rest = go(&live, json!([]), "one").unwrap();
    assert_eq!(rest["spec"].as_array().unwrap().len(), ITEMS);
    let rest = go(&rest, json!([{"name": "x"}]), "two").unwrap();
    assert_eq!(rest["spec"], json!([{"name": "x"}]));
}

#[test]
fn keys_that_occur_twice_are_refused_in_a_configuration_only() {
    let error = go(&Map::new(), json!([{"name": "a"}, {"name": "a"}]), "one").unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(".spec: duplicate entries for key [name=\"a\"]"),
        "{error}"
    );
    // An update may write them; then all of them are one field.
    let mut live = config(json!([{"name": "a", "v": 1}, {"name": "a", "v": 2}, {"name": "b"}]));
    let empty = config(Value::Null);
    track_update(&empty, &mut live, &Schema::Object, &write("one")).unwrap();
    live["metadata"]["uid"] = "u".into();
    let fields = &live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!(fields["k:{\"name\":\"a\"}"], json!({}));
    let applied = apply(
        (&live, &empty),
        &config(json!([{"name": "a", "v": 3}])),
        &Schema::Object,
        &write("two"),
        true,
    );
    assert_eq!(
        applied.unwrap()["spec"],
        json!([{"name": "a", "v": 3}, {"name": "b"}])
    );
}

fn deep(mut value: Value, name: &str) -> Value {
    for _ in 0..LEVELS {
        value = json!({name: value});
    }
    value
}

#[test]
fn deep_objects_and_fields_are_applied() {
    let spec = deep(json!(1), "a");
    let untyped = |live: &Map<String, Value>, spec: Value, manager: &str| {
        apply(
            (live, &Map::new()),
            &config(spec),
            &Untyped,
            &write(manager),
            true,
        )
    };
    let live = untyped(&Map::new(), spec.clone(), "one").unwrap();
    let live = untyped(&live, spec, "two").unwrap();
    let rest = untyped(&live, json!({}), "one").unwrap();
    assert_eq!(
        rest["metadata"]["managedFields"].as_array().unwrap().len(),
        2
    );
    // Fields that no object has.
    let fields = FieldSet::from_fields_v1(&deep(json!({}), "f:b")).unwrap();
    assert_eq!(fields.len(), 1);
    let mut lying = rest.clone();
    lying["metadata"]["managedFields"][0]["fieldsV1"] = deep(json!({}), "f:spec");
    lying["metadata"]["uid"] = "u".into();
    let applied = untyped(&lying, json!({"a": 2}), "three").unwrap();
    assert_eq!(applied["spec"], json!({"a": 2}));
}

// A sort panics if it finds that there is no order.
#[test]
fn sets_of_large_numbers_are_read() {
    let mut state = 1_u64;
    let mut random = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % limit
    };
    for _ in 0..200 {
        let mut fields = Map::new();
        for number in 0..80 {
            // The spaces make different texts of equal numbers.
            let spaces = " ".repeat(number % 8);
            let value = (1_u64 << 53) + random(40);
            let point = if random(2) == 0 { "" } else { ".0" };
            fields.insert(format!("v:{spaces}{value}{point}"), json!({}));
        }
        let read = FieldSet::from_fields_v1(&json!({"f:data": fields})).unwrap();
        let again = FieldSet::from_fields_v1(&read.to_fields_v1()).unwrap();
        assert_eq!(again, read);
    }
}
