//! The options of requests as clients send them, and the plans into which they are parsed
//! (docs/watch-cache.md, C.2, C.3 and D.2). Comments such as "L8" name the rows of WC-220.

use std::time::Duration;

use revstore_engine::Revision;

use crate::api::continue_token::ContinueToken;
use crate::api::status::RequestError;
use crate::selector::Selector;
use crate::status::StatusCause;

/// The options of a get.
///
/// | `resource_version` | State that is read |
/// |---|---|
/// | empty | the most recent state |
/// | `0` | any cached state |
/// | a revision | any state at or after that revision |
///
/// ```
/// use revstore_watch_cache::GetOptions;
/// let latest = GetOptions::default();
/// let cached = GetOptions::default().resource_version("0");
/// assert_ne!(latest, cached);
/// ```
// docs/watch-cache.md, C.2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetOptions {
    /// The resource version, or empty.
    pub resource_version: String,
}

impl GetOptions {
    /// Sets the resource version.
    #[must_use]
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.resource_version = version.into();
        self
    }

    /// Checks the options for a get on a server whose newest revision is `newest`.
    ///
    /// # Errors
    /// - [`RequestError::Unclassified`] for an invalid resource version.
    /// - [`RequestError::TooLarge`] for a later one.
    pub fn check_as_of(&self, newest: Revision) -> Result<(), RequestError> {
        match self.version()? {
            RequestedVersion::At(at) => check_not_later(at, newest),
            RequestedVersion::Unset | RequestedVersion::Zero => Ok(()),
        }
    }

    pub(crate) fn version(&self) -> Result<RequestedVersion, RequestError> {
        RequestedVersion::parse(&self.resource_version).map_err(InvalidVersion::of_get_or_watch)
    }
}

/// The options of a list, as clients send them. The default lists all objects at the most recent
/// revision.
///
/// | `resource_version` | `resource_version_match` | `limit` | State that is read |
/// |---|---|---|---|
/// | empty | empty | any | the most recent state |
/// | `0` | empty or `NotOlderThan` | any | any cached state; the limit is ignored by default |
/// | a revision | empty | 0 | any state at or after that revision |
/// | a revision | empty | above 0 | the state at exactly that revision |
/// | a revision | `NotOlderThan` | any | any state at or after that revision |
/// | a revision | `Exact` | any | the state at exactly that revision |
///
/// With a continue token the list continues at the revision of the token, and `resource_version` must
/// be empty or `0`. All other combinations fail with 422 or 400.
///
/// ```
/// use revstore_watch_cache::ListOptions;
/// let page = ListOptions::default().limit(500);
/// let cached = ListOptions::default().resource_version("0");
/// assert_ne!(page, cached);
/// ```
// WC-220, WC-221.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// The resource version, or empty.
    pub resource_version: String,
    /// Empty, `Exact` or `NotOlderThan`.
    pub resource_version_match: String,
    /// The maximum number of objects to return. 0 and negative numbers mean no limit.
    pub limit: i64,
    /// The continue token of the previous page, or empty for the first page.
    pub continue_token: String,
    /// Must be `None`: a list with this option fails with 422.
    pub send_initial_events: Option<bool>,
    /// The selector that the objects must match.
    pub selector: Selector,
}

impl ListOptions {
    /// Sets the resource version.
    #[must_use]
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.resource_version = version.into();
        self
    }

    /// Sets how the resource version is matched: `Exact` or `NotOlderThan`.
    #[must_use]
    pub fn resource_version_match(mut self, matching: impl Into<String>) -> Self {
        self.resource_version_match = matching.into();
        self
    }

    /// Sets the maximum number of objects to return.
    #[must_use]
    pub fn limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the continue token of the previous page.
    #[must_use]
    pub fn continue_token(mut self, token: impl Into<String>) -> Self {
        self.continue_token = token.into();
        self
    }

    /// Sets `sendInitialEvents`, which makes a list fail with 422.
    #[must_use]
    pub fn send_initial_events(mut self, send: impl Into<Option<bool>>) -> Self {
        self.send_initial_events = send.into();
        self
    }

    /// Sets the selector.
    #[must_use]
    pub fn selector(mut self, selector: Selector) -> Self {
        self.selector = selector;
        self
    }
}

impl ListOptions {
    /// Returns options with which this server answers as one whose newest revision is `newest`: lists of the most recent
    /// state, of any, and of one at or after a revision are those at `newest`. A list at exactly a revision, and a later
    /// page, stay as they are.
    ///
    /// # Errors
    /// Those of a list for invalid options, and [`RequestError::TooLarge`] for a later revision than `newest`.
    pub fn as_of(mut self, newest: Revision) -> Result<Self, RequestError> {
        match self.plan()? {
            ListPlan::Exact { at, .. } => {
                check_not_later(at, newest)?;
                return Ok(self);
            }
            ListPlan::NotOlderThan(at) => check_not_later(at, newest)?,
            ListPlan::Latest { start: Some(start) } => {
                let revision = Some(newest);
                self.continue_token = ContinueToken { revision, start }.encode();
                return Ok(self);
            }
            ListPlan::Latest { start: None } | ListPlan::Any => {}
        }
        let exact = self.resource_version(newest.to_string());
        Ok(exact.resource_version_match("Exact"))
    }
}

/// Checks that a requested revision is not later than the newest one of a server.
fn check_not_later(requested: Revision, newest: Revision) -> Result<(), RequestError> {
    if requested <= newest {
        return Ok(());
    }
    Err(RequestError::TooLarge {
        requested,
        current: newest,
    })
}

/// The options of a watch, as clients send them. The default starts with all current objects.
///
/// | `resource_version` | `send_initial_events` | The watch starts with |
/// |---|---|---|
/// | empty | `None` or `true` | the current objects of the most recent state |
/// | `0` | `None` or `true` | the objects of any cached state |
/// | a revision | `true` | the objects of a state at or after that revision |
/// | a revision | `None` or `false` | the events after that revision |
/// | empty | `false` | the events after the most recent revision |
/// | `0` | `false` | the events after the watermark of the cache |
///
/// `send_initial_events` requires `resource_version_match` to be `NotOlderThan`. Initial objects are
/// delivered as `ADDED` events; with `allow_bookmarks`, a bookmark with `initial_events_end` follows
/// them.
///
/// ```
/// use revstore_watch_cache::WatchOptions;
/// // Events after the revision of a list, with bookmarks.
/// let resume = WatchOptions::default().resource_version("7").allow_bookmarks(true);
/// // The current objects, a bookmark after them, then events, in one stream.
/// let watch_list = WatchOptions::default()
///     .resource_version_match("NotOlderThan")
///     .send_initial_events(true)
///     .allow_bookmarks(true);
/// assert_ne!(resume, watch_list);
/// ```
// WC-310, WC-325.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchOptions {
    /// The resource version, or empty.
    pub resource_version: String,
    /// Empty, or `NotOlderThan` together with `send_initial_events`.
    pub resource_version_match: String,
    /// Must be empty if `resource_version_match` is set, or if the watch starts with the current objects.
    pub continue_token: String,
    /// Whether to send bookmarks.
    pub allow_bookmarks: bool,
    /// Whether to start with the current objects.
    pub send_initial_events: Option<bool>,
    /// The time after which the watch ends; `None` for no limit. A server usually sets one.
    pub timeout: Option<Duration>,
    /// The selector that the objects must match.
    pub selector: Selector,
}

impl WatchOptions {
    /// Sets the resource version.
    #[must_use]
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.resource_version = version.into();
        self
    }

    /// Sets how the resource version is matched: `NotOlderThan`.
    #[must_use]
    pub fn resource_version_match(mut self, matching: impl Into<String>) -> Self {
        self.resource_version_match = matching.into();
        self
    }

    /// Sets a continue token. Together with `resource_version_match` it makes a watch fail with 422.
    #[must_use]
    pub fn continue_token(mut self, token: impl Into<String>) -> Self {
        self.continue_token = token.into();
        self
    }

    /// Sets whether to send bookmarks.
    #[must_use]
    pub fn allow_bookmarks(mut self, allow: bool) -> Self {
        self.allow_bookmarks = allow;
        self
    }

    /// Sets whether to start with the current objects.
    #[must_use]
    pub fn send_initial_events(mut self, send: impl Into<Option<bool>>) -> Self {
        self.send_initial_events = send.into();
        self
    }

    /// Sets the time after which the watch ends.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Sets the selector.
    #[must_use]
    pub fn selector(mut self, selector: Selector) -> Self {
        self.selector = selector;
        self
    }
}

/// A parsed resource version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedVersion {
    Unset,
    Zero,
    At(Revision),
}

/// The state that a list reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListPlan {
    /// The most recent state: L1, and L3 with the start key of a continue token.
    Latest { start: Option<String> },
    /// Any cached state: L4, L5, L11.
    Any,
    /// A state at or after a revision: L7, L10.
    NotOlderThan(Revision),
    /// The state at a revision: L8, L12, and L2 with the start key of a continue token.
    Exact { at: Revision, start: Option<String> },
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchPlan {
    /// The current objects, of a state at or after this version.
    InitialObjects(RequestedVersion),
    /// The events after a revision: `Unset` means the newest revision of the source when the request
    /// arrives, `Zero` means the watermark of the cache.
    After(RequestedVersion),
}

impl RequestedVersion {
    /// Parses a resource version.
    ///
    /// # Errors
    /// [`InvalidVersion`] if the text is not a decimal number in the range of `u64` (WC-235).
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidVersion> {
        if text.is_empty() {
            return Ok(Self::Unset);
        }
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(0) if digits => Ok(Self::Zero),
            // A number above the range of revisions is a future revision.
            Ok(number) if digits => Ok(Self::At(Revision(
                i64::try_from(number).unwrap_or(i64::MAX),
            ))),
            _ => {
                let reason = if digits {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                Err(InvalidVersion(format!(
                    "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: \
                     parsing \"{text}\": {reason}"
                )))
            }
        }
    }
}

/// The error of a resource version that is not a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidVersion(String);

impl InvalidVersion {
    /// Returns the error of a get or a watch, for which kube-apiserver has no reason.
    pub(crate) fn of_get_or_watch(self) -> RequestError {
        RequestError::Unclassified(self.0)
    }

    fn of_list(self) -> RequestError {
        RequestError::BadRequest(format!("invalid resource version: {}", self.0))
    }
}

/// The option that most of the errors name.
const MATCH: &str = "resourceVersionMatch";

/// Fails with [`RequestError::Invalid`] if there is a cause.
fn check_causes(causes: Vec<StatusCause>) -> Result<(), RequestError> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(RequestError::Invalid(causes))
    }
}

impl ListOptions {
    /// Validates the options (WC-230), then parses them (WC-235), then chooses the row of WC-220.
    pub(crate) fn plan(&self) -> Result<ListPlan, RequestError> {
        self.check()?;
        if !self.continue_token.is_empty() {
            if !matches!(self.resource_version.as_str(), "" | "0") {
                return Err(RequestError::BadRequest(
                    "specifying resource version is not allowed when using continue".into(),
                ));
            }
            let ContinueToken { revision, start } = ContinueToken::decode(&self.continue_token)?;
            let start = Some(start);
            return Ok(match revision {
                Some(at) => ListPlan::Exact { at, start },
                None => ListPlan::Latest { start },
            });
        }
        let exact = self.resource_version_match == "Exact";
        // L8: with a limit, a revision without `resourceVersionMatch` is exact.
        let legacy_exact = self.resource_version_match.is_empty() && self.limit > 0;
        let version =
            RequestedVersion::parse(&self.resource_version).map_err(InvalidVersion::of_list)?;
        Ok(match version {
            RequestedVersion::Unset => ListPlan::Latest { start: None },
            RequestedVersion::Zero => ListPlan::Any,
            RequestedVersion::At(at) if exact || legacy_exact => {
                ListPlan::Exact { at, start: None }
            }
            RequestedVersion::At(at) => ListPlan::NotOlderThan(at),
        })
    }

    /// Checks which options go together, as a list does before all else.
    ///
    /// # Errors
    /// [`RequestError::Invalid`], 422.
    pub fn check(&self) -> Result<(), RequestError> {
        let mut causes = Vec::new();
        let matching = self.resource_version_match.as_str();
        if !matching.is_empty() {
            if self.resource_version.is_empty() {
                let reason = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(StatusCause::forbidden(MATCH, reason));
            }
            if !self.continue_token.is_empty() {
                let reason = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(StatusCause::forbidden(MATCH, reason));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                let supported = ["Exact", "NotOlderThan", ""];
                causes.push(StatusCause::not_supported(MATCH, matching, &supported));
            }
            if matching == "Exact" && self.resource_version == "0" {
                let reason =
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(StatusCause::forbidden(MATCH, reason));
            }
        }
        if self.send_initial_events.is_some() {
            let reason = "sendInitialEvents is forbidden for list";
            causes.push(StatusCause::forbidden("sendInitialEvents", reason));
        }
        check_causes(causes)
    }

    /// Returns the limit for the plan, or `None` if there is none (WC-221, WC-224).
    pub(crate) fn limit_for(&self, plan: &ListPlan, honor_at_zero: bool) -> Option<usize> {
        if *plan == ListPlan::Any && !honor_at_zero {
            return None;
        }
        usize::try_from(self.limit).ok().filter(|limit| *limit > 0)
    }
}

impl WatchOptions {
    /// Validates the options (WC-230), then parses them (WC-235), then chooses the row of WC-310.
    pub(crate) fn plan(&self) -> Result<WatchPlan, RequestError> {
        self.check()?;
        let version = RequestedVersion::parse(&self.resource_version)
            .map_err(InvalidVersion::of_get_or_watch)?;
        let initial = match self.send_initial_events {
            Some(send) => send,
            // WC-310: the default is the behaviour from before `sendInitialEvents` existed.
            None => matches!(version, RequestedVersion::Unset | RequestedVersion::Zero),
        };
        Ok(if initial {
            WatchPlan::InitialObjects(version)
        } else {
            WatchPlan::After(version)
        })
    }

    /// Checks which options go together, as a watch does before all else.
    ///
    /// # Errors
    /// [`RequestError::Invalid`], 422.
    pub fn check(&self) -> Result<(), RequestError> {
        let starts_now = matches!(self.resource_version.as_str(), "" | "0");
        let (send, matching) = match (
            self.send_initial_events,
            self.resource_version_match.as_str(),
        ) {
            // As kube-apiserver, which fills in the options of a watch of the current objects.
            (None, "") if starts_now => (Some(true), "NotOlderThan"),
            given => given,
        };
        let mut causes = Vec::new();
        if send.is_some() && matching != "NotOlderThan" {
            let reason = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(StatusCause::forbidden(MATCH, reason));
        }
        if !matching.is_empty() {
            if send.is_none() {
                let reason = "resourceVersionMatch is forbidden for watch unless sendInitialEvents \
                           is provided";
                causes.push(StatusCause::forbidden(MATCH, reason));
            }
            if matching != "NotOlderThan" {
                let supported = ["NotOlderThan"];
                causes.push(StatusCause::not_supported(MATCH, matching, &supported));
            }
            if !self.continue_token.is_empty() {
                let reason = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(StatusCause::forbidden(MATCH, reason));
            }
        }
        check_causes(causes)
    }
}
