use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::patch::StrategicPatch;
use crate::patch::{ListStrategy, PatchError, PatchField, PatchSchema, SchemaError};

/// A schema as text: a field of a structure, with its strategy and its merge key.
#[derive(Clone, Copy)]
enum Type {
    Object,
    Containers,
    Container,
    Env,
    Strings,
    Leaf,
}

impl PatchSchema for Type {
    fn field(self, name: &str) -> Result<PatchField<Self>, SchemaError> {
        use ListStrategy::{Merge, Replace, Unset};
        let (schema, strategy, merge_key) = match (self, name) {
            (Self::Object, "spec") | (Self::Container, "source") => (Self::Object, Unset, None),
            (Self::Object, "replaced") => (Self::Object, Replace, None),
            (Self::Object, "containers") => (Self::Containers, Merge, Some("name")),
            (Self::Object, "unkeyed") => (Self::Containers, Merge, None),
            (Self::Object, "finalizers") => (Self::Strings, Merge, None),
            (Self::Object | Self::Container, "args") => (Self::Strings, Unset, None),
            (Self::Container, "env") => (Self::Env, Merge, Some("name")),
            _ => {
                return Err(SchemaError::UnknownField {
                    name: "Test".to_owned(),
                    field: name.to_owned(),
                });
            }
        };
        Ok(PatchField {
            schema,
            strategy,
            merge_key: merge_key.map(Cow::Borrowed),
        })
    }

    fn items(self) -> Result<Self, SchemaError> {
        match self {
            Self::Containers => Ok(Self::Container),
            Self::Env | Self::Strings => Ok(Self::Leaf),
            _ => Err(SchemaError::NotAList("struct".to_owned())),
        }
    }

    fn name(self) -> Cow<'static, str> {
        "struct".into()
    }
}

fn apply(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (patch, _) = StrategicPatch::from_body(patch.to_string().as_bytes())?;
    patch.apply(object, Type::Object)
}

fn check(object: &Value, patch: &Value, expected: &Value) {
    assert_eq!(apply(object, patch).as_ref(), Ok(expected), "{patch}");
}

#[test]
fn maps_are_merged_and_null_removes() {
    check(
        &json!({"spec": {"a": 1, "b": 2}, "c": 3}),
        &json!({"spec": {"b": null, "x": {"y": null, "z": [{"n": null}]}}, "c": "text"}),
        &json!({"spec": {"a": 1, "x": {"z": [{}]}}, "c": "text"}),
    );
    check(
        &json!({"spec": {"a": 1}}),
        &json!({"spec": {"$patch": "replace", "b": 1}}),
        &json!({"spec": {"b": 1}}),
    );
    check(
        &json!({"spec": {"a": 1}}),
        &json!({"spec": {"$patch": "delete"}}),
        &json!({"spec": {}}),
    );
    check(
        &json!({}),
        &json!({"spec": {"$patch": "delete"}}),
        &json!({}),
    );
    check(
        &json!({"replaced": {"a": 1}}),
        &json!({"replaced": {"b": 1}}),
        &json!({"replaced": {"b": 1}}),
    );
}

#[test]
fn lists_are_merged_by_their_key() {
    let object = json!({"containers": [
        {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}], "args": ["p"]},
        {"name": "b", "image": "2"},
    ]});
    check(
        &object,
        &json!({"containers": [
            {"name": "c", "image": "3"},
            {"name": "a", "env": [{"name": "Y", "value": "2"}], "args": ["q"]},
        ]}),
        &json!({"containers": [
            {"name": "c", "image": "3"},
            {"name": "a", "image": "1", "args": ["q"],
             "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
            {"name": "b", "image": "2"},
        ]}),
    );
    check(
        &object,
        &json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}]}),
        &json!({"containers": [{"name": "c"}, {"name": "b", "image": "2"}]}),
    );
    check(
        &object,
        &json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}),
        &json!({"containers": [{"name": "c"}]}),
    );
    check(
        &json!({"args": ["a", "b"]}),
        &json!({"args": ["c"]}),
        &json!({"args": ["c"]}),
    );
}

#[test]
fn scalars_are_merged_as_sets() {
    let object = json!({"finalizers": ["a", "b"]});
    check(
        &object,
        &json!({"finalizers": ["c", "a"]}),
        &json!({"finalizers": ["c", "a", "b"]}),
    );
    check(
        &object,
        &json!({"$deleteFromPrimitiveList/finalizers": ["a", "x"]}),
        &json!({"finalizers": ["b"]}),
    );
    check(
        &object,
        &json!({"$deleteFromPrimitiveList/missing": ["a"]}),
        &object,
    );
}

#[test]
fn an_order_sorts_the_listed_items() {
    let names =
        |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    for (current, patch, order, expected) in [
        (
            &["a", "b", "c"][..],
            &[][..],
            &["c", "a"][..],
            &["b", "c", "a"][..],
        ),
        (&["a", "b"], &["x"], &["x", "a", "b"], &["x", "a", "b"]),
        (&["a", "b", "c"], &["v"], &["v", "c"], &["v", "a", "b", "c"]),
    ] {
        let mut merge = json!({"$setElementOrder/containers": names(order)});
        if !patch.is_empty() {
            merge["containers"] = names(patch);
        }
        check(
            &json!({"containers": names(current)}),
            &merge,
            &json!({"containers": names(expected)}),
        );
    }
    // The item that takes the place of a deleted one is after those that are not listed.
    check(
        &json!({"containers": names(&["a", "b", "c"])}),
        &json!({
            "$setElementOrder/containers": names(&["v", "c"]),
            "containers": [{"name": "v"}, {"name": "a", "$patch": "delete"}],
        }),
        &json!({"containers": names(&["b", "v", "c"])}),
    );
    check(
        &json!({"finalizers": ["a", "b"]}),
        &json!({"$setElementOrder/finalizers": ["b", "a"]}),
        &json!({"finalizers": ["b", "a"]}),
    );
}

#[test]
fn retained_keys_remove_all_others() {
    let source = |source: Value| json!({"containers": [{"name": "a", "source": source}]});
    check(
        &source(json!({"one": {"x": 1}, "kept": 1})),
        &source(json!({"$retainKeys": ["two", "kept"], "two": {}})),
        &source(json!({"two": {}, "kept": 1})),
    );
    for patch in [
        json!({"$retainKeys": ["one"], "two": {}}),
        json!({"$retainKeys": "one"}),
    ] {
        let error = apply(&source(json!({})), &source(patch)).unwrap_err();
        assert_eq!(error.to_string(), "invalid patch format of retainKeys");
        assert_eq!(error.status().code, 400);
    }
}

#[test]
fn patches_that_do_not_fit_are_refused() {
    let object = json!({
        "spec": {"unknown": {}}, "containers": [{"name": "a"}], "unkeyed": [{"name": "a"}],
        "finalizers": ["a"], "mixed": {}, "args": ["a"],
    });
    for (patch, code, message) in [
        (
            json!({"spec": {"$patch": "frob"}}),
            500,
            "unknown patch type: frob in map: map[$patch:frob]",
        ),
        (
            json!({"containers": [{"image": "x"}]}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"$patch": "merge", "name": "a"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"containers": ["a"]}),
            500,
            "list element types are not identical: [[map[name:a]] [a]]",
        ),
        (
            json!({"unkeyed": [{"name": "b"}]}),
            500,
            "cannot merge lists without merge key for struct",
        ),
        (
            json!({"finalizers": [["a"]]}),
            500,
            "list element types are not identical: [[a] [[a]]]",
        ),
        (
            json!({"spec": {"unknown": {"a": 1}}}),
            500,
            "unable to find api field in struct Test for the json field \"unknown\"",
        ),
        (
            json!({"$setElementOrder/containers": 1}),
            500,
            "expected a []interface {}, but received a int64",
        ),
        (
            json!({"$setElementOrder": []}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"$deleteFromPrimitiveListX": []}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"$setElementOrder/finalizers": ["b", "c"], "finalizers": ["c", "b"]}),
            500,
            "The order in patch list:\n[c b]\n doesn't match $setElementOrder list:\n[b c]\n",
        ),
    ] {
        let error = apply(&object, &patch).unwrap_err();
        assert_eq!(
            (error.status().code, error.to_string().as_str()),
            (code, message),
            "{patch}"
        );
    }
    let object = json!({"finalizers": [["a"]]});
    let error = apply(&object, &json!({"finalizers": [["b"]]})).unwrap_err();
    assert_eq!(error, PatchError::ListOfLists);
    assert_eq!(error.status().code, 422);
    for body in ["[]", "{", "1"] {
        let error = StrategicPatch::from_body(body.as_bytes()).unwrap_err();
        assert_eq!(error.status().code, 400, "{body}");
    }
}

#[test]
fn large_lists_are_merged_in_linear_time() {
    let items = |range: std::ops::Range<u32>| -> Value {
        range.map(|i| json!({"name": format!("{i:06}")})).collect()
    };
    let deleted = (0..50_000).map(|i| json!({"name": format!("{i:06}"), "$patch": "delete"}));
    let mut patch: Vec<_> = deleted.collect();
    let new = items(100_000..150_000);
    patch.extend(new.as_array().unwrap().iter().cloned());
    let merged = apply(
        &json!({"containers": items(0..100_000)}),
        &json!({"containers": patch, "$setElementOrder/containers": items(50_000..150_000)}),
    );
    assert_eq!(merged, Ok(json!({"containers": items(50_000..150_000)})));
}

fn objects() -> impl Strategy<Value = Value> {
    let scalars = prop_oneof![
        Just(Value::Null),
        (-1..2_i64).prop_map(Value::from),
        prop_oneof![Just("a"), Just("delete"), Just("replace"), Just("merge")]
            .prop_map(Value::from),
    ];
    let keys = prop_oneof![
        3 => prop_oneof![
            Just("spec"), Just("containers"), Just("finalizers"), Just("name"), Just("env"),
            Just("source"), Just("unkeyed"), Just("replaced"),
        ],
        1 => prop_oneof![
            Just("$patch"), Just("$retainKeys"), Just("$setElementOrder"),
            Just("$setElementOrder/containers"), Just("$setElementOrder/finalizers"),
            Just("$deleteFromPrimitiveList/finalizers"), Just("$deleteFromPrimitiveList/"),
        ],
    ];
    let values = scalars.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..4).prop_map(|members| {
                let members = members
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value));
                Value::Object(members.collect())
            }),
        ]
    });
    values.prop_filter("an object", Value::is_object)
}

proptest! {
    #[test]
    fn patches_never_panic(object in objects(), patch in objects()) {
        let _ = apply(&object, &patch);
    }
}
