//! Objects and their encoding: stored bytes with the attributes that selectors use, the trait
//! [`Kind`], which reads and writes one kind of objects, its implementations for JSON and for
//! Kubernetes' protobuf, and the encoding of watch events, which all watchers share.

pub(crate) mod event;
pub(crate) mod json;
pub(crate) mod kind;
pub(crate) mod object;
mod protobuf;

pub use json::JsonKind;
pub use kind::{Attributes, ControlEvent, DecodeError, Kind, ResourceVersionSpan};
pub use object::{Object, StoredObject};
pub use protobuf::{ProtobufField, ProtobufKind};
