//! Evaluation: a plan of the tree, and its run with a count of the cost.

mod attribute;
mod fold;
mod plan;
mod run;

pub(crate) use plan::{Plan, plan};
pub(crate) use run::run;
