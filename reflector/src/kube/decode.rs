//! The bodies of an API server: lists, events and errors.

use bytes::Bytes;
use revstore_watch_cache::api::{Expired, ObjectList};
use revstore_watch_cache::encode::Kind;
use revstore_watch_cache::status::{CauseReason, Reason, Status};
use revstore_watch_cache::{EventType, Object, RequestError, Revision, WatchEvent};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The maximum number of bytes of an error that is no `Status`, in the message of ours.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Deserialize)]
struct ListBody<'a> {
    #[serde(default)]
    kind: String,
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: Option<String>,
    #[serde(default)]
    remaining_item_count: Option<u64>,
}

#[derive(Deserialize)]
struct EventBody<'a> {
    #[serde(rename = "type")]
    event: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkBody {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
    #[serde(default)]
    annotations: Option<std::collections::HashMap<String, String>>,
}

fn unreadable(what: &str, error: impl std::fmt::Display) -> RequestError {
    RequestError::Internal(format!("unable to decode {what}: {error}"))
}

fn revision(text: &str) -> Result<Revision, RequestError> {
    match text.parse() {
        Ok(revision) => Ok(Revision(revision)),
        Err(_) => Err(unreadable("a resource version", format_args!("{text:?}"))),
    }
}

fn object(json: &RawValue, kind: &dyn Kind) -> Result<Object, RequestError> {
    // A copy, so that the object does not keep the whole body.
    let json = Bytes::copy_from_slice(json.get().as_bytes());
    Object::from_json(json, kind).map_err(|error| RequestError::Internal(error.to_string()))
}

/// Decodes the body of a list.
pub(crate) fn list(body: &[u8], kind: &dyn Kind) -> Result<ObjectList, RequestError> {
    let list: ListBody<'_> =
        serde_json::from_slice(body).map_err(|error| unreadable("a list", error))?;
    if !list.kind.ends_with("List") {
        return Err(unreadable(
            "a list",
            format_args!("its kind is {:?}", list.kind),
        ));
    }
    let items = list.items.unwrap_or_default();
    let objects: Result<Vec<Object>, _> =
        items.into_iter().map(|item| object(item, kind)).collect();
    let mut decoded =
        ObjectList::from_objects(revision(&list.metadata.resource_version)?, &objects?);
    decoded.continue_token = list
        .metadata
        .continue_token
        .filter(|token| !token.is_empty());
    decoded.remaining_item_count = list.metadata.remaining_item_count;
    Ok(decoded)
}

/// Decodes an event of a watch. An event that cannot be decoded is an error, with which the watch
/// ends.
pub(crate) fn event(body: &[u8], kind: &dyn Kind) -> WatchEvent {
    decode_event(body, kind).unwrap_or_else(WatchEvent::Error)
}

fn decode_event(body: &[u8], kind: &dyn Kind) -> Result<WatchEvent, RequestError> {
    let event: EventBody<'_> =
        serde_json::from_slice(body).map_err(|error| unreadable("an event", error))?;
    let change = match event.event.as_str() {
        "ADDED" => EventType::Added,
        "MODIFIED" => EventType::Modified,
        "DELETED" => EventType::Deleted,
        "BOOKMARK" => {
            let bookmark: BookmarkBody = serde_json::from_str(event.object.get())
                .map_err(|error| unreadable("a bookmark", error))?;
            let annotations = bookmark.metadata.annotations.unwrap_or_default();
            let end = annotations.get("k8s.io/initial-events-end");
            return Ok(WatchEvent::Bookmark {
                revision: revision(&bookmark.metadata.resource_version)?,
                initial_events_end: end.is_some_and(|end| end == "true"),
            });
        }
        "ERROR" => return Err(error(200, None, event.object.get().as_bytes())),
        other => {
            return Err(unreadable(
                "an event",
                format_args!("its type is {other:?}"),
            ));
        }
    };
    Ok(WatchEvent::unshared(change, object(event.object, kind)?))
}

/// Returns the error of a response with the HTTP status `http_code`, the header `Retry-After` in
/// seconds and a body, which usually is a `Status`.
pub(crate) fn error(http_code: u16, retry_after: Option<u32>, body: &[u8]) -> RequestError {
    let mut status = Status::from_json(body).unwrap_or_else(|_| {
        let mut status = Status::default();
        status.message =
            String::from_utf8_lossy(&body[..body.len().min(TEXT_BYTES_MAX)]).into_owned();
        status
    });
    if status.code == 0 {
        status.code = http_code;
    }
    if let (None, Some(seconds)) = (status.retry_after_seconds(), retry_after) {
        status = status.with_retry_after(seconds);
    }
    let is_expired = matches!(status.reason, Some(Reason::Expired | Reason::Gone));
    match status.code {
        // WC-530.
        _ if status.code == 410 || is_expired => {
            RequestError::Expired(match status.continue_token {
                token @ Some(_) => Expired::Continue { token },
                None => Expired::Reported(status.message),
            })
        }
        // WC-232: old servers send the message only, without the cause.
        504 if status.message.contains("Too large resource version")
            || status.has_cause(&CauseReason::RESOURCE_VERSION_TOO_LARGE) =>
        {
            let numbers = status.message.split(|c: char| !c.is_ascii_digit());
            let mut numbers = numbers.filter_map(|number| number.parse().ok());
            let mut next = || Revision(numbers.next().unwrap_or_default());
            RequestError::TooLarge {
                requested: next(),
                current: next(),
            }
        }
        429 => RequestError::TooManyRequests {
            retry_after_seconds: status.retry_after_seconds().unwrap_or_default(),
            message: status.message,
        },
        503 => RequestError::Unavailable(status.message),
        _ => RequestError::Reported(Box::new(status)),
    }
}
