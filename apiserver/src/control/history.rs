//! Requests as of an earlier revision: those with the header `Revstore-At-Revision`, and those that a rule makes stale.

use http::HeaderMap;
use revstore_watch_cache::api::{Expired, GetOptions, ListOptions};
use revstore_watch_cache::selector::{FieldSelector, Selector};
use revstore_watch_cache::{Object, RequestError, ResourceCache, Revision};

use crate::http::{RequestInfo, Target};
use crate::verbs::{Facet, scope};

/// The header with the revision.
const AT_REVISION: &str = "revstore-at-revision";

/// Returns the revision in the header of a request, if it has one. Of requests that are not for resources, such as
/// discovery, the header has no effect, so that clients can send it with all of their reads.
///
/// # Errors
/// 400 if it is no revision, or if the request is a write, a watch, or a read of something that is not stored.
pub(super) fn requested(
    headers: &HeaderMap,
    info: &RequestInfo,
) -> Result<Option<Revision>, RequestError> {
    let Some(value) = headers.get(AT_REVISION).filter(|_| info.target.is_some()) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let revision = text.parse().ok().filter(|revision| *revision > 0);
    let Some(revision) = revision else {
        let message = format!("invalid header Revstore-At-Revision: {text:?} is not a revision");
        return Err(RequestError::BadRequest(message));
    };
    if !is_read(info) {
        let message = "the header Revstore-At-Revision is for gets and lists of objects";
        return Err(RequestError::BadRequest(message.to_owned()));
    }
    Ok(Some(Revision(revision)))
}

/// Returns whether a request reads an object, a part of one such as its status, or a list of objects.
pub(super) fn is_read(info: &RequestInfo) -> bool {
    let target = info.target.as_ref();
    let is_stored = |target: &Target| Facet::of(&target.subresource).is_some();
    target.is_some_and(is_stored) && ["get", "list"].contains(&info.verb)
}

/// Checks that a revision is not a future one.
///
/// # Errors
/// 504.
pub(super) fn check_not_future(requested: Revision, current: Revision) -> Result<(), RequestError> {
    if requested <= current {
        return Ok(());
    }
    Err(RequestError::TooLarge { requested, current })
}

/// Reads an object as of a revision, as a server whose newest revision this is.
///
/// # Errors
/// Those of a get for invalid options, 410 if the revision is compacted, and 504 if the client asks for a later one.
pub(crate) async fn past_object(
    cache: &ResourceCache,
    target: &Target,
    options: &GetOptions,
    revision: Revision,
) -> Result<Option<Object>, RequestError> {
    options.check_as_of(revision)?;
    let selector = Selector {
        fields: FieldSelector::equals("metadata.name", &*target.name),
        ..Selector::default()
    };
    let mut options = ListOptions::default()
        .resource_version(revision.to_string())
        .resource_version_match("Exact");
    options.selector = selector;
    let list = cache.list(&scope(target), &options).await;
    let mut list = list.map_err(|error| match error {
        RequestError::Expired(Expired::List) => RequestError::Expired(Expired::Get),
        error => error,
    })?;
    list.items.next().transpose()
}
