//! Requests as of an earlier revision: those with the header `Revstore-At-Revision`, and those that a rule makes stale.

use http::{HeaderMap, Uri};
use revstore_watch_cache::api::{GetOptions, ListOptions};
use revstore_watch_cache::selector::{FieldSelector, Selector};
use revstore_watch_cache::{Object, RequestError, ResourceCache, Revision};

use crate::http::{RequestInfo, Target};
use crate::verbs::scope;

/// The header with the revision.
const AT_REVISION: &str = "revstore-at-revision";

/// Returns the revision in the header of a request, if it has one.
///
/// # Errors
/// 400 if it is no revision, or if the request is not a get or list of a resource.
pub(super) fn requested(
    headers: &HeaderMap,
    info: &RequestInfo,
) -> Result<Option<Revision>, RequestError> {
    let Some(value) = headers.get(AT_REVISION) else {
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

/// Returns whether a request reads an object or a list of them.
pub(super) fn is_read(info: &RequestInfo) -> bool {
    let target = info.target.as_ref();
    target.is_some_and(|target| target.subresource.is_empty())
        && ["get", "list"].contains(&info.verb)
}

/// Checks that a revision is not a future one, and that the client has not asked for a later one, as a server checks it
/// whose newest revision this is.
///
/// # Errors
/// 504.
pub(super) fn check_not_later(requested: Revision, newest: Revision) -> Result<(), RequestError> {
    if requested <= newest {
        return Ok(());
    }
    Err(RequestError::TooLarge {
        requested,
        current: newest,
    })
}

/// Returns the URI of a list at exactly this revision. A later page has the revision of the first one.
pub(super) fn exact_list(uri: &Uri, revision: Revision) -> Option<Uri> {
    let query = uri.query().unwrap_or_default();
    let named = |parameter: &str, name: &str| parameter.split('=').next() == Some(name);
    let is_later_page = query
        .split('&')
        .any(|parameter| named(parameter, "continue") && parameter.len() > "continue=".len());
    if is_later_page {
        return None;
    }
    let kept = query.split('&').filter(|parameter| {
        !parameter.is_empty()
            && !named(parameter, "resourceVersion")
            && !named(parameter, "resourceVersionMatch")
    });
    let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
    let parameters: Vec<&str> = kept.chain([exact.as_str()]).collect();
    let path = format!("{}?{}", uri.path(), parameters.join("&"));
    path.parse().ok()
}

/// Reads an object as of a revision.
///
/// # Errors
/// 410 if the revision is compacted.
pub(crate) async fn past_object(
    cache: &ResourceCache,
    target: &Target,
    options: &GetOptions,
    revision: Revision,
) -> Result<Option<Object>, RequestError> {
    // An invalid version is refused as without a past revision.
    let asked = match &*options.resource_version {
        "" | "0" => Revision(0),
        text => Revision(text.parse().unwrap_or_default()),
    };
    check_not_later(asked, revision)?;
    let selector = Selector {
        fields: FieldSelector::parse(&format!("metadata.name={}", target.name))?,
        ..Selector::default()
    };
    let mut options = ListOptions::default()
        .resource_version(revision.to_string())
        .resource_version_match("Exact");
    options.selector = selector;
    let mut list = cache.list(&scope(target), &options).await?;
    list.items.next().transpose()
}
