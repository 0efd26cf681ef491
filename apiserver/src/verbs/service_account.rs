//! Tokens of service accounts.

use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};
use serde_json::{Value, json};

use crate::admission::{Admission, Operation};
use crate::catalog::{Resource, Stored};
use crate::http::{Answer, CREATED, Exchange, Form, Front, Target};
use crate::verbs::body::read_plain;
use crate::verbs::offer;
use crate::verbs::subresource::current;

/// The lifetime of a token that names none, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// The shortest and the longest lifetime of a token, in seconds.
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// The objects to which a token can be bound.
const BINDABLE: [(&str, &str, &str); 3] = [
    ("v1", "Pod", "pods"),
    ("v1", "Secret", "secrets"),
    ("v1", "Node", "nodes"),
];

/// Answers a `TokenRequest`.
pub(crate) async fn token(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &[Form::Whole]))?;
    let mut request = read_plain(exchange, "TokenRequest", body).await?;
    let admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: false,
        deletion: None,
    };
    let admitted = admission.admit_unstored(Operation::Create, &mut request);
    admitted.await?;
    let account = current(exchange, resource, stored, target).await?;
    let spec = request.get("spec").cloned().unwrap_or_else(|| json!({}));
    let seconds = spec["expirationSeconds"]
        .as_i64()
        .unwrap_or(DEFAULT_SECONDS);
    let detail = match seconds {
        ..MIN_SECONDS => Some("may not specify a duration less than 10 minutes"),
        MAX_SECONDS.. => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(detail) = detail {
        let kind = ResourceName::new("authentication.k8s.io", "TokenRequest");
        let cause = StatusCause::invalid("spec.expirationSeconds", seconds, detail);
        return Err(Status::invalid(&kind, "", vec![cause]).into());
    }
    let bound = spec.get("boundObjectRef").filter(|bound| !bound.is_null());
    if let Some(bound) = bound {
        check_bound(front, target, bound).await?;
    }
    let audiences = match spec.get("audiences").and_then(Value::as_array) {
        Some(audiences) if !audiences.is_empty() => json!(audiences),
        _ => json!([front.authenticator.service_accounts.issuer]),
    };
    let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
    let (issued, expires) = front.lifetime(seconds);
    let claims = json!({
        "iss": front.authenticator.service_accounts.issuer,
        "sub": format!("system:serviceaccount:{}:{}", target.namespace, target.name),
        "aud": audiences,
        "iat": issued.0,
        "nbf": issued.0,
        "exp": expires.0,
        "kubernetes.io": {
            "namespace": target.namespace,
            "serviceaccount": {"name": target.name, "uid": uid},
        },
    });
    let signed = front.authenticator.service_accounts.sign(&claims);
    let value = json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": target.name,
            "namespace": target.namespace,
            "uid": uid,
            "creationTimestamp": issued.1,
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": bound,
        },
        "status": {"token": signed, "expirationTimestamp": expires.1},
    });
    Ok(Answer::value(CREATED, accepted, &value))
}

/// Checks that the object to which a token is bound exists.
async fn check_bound(front: &Front, target: &Target, bound: &Value) -> Result<(), RequestError> {
    let (version, kind) = (&bound["apiVersion"], &bound["kind"]);
    let known = BINDABLE
        .iter()
        .find(|(known, bindable, _)| version == known && kind == bindable);
    let Some((version, _, plural)) = known else {
        let (group, version) = version
            .as_str()
            .and_then(|version| version.split_once('/'))
            .unwrap_or(("", version.as_str().unwrap_or_default()));
        return Err(RequestError::BadRequest(format!(
            "cannot bind token to object of type {group}/{version}, Kind={}",
            kind.as_str().unwrap_or_default()
        )));
    };
    let name = bound["name"].as_str().unwrap_or_default();
    let Ok(resource) = front.catalog.find("", version, plural) else {
        return Ok(());
    };
    let Some(stored) = &resource.stored else {
        return Ok(());
    };
    let reference = if resource.namespaced {
        ObjectRef::namespaced(&*target.namespace, name)
    } else {
        ObjectRef::cluster(name)
    };
    match stored.cache.get(&reference, &GetOptions::default()).await? {
        Some(_) => Ok(()),
        None => Err(Status::not_found(&resource.names.resource_name(), name).into()),
    }
}
