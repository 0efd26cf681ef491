//! Reviews: questions about users and their rights, which are answered and not stored.

use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use serde_json::{Value, json};

use crate::auth::{Attributes, User};
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
    let spec = review.get("spec").cloned().unwrap_or_default();
    let status = match resource.names.kind.as_str() {
        "SelfSubjectReview" => {
            let metadata = review.entry("metadata").or_insert_with(|| json!({}));
            metadata["creationTimestamp"] = front.now().into();
            json!({"userInfo": user_info(&exchange.user)})
        }
        "SelfSubjectAccessReview" => json!({"allowed": allows(front, &exchange.user, &spec)}),
        "SubjectAccessReview" => json!({"allowed": allows(front, &subject(&spec), &spec)}),
        "LocalSubjectAccessReview" => {
            if spec["resourceAttributes"]["namespace"] != target.namespace.as_str() {
                return Err(RequestError::BadRequest(format!(
                    "spec.resourceAttributes.namespace must match namespace: {}",
                    target.namespace
                )));
            }
            json!({"allowed": allows(front, &subject(&spec), &spec)})
        }
        "SelfSubjectRulesReview" => rules(front, &exchange.user),
        "TokenReview" => token(front, &spec),
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

fn allows(front: &Front, user: &User, spec: &Value) -> bool {
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let path = &spec["nonResourceAttributes"];
    if path.is_object() {
        let (verb, path) = (text(path, "verb"), text(path, "path"));
        return front.authorizer.allows(
            user,
            Attributes::Path {
                verb: &verb,
                path: &path,
            },
        );
    }
    let asked = &spec["resourceAttributes"];
    let [verb, group, namespace, resource, subresource, name] = [
        "verb",
        "group",
        "namespace",
        "resource",
        "subresource",
        "name",
    ]
    .map(|field| text(asked, field));
    front.authorizer.allows(
        user,
        Attributes::Resource {
            verb: &verb,
            group: &group,
            namespace: &namespace,
            resource: &resource,
            subresource: &subresource,
            name: &name,
        },
    )
}

fn rules(front: &Front, user: &User) -> Value {
    let everything = Attributes::Resource {
        verb: "*",
        group: "*",
        namespace: "",
        resource: "*",
        subresource: "",
        name: "",
    };
    let all = front.authorizer.allows(user, everything);
    let resources = if all {
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    } else {
        json!([])
    };
    let paths = if all {
        json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}])
    } else {
        json!([])
    };
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

fn token(front: &Front, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    let (now, _) = front.lifetime(0).0;
    match front.authenticator.user_of_token(token, now) {
        Some(user) => json!({"authenticated": true, "user": user_info(&user)}),
        None => json!({"authenticated": false, "error": "the token is unknown or has expired"}),
    }
}
