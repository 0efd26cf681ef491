//! The names that the tree takes from `engine/src/fault.rs`: mutations for models, none here.

/// No mutation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults;

impl Faults {
    #[expect(clippy::unused_self, reason = "the call in the included sources")]
    pub(crate) const fn has_any(self) -> bool {
        false
    }
}

/// `on_fault!(faults, Name, step)` never runs the step.
macro_rules! on_fault {
    ($faults:expr, $fault:ident, $step:expr) => {
        if $faults.has_any() {
            $step;
        }
    };
}

pub(crate) use on_fault;
