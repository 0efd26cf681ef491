//! Reviews: questions about users and their rights, which are answered and not stored.

use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};
use serde_json::{Value, json};

use crate::admission::{Admission, Operation};
use crate::auth::{Attributes, Rule, User};
use crate::catalog::Resource;
use crate::decode::WriteOptions;
use crate::http::{Answer, CREATED, Exchange, Form, Front, Target};
use crate::verbs::body::read_object;
use crate::verbs::offer;

/// Answers the create of a review.
pub(crate) async fn review(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &[Form::Whole]))?;
    let options = WriteOptions::create(&exchange.query)?;
    let mut review = read_object(exchange, resource, body, options.field_validation).await?;
    let admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: options.dry_run,
        deletion: None,
    };
    let admitted = admission.admit_unstored(Operation::Create, &mut review);
    admitted.await?;
    let spec = review.get("spec").cloned().unwrap_or_default();
    let status = match resource.names.kind.as_str() {
        "SelfSubjectReview" => {
            let metadata = review.entry("metadata").or_insert_with(|| json!({}));
            metadata["creationTimestamp"] = front.now().into();
            json!({"userInfo": user_info(&exchange.user)})
        }
        "SelfSubjectAccessReview" => {
            check_access(&review, &[])?;
            access(front, &exchange.user, &spec)
        }
        "SubjectAccessReview" => {
            check_access(&review, &subject_causes(&spec))?;
            access(front, &subject(&spec), &spec)
        }
        "LocalSubjectAccessReview" => {
            let asked = &spec["resourceAttributes"];
            if asked.is_object() && asked["namespace"] != target.namespace.as_str() {
                return Err(RequestError::BadRequest(format!(
                    "spec.resourceAttributes.namespace must match namespace: {}",
                    target.namespace
                )));
            }
            let mut causes = subject_causes(&spec);
            let path = &spec["nonResourceAttributes"];
            if path.is_object() {
                let detail = "disallowed on this kind of request";
                let field = "spec.nonResourceAttributes";
                causes.push(StatusCause::invalid(field, path.clone(), detail));
            }
            check_access(&review, &causes)?;
            let metadata = review.entry("metadata").or_insert_with(|| json!({}));
            metadata["namespace"] = target.namespace.as_str().into();
            access(front, &subject(&spec), &spec)
        }
        "SelfSubjectRulesReview" => {
            let namespace = spec["namespace"].as_str().unwrap_or_default();
            if namespace.is_empty() {
                let message = "no namespace on request".to_owned();
                return Err(RequestError::BadRequest(message));
            }
            rules(front, &exchange.user, namespace)
        }
        "TokenReview" => {
            if is_empty(&spec["token"]) {
                let message = "token is required for TokenReview in authentication";
                return Err(RequestError::BadRequest(message.to_owned()));
            }
            token(front, &spec).await
        }
        kind => {
            let message = format!("reviews of the kind {kind} are not served");
            return Err(RequestError::Unclassified(message));
        }
    };
    review.insert("kind".to_owned(), resource.names.kind.as_str().into());
    review.insert("apiVersion".to_owned(), resource.names.api_version().into());
    review.insert("status".to_owned(), status);
    Ok(Answer::value(CREATED, accepted, &Value::Object(review)))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        other => other.is_null(),
    }
}

/// Returns what is wrong with the user that a review names.
fn subject_causes(spec: &Value) -> Vec<StatusCause> {
    if is_empty(&spec["user"]) && is_empty(&spec["groups"]) {
        let detail = "at least one of user or group must be specified";
        return vec![StatusCause::invalid("spec.user", "", detail)];
    }
    Vec::new()
}

/// Checks that a review of access asks for one thing, and that it has no metadata.
fn check_access(review: &JsonObject, causes: &[StatusCause]) -> Result<(), RequestError> {
    let mut causes = causes.to_vec();
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_null() == path.is_null() {
        causes.push(if resource.is_null() {
            let detail =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            StatusCause::invalid("spec.resourceAttributes", Value::Null, detail)
        } else {
            let detail = "cannot be specified in combination with resourceAttributes";
            StatusCause::invalid("spec.nonResourceAttributes", path.clone(), detail)
        });
    }
    causes.extend(
        ["fieldSelector", "labelSelector"]
            .iter()
            .filter_map(|name| {
                let selector = resource.get(*name).filter(|it| it.is_object())?;
                selector_cause(&format!("spec.resourceAttributes.{name}"), selector)
            }),
    );
    let metadata = review.get("metadata").and_then(Value::as_object);
    let mut metadata = metadata.cloned().unwrap_or_default();
    // Those that the server sets.
    for field in ["creationTimestamp", "managedFields", "namespace"] {
        metadata.remove(field);
    }
    if !metadata.is_empty() {
        causes.push(StatusCause::invalid("metadata", metadata, "must be empty"));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let kind = ResourceName::new("authorization.k8s.io", "");
    Err(Status::invalid(&kind, "", causes).into())
}

/// Returns what is wrong with a selector of objects in a review: it has one of two forms.
fn selector_cause(field: &str, selector: &Value) -> Option<StatusCause> {
    let (raw, requirements) = (&selector["rawSelector"], &selector["requirements"]);
    match (is_empty(raw), is_empty(requirements)) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            let field = format!("{field}.rawSelector");
            Some(StatusCause::invalid(&*field, raw.clone(), detail))
        }
        (true, true) => {
            let detail =
                format!("when {field} is specified, requirements or rawSelector is required");
            let field = format!("{field}.requirements");
            Some(StatusCause::required(&*field, &detail))
        }
        _ => None,
    }
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), json!(values)))
            .collect();
    }
    info
}

/// Returns the user that a review names.
fn subject(spec: &Value) -> User {
    let groups = spec["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    User::new(spec["user"].as_str().unwrap_or_default(), groups)
}

/// Returns the answer to the question whether a user may make a request.
fn access(front: &Front, user: &User, spec: &Value) -> Value {
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let path = &spec["nonResourceAttributes"];
    let decision = if path.is_object() {
        let (verb, path) = (text(path, "verb"), text(path, "path"));
        let attributes = Attributes::Path {
            verb: &verb,
            path: &path,
        };
        front.authorizer.decide(user, attributes)
    } else {
        let asked = &spec["resourceAttributes"];
        let fields = [
            "verb",
            "group",
            "namespace",
            "resource",
            "subresource",
            "name",
        ];
        let [verb, group, namespace, resource, subresource, name] =
            fields.map(|field| text(asked, field));
        let attributes = Attributes::Resource {
            verb: &verb,
            group: &group,
            namespace: &namespace,
            resource: &resource,
            subresource: &subresource,
            name: &name,
        };
        front.authorizer.decide(user, attributes)
    };
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    status
}

/// Returns what a user may do in a namespace.
fn rules(front: &Front, user: &User, namespace: &str) -> Value {
    let (rules, errors) = front.authorizer.rules(user, namespace);
    let of = |paths: bool| -> Vec<Value> {
        let rules = rules.iter().filter(|rule| rule.is_of_paths() == paths);
        rules.map(Rule::to_json).collect()
    };
    let mut status = json!({
        "resourceRules": of(false),
        "nonResourceRules": of(true),
        "incomplete": false,
    });
    if !errors.is_empty() {
        status["evaluationError"] = errors.join(", ").into();
    }
    status
}

async fn token(front: &Front, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    let asked = spec["audiences"].as_array().into_iter().flatten();
    let mut audiences: Vec<String> = asked
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.clone_from(&front.authenticator.service_accounts.audiences);
    }
    match front.user_of_token(token, &audiences).await {
        Ok(found) => json!({
            "authenticated": true,
            "user": user_info(&found.user),
            "audiences": found.audiences,
        }),
        Err(error) => json!({"user": {}, "error": error}),
    }
}
