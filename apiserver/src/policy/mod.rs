//! Admission policies in CEL, and match conditions.

mod expression;

pub(crate) use expression::{Compiler, JSON_PATCH_TYPE, OBJECT_TYPE, Purpose, Refusal};
