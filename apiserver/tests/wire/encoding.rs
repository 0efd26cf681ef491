//! The encodings of bodies.

use revstore_apiserver::decode::{from_json, from_yaml, to_yaml};
use revstore_kinds::{from_protobuf, to_protobuf};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

pub(crate) const ALL: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];

impl Encoding {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the bytes of an object, or `None` if it has a value that protobuf cannot express.
    pub(crate) fn encode(self, object: &Value) -> Option<Vec<u8>> {
        match self {
            Self::Json => Some(object.to_string().into_bytes()),
            Self::Yaml => Some(to_yaml(object).into_bytes()),
            Self::Protobuf => to_protobuf(object).ok(),
        }
    }

    pub(crate) fn decode(self, bytes: &[u8]) -> Value {
        let shown = || String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Json => {
                from_json(bytes)
                    .unwrap_or_else(|error| panic!("{error}: {}", shown()))
                    .value
            }
            Self::Yaml => {
                from_yaml(bytes)
                    .unwrap_or_else(|error| panic!("{error}: {}", shown()))
                    .value
            }
            Self::Protobuf => {
                from_protobuf(bytes).unwrap_or_else(|error| panic!("{error}: {}", shown()))
            }
        }
    }
}
