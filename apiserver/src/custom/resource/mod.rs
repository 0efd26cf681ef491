//! Custom resources: what follows for objects from a version of a definition.

pub(crate) mod coercion;
mod column;
mod json_path;
mod json_path_parser;
mod scale;
mod storage;
mod strategy;
#[cfg(test)]
mod tests;
mod warnings;

pub use column::{Column, age};
pub use json_path::{JsonPath, PATH_BYTES_MAX, PATH_RESULTS_MAX};
pub use scale::Scale;
pub(crate) use storage::PresentedStorage;
pub use strategy::{CustomResource, CustomStatus};
pub use warnings::finalizer_warnings;
