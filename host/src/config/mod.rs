//! Configuration: flags that are declared once and given on the command line, in environment
//! variables or in a YAML file.
//!
//! A program declares its flags with [`flags!`](crate::flags). A [`FlagSet`] parses the sources,
//! prints the help page and makes shell completions from these declarations. The program reads the
//! [`Values`] by flag into its own types, and checks flags against each other there. `duration`
//! and `value` parse values; a URL is an [`EndpointUrl`](crate::net::EndpointUrl).
//!
//! The syntax is that of Go's flag package, with its error messages and exit codes, because
//! harnesses for existing servers depend on them. For this reason the parser is not clap: `-name`
//! and `--name` are the same flag, a boolean never takes the next argument, any other flag always
//! does, dashes or not, and the first argument that is not a flag is an error. To translate such a
//! command line for clap, a pass must find each flag and know whether it takes a value, which is
//! all that `arguments` does in 70 lines, and clap's messages, exit codes and help page would have
//! to be replaced.

mod arguments;
mod completion;
mod duration;
mod environment;
mod error;
mod file;
mod flag;
mod help;
mod set;
mod value;

pub use duration::GoDuration;
pub use error::ConfigError;
pub use file::FileMapping;
pub use flag::{Declaration, Flag, FlagValue, OneUrl, Repeated, Section, Support, ValueKind};
pub use set::{FlagSet, ForeignFlags, Invocation, Values};
pub use value::{parse_byte_size, parts};
