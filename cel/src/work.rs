//! A bound for work that has no cost in the language.

/// The maximum number of parts that one evaluation compares or copies beyond what its cost counts.
pub const WORK_MAX: u64 = 2_000_000;

/// What is left of [`WORK_MAX`].
#[derive(Debug)]
pub(crate) struct Work(u64);

/// An evaluation reached [`WORK_MAX`].
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Work {
    pub(crate) fn new() -> Self {
        Self(WORK_MAX)
    }

    pub(crate) fn spend(&mut self, parts: usize) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(parts as u64).ok_or(Exhausted)?;
        Ok(())
    }
}
