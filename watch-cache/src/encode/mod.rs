//! Objects and their encoding: stored bytes with the attributes that selectors use; the trait [`Kind`],
//! which reads one kind of objects, and its implementations for JSON and for Kubernetes' protobuf; the
//! trait [`Form`], which writes objects, lists and watch events for clients, and its implementations; and
//! the [`Encoder`], which lets clients with one form share what it has written.

pub(crate) mod encoder;
pub(crate) mod form;
pub(crate) mod json;
pub(crate) mod kind;
pub(crate) mod object;
mod protobuf;
pub(crate) mod sharing;

pub use encoder::{Encoder, ListChunks};
pub use form::{
    ControlEvent, Form, FormId, IncludeObject, JsonForm, ListHead, MetaVersion, MetadataForm,
    TableColumn, TableForm, TableRow,
};
pub use json::JsonKind;
pub use kind::{Attributes, DecodeError, Kind, ResourceVersionSpan};
pub use object::{Object, StoredObject};
pub use protobuf::{ProtobufField, ProtobufForm, ProtobufKind};
