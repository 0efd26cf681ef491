//! Configuration: the values of flags.

pub mod byte_size;
mod duration;
mod listen_url;
mod log;
mod tls;
pub mod url;

pub use byte_size::ByteSizeError;
pub use duration::{DurationError, GoDuration};
pub use listen_url::{ListenAddress, ListenUrl, ListenUrlError};
pub use log::{LogLevel, LogOptions, LogOutput};
pub use tls::{Certificate, ClientAuth, TlsOptions, TlsVersion};
pub use url::{EndpointUrl, HostPortError, Scheme, UrlError};
