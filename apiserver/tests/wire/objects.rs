//! A valid object of each built-in kind.

use revstore_kinds::Resource;
use serde_json::{Value, json};

/// The namespace of the objects that have one.
pub(crate) const NAMESPACE: &str = "wire";

/// An object of a kind with all of its usual parts, and where it is created.
pub(crate) struct Example {
    pub(crate) resource: &'static Resource,
    pub(crate) object: Value,
    /// The path of the collection.
    pub(crate) path: String,
}

impl Example {
    /// Returns the kind with its version, for messages.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.object["apiVersion"], self.object["kind"])
    }

    /// Returns the object with a name that no other number gives, together with what depends on the name.
    pub(crate) fn numbered(&self, number: usize) -> Value {
        let mut object = self.object.clone();
        let name = match self.resource.kind() {
            // Not of the range of services, whose addresses have such objects.
            "IPAddress" => format!("10.99.{}.{}", number / 250, number % 250 + 1),
            "APIService" => {
                object["spec"]["version"] = json!(format!("v{number}"));
                format!("v{number}.none.example.com")
            }
            "CustomResourceDefinition" => {
                let plural = format!("others{number}");
                object["spec"]["names"] =
                    json!({"plural": plural, "kind": format!("Other{number}")});
                format!("{plural}.wire.example.com")
            }
            _ => format!(
                "{}-{number}",
                self.object["metadata"]["name"].as_str().unwrap_or_default()
            ),
        };
        object["metadata"]["name"] = json!(name);
        object
    }

    /// Returns the path of an object.
    pub(crate) fn path_of(&self, object: &Value) -> String {
        let name = object["metadata"]["name"].as_str().expect("a name");
        format!("{}/{name}", self.path)
    }
}

/// Returns the examples of all kinds that are stored and served by default, in the order of the table.
pub(crate) fn examples() -> Vec<Example> {
    examples_of(include_str!("objects.json"), true)
}

/// Returns the examples of the kinds of beta versions.
pub(crate) fn beta_examples() -> Vec<Example> {
    examples_of(include_str!("beta-objects.json"), false)
}

fn examples_of(objects: &str, on_by_default: bool) -> Vec<Example> {
    let objects: Vec<Value> = serde_json::from_str(objects).expect("the examples");
    let stored = revstore_kinds::resources().filter(|resource| {
        resource.on_by_default() == on_by_default
            && resource.has_verb("create")
            && resource.has_verb("list")
    });
    let examples: Vec<Example> = stored.map(|resource| example(resource, &objects)).collect();
    assert_eq!(examples.len(), objects.len(), "an object has no kind");
    examples
}

fn example(resource: &'static Resource, objects: &[Value]) -> Example {
    let (group, version) = (resource.group(), resource.version());
    let (root, api_version) = match group {
        "" => (format!("/api/{version}"), version.to_owned()),
        group => (
            format!("/apis/{group}/{version}"),
            format!("{group}/{version}"),
        ),
    };
    let mut objects = objects.iter();
    let is_of_kind =
        |object: &&Value| object["apiVersion"] == api_version && object["kind"] == resource.kind();
    let object = objects.find(is_of_kind);
    let object = object.unwrap_or_else(|| panic!("no object of {api_version} {}", resource.kind()));
    let namespace = if resource.namespaced() {
        format!("/namespaces/{NAMESPACE}")
    } else {
        String::new()
    };
    Example {
        resource,
        object: object.clone(),
        path: format!("{root}{namespace}/{}", resource.plural()),
    }
}

/// Returns the objects of requests that are answered and not stored, each with its path.
pub(crate) fn reviews() -> Vec<(String, Value)> {
    let attributes = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": NAMESPACE,
        "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}}});
    let mut with_user = attributes.clone();
    with_user["user"] = json!("u");
    with_user["groups"] = json!(["g"]);
    with_user["extra"] = json!({"k": ["v"]});
    let authorization = |path: &str, kind: &str, spec: &Value| {
        let path = format!("/apis/authorization.k8s.io/v1/{path}");
        let object = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        (path, object)
    };
    let authentication = |plural: &str, kind: &str, spec: &Value| {
        let path = format!("/apis/authentication.k8s.io/v1/{plural}");
        let mut object = json!({"apiVersion": "authentication.k8s.io/v1", "kind": kind});
        if spec.is_object() {
            object["spec"] = spec.clone();
        }
        (path, object)
    };
    let local = format!("namespaces/{NAMESPACE}/localsubjectaccessreviews");
    vec![
        authorization("subjectaccessreviews", "SubjectAccessReview", &with_user),
        authorization(
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            &attributes,
        ),
        authorization(&local, "LocalSubjectAccessReview", &with_user),
        authorization(
            "selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
            &json!({"namespace": NAMESPACE}),
        ),
        authentication(
            "tokenreviews",
            "TokenReview",
            &json!({"token": "t", "audiences": ["a"]}),
        ),
        authentication("selfsubjectreviews", "SelfSubjectReview", &Value::Null),
    ]
}
