//! The history of a store: what its clients asked for and saw, and its judge.

pub(crate) mod judge;
mod operation;

pub(crate) use operation::{
    Answer, Event, KEYS, Key, Keys, Operation, PREFIX, Seen, Tick, Ticks, WriteId, value,
};
