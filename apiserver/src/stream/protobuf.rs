//! Lists in protobuf, whose length precedes them.

use bytes::Bytes;
use revstore_kinds as kinds;
use revstore_watch_cache::api::ObjectList;
use revstore_watch_cache::{Object, RequestError};
use serde_json::{Map, Value};

use super::splitter::{Part, Splitter};
use super::{PIECE_BYTES, Pieces, internal};

/// The size up to which a list is kept in memory after it was measured. The items of a larger one are encoded a second
/// time when they are sent.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The number of objects that are collected for one piece.
const COLLECTED_MAX: usize = 1_000;

/// Returns a list in JSON.
type ToJson = Box<dyn Fn(ObjectList) -> Result<Pieces, RequestError> + Send>;

/// Writes a list as protobuf. Has a reference to each of its objects, which are shared with the cache, in memory.
pub(crate) struct ProtobufPieces {
    list: ObjectList,
    ty: &'static kinds::Type,
    to_json: ToJson,
    objects: Vec<Object>,
    stage: Stage,
    api_version: String,
    kind: String,
    /// The message without the items.
    head: Vec<u8>,
    /// The length of a message without values. Go's encoder writes also empty metadata, before the items.
    empty_bytes: usize,
    items_bytes: usize,
    /// The items, as long as they are small.
    kept: Option<Vec<u8>>,
}

enum Stage {
    Collect,
    Measure(Box<Splitter>),
    Head,
    Send(Box<Splitter>),
    Tail,
    Ended,
}

impl ProtobufPieces {
    /// Returns the list in protobuf, whose type is `ty`. `to_json` returns it, or a copy, in JSON.
    pub(crate) fn new(
        list: ObjectList,
        ty: &'static kinds::Type,
        to_json: impl Fn(ObjectList) -> Result<Pieces, RequestError> + Send + 'static,
    ) -> Self {
        Self {
            list,
            ty,
            to_json: Box::new(to_json),
            objects: Vec::new(),
            stage: Stage::Collect,
            api_version: String::new(),
            kind: String::new(),
            head: Vec::new(),
            empty_bytes: kinds::encode_message(ty, &Value::Object(Map::new()))
                .map_or(0, |empty| empty.len()),
            items_bytes: 0,
            kept: Some(Vec::new()),
        }
    }

    fn json(&self) -> Result<Box<Splitter>, RequestError> {
        let mut list = ObjectList::from_objects(self.list.revision, &self.objects);
        list.continue_token.clone_from(&self.list.continue_token);
        list.remaining_item_count = self.list.remaining_item_count;
        Ok(Box::new(Splitter::new((self.to_json)(list)?)))
    }

    /// Returns an item as a field of the list.
    fn item(&self, item: &[u8]) -> Result<Vec<u8>, RequestError> {
        let item: Value = serde_json::from_slice(item).map_err(internal)?;
        let mut list = Map::new();
        list.insert("items".to_owned(), Value::Array(vec![item]));
        let mut message = kinds::encode_message(self.ty, &Value::Object(list)).map_err(internal)?;
        message.drain(..self.empty_bytes);
        Ok(message)
    }

    fn measure(&mut self, part: Part) -> Result<(), RequestError> {
        match part {
            Part::Head(mut head) => {
                head.extend_from_slice(b"]}");
                let head: Value = serde_json::from_slice(&head).map_err(internal)?;
                let text = |name| head[name].as_str().unwrap_or_default().to_owned();
                (self.api_version, self.kind) = (text("apiVersion"), text("kind"));
                self.head = kinds::encode_message(self.ty, &head).map_err(internal)?;
            }
            Part::Item(item) => {
                let item = self.item(&item)?;
                self.items_bytes += item.len();
                match &mut self.kept {
                    Some(kept) if self.items_bytes <= KEPT_BYTES_MAX => {
                        kept.extend_from_slice(&item);
                    }
                    kept => *kept = None,
                }
            }
            Part::Tail(_) => self.stage = Stage::Head,
        }
        Ok(())
    }

    fn piece(&mut self) -> Result<Option<Bytes>, RequestError> {
        match &mut self.stage {
            Stage::Collect => {
                for _ in 0..COLLECTED_MAX {
                    let Some(object) = self.list.items.next() else {
                        self.stage = Stage::Measure(self.json()?);
                        break;
                    };
                    self.objects.push(object?);
                }
                Ok(Some(Bytes::new()))
            }
            Stage::Measure(_) => {
                let until = self.items_bytes + PIECE_BYTES;
                while self.items_bytes < until {
                    let Stage::Measure(parts) = &mut self.stage else {
                        break;
                    };
                    match parts.next() {
                        Some(part) => part.and_then(|part| self.measure(part))?,
                        None => return Err(internal("a list has no end")),
                    }
                }
                Ok(Some(Bytes::new()))
            }
            Stage::Head => {
                let length = self.head.len() + self.items_bytes;
                let mut piece = kinds::wrap_begin(&self.api_version, &self.kind, length);
                piece.append(&mut self.head);
                self.stage = match self.kept.take() {
                    Some(kept) => {
                        piece.extend_from_slice(&kept);
                        Stage::Tail
                    }
                    None => Stage::Send(self.json()?),
                };
                Ok(Some(piece.into()))
            }
            Stage::Send(_) => {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                while piece.len() < PIECE_BYTES {
                    let Stage::Send(parts) = &mut self.stage else {
                        break;
                    };
                    match parts.next() {
                        Some(Ok(Part::Item(item))) => piece.extend(self.item(&item)?),
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Err(error),
                        None => self.stage = Stage::Tail,
                    }
                }
                Ok(Some(piece.into()))
            }
            Stage::Tail => {
                self.stage = Stage::Ended;
                Ok(Some(Bytes::from_static(kinds::WRAP_END)))
            }
            Stage::Ended => Ok(None),
        }
    }
}

impl Iterator for ProtobufPieces {
    type Item = Result<Bytes, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.piece();
        if piece.is_err() {
            self.stage = Stage::Ended;
        }
        piece.transpose()
    }
}
