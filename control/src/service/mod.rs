//! The service of control: gRPC and JSON on one port.
//!
//! | file | contents |
//! |---|---|
//! | `answers.rs` | one function for each method: from a request to its response |
//! | `faults.rs`, `journal.rs` | the rules of requests, the records of responses |
//! | `files.rs` | stores in files, in chunks |
//! | `grpc.rs` | the gRPC service over them |
//! | `json.rs` | requests and responses in JSON, for the gRPC service |
//! | `http.rs` | a request: access, and which of the two it is for |
//! | `access.rs` | who may send requests: token, host and origin |

mod access;
mod answers;
mod faults;
mod files;
mod grpc;
mod http;
mod journal;
mod json;

pub use self::access::{Access, TokenFile, TokenFileError};
pub use self::http::ControlService;
pub use self::journal::write_journal;
pub(crate) use self::journal::{code_name, message};
pub(crate) use self::json::read_response_line;

/// The maximum size of a request, or of a chunk of a file.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024;
