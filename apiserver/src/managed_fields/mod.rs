//! What [`revstore_structured_merge`] needs to know about built-in kinds and custom resources, and the entries of scales.

#[cfg(test)]
mod apply_tests;
mod conversions;
mod custom_schema;
mod granular;
mod kinds_schema;
mod scale;

pub(crate) use conversions::Conversions;
pub use custom_schema::CustomSchema;
pub(crate) use granular::merge_granular;
pub use kinds_schema::{KindsSchema, zero_object};
pub(crate) use scale::remove_zero_replicas;
pub use scale::{ReplicaPaths, entries_of_scale, entries_with_scale};
