//! Validation as recorded from kube-apiserver, properties, and hostile schemas and values.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{CAUSES_MAX, Schema, SchemaError};

fn parse(schema: &Value) -> Schema {
    Schema::parse(schema).expect("the schema is not too large")
}

fn spec(properties: &Value) -> Schema {
    parse(&json!({"type": "object", "properties": {"spec": properties}}))
}

fn texts(schema: &Schema, spec: &Value) -> Vec<String> {
    let causes = schema.validate(&json!({"spec": spec}));
    causes.iter().map(ToString::to_string).collect()
}

fn strings() -> Schema {
    spec(
        &json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string", "pattern": "^x[0-9]$"},
        "long": {"type": "string", "maxLength": 10, "minLength": 2},
        "items": {"type": "array", "maxItems": 2, "minItems": 1, "items": {"type": "integer"}},
        "when": {"type": "string", "format": "date-time"},
        "m": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "integer"}},
        "a": {"type": "integer"}, "b": {"type": "integer"},
        "small": {"type": "integer", "format": "int32", "maximum": 100, "exclusiveMaximum": true},
        "half": {"type": "number", "multipleOf": 0.5, "minimum": 0.5},
        "one": {"type": "array", "maxItems": 1, "items": {"type": "integer"}},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "null": {"type": "string", "nullable": true},
        "q": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+[MG]i$"}},
        "oneOf": [{"required": ["a"]}, {"not": {"anyOf": [{"required": ["a"]}]}}]}),
    )
}

#[test]
fn values_are_refused_with_the_texts_of_kubernetes() {
    for (value, expected) in [
        (json!({}), "spec.id: Required value"),
        (
            json!({"id": "abc"}),
            "spec.id: Invalid value: \"abc\": spec.id in body should match '^x[0-9]$'",
        ),
        (
            json!({"id": "x1", "long": "0123456789a"}),
            "spec.long: Too long: may not be more than 10 bytes",
        ),
        (
            json!({"id": "x1", "long": "é"}),
            "spec.long: Invalid value: \"é\": spec.long in body should be at least 2 chars long",
        ),
        (
            json!({"id": "x1", "items": [1, 2, 3]}),
            "spec.items: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"id": "x1", "items": []}),
            "spec.items: Invalid value: 0: spec.items in body should have at least 1 items",
        ),
        (
            json!({"id": "x1", "items": ["a"]}),
            "spec.items[0]: Invalid value: \"string\": spec.items[0] in body must be of type integer: \"string\"",
        ),
        (
            json!({"id": "x1", "when": "yesterday"}),
            "spec.when: Invalid value: \"yesterday\": spec.when in body must be of type date-time: \"yesterday\"",
        ),
        (
            json!({"id": "x1", "m": {"k1": 1, "k2": 2, "k3": 3}}),
            "spec.m: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"id": "x1", "m": {"k": true}}),
            "spec.m.k: Invalid value: \"boolean\": spec.m.k in body must be of type integer: \"boolean\"",
        ),
        (
            json!({"id": "x1", "q": "1x"}),
            "spec.q: Invalid value: \"1x\": spec.q in body should match '^[0-9]+[MG]i$'",
        ),
        (
            json!({"id": "x1", "q": true}),
            "spec.q: Invalid value: \"boolean\": spec.q in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"id": "x1", "mode": "warp"}),
            "spec.mode: Unsupported value: \"warp\": supported values: \"fast\", \"slow\"",
        ),
        (
            json!({"id": "x1", "small": 100}),
            "spec.small: Invalid value: 100: spec.small in body should be less than 100",
        ),
        (
            json!({"id": "x1", "half": 0.75}),
            "spec.half: Invalid value: 0.75: spec.half in body should be a multiple of 0.5",
        ),
        (
            json!({"id": "x1", "half": 1}),
            "spec.half: Invalid value: 0: factor MultipleOf declared for spec.half must be positive: 0",
        ),
        (
            json!({"id": "x1", "m": {"k": 1}, "one": [1, 2]}),
            "spec.one: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"id": null}),
            "spec.id: Invalid value: \"null\": spec.id in body must be of type string: \"null\"",
        ),
    ] {
        assert_eq!(texts(&strings(), &value), [expected], "{value}");
    }
}

#[test]
fn values_are_accepted() {
    for value in [
        json!({"id": "x1", "a": 1, "b": 2}),
        json!({"id": "x1", "q": "10Mi", "a": 1.0}),
        json!({"id": "x1", "q": 10, "null": null}),
        json!({"id": "x1", "unknown": {"a": []}}),
        json!({"id": "x1", "half": 1.5}),
    ] {
        assert_eq!(texts(&strings(), &value), [""; 0], "{value}");
    }
}

#[test]
fn alternatives_are_reported_with_the_best_one() {
    let schema = spec(
        &json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    );
    assert_eq!(
        texts(&schema, &json!({})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
            "spec.a: Required value",
        ]
    );
    let schema = spec(
        &json!({"type": "object", "properties": {"a": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"minProperties": 1}]}),
    );
    assert_eq!(
        texts(&schema, &json!({"a": "x"})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid \
          alternatives"
        ]
    );
    let schema =
        spec(&json!({"type": "integer", "allOf": [{"minimum": 1}], "not": {"maximum": 5}}));
    assert_eq!(
        texts(&schema, &json!(0)),
        [
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
            "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf). None validated",
            "<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ]
    );
}

#[test]
fn numbers_must_fit_into_their_types() {
    let schema = spec(&json!({"type": "integer", "format": "int32"}));
    assert_eq!(
        texts(&schema, &json!(3_000_000_000_u32)),
        [
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec"
        ]
    );
    let schema = spec(&json!({"type": "integer"}));
    assert_eq!(
        texts(&schema, &json!(1.5)),
        [
            "spec: Invalid value: \"number\": spec in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec",
        ]
    );
}

#[test]
fn unchanged_invalid_values_pass_an_update() {
    let schema = spec(&json!({"type": "object", "properties": {
        "color": {"type": "string"}, "size": {"type": "integer", "maximum": 10},
        "atomic": {"type": "array", "items": {"type": "integer", "maximum": 10}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"v": {"type": "integer", "maximum": 10}}}}}}));
    let object = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
    let old = object(json!({"size": 50, "atomic": [50], "keyed": [{"k": "a", "v": 50}]}));
    let errors = |new: Value| schema.validate_update(&object(new), &old);
    assert_eq!(errors(json!({"size": 50, "color": "blue"})), []);
    assert_eq!(errors(json!({"atomic": [50], "color": "blue"})), []);
    assert_eq!(
        errors(json!({"keyed": [{"k": "b", "v": 1}, {"k": "a", "v": 50, "x": 1}]})),
        []
    );
    for changed in [
        json!({"size": 49}),
        json!({"atomic": [50, 1]}),
        json!({"keyed": [{"k": "b", "v": 50}]}),
    ] {
        let causes = errors(changed.clone());
        assert_eq!(causes.len(), 1, "{changed}: {causes:?}");
        assert!(
            causes[0]
                .message
                .ends_with("should be less than or equal to 10")
        );
    }
    assert_eq!(schema.validate(&old).len(), 3);
}

#[test]
fn hostile_schemas_are_refused() {
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    assert_eq!(Schema::parse(&deep), Err(SchemaError::TooDeep));
    let many: Map<String, Value> = (0..60_000).map(|at| (at.to_string(), json!({}))).collect();
    assert_eq!(
        Schema::parse(&json!({"properties": many})),
        Err(SchemaError::TooLarge)
    );
    let heavy: Map<String, Value> = (0..100)
        .map(|at| (at.to_string(), json!({"pattern": "([a-z]{100}){190}"})))
        .collect();
    assert_eq!(
        Schema::parse(&json!({"properties": heavy})),
        Err(SchemaError::PatternsTooLarge)
    );
    let long = "x".repeat(1_000_000);
    let wide: Map<String, Value> = (0..10_000).map(|at| (format!("{at}"), json!({}))).collect();
    let schema = parse(
        &json!({"type": "object", "properties": {long: {"type": "object", "properties": wide}}}),
    );
    assert!(
        schema.structural_errors("s").len() <= 2,
        "each one repeats the long name"
    );
}

#[test]
fn hostile_values_are_bounded() {
    let values: Vec<Value> = (0..100_000).map(Value::from).collect();
    let schema =
        spec(&json!({"type": "array", "items": {"type": "string", "enum": values.clone()}}));
    let causes = schema.validate(&json!({"spec": values}));
    assert!(causes.len() <= CAUSES_MAX + 1, "{}", causes.len());
    let wrong: Vec<Value> = (0..300_000).map(|_| json!("x")).collect();
    let schema = spec(
        &json!({"type": "array", "items": {"x-kubernetes-int-or-string": true,
        "anyOf": [{"minimum": 1, "enum": (0..1000).collect::<Vec<_>>()}, {"maxLength": 3}]}}),
    );
    let causes = schema.validate(&json!({"spec": wrong}));
    assert_eq!(
        causes.last().map(ToString::to_string).as_deref(),
        Some("<nil>: Invalid value: \"\": the object is too costly to validate against its schema")
    );
    let schema = spec(&json!({"type": "string", "pattern": "^([a-z]{0,100}[^a]{0,100}){0,15}$"}));
    let causes = schema.validate(&json!({"spec": "a".repeat(1_000_000)}));
    assert_eq!(causes.len(), 1, "{causes:?}");
}

/// Any schema, of a few fields and kinds.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "default": "d", "enum": ["d", "x"]})),
        Just(json!({"type": "integer", "default": 1, "nullable": true})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
        Just(
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true})
        ),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let fields = prop::collection::btree_map("[a-d]", inner.clone(), 1..4);
        prop_oneof![
            fields
                .prop_map(|fields| json!({"type": "object", "properties": fields, "default": {}})),
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items})),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

/// Any value whose fields may be those of a schema.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3).prop_map(Value::from),
        any::<f32>().prop_map(|number| json!(number)),
        "[dx]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 32, 4, |inner| {
        let name = prop_oneof![Just("metadata".to_owned()), "[a-e]"];
        prop_oneof![
            prop::collection::btree_map(name, inner.clone(), 0..4).prop_map(|map| json!(map)),
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_again_change_nothing(fields in schemas(), value in values()) {
        let schema = spec(&fields);
        let mut object = json!({"spec": value});
        let size = object.to_string().len();
        schema.prune(&mut object);
        prop_assert!(object.to_string().len() <= size);
        let pruned = object.clone();
        prop_assert_eq!(schema.prune(&mut object), [""; 0]);
        prop_assert_eq!(&object, &pruned);
        schema.set_defaults(&mut object).unwrap();
        let defaulted = object.clone();
        schema.set_defaults(&mut object).unwrap();
        prop_assert_eq!(&object, &defaulted);
        prop_assert_eq!(schema.prune(&mut object), [""; 0]);
        prop_assert_eq!(schema.validate_update(&object, &object), []);
    }

    #[test]
    fn schemas_of_any_form_are_read(schema in values()) {
        if let Ok(schema) = Schema::parse(&schema) {
            schema.structural_errors("s");
            schema.unsupported_errors("s");
        }
    }

    #[test]
    fn patterns_of_any_form_are_read(pattern in "[a-z0-9(){}\\[\\]\\\\^$.|*+?,:<>&~P-]{0,12}", text in ".{0,8}") {
        let schema = spec(&json!({"type": "string", "pattern": pattern}));
        schema.structural_errors("s");
        schema.validate(&json!({"spec": text}));
    }
}
