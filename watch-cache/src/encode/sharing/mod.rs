//! Encodings that several clients share: those of events, which live as long as the event is in the
//! window, and those of objects in lists and initial events, which are kept for a short time.

mod encodings;
mod kept;

pub(crate) use self::encodings::Encodings;
pub(crate) use self::kept::KeptEncodings;
use crate::api::event::EventType;

/// What is encoded: a number of a registered form, and a part of what the form writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EncodingKey {
    pub(crate) form: u64,
    pub(crate) part: Part,
}

/// A part of what a form writes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// An event, and whether it is written as the first one of its watch.
    Event(EventType, bool),
    /// An item of a list.
    Item,
}
