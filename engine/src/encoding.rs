//! The serialized forms of keys, revisions and events (feature `serde`).
//!
//! Keys and values are bytes. Formats for people, such as JSON, have no bytes, so there they are
//! text in base64, as in etcd's JSON (standard alphabet, with padding); other formats contain the
//! bytes themselves. Types whose fields are numbers derive their forms.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::de::{self, Deserializer, SeqAccess, Unexpected, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::history::{Entry, KeyValue, LeaseId, PUT_BYTES_MAX};
use crate::revision::{Position, Revision};
use crate::watch::{Event, Events};

/// The serialized form of a version. All fields are always present, because some formats need that.
#[derive(Deserialize, Serialize)]
#[serde(rename = "KeyValue")]
struct KeyValueForm {
    #[serde(with = "crate::encoding")]
    key: Bytes,
    create_revision: Revision,
    mod_revision: Revision,
    sub: u32,
    version: i64,
    lease: Option<LeaseId>,
    /// `None` for a tombstone.
    value: Option<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Value(#[serde(with = "crate::encoding")] Bytes);

impl Serialize for KeyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Position { revision, sub } = self.position();
        let form = KeyValueForm {
            key: self.key_bytes(),
            create_revision: self.create_revision(),
            mod_revision: revision,
            sub,
            version: self.version(),
            lease: self.lease(),
            value: (!self.is_tombstone()).then(|| Value(self.value_bytes())),
        };
        form.serialize(serializer)
    }
}

/// Returns a version that belongs to no store. The numbers must be ones that a store can write.
impl<'de> Deserialize<'de> for KeyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = KeyValueForm::deserialize(deserializer)?;
        form.check().map_err(de::Error::custom)?;
        let position = Position {
            revision: form.mod_revision,
            sub: form.sub,
        };
        Ok(match &form.value {
            None => Self::detached_tombstone(&form.key, position),
            Some(Value(value)) => Self::of_entry(
                Entry::new(&form.key),
                value,
                position,
                form.create_revision,
                form.version,
                form.lease,
            ),
        })
    }
}

impl KeyValueForm {
    fn check(&self) -> Result<(), &'static str> {
        let value_len = self.value.as_ref().map_or(0, |value| value.0.len());
        if self.key.is_empty() {
            return Err("the key is empty");
        }
        if self.key.len().max(value_len) > PUT_BYTES_MAX {
            return Err("the key or the value is too large");
        }
        if self.mod_revision < Revision::FIRST || self.mod_revision > Revision::LAST {
            return Err("no store has the mod revision");
        }
        let Self {
            create_revision,
            version,
            lease,
            ..
        } = self;
        if self.value.is_none() {
            let is_bare = (*create_revision, *version, *lease) == (Revision(0), 0, None);
            return if is_bare {
                Ok(())
            } else {
                Err("a tombstone has no create revision, version or lease")
            };
        }
        if *create_revision < Revision::FIRST || *create_revision > self.mod_revision {
            return Err("the create revision is not between 1 and the mod revision");
        }
        if *version < 1 {
            return Err("the version is less than 1");
        }
        Ok(())
    }
}

impl Serialize for Events {
    /// A sequence of [`Event`].
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<Event>::deserialize(deserializer).map(Self::from)
    }
}

/// Serializes bytes; with [`deserialize`], for `#[serde(with)]`.
pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    } else {
        serializer.serialize_bytes(bytes)
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_str(Base64Visitor)
    } else {
        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

struct Base64Visitor;

impl Visitor<'_> for Base64Visitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text in base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
        let decoded = BASE64_STANDARD.decode(text);
        decoded
            .map(Bytes::from)
            .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes::copy_from_slice(bytes))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
        Ok(bytes.into())
    }

    // Some formats have no bytes, but sequences of numbers. Grows with the input, not with the
    // length that it claims.
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Bytes, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes.into())
    }
}
