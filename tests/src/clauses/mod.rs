//! Which tests cite which clauses of the behaviour specifications.
//!
//! [`list`] reads the clauses there are, from `tests/clauses.txt`. [`sources`] finds the tests of the
//! repository and the text of each: functions of Rust ([`rust`]) and of other languages ([`script`]),
//! and recorded scenarios. [`citation`] finds the clauses that a text names, and [`coverage`] puts
//! all of it together.
//!
//! A test cites a clause in its name (`rg_6_an_empty_key`), in the comment above it, or inside. What
//! stands elsewhere in a file cites for no test, but the clause has to exist.

pub mod citation;
pub mod coverage;
pub mod list;
pub mod rust;
pub mod script;
pub mod sources;

/// A test and everything it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its name in its file.
    pub name: String,
    /// Its name, comments and code, where clauses are looked for.
    pub text: String,
}
