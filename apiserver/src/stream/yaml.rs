//! Lists in YAML.

use bytes::Bytes;
use revstore_watch_cache::RequestError;
use serde_json::{Map, Value};

use super::splitter::{Part, Splitter};
use super::{PIECE_BYTES, Pieces, internal};
use crate::decode::to_yaml;

/// Writes pieces of JSON as YAML, with sorted members.
pub(crate) struct YamlPieces {
    parts: Splitter,
    /// The member that has the items.
    list: String,
    has_items: bool,
    /// The members behind it.
    rest: String,
}

impl YamlPieces {
    pub(crate) fn new(pieces: Pieces) -> Self {
        Self {
            parts: Splitter::new(pieces),
            list: String::new(),
            has_items: false,
            rest: String::new(),
        }
    }

    fn write(&mut self, part: Part, out: &mut String) -> Result<(), RequestError> {
        match part {
            Part::Head(mut head) => {
                head.extend_from_slice(b"]}");
                let mut head: Map<String, Value> =
                    serde_json::from_slice(&head).map_err(internal)?;
                for list in ["items", "rows"] {
                    if head.remove(list).is_some() {
                        list.clone_into(&mut self.list);
                    }
                }
                let (before, behind): (Map<_, _>, Map<_, _>) =
                    head.into_iter().partition(|(name, _)| *name < self.list);
                for (members, to) in [(before, out), (behind, &mut self.rest)] {
                    if !members.is_empty() {
                        to.push_str(&to_yaml(&Value::Object(members)));
                    }
                }
            }
            Part::Item(item) => {
                if !std::mem::replace(&mut self.has_items, true) {
                    out.push_str(&self.list);
                    out.push_str(":\n");
                }
                let item: Value = serde_json::from_slice(&item).map_err(internal)?;
                out.push_str(&to_yaml(&Value::Array(vec![item])));
            }
            Part::Tail(_) => {
                if !self.has_items {
                    out.push_str(&self.list);
                    out.push_str(": []\n");
                }
                out.push_str(&self.rest);
            }
        }
        Ok(())
    }
}

impl Iterator for YamlPieces {
    type Item = Result<Bytes, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut out = String::new();
        while out.len() < PIECE_BYTES {
            let written = match self.parts.next() {
                None if out.is_empty() => return None,
                None => break,
                Some(part) => part.and_then(|part| self.write(part, &mut out)),
            };
            if let Err(error) = written {
                return Some(Err(error));
            }
        }
        Some(Ok(out.into()))
    }
}
