//! Patterns in expressions.

use std::collections::HashMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::fault::EvaluationError;
use crate::regexp::translate;
use crate::work::Work;

/// The maximum size of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// The maximum size of the tables that a match fills as it goes.
const TABLE_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of compiled patterns that an evaluation keeps.
const PATTERNS_MAX: usize = 32;
/// What compiling a pattern counts as work, beside its weight.
const COMPILE_WORK: usize = 2_000;

/// The patterns that are constants of an expression.
pub(crate) type Shared = Arc<HashMap<String, Regex>>;

/// The patterns of one evaluation.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    shared: Shared,
    own: HashMap<String, Regex>,
}

/// Returns what is wrong with a pattern.
pub(crate) fn check(text: &str) -> Result<(), String> {
    compile(text).map(drop)
}

/// Compiles a pattern of Go.
pub(crate) fn compile(text: &str) -> Result<(Regex, u64), String> {
    let (translated, weight) = translate(text)?;
    let regex = RegexBuilder::new(&translated)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(TABLE_BYTES_MAX)
        .build();
    regex.map(|regex| (regex, weight)).map_err(|error| {
        let reason = match error {
            regex::Error::CompiledTooBig(_) => "expression is too large".to_owned(),
            other => {
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default();
                last.trim_start_matches("error: ").to_owned()
            }
        };
        format!("error parsing regexp: {reason}")
    })
}

impl Patterns {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            own: HashMap::new(),
        }
    }

    /// Returns a compiled pattern, as new or from before.
    pub(crate) fn get(&mut self, text: &str, work: &mut Work) -> Result<&Regex, EvaluationError> {
        if self.shared.contains_key(text) {
            return Ok(&self.shared[text]);
        }
        if !self.own.contains_key(text) {
            work.spend(COMPILE_WORK + text.len())?;
            let (regex, weight) = compile(text)?;
            work.spend(
                usize::try_from(weight)
                    .unwrap_or(usize::MAX)
                    .saturating_mul(8),
            )?;
            if self.own.len() >= PATTERNS_MAX {
                self.own.clear();
            }
            self.own.insert(text.to_owned(), regex);
        }
        Ok(&self.own[text])
    }
}
