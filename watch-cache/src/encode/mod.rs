//! Objects and their encoding: stored bytes with the attributes that selectors use, the trait
//! [`Kind`], which reads and writes one kind of objects, its implementation for JSON, and the
//! encoding of watch events, which all watchers share.

pub(crate) mod event;
pub(crate) mod json;
pub(crate) mod kind;
pub(crate) mod object;

pub use json::JsonKind;
pub use kind::{Attributes, ControlEvent, DecodeError, Kind, ResourceVersionSpan};
pub use object::{Object, StoredObject};
