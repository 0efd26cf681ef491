//! One request, as the verbs see it.

use std::collections::BTreeMap;
use std::time::Instant;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use revstore_host::net::UpgradeOffer;
use revstore_watch_cache::api::Query;
use revstore_watch_cache::{RequestError, Revision};

use crate::auth::User;
use crate::control::RequestControl;
use crate::http::{Accepted, Offer, RequestInfo};
use crate::metrics::Labels;
use crate::quota::Grant;

/// The maximum number of warnings for an answer, more than one has. Further ones are left out.
const WARNINGS_MAX: usize = 1_000;

/// A request without its body, and the warnings that its answer will have.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    pub(crate) info: RequestInfo,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    /// Whether the client would continue the connection with another protocol.
    pub(crate) upgrade: Option<UpgradeOffer>,
    /// Whether the path is that of a resource that exists.
    pub(crate) is_known: bool,
    pub(crate) user: User,
    /// Texts for the headers `Warning`. Held to add or to read them.
    pub(crate) warnings: Mutex<Vec<String>>,
    /// What the admission notes for an audit, by keys. Held to add or to read it.
    pub(crate) annotations: Mutex<BTreeMap<String, String>>,
    /// What the request was granted of quotas, until it ends. Held to add to it.
    pub(crate) grants: Mutex<Vec<Grant>>,
    /// When the time of the request ends, unless it is a watch.
    pub(crate) deadline: Option<Instant>,
    /// Whether the body is a pod with an overhead without amounts, which is refused although its type does not keep it.
    pub(crate) has_empty_overhead: bool,
    /// What control adds, on a server that has it.
    pub(crate) control: Option<RequestControl>,
}

impl Exchange {
    /// Returns the revision as of which control wants an object or a list to be read.
    pub(crate) fn past_revision(&self) -> Option<Revision> {
        self.control.as_ref().and_then(|control| control.at)
    }

    /// Returns the labels of the metrics of the request.
    pub(crate) fn labels(&self) -> Labels<'_> {
        let is_apply = self
            .header("content-type")
            .starts_with("application/apply-patch+");
        let is_dry_run = self
            .query
            .first("dryRun")
            .is_some_and(|value| !value.is_empty());
        Labels::new(
            &self.info,
            &self.method,
            self.is_known,
            is_apply,
            is_dry_run,
        )
    }

    /// Chooses the media type and the form of the answer.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn negotiate(&self, offer: Offer<'_>) -> Result<Accepted, RequestError> {
        Accepted::negotiate(&self.headers, &self.query, offer)
    }

    /// Checks that the client accepts JSON, of an endpoint that answers nothing else.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn accepts_json(&self) -> Result<Accepted, RequestError> {
        Accepted::json(&self.headers, &self.query)
    }

    /// Checks that the client accepts a media type, of an endpoint that answers nothing else.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn accepts(&self, media_type: &'static str) -> Result<(), RequestError> {
        Accepted::only(&self.headers, media_type)
    }

    /// Returns the text of a header, or an empty one.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Adds a text for a header `Warning`, once.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Notes something for an audit. The first value of a key stays.
    pub(crate) fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut annotations = self.annotations.lock();
        annotations
            .entry(key.into())
            .or_insert_with(|| value.into());
    }
}
