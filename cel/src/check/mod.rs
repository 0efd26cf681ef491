//! The types of an expression, and the forms of the functions that it calls.

mod checker;
mod literals;
mod unify;

pub(crate) use checker::{Checked, Reference, check};
