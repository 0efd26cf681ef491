//! The options of a request as clients write them, and what they ask for (C.2, C.3, D.2).

use std::time::Duration;

use revstore_engine::Revision;

use crate::api::continue_token::ContinueToken;
use crate::api::status::{Cause, RequestError};
use crate::selector::Selector;

/// Options of a get. `resourceVersionMatch` is none of them (C.2).
///
/// ```
/// use revstore_watch_cache::GetOptions;
/// let latest = GetOptions::default();
/// let cheap = GetOptions { resource_version: "0".into() };
/// # let _ = (latest, cheap);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Unset (empty): the most recent state. `0`: any. A number: not older than that.
    pub resource_version: String,
}

/// Options of a list, as text where clients send text. The default asks for all objects, at the
/// most recent revision.
///
/// ```
/// use revstore_watch_cache::ListOptions;
/// let page = ListOptions { limit: 500, ..ListOptions::default() };
/// let cheap = ListOptions { resource_version: "0".into(), ..ListOptions::default() };
/// # let _ = (page, cheap);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Empty: unset. With [`ListOptions::resource_version_match`] it chooses a row of WC-220.
    pub resource_version: String,
    /// Empty, `Exact` or `NotOlderThan`.
    pub resource_version_match: String,
    /// The most objects to return; 0 or less for all (WC-221).
    pub limit: i64,
    /// Where an earlier page ended; empty for the first one.
    pub continue_token: String,
    /// Forbidden for lists; here so that it can be refused (L17).
    pub send_initial_events: Option<bool>,
    /// Which objects.
    pub selector: Selector,
}

/// Options of a watch, as text where clients send text. The default begins with all present objects.
///
/// ```
/// use revstore_watch_cache::WatchOptions;
/// // What happens behind a list, and how far the watch is while nothing does.
/// let behind = |list: &str| WatchOptions {
///     resource_version: list.into(),
///     allow_bookmarks: true,
///     ..WatchOptions::default()
/// };
/// // The state, a bookmark at its end, and what happens then, in one stream.
/// let watch_list = WatchOptions {
///     resource_version_match: "NotOlderThan".into(),
///     send_initial_events: Some(true),
///     allow_bookmarks: true,
///     ..WatchOptions::default()
/// };
/// # let _ = (behind("7"), watch_list);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Empty: unset. Chooses the start with [`WatchOptions::send_initial_events`] (WC-310).
    pub resource_version: String,
    /// Empty, or `NotOlderThan` beside `send_initial_events`.
    pub resource_version_match: String,
    /// Only looked at to refuse it (WC-301).
    pub continue_token: String,
    /// Whether to send bookmarks (WC-320).
    pub allow_bookmarks: bool,
    /// Whether to begin with the present objects (WC-310).
    pub send_initial_events: Option<bool>,
    /// How long the watch lives; no end if none is given. A server picks one (WC-304).
    pub timeout: Option<Duration>,
    /// Which objects.
    pub selector: Selector,
}

/// A resource version of a request, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Unset,
    Zero,
    At(Revision),
}

/// What a list asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListPlan {
    /// L1, and L3 with the place to go on from.
    Latest { start: Option<String> },
    /// L4, L5, L11.
    Any,
    /// L7, L10.
    NotOlderThan(Revision),
    /// L8, L12, and L2 with the place to go on from.
    Exact { at: Revision, start: Option<String> },
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchPlan {
    /// With the present objects, of a state not older than this.
    State(Version),
    /// After a revision; unset is the current one at arrival, zero the one of the cache.
    After(Version),
}

impl Version {
    /// Reads a resource version.
    ///
    /// # Errors
    /// 400 (WC-235).
    pub(crate) fn parse(text: &str) -> Result<Self, RequestError> {
        if text.is_empty() {
            return Ok(Self::Unset);
        }
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(0) if digits => Ok(Self::Zero),
            // What lies beyond the engine's numbers is in the future whichever it is.
            Ok(number) if digits => Ok(Self::At(Revision(
                i64::try_from(number).unwrap_or(i64::MAX),
            ))),
            _ => {
                let why = if digits {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                Err(RequestError::BadRequest(format!(
                    "invalid resource version: resourceVersion: Invalid value: \"{text}\": \
                     strconv.ParseUint: parsing \"{text}\": {why}"
                )))
            }
        }
    }
}

const MATCH: &str = "resourceVersionMatch";

fn forbidden(field: &'static str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden",
        message: format!("Forbidden: {why}"),
        field,
    }
}

fn unsupported(value: &str, supported: &str) -> Cause {
    Cause {
        reason: "FieldValueNotSupported",
        message: format!("Unsupported value: \"{value}\": supported values: {supported}"),
        field: MATCH,
    }
}

fn refuse(causes: Vec<Cause>) -> Result<(), RequestError> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(RequestError::Invalid(causes))
    }
}

impl ListOptions {
    /// WC-230 first, then what is a bad request, then the rows of WC-220.
    pub(crate) fn plan(&self) -> Result<ListPlan, RequestError> {
        self.validate()?;
        if !self.continue_token.is_empty() {
            if !matches!(self.resource_version.as_str(), "" | "0") {
                return Err(RequestError::BadRequest(
                    "specifying resource version is not allowed when using continue".into(),
                ));
            }
            let ContinueToken { at, start } = ContinueToken::decode(&self.continue_token)?;
            let start = Some(start);
            return Ok(match at {
                Some(at) => ListPlan::Exact { at, start },
                None => ListPlan::Latest { start },
            });
        }
        let exact = self.resource_version_match == "Exact";
        // L8: a limit makes a plain version an exact one, unless the client says otherwise.
        let legacy_exact = self.resource_version_match.is_empty() && self.limit > 0;
        Ok(match Version::parse(&self.resource_version)? {
            Version::Unset => ListPlan::Latest { start: None },
            Version::Zero => ListPlan::Any,
            Version::At(at) if exact || legacy_exact => ListPlan::Exact { at, start: None },
            Version::At(at) => ListPlan::NotOlderThan(at),
        })
    }

    fn validate(&self) -> Result<(), RequestError> {
        let mut causes = Vec::new();
        if self.send_initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            causes.push(forbidden("sendInitialEvents", why));
        }
        let wanted = self.resource_version_match.as_str();
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(forbidden(MATCH, why));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(forbidden(MATCH, why));
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                causes.push(unsupported(wanted, "\"Exact\", \"NotOlderThan\", \"\""));
            }
            if wanted == "Exact" && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(forbidden(MATCH, why));
            }
        }
        refuse(causes)
    }

    /// The limit that holds for the plan (WC-221, WC-224).
    pub(crate) fn limit_for(&self, plan: &ListPlan, honor_at_zero: bool) -> Option<usize> {
        if *plan == ListPlan::Any && !honor_at_zero {
            return None;
        }
        usize::try_from(self.limit).ok().filter(|limit| *limit > 0)
    }
}

impl WatchOptions {
    /// WC-230 first, then what is a bad request, then the rows of WC-310.
    pub(crate) fn plan(&self) -> Result<WatchPlan, RequestError> {
        self.validate()?;
        let version = Version::parse(&self.resource_version)?;
        let initial = match self.send_initial_events {
            Some(wanted) => wanted,
            // WC-310: the legacy default.
            None => matches!(version, Version::Unset | Version::Zero),
        };
        Ok(if initial {
            WatchPlan::State(version)
        } else {
            WatchPlan::After(version)
        })
    }

    fn validate(&self) -> Result<(), RequestError> {
        let mut causes = Vec::new();
        let wanted = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() && wanted != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(forbidden(MATCH, why));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents \
                           is provided";
                causes.push(forbidden(MATCH, why));
            }
            if wanted != "NotOlderThan" {
                causes.push(unsupported(wanted, "\"NotOlderThan\""));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(forbidden(MATCH, why));
            }
        }
        refuse(causes)
    }
}
