//! The types of patches, variables that are computed when they are used, and the authorizer of a resource.

use std::cell::Cell;
use std::sync::Arc;

use revstore_cel::{
    AccessAttributes, AccessDecision, Activation, Authorizer, CALL_COST_MAX, Environment,
    EvaluationError, Type, Value,
};
use serde_json::{Value as Json, json};

fn value(source: &str) -> Result<Value, String> {
    let environment = Environment::new()
        .with_variable("object", Type::Dyn)
        .with_patch_types();
    let program = environment
        .compile(source)
        .map_err(|error| error.to_string())?;
    let object = Value::from_json(&json!({"metadata": {"name": "a"}, "count": 3}));
    let evaluation = program.evaluate(&[("object", object)], CALL_COST_MAX);
    evaluation.result.map_err(|error| error.to_string())
}

fn as_json(source: &str) -> Result<Json, String> {
    value(source)?.to_json().map_err(|error| error.to_string())
}

#[test]
fn objects_have_any_fields() {
    let found = as_json(
        "Object{metadata: Object.metadata{labels: {'a': object.metadata.name}}, n: [1, 2], f: 2.0}",
    )
    .unwrap();
    assert_eq!(
        found,
        json!({"metadata": {"labels": {"a": "a"}}, "n": [1, 2], "f": 2})
    );
    assert_eq!(as_json("Object{?a: optional.none()}"), Ok(json!({})));
    let error = value("Object{a: 1}.a").unwrap_err();
    assert_eq!(error, "no such key: a");
    assert_eq!(
        as_json("type(Object.spec{}) == Object.spec"),
        Ok(json!(true))
    );
    assert_eq!(
        as_json("dyn(Object.spec{}) == dyn(Object.other{})"),
        Ok(json!(false))
    );
}

#[test]
fn objects_have_the_types_of_their_fields() {
    let found = value("Object{spec: Object.spec{a: [Object.spec.b{}]}, m: {'k': Object.m{}}}");
    let found = found.unwrap().type_mismatches();
    assert_eq!(
        found,
        [
            "unexpected type name \"Object.spec.b\", expected \"Object.spec.a\", which matches field name path from root Object type"
        ]
    );
}

#[test]
fn json_patches_have_operations() {
    let found = value(
        "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('k8s.io/my~label'), value: Object.a{b: 1}}]",
    );
    let found = found.unwrap().item(0).unwrap();
    assert_eq!(
        found.get("path").and_then(Value::as_str),
        Some("/a/k8s.io~1my~0label")
    );
    assert_eq!(
        found.get("value").unwrap().to_json().unwrap(),
        json!({"b": 1})
    );
    assert_eq!(as_json("JSONPatch{op: 'test'}.op"), Ok(json!("test")));
    let error = value("JSONPatch{op: object.count}").unwrap_err();
    assert!(error.contains("'op' field"), "{error}");
    let error = value("JSONPatch{nope: 1}").unwrap_err();
    assert!(error.contains("undefined field 'nope'"), "{error}");
}

#[test]
fn the_types_are_those_of_some_environments() {
    let error = Environment::new().compile("Object{}").unwrap_err();
    assert!(error.to_string().contains("undeclared reference"));
}

/// Variables of which one field is computed, and how often that was.
struct Lazy(Cell<usize>);

impl Activation for Lazy {
    fn variable(&self, name: &str) -> Option<Value> {
        (name == "variables").then(|| Value::map([("none", Value::Null)]))
    }

    fn field(&self, variable: &str, field: &str) -> Option<Result<Value, EvaluationError>> {
        assert_eq!(variable, "variables");
        self.0.set(self.0.get() + 1);
        Some(match field {
            "wrong" => Err(EvaluationError::Failed("it is wrong".to_owned())),
            _ => Ok(Value::Int(5)),
        })
    }
}

#[test]
fn variables_are_computed_when_they_are_used() {
    let fields = [("five", Type::Int), ("wrong", Type::Bool)];
    let environment = Environment::new()
        .with_structure("kubernetes.variables", fields)
        .with_variable("variables", Type::object("kubernetes.variables"));
    let run = |source: &str| {
        let lazy = Lazy(Cell::new(0));
        let program = environment.compile(source).unwrap();
        let evaluation = program.evaluate_in(&lazy, 100);
        let result = evaluation.result.map(|value| value.to_string());
        (
            result.map_err(|error| error.to_string()),
            evaluation.cost,
            lazy.0.get(),
        )
    };
    assert_eq!(run("true || variables.wrong"), (Ok("true".into()), 0, 0));
    assert_eq!(run("variables.five + 1"), (Ok("6".into()), 3, 1));
    assert_eq!(
        run("variables.wrong || variables.five == 5"),
        (Ok("true".into()), 5, 2)
    );
    assert_eq!(run("variables.wrong").0, Err("it is wrong".into()));
    assert_eq!(run("has(variables.five)").0, Ok("true".into()));
    // A variable of a loop hides it.
    assert_eq!(
        run("[{'five': 7}].all(variables, variables.five == 7)"),
        (Ok("true".into()), 7, 0)
    );
}

/// Allows what has the verb `get`, and says whom it was asked about.
#[derive(Debug)]
struct Gets;

impl Authorizer for Gets {
    fn check(&self, access: &AccessAttributes) -> AccessDecision {
        AccessDecision {
            allowed: access.verb == "get",
            reason: format!("{} {}", access.user, access.resource),
            error: None,
        }
    }
}

#[test]
fn the_authorizer_of_the_resource_of_a_request() {
    let checked = Environment::new()
        .compile("type(1) == int")
        .unwrap()
        .result_type()
        .clone();
    assert_eq!(checked, Type::Bool);
    let environment = Environment::new().with_variable(
        "authorizer.requestResource",
        Type::object("kubernetes.authorization.ResourceCheck"),
    );
    let mut access = AccessAttributes::default();
    access.user = "ann".to_owned();
    access.resource = "pods".to_owned();
    let check = Value::resource_check(Arc::new(Gets), access);
    let source = "authorizer.requestResource.check('get').allowed() && \
                  authorizer.requestResource.check('put').reason() == 'ann pods'";
    let program = environment.compile(source).unwrap();
    let evaluation = program.evaluate(&[("authorizer.requestResource", check)], CALL_COST_MAX);
    assert_eq!(evaluation.result.unwrap().as_bool(), Some(true));
    assert!(evaluation.cost > 700_000);
}
