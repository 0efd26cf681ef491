//! The lines of a dump.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// The first line.
    Dump {
        version: u32,
        revision: i64,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        compacted: Option<i64>,
    },
    /// A key that is live at the compacted revision.
    Base(Put),
    Put(Put),
    Delete {
        key: Blob,
        rev: i64,
        #[serde(skip_serializing_if = "is_zero", default)]
        sub: u32,
    },
    /// Revisions up to this one that the store has skipped.
    Jump {
        to: i64,
    },
    Lease {
        id: i64,
        ttl: Time,
        /// The remaining time, if it is not the whole time to live.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        left: Option<Time>,
    },
    Auth {
        enabled: bool,
        revision: u64,
    },
    Role {
        name: String,
        permissions: Vec<Grant>,
    },
    User {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        password_hash: Option<String>,
        roles: Vec<String>,
    },
    Alarm {
        name: String,
        member: u64,
    },
    Raft {
        term: u64,
        index: u64,
    },
    /// A pair of the state that has no line of its own.
    Pair {
        bucket: String,
        key: Blob,
        value: Blob,
    },
    /// The last line.
    End {
        #[serde(skip_serializing_if = "Option::is_none", default)]
        lines: Option<u64>,
        /// The checksum of all lines before, in hexadecimal.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        crc32c: Option<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Put {
    pub(super) key: Blob,
    pub(super) value: Blob,
    pub(super) rev: i64,
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(super) sub: u32,
    /// The create revision; without it, that of the put.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) created: Option<i64>,
    /// The number of writes since the creation; without it, 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) lease: Option<i64>,
}

/// A permission of a role.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grant {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) key: Blob,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) range_end: Option<Blob>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of serde")]
fn is_zero(sub: &u32) -> bool {
    *sub == 0
}

/// Bytes: a string, or an object with base64 for bytes that are no text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blob(pub(super) Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded<T> {
    base64: T,
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_printable = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
        match std::str::from_utf8(&self.0) {
            Ok(text) if text.chars().all(is_printable) => serializer.serialize_str(text),
            _ => {
                let base64 = STANDARD.encode(&self.0);
                Encoded { base64 }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a string or an object with base64")]
        enum Form {
            Text(String),
            Encoded(Encoded<String>),
        }
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_bytes())),
            Form::Encoded(Encoded { base64 }) => {
                STANDARD.decode(base64).map(Self).map_err(D::Error::custom)
            }
        }
    }
}

/// A time in seconds with up to nine decimals: `1.5s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if nanos == 0 {
            return serializer.collect_str(&format_args!("{seconds}s"));
        }
        let decimals = format!("{nanos:09}");
        let decimals = decimals.trim_end_matches('0');
        serializer.collect_str(&format_args!("{seconds}.{decimals}s"))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            D::Error::custom(format_args!(
                "{text:?} is no time: it is a number of seconds with up to nine decimals, such as \"1.5s\""
            ))
        })
    }
}

impl Time {
    fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('s')?;
        let (seconds, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let are_digits =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !are_digits(seconds) || !are_digits(decimals) || decimals.len() > 9 {
            return None;
        }
        let nanos = format!("{decimals:0<9}").parse().ok()?;
        Some(Self(Duration::new(seconds.parse().ok()?, nanos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_if_they_can_be_read() {
        for (bytes, json) in [
            (&b"color"[..], r#""color""#),
            ("ü\"\n".as_bytes(), r#""ü\"\n""#),
            (b"", r#""""#),
            (b"\0", r#"{"base64":"AA=="}"#),
            (b"\xff\xfe", r#"{"base64":"//4="}"#),
        ] {
            let blob = Blob(bytes.to_vec());
            assert_eq!(serde_json::to_string(&blob).unwrap(), json);
            assert_eq!(serde_json::from_str::<Blob>(json).unwrap(), blob);
        }
        assert!(serde_json::from_str::<Blob>(r#"{"base64":"?"}"#).is_err());
        assert!(serde_json::from_str::<Blob>("7").is_err());
    }

    #[test]
    fn times_have_up_to_nine_decimals() {
        for (seconds, nanos, json) in [
            (0, 0, r#""0s""#),
            (60, 0, r#""60s""#),
            (1, 500_000_000, r#""1.5s""#),
            (0, 1, r#""0.000000001s""#),
            (
                u64::MAX,
                999_999_999,
                r#""18446744073709551615.999999999s""#,
            ),
        ] {
            let time = Time(Duration::new(seconds, nanos));
            assert_eq!(serde_json::to_string(&time).unwrap(), json);
            assert_eq!(serde_json::from_str::<Time>(json).unwrap(), time);
        }
        for invalid in [
            "60",
            "s",
            ".5s",
            "1.s",
            "-1s",
            "1.0000000001s",
            "18446744073709551616s",
        ] {
            assert_eq!(Time::parse(invalid), None, "{invalid}");
        }
    }
}
