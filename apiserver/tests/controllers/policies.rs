//! The status of validating policies.

use serde_json::{Value, json};

use crate::client::{TestResult, send, value};
use crate::support::{create, patch, started, wait};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition, and policies with the warnings of upstream's `TypeChecker` at a kube-apiserver 1.36.3. The number at
/// the end of the names of its types is 0.
const RECORDED: &str = include_str!("../data/type-checking.json");

fn policy(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Returns the status of a policy once that is about a generation.
fn status(server: &revstore_apiserver::ApiServer, name: &str, generation: i64) -> Value {
    let is_checked = |policy: Option<&Value>| {
        policy.is_some_and(|policy| policy["status"]["observedGeneration"] == generation)
    };
    wait(server, POLICIES, name, is_checked).map_or(Value::Null, |policy| policy["status"].clone())
}

#[test]
fn warnings_are_those_of_kubernetes() -> TestResult {
    let recorded: Value = serde_json::from_str(RECORDED)?;
    let server = started("validatingadmissionpolicy-status-controller");
    create(&server, DEFINITIONS, &recorded["definition"]);
    let name = "widgets.example.com";
    wait(&server, DEFINITIONS, name, |definition| {
        let conditions = definition.and_then(|it| it["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
    });
    let policies = recorded["policies"].as_array().ok_or("policies")?;
    for (index, expected) in policies.iter().enumerate() {
        let name = format!("p{index}");
        create(&server, POLICIES, &policy(&name, &expected["spec"]));
        let status = status(&server, &name, 1);
        let warnings = &status["typeChecking"]["expressionWarnings"];
        let warnings = warnings.as_array().cloned().unwrap_or_default();
        assert_eq!(
            json!(warnings),
            expected["warnings"],
            "{}",
            expected["spec"]
        );
        assert!(status["typeChecking"].is_object(), "{status}");
    }
    Ok(())
}

#[test]
fn a_changed_policy_is_checked_again() {
    let server = started("*");
    let spec = |expression: &str| {
        json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"],
                "resources": ["deployments"],
            }]},
            "validations": [{"expression": expression}],
        })
    };
    create(&server, POLICIES, &policy("p", &spec("object.spec.x == 1")));
    let warned = status(&server, "p", 1);
    let warnings = &warned["typeChecking"]["expressionWarnings"];
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[0].expression");
    let change = json!({"spec": spec("object.spec.replicas == 1")});
    patch(&server, &format!("{POLICIES}/p"), &change);
    // As in kube-apiserver, an apply leaves nothing of an object whose fields it removes.
    let cleared = status(&server, "p", 2);
    assert_eq!(cleared, json!({"observedGeneration": 2}));
}

/// Thousands of expressions with an error at ten kinds each: the warnings have a bound, so that they can be stored.
#[test]
fn the_warnings_of_a_policy_are_bounded() {
    let server = started("validatingadmissionpolicy-status-controller");
    let resources = [
        "daemonsets",
        "deployments",
        "replicasets",
        "statefulsets",
        "controllerrevisions",
    ];
    let validations: Vec<Value> = (0..2_000)
        .map(|number| json!({"expression": format!("object.nothing{number} == '{}'", "x".repeat(200))}))
        .collect();
    let spec = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": resources,
        }]},
        "validations": validations,
    });
    let body = policy("large", &spec).to_string();
    let (code, answer) = value(&send(&server, "POST", POLICIES, &body));
    assert_eq!(code, 201, "{answer}");
    let status = status(&server, "large", 1);
    let length = status.to_string().len();
    assert!((200_000..600_000).contains(&length), "{length} bytes");
}
