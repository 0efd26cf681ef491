//! The objects in the bodies of requests.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::Status;
use serde_json::Value;

use revstore_kinds as kinds;

use crate::catalog::{Origin, Resource};
use crate::decode::{self, Decoded, FieldValidation, Format};
use crate::http::{Exchange, MEDIA_TYPES, media_type, read_body};

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Text(Format),
    Protobuf,
}

impl BodyFormat {
    /// Returns the format that the header `Content-Type` names. Without it the body is JSON.
    ///
    /// # Errors
    /// 415.
    pub(crate) fn of(exchange: &Exchange, has_protobuf: bool) -> Result<Self, RequestError> {
        let header = exchange.headers.get(CONTENT_TYPE);
        let media = match header.map(|header| header.to_str()) {
            None | Some(Ok("")) => Some(MEDIA_TYPES[0].to_owned()),
            Some(text) => text.ok().and_then(media_type::parse),
        };
        match media.as_deref() {
            Some("application/json") => Ok(Self::Text(Format::Json)),
            Some("application/yaml") => Ok(Self::Text(Format::Yaml)),
            Some("application/vnd.kubernetes.protobuf") if has_protobuf => Ok(Self::Protobuf),
            _ => {
                let types = if has_protobuf {
                    &MEDIA_TYPES[..]
                } else {
                    &MEDIA_TYPES[..2]
                };
                Err(Status::unsupported_media_type(types).into())
            }
        }
    }
}

/// Reads the object in the body of a create or an update.
///
/// # Errors
/// 400 for a malformed body, another kind, or fields that strict validation refuses; 413; 415.
pub(crate) async fn read_object(
    exchange: &mut Exchange,
    resource: &Resource,
    body: RequestBody,
    validation: FieldValidation,
) -> Result<JsonObject, RequestError> {
    let format = BodyFormat::of(exchange, resource.origin == Origin::Builtin)?;
    let bytes = read_body(body).await?;
    let decoded = decode_body(resource, format, &bytes)?;
    let object = match decoded.value {
        Value::Object(object) => object,
        // Go decodes `null` to an empty struct.
        Value::Null if resource.origin == Origin::Builtin => JsonObject::new(),
        other => {
            let error = decode::DecodeError::NotAnObject(decode::json_type(&other));
            return Err(error.status(&resource.names.kind, &bytes).into());
        }
    };
    if resource.origin == Origin::Custom {
        check_type_is_there(resource, &object, &bytes)?;
    }
    let overhead = object.get("spec").and_then(|spec| spec.get("overhead"));
    let overhead = overhead.and_then(Value::as_object);
    exchange.has_empty_overhead = overhead.is_some_and(JsonObject::is_empty);
    accept(exchange, resource, object, decoded.strict, validation)
}

/// Checks that an object of a custom resource says its kind and API version, which built-in kinds may leave out.
fn check_type_is_there(
    resource: &Resource,
    object: &JsonObject,
    body: &[u8],
) -> Result<(), RequestError> {
    let names = &resource.names;
    let refused = |error: decode::DecodeError| Err(error.status(&names.kind, body).into());
    for field in ["apiVersion", "kind"] {
        let value = object.get(field).unwrap_or(&Value::Null);
        if !value.is_string() && !value.is_null() {
            return refused(decode::DecodeError::Json(format!(
                "json: cannot unmarshal {} into Go struct field .{field} of type string",
                decode::json_type(value)
            )));
        }
    }
    let is_empty = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
    };
    if is_empty("kind") {
        return refused(decode::DecodeError::KindMissing);
    }
    if is_empty("apiVersion") {
        return Err(RequestError::BadRequest(format!(
            "the API version in the data () does not match the expected API version ({})",
            names.api_version()
        )));
    }
    Ok(())
}

fn decode_body(
    resource: &Resource,
    format: BodyFormat,
    bytes: &Bytes,
) -> Result<Decoded, RequestError> {
    let kind = &resource.names.kind;
    match format {
        BodyFormat::Text(format) => {
            decode::decode(bytes, format).map_err(|error| error.status(kind, bytes).into())
        }
        BodyFormat::Protobuf => Ok(Decoded {
            value: from_protobuf(kind, &resource.names.api_version(), bytes)?,
            strict: Vec::new(),
        }),
    }
}

/// Completes an object of a request: fields that its kind does not have are removed, and reported as the
/// option `fieldValidation` says.
///
/// # Errors
/// 400.
// WC-420.
pub(crate) fn accept(
    exchange: &mut Exchange,
    resource: &Resource,
    mut object: JsonObject,
    mut strict: Vec<String>,
    validation: FieldValidation,
) -> Result<JsonObject, RequestError> {
    let names = &resource.names;
    let unknown = resource.rules.conform(&mut object)?;
    strict.extend(unknown);
    if !strict.is_empty() {
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => {
                for warning in decode::strict_warnings(&strict) {
                    exchange.warn(warning);
                }
            }
            FieldValidation::Strict => {
                let detail = decode::strict_message(&strict);
                let (kind, version) = (&names.kind, &names.version);
                return Err(decode::unhandled(kind, version, kind, &detail).into());
            }
        }
    }
    Ok(object)
}

/// Reads a body of a kind that is not that of a resource.
///
/// # Errors
/// 400 for a malformed body; 413; 415.
pub(crate) async fn read_plain(
    exchange: &Exchange,
    kind: &str,
    body: RequestBody,
) -> Result<JsonObject, RequestError> {
    let format = match BodyFormat::of(exchange, true)? {
        BodyFormat::Text(format) => format,
        BodyFormat::Protobuf => {
            let bytes = read_body(body).await?;
            return match from_protobuf(kind, "", &bytes)? {
                Value::Object(object) => Ok(object),
                _ => Err(RequestError::BadRequest(
                    "the body is not an object".to_owned(),
                )),
            };
        }
    };
    let bytes = read_body(body).await?;
    let decoded = decode::decode(&bytes, format).map_err(|error| error.status(kind, &bytes))?;
    match decoded.value {
        Value::Object(object) => {
            check_plain(kind, &object)?;
            Ok(object)
        }
        Value::Null => Ok(JsonObject::new()),
        other => {
            let error = decode::DecodeError::NotAnObject(decode::json_type(&other));
            Err(error.status(kind, &bytes).into())
        }
    }
}

/// The kinds of plain bodies, the package of Go that they are converted to, and their versions.
const PLAIN: [(&str, &str, &[&str]); 4] = [
    ("Binding", "core", &["v1"]),
    ("Eviction", "policy", &["policy/v1", "policy/v1beta1"]),
    (
        "TokenRequest",
        "authentication",
        &["authentication.k8s.io/v1"],
    ),
    (
        "Scale",
        "autoscaling",
        &[
            "autoscaling/v1",
            "apps/v1beta1",
            "apps/v1beta2",
            "extensions/v1beta1",
        ],
    ),
];
/// The kinds that all versions of the API have.
const COMMON: [&str; 7] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "Status",
    "UpdateOptions",
];

/// Checks that a body says no other kind or version, if it says one.
fn check_plain(expected: &str, object: &JsonObject) -> Result<(), RequestError> {
    let known = PLAIN.iter().find(|(kind, ..)| *kind == expected);
    let Some((_, package, versions)) = known else {
        return Ok(());
    };
    let text = |field: &str| {
        let text = object.get(field).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    };
    let kind = text("kind").unwrap_or(expected);
    let own = versions.first().copied().unwrap_or_default();
    let api_version = text("apiVersion").unwrap_or(own);
    if kind == expected && versions.contains(&api_version) {
        return Ok(());
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let is_known = COMMON.contains(&kind)
        || kinds::kind(group, version, kind.strip_suffix("List").unwrap_or(kind)).is_some();
    let reason = if is_known {
        format!("converting ({version}.{kind}) to ({package}.{expected}): unknown conversion")
    } else {
        format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \
             \"pkg/runtime/scheme.go:111\""
        )
    };
    Err(RequestError::BadRequest(format!(
        "{kind} in version {version:?} cannot be handled as a {expected}: {reason}"
    )))
}

/// Decodes an object in Kubernetes' protobuf, which is of the expected kind and version if it says no others.
///
/// # Errors
/// 400.
pub(crate) fn from_protobuf(
    expected: &str,
    api_version: &str,
    bytes: &[u8],
) -> Result<Value, RequestError> {
    kinds::from_protobuf_as(api_version, expected, bytes).map_err(|error| {
        let message =
            format!("the object provided is unrecognized (must be of type {expected}): {error}");
        RequestError::BadRequest(message)
    })
}
