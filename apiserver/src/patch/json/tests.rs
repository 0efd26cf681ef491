use proptest::prelude::*;
use serde_json::{Value, json};

use crate::decode::{MAX_DEPTH, depth};
use crate::patch::{JsonPatch, MAX_COPY_BYTES};
use crate::patch::{MAX_JSON_PATCH_OPERATIONS, PatchError};

fn apply(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (patch, _) = JsonPatch::from_body(patch.to_string().as_bytes(), true)?;
    patch.apply(object)
}

#[test]
fn operations_are_applied_in_order() {
    for (object, patch, expected) in [
        (json!({}), json!([]), json!({})),
        (
            json!({"a": [1, 3]}),
            json!([
                {"op": "add", "path": "/a/1", "value": 2},
                {"op": "add", "path": "/a/-", "value": 4},
                {"op": "add", "path": "/a/-1", "value": 5},
                {"op": "add", "path": "/a/-6", "value": 0},
            ]),
            json!({"a": [0, 1, 2, 3, 4, 5]}),
        ),
        (
            json!({"a": [1, 2, 3]}),
            json!([
                {"op": "remove", "path": "/a/-1"},
                {"op": "replace", "path": "/a/-2", "value": 7},
                {"op": "move", "from": "/a/0", "path": "/b"},
                {"op": "copy", "from": "/a", "path": "/c"},
            ]),
            json!({"a": [2], "b": 7, "c": [2]}),
        ),
        // The deviations from RFC 6902.
        (
            json!({"a": {}}),
            json!([
                {"op": "replace", "path": "/a/new", "value": 1},
                {"op": "test", "path": "/a/missing", "value": null},
                {"op": "test", "path": "/a/missing"},
                {"op": "copy", "from": "/missing", "path": "/null"},
                {"op": "add", "path": "/empty"},
                {"op": "add", "path": "x/b", "value": 2},
            ]),
            json!({"a": {"new": 1}, "null": null, "empty": null, "b": 2}),
        ),
        (
            json!({"a": 1}),
            json!([
                {"op": "test", "path": "", "value": {"a": 1}},
                {"op": "replace", "path": "", "value": {"b": 2}},
            ]),
            json!({"b": 2}),
        ),
        (json!({"a": 1}), json!(null), json!({"a": 1})),
    ] {
        assert_eq!(apply(&object, &patch), Ok(expected), "{patch}");
    }
}

#[test]
fn failing_operations_are_422() {
    let object = json!({"spec": {"size": 1, "list": [1]}, "text": "x"});
    for operation in [
        json!({"op": "test", "path": "/spec/size", "value": 9}),
        json!({"op": "test", "path": "/spec/size", "value": 1.0}),
        json!({"op": "test", "path": "/spec/missing/deeper", "value": null}),
        json!({"op": "test", "path": "/spec/list/1", "value": null}),
        json!({"op": "remove", "path": "/spec/missing"}),
        json!({"op": "remove", "path": "/spec/list/1"}),
        json!({"op": "remove", "path": "/spec/list/-2"}),
        json!({"op": "remove", "path": "/spec/list/x"}),
        json!({"op": "remove", "path": ""}),
        json!({"op": "add", "path": "/missing/a", "value": 1}),
        json!({"op": "add", "path": "/text/a", "value": 1}),
        json!({"op": "add", "path": "/spec/list/2", "value": 1}),
        json!({"op": "add", "path": "", "value": {}}),
        json!({"op": "replace", "path": "/spec/list/1", "value": 1}),
        json!({"op": "replace", "path": "", "value": 1}),
        json!({"op": "replace", "path": ""}),
        json!({"op": "move", "path": "/a"}),
        json!({"op": "move", "from": "/missing", "path": "/a"}),
        json!({"op": "move", "from": "/spec", "path": "/spec/a"}),
        json!({"op": "copy", "from": "", "path": "/a"}),
        json!({"op": "copy", "from": "/spec"}),
        json!({"op": "add"}),
        json!({"op": "frob", "path": "/spec/size"}),
        json!({"path": "/spec/size"}),
        json!(null),
    ] {
        let status = apply(&object, &json!([operation])).unwrap_err().status();
        assert_eq!(
            (status.code, status.message.as_str()),
            (
                422,
                "the server rejected our request due to an error in our request"
            ),
            "{operation}"
        );
    }
}

#[test]
fn malformed_patches_are_400() {
    for (body, is_strict, message) in [
        (
            r#"{"op":"add"}"#,
            true,
            "error decoding patch: json: cannot unmarshal object into Go value of type \
             []handlers.jsonPatchOp",
        ),
        (
            r#"{"op":"add"}"#,
            false,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            "[1]",
            true,
            "error decoding patch: json: cannot unmarshal number into Go value of type \
             handlers.jsonPatchOp",
        ),
        (
            r#"[{"op":5}]"#,
            true,
            "error decoding patch: json: cannot unmarshal number into Go struct field \
             jsonPatchOp.op of type string",
        ),
        ("[", false, "unexpected end of JSON input"),
    ] {
        let error = JsonPatch::from_body(body.as_bytes(), is_strict).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.status().code, 400);
    }
    let (patch, _) = JsonPatch::from_body(br#"[{"op":5}]"#, false).unwrap();
    assert_eq!(patch.apply(&json!({})).unwrap_err().status().code, 422);
}

#[test]
fn unknown_and_duplicate_fields_are_strict_errors() {
    let body = br#"[{"op":"add","op":"add","path":"/a","value":{"b":1,"b":2},"x":1}]"#;
    let (_, strict) = JsonPatch::from_body(body, true).unwrap();
    assert_eq!(
        strict,
        [
            "json patch duplicate field \"[0].op\"",
            "json patch duplicate field \"[0].value.b\"",
            "json patch unknown field \"[0].x\"",
        ]
    );
}

#[test]
fn the_number_of_operations_is_bounded() {
    let patch = |operations| {
        let operation = json!({"op": "add", "path": "/a", "value": 1});
        apply(&json!({}), &Value::Array(vec![operation; operations]))
    };
    assert_eq!(patch(MAX_JSON_PATCH_OPERATIONS), Ok(json!({"a": 1})));
    assert_eq!(
        patch(MAX_JSON_PATCH_OPERATIONS + 1)
            .unwrap_err()
            .status()
            .code,
        413
    );
}

#[test]
fn copies_are_bounded() {
    // Each operation doubles the object.
    let copy = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let object = json!({"a": ["x".repeat(1000)]});
    let error = apply(&object, &Value::Array(vec![copy; 100])).unwrap_err();
    assert_eq!(error.status().code, 422);
    // 3 copies of 1 MiB are more than the limit with their quotes.
    let object = json!({"a": "x".repeat(MAX_COPY_BYTES / 3)});
    let copies = |count| {
        let copies =
            (0..count).map(|i| json!({"op": "copy", "from": "/a", "path": format!("/{i}")}));
        apply(&object, &copies.collect())
    };
    assert!(copies(2).is_ok());
    assert!(copies(3).is_err());
}

#[test]
fn the_depth_is_bounded() {
    // Each pair of operations wraps the value into more levels.
    let wrap = [
        json!({"op": "move", "from": "/a", "path": "/b"}),
        json!({"op": "add", "path": "/a", "value": {"x": {"x": {}}}}),
        json!({"op": "move", "from": "/b", "path": "/a/x/x/y"}),
    ];
    let patch: Vec<_> = wrap.iter().cycle().take(3 * 30).cloned().collect();
    assert!(depth(&apply(&json!({"a": {}}), &patch.into()).unwrap()) <= MAX_DEPTH);
    let patch: Vec<_> = wrap.iter().cycle().take(3 * 3000).cloned().collect();
    assert_eq!(
        apply(&json!({"a": {}}), &patch.into()),
        Err(PatchError::TooDeep)
    );
    let copy = json!({"op": "copy", "from": "/a", "path": "/a/b"});
    let patch = Value::Array(vec![copy; 1000]);
    assert_eq!(apply(&json!({"a": {}}), &patch), Err(PatchError::TooDeep));
}

#[test]
fn steps_are_bounded() {
    let object = json!({"a": vec![0; 10_000]});
    let patch = Value::Array(vec![
        json!({"op": "add", "path": "/a/0", "value": 1});
        10_000
    ]);
    assert!(matches!(apply(&object, &patch), Err(PatchError::Failed(_))));
    let moves = [
        json!({"op": "move", "from": "/a", "path": "/b"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let patch: Vec<_> = moves.iter().cycle().take(10_000).cloned().collect();
    assert!(matches!(
        apply(&object, &patch.into()),
        Err(PatchError::Failed(_))
    ));
}

fn values() -> impl Strategy<Value = Value> {
    let scalars = prop_oneof![
        Just(Value::Null),
        (-3..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    scalars.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn operations() -> impl Strategy<Value = Value> {
    let op = prop_oneof![
        Just("add"),
        Just("remove"),
        Just("replace"),
        Just("move"),
        Just("copy"),
        Just("test")
    ];
    (
        op,
        "(/(a|b|c|0|1|-|-1)){0,3}",
        "(/(a|b|c|0|1|-1)){0,3}",
        values(),
    )
        .prop_map(
            |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
        )
}

proptest! {
    #[test]
    fn patches_never_panic(
        object in values(),
        operations in prop::collection::vec(prop_oneof![9 => operations(), 1 => values()], 0..12),
    ) {
        for is_strict in [true, false] {
            let body = Value::Array(operations.clone()).to_string();
            if let Ok((patch, _)) = JsonPatch::from_body(body.as_bytes(), is_strict) {
                let _ = patch.apply(&object);
            }
        }
    }

    #[test]
    fn a_tested_value_is_the_one_that_was_added(object in values(), value in values()) {
        prop_assume!(object.is_object());
        let patch = json!([
            {"op": "add", "path": "/new", "value": value},
            {"op": "copy", "from": "/new", "path": "/copy"},
            {"op": "move", "from": "/new", "path": "/moved"},
            {"op": "test", "path": "/copy", "value": value},
            {"op": "test", "path": "/moved", "value": value},
            {"op": "remove", "path": "/copy"},
            {"op": "remove", "path": "/moved"},
        ]);
        prop_assert_eq!(apply(&object, &patch), Ok(object));
    }
}
