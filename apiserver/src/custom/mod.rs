//! Custom resources: their definitions, structural schemas, and the strategies that follow from them.

pub(crate) mod conversion;
pub mod definition;
pub mod resource;
pub(crate) mod rules;
pub mod schema;
pub(crate) mod text;
