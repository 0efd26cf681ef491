//! Faults: rules that select calls, count them, and say what happens to them.
//!
//! | file | contents |
//! |---|---|
//! | `rules.rs` | the table of rules, and **which rule fires for a call** |
//! | `rule.rs` | one rule: its checks and its text |
//! | `selector.rs`, `trigger.rs`, `action.rs` | its parts |
//! | `delay.rs` | calls that wait on a clock |
//! | `removal.rs` | the end of a rule, for which what it holds waits |

mod action;
mod delay;
mod removal;
mod rule;
mod rules;
mod selector;
mod trigger;

pub use action::{Action, Failure, FailureError, Preset, UnknownPreset, code_of_http};
pub use delay::{Delay, Delayed, Delays};
pub use removal::Removal;
pub use rule::{Rule, RuleError, RuleId};
pub use rules::{Decision, DelayOf, RULES_MAX, RuleStatus, Rules};
pub use selector::{FrontSelector, KeySelector, Selector};
pub use trigger::Trigger;
