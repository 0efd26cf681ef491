//! Configuration: flags that are declared once and given on the command line, in environment
//! variables or in a YAML file.
//!
//! A program declares each flag with [`flags!`](crate::flags): name, type, default, help text and,
//! where they differ from the usual, its former name, its key in files and its sources. A
//! [`FlagSet`] parses the sources, prints the help page and makes shell completions, all from these
//! declarations. The program reads the resulting [`Values`] by flag into its own types, which is
//! also where it checks flags against each other. The `value` folder contains the types of values.
//!
//! The syntax is that of Go's flag package, with its error messages and exit codes, because
//! harnesses for existing servers depend on them. This is why no argument parser is used: `-name`
//! and `--name` are the same flag, a boolean never takes the next argument, any other flag always
//! does, dashes or not, and the first argument that is not a flag is an error. To translate such a
//! command line for clap, a pass must find each flag and know whether it takes a value, which is
//! what [`FlagSet::parse`] does in 70 lines; clap's messages, exit codes and help page would then
//! all be replaced. Its completion scripts alone are not worth the size and start time.

mod arguments;
mod completion;
mod environment;
mod error;
mod file;
mod flag;
mod help;
mod log;
mod set;
#[cfg(test)]
mod testing;
mod tls;
mod value;

pub use error::{ConfigError, ValueError, Warning};
pub use flag::{Declaration, Flag, FlagValue, Kind, Section};
pub use log::{LogLevel, LogOptions, LogOutput};
pub use set::{FlagSet, Request, Values};
pub use tls::{Certificate, ClientAuth, TlsOptions, TlsVersion};
pub use value::{
    EndpointUrl, GoDuration, ListenAddress, ListenUrl, Scheme, byte_size, join_urls, parts,
};
