//! What expressions cost: an estimate before, and the count of an evaluation.

mod actual;
mod calls;
mod estimate;
mod size;

pub(crate) use actual::call_cost;
pub(crate) use estimate::estimate;
pub use size::CostEstimate;

/// What it costs to read a variable or a field.
pub(crate) const SELECT: u64 = 1;
/// What it costs to make a list, a map and an object.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;
/// What it costs to read a character.
pub(crate) const CHARACTER: f64 = 0.1;
/// What a character of a pattern costs for each unit of the text.
pub(crate) const PATTERN: f64 = 0.25;
/// What it costs to ask what a user may do.
pub(crate) const ACCESS: u64 = 350_000;

/// Returns whether each call of a function of the libraries costs 1, in an estimate and in an evaluation.
fn costs_one(function: &str) -> bool {
    matches!(
        function,
        "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
    )
}
