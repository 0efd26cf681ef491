//! Objects and their forms: the stored bytes of an object with the attributes that selectors need,
//! the trait [`kind::Kind`] that reads and writes one kind of objects, its implementation for JSON, and the
//! encoding of watch events.

pub(crate) mod event;
pub(crate) mod json;
pub(crate) mod kind;
pub(crate) mod object;
