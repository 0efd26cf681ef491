//! From the text of an expression to its tree.

mod ast;
mod balance;
mod error;
mod lexer;
mod literal;
mod macros;
mod parser;

pub(crate) use ast::{Comprehension, Entry, Expr, Kind, Node};
pub(crate) use error::Issues;
pub use error::{Issue, Position};
pub use parser::{DEPTH_MAX, SOURCE_CHARS_MAX};
pub(crate) use parser::{Parsed, parse};
