//! Tokens of service accounts.

use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};
use serde_json::{Map, Value, json};

use crate::admission::{Admission, Operation};
use crate::auth::User;
use crate::catalog::{Resource, Stored};
use crate::http::{Answer, CREATED, Exchange, Form, Front, Target};
use crate::verbs::body::read_plain;
use crate::verbs::offer;
use crate::verbs::read::decoded;
use crate::verbs::subresource::current;

/// The lifetime of a token that names none, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// The shortest and the longest lifetime of a token, in seconds.
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// The kinds of the objects to which a token can be bound, with their resources.
const BINDABLE: [(&str, &str); 3] = [("Pod", "pods"), ("Secret", "secrets"), ("Node", "nodes")];
/// The lifetime that kubelets ask for, in seconds: by it kube-apiserver knows tokens of pods that it lets live longer.
const KUBELET_SECONDS: i64 = 3607;
/// The lifetime of such a token, in seconds.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

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
    complete(&mut request, target);
    let mutated = admission.mutate(Operation::Create, Some(&mut request), None);
    mutated.await?;
    let account = current(exchange, resource, stored, target).await?;
    check_target(&request, target, &account)?;
    identify(&mut request, front, target, &account);
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
    let validated = admission.validate(Operation::Create, Some(&request), None);
    validated.await?;
    let bound = spec.get("boundObjectRef").filter(|bound| !bound.is_null());
    let bound_claims = match bound {
        Some(bound) => bound_claims(front, target, bound).await?,
        None => Map::new(),
    };
    let accounts = &front.authenticator.service_accounts;
    let audiences: Vec<String> = match spec.get("audiences").and_then(Value::as_array) {
        Some(audiences) if !audiences.is_empty() => {
            let audiences = audiences.iter().filter_map(Value::as_str);
            audiences.map(str::to_owned).collect()
        }
        _ => accounts.audiences.clone(),
    };
    let seconds = match accounts.max_seconds {
        Some(max) if seconds > max => {
            exchange.warn(format!(
                "requested expiration of {seconds} seconds shortened to {max} seconds"
            ));
            max
        }
        _ => seconds,
    };
    let uid = &account["metadata"]["uid"];
    let mut private = bound_claims;
    private.insert("namespace".to_owned(), target.namespace.as_str().into());
    let account = json!({"name": target.name, "uid": uid});
    private.insert("serviceaccount".to_owned(), account);
    let (issued, expires) = front.lifetime(seconds);
    let mut end = expires.0;
    let is_own = audiences.iter().all(|it| accounts.audiences.contains(it));
    if accounts.extends && private.contains_key("pod") && seconds == KUBELET_SECONDS && is_own {
        private.insert("warnafter".to_owned(), end.into());
        end = front.lifetime(EXTENDED_SECONDS).1.0;
    }
    let claims = json!({
        "iss": accounts.issuer(),
        "sub": User::service_account_name(&target.namespace, &target.name),
        "aud": audiences,
        "iat": issued.0,
        "nbf": issued.0,
        "exp": end,
        "jti": new_id(),
        "kubernetes.io": private,
    });
    let signed = accounts.sign(&claims);
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

/// Gives a request for a token the fields and defaults of its kind.
fn complete(request: &mut JsonObject, target: &Target) {
    for (field, value) in [
        ("metadata", json!({})),
        ("spec", json!({})),
        ("status", json!({"token": "", "expirationTimestamp": null})),
    ] {
        let member = request.entry(field).or_insert(Value::Null);
        if !member.is_object() {
            *member = value;
        }
    }
    if request["metadata"]["namespace"].is_null() {
        request["metadata"]["namespace"] = target.namespace.as_str().into();
    }
    if let Some(spec) = request["spec"].as_object_mut() {
        for field in ["audiences", "boundObjectRef"] {
            spec.entry(field).or_insert(Value::Null);
        }
        let seconds = spec.entry("expirationSeconds").or_insert(Value::Null);
        if seconds.is_null() {
            *seconds = DEFAULT_SECONDS.into();
        }
    }
}

/// Gives a request for a token what is known of its service account.
fn identify(request: &mut JsonObject, front: &Front, target: &Target, account: &JsonObject) {
    let Some(Value::Object(metadata)) = request.get_mut("metadata") else {
        return;
    };
    metadata.insert("name".to_owned(), target.name.as_str().into());
    metadata.insert("uid".to_owned(), account["metadata"]["uid"].clone());
    metadata.insert("creationTimestamp".to_owned(), front.now().into());
    let spec = request.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec
        && spec
            .get("audiences")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
    {
        let audiences = &front.authenticator.service_accounts.audiences;
        spec.insert("audiences".to_owned(), audiences.clone().into());
    }
    let status = json!({"token": "", "expirationTimestamp": null});
    request.insert("status".to_owned(), status);
}

/// Returns a random UUID, the name of a token.
fn new_id() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    let number = u128::from_be_bytes(bytes);
    // The version and the variant of random UUIDs.
    let number = number & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{number:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

/// Checks that a request is for the service account at its path.
fn check_target(
    request: &JsonObject,
    target: &Target,
    account: &JsonObject,
) -> Result<(), RequestError> {
    let kind = ResourceName::new("authentication.k8s.io", "TokenRequest");
    let metadata = request.get("metadata").unwrap_or(&Value::Null);
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let name = text("name");
    if !name.is_empty() && name != target.name {
        let detail = "must match the service account name if specified";
        let cause = StatusCause::invalid("metadata.name", name, detail);
        return Err(Status::invalid(&kind, &target.name, vec![cause]).into());
    }
    let namespace = text("namespace");
    if !namespace.is_empty() && namespace != target.namespace {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(RequestError::BadRequest(message.to_owned()));
    }
    let (uid, known) = (text("uid"), account["metadata"]["uid"].as_str());
    let known = known.unwrap_or_default();
    if !uid.is_empty() && uid != known {
        let reason = format!(
            "the UID in the token request ({uid}) does not match the UID of the service account ({known})"
        );
        return Err(Status::conflict(&kind, &target.name, &reason).into());
    }
    Ok(())
}

/// Returns the claims about the object to which a token is bound, which must exist.
async fn bound_claims(
    front: &Front,
    target: &Target,
    bound: &Value,
) -> Result<JsonObject, RequestError> {
    let version = bound["apiVersion"].as_str().unwrap_or_default();
    let kind = bound["kind"].as_str().unwrap_or_default();
    let known = BINDABLE.iter().find(|(bindable, _)| kind == *bindable);
    let Some((_, plural)) = known.filter(|_| !version.contains('/')) else {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        return Err(RequestError::BadRequest(format!(
            "cannot bind token to object of type {group}/{version}, Kind={kind}"
        )));
    };
    let name = bound["name"].as_str().unwrap_or_default();
    let Some(object) = find(front, target, plural, name).await? else {
        return Err(Status::not_found(&ResourceName::new("", *plural), name).into());
    };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let mut claims = JsonObject::new();
    if kind == "Pod" {
        let spec = &object["spec"];
        if spec["serviceAccountName"] != target.name.as_str() {
            return Err(RequestError::BadRequest(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                target.name
            )));
        }
        let node = spec["nodeName"].as_str().unwrap_or_default();
        if !node.is_empty() {
            let mut claim = json!({"name": node});
            if let Some(found) = find(front, target, "nodes", node).await? {
                claim["uid"] = found["metadata"]["uid"].clone();
            }
            claims.insert("node".to_owned(), claim);
        }
    }
    let asked = bound["uid"].as_str().unwrap_or_default();
    if !asked.is_empty() && asked != uid {
        let reason = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(&ResourceName::new("", kind), name, &reason).into());
    }
    let claim = json!({"name": name, "uid": uid});
    claims.insert(kind.to_ascii_lowercase(), claim);
    Ok(claims)
}

/// Returns an object of the core group, which is in the namespace of the service account if it is in any.
async fn find(
    front: &Front,
    target: &Target,
    plural: &str,
    name: &str,
) -> Result<Option<JsonObject>, RequestError> {
    let Ok(resource) = front.catalog.find("", "v1", plural) else {
        return Ok(None);
    };
    let Some(stored) = resource.stored.as_deref().filter(|_| !name.is_empty()) else {
        return Ok(None);
    };
    let reference = if resource.namespaced {
        ObjectRef::namespaced(&*target.namespace, name)
    } else {
        ObjectRef::cluster(name)
    };
    let found = stored.cache.get(&reference, &GetOptions::default()).await?;
    found
        .map(|object| decoded(&resource, stored, &object))
        .transpose()
}
