//! Actions: what a rule does to the calls for which it fires.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tonic::Code;

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The call fails before it is executed.
    Error(Failure),
    /// The call is executed, and its answer is replaced by this error. Other calls of the connection go on.
    ErrorAfter(Failure),
    /// The call fails before it is executed, with an error of etcd.
    Preset(Preset),
    /// The call waits before it is executed.
    Delay {
        /// The time for which it waits.
        time: Duration,
        /// Whether it is time of the wall, not of the clock of the server.
        wall: bool,
    },
    /// The connection is closed with a TCP reset. The call is not executed.
    Reset,
    /// The connection stays open, and the server reads and writes nothing more on it. The call is not executed.
    BlackHole,
    /// The call is executed, and the connection ends after its calls in flight.
    GoAway,
    /// A new connection is closed.
    Refuse,
    /// The events of a watch wait until the rule is removed.
    Hold,
    /// The stream of a watch ends with an error.
    Cut,
    /// A watch is canceled as if its revision had been compacted.
    CancelCompacted,
    /// A keep-alive of a lease is neither executed nor answered.
    LoseKeepAlive,
    /// The front answers with an HTTP status.
    Http {
        /// The status.
        status: u16,
        /// The seconds in the header `Retry-After`.
        retry_after: Option<u32>,
    },
    /// The front answers a get or a list as of an older revision.
    Stale {
        /// The revision; `None` for the one at which the rule is added.
        revision: Option<i64>,
    },
}

/// A gRPC code with a text; of a front, also an HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code, which is not `OK`.
    pub code: Code,
    /// The status that was given instead of a code, from 400 to 599. Only a front answers with it.
    pub http: Option<u16>,
    /// The text.
    pub text: String,
}

/// A text is not `CODE:TEXT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid error {0:?}: it must be CODE:TEXT, where CODE is a gRPC code such as UNAVAILABLE or 14, or, for a \
     Kubernetes API, an HTTP status such as 409"
)]
pub struct FailureError(String);

/// The names of the codes, by their numbers.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The statuses of HTTP that are errors.
pub(super) const HTTP_ERRORS: std::ops::RangeInclusive<u16> = 400..=599;

/// The HTTP statuses of gRPC codes, as a Kubernetes API uses them. Other codes are 500.
const HTTP_OF_CODES: [(Code, u16); 11] = [
    (Code::InvalidArgument, 400),
    (Code::Unauthenticated, 401),
    (Code::PermissionDenied, 403),
    (Code::NotFound, 404),
    (Code::Unimplemented, 405),
    (Code::AlreadyExists, 409),
    (Code::Aborted, 409),
    (Code::OutOfRange, 410),
    (Code::ResourceExhausted, 429),
    (Code::Unavailable, 503),
    (Code::DeadlineExceeded, 504),
];

/// Returns the gRPC code that stands for an HTTP status in records and rules.
pub fn code_of_http(status: u16) -> Code {
    if status < 400 {
        return Code::Ok;
    }
    let mut codes = HTTP_OF_CODES.iter().rev();
    let found = codes.find(|(_, known)| *known == status);
    found.map_or(Code::Unknown, |(code, _)| *code)
}

impl Failure {
    /// Creates an error with a gRPC code.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            http: None,
            text: text.into(),
        }
    }

    /// Returns the HTTP status that a front answers with.
    pub fn http_status(&self) -> u16 {
        let mut codes = HTTP_OF_CODES.iter();
        self.http.unwrap_or_else(|| {
            let found = codes.find(|(code, _)| *code == self.code);
            found.map_or(500, |(_, status)| *status)
        })
    }
}

impl FromStr for Failure {
    type Err = FailureError;

    fn from_str(text: &str) -> Result<Self, FailureError> {
        let error = || FailureError(text.to_owned());
        let (code, message) = text.split_once(':').ok_or_else(error)?;
        let http = code.parse().ok().filter(|it| HTTP_ERRORS.contains(it));
        if let Some(status) = http {
            return Ok(Self {
                code: code_of_http(status),
                http,
                text: message.to_owned(),
            });
        }
        let number = CODES
            .iter()
            .position(|name| *name == code || (code == "CANCELED" && *name == "CANCELLED"))
            .or_else(|| code.parse().ok())
            .filter(|number| (1..CODES.len()).contains(number))
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(error)?;
        Ok(Self {
            code: Code::from_i32(number),
            http: None,
            text: message.to_owned(),
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.http {
            Some(status) => write!(f, "{status}:{}", self.text),
            None => write!(f, "{}:{}", CODES[self.code as usize], self.text),
        }
    }
}

macro_rules! presets {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// An error of etcd with its exact code and text, which the server knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Preset {
            $($(#[$doc])* $name,)*
        }

        impl Preset {
            /// All presets.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the word of the command line.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

presets! {
    /// The cluster has no leader.
    NoLeader => "no-leader",
    /// The leader changed during the request.
    LeaderChanged => "leader-changed",
    /// No quorum responded in time.
    Timeout => "timeout",
    /// Requests arrive faster than they are applied.
    TooManyRequests => "too-many-requests",
    /// The space quota is exceeded.
    NoSpace => "nospace",
    /// Stored data is damaged.
    Corrupt => "corrupt",
    /// The token is older than the last change of auth.
    AuthRevision => "auth-revision",
}

/// A word is not the name of a [`Preset`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown preset {0:?}: it must be no-leader, leader-changed, timeout, too-many-requests, nospace, corrupt or \
     auth-revision"
)]
pub struct UnknownPreset(String);

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        let mut all = Self::ALL.iter().copied();
        all.find(|preset| preset.as_str() == text)
            .ok_or_else(|| UnknownPreset(text.to_owned()))
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_parsed_and_printed() {
        let check = |text: &str, code| {
            let failure: Failure = text.parse().unwrap();
            assert_eq!((failure.code, &*failure.text), (code, "etcdserver: x"));
            assert_eq!(failure.to_string().parse(), Ok(failure));
        };
        check("UNAVAILABLE:etcdserver: x", Code::Unavailable);
        check("14:etcdserver: x", Code::Unavailable);
        check("CANCELED:etcdserver: x", Code::Cancelled);
        let conflict: Failure = "409:changed".parse().unwrap();
        assert_eq!((conflict.code, conflict.http), (Code::Aborted, Some(409)));
        assert_eq!(conflict.to_string(), "409:changed");
        assert_eq!(Failure::new(Code::AlreadyExists, "").http_status(), 409);
        assert_eq!(code_of_http(418), Code::Unknown);
        for text in [
            "399:x",
            "600:x",
            "",
            "UNAVAILABLE",
            "OK:x",
            "0:x",
            "17:x",
            "-1:x",
            "NOPE:x",
        ] {
            assert!(text.parse::<Failure>().is_err(), "{text}");
        }
    }

    #[test]
    fn presets_are_parsed_and_printed() {
        for preset in Preset::ALL {
            assert_eq!(preset.to_string().parse(), Ok(*preset));
        }
        assert!("leader".parse::<Preset>().is_err());
    }
}
