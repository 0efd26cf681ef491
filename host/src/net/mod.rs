//! The network side of a server: listening sockets, TLS, and HTTP connections.
//!
//! A [`Listener`] is bound to an address, accepts connections, and serves each of them with a service
//! that a [`MakeService`] creates. A request passes `listener` (accept), `connection` (handshake, HTTP,
//! the loop that runs requests) and `transport` (bytes in and out); `ping_limit` observes its frames.

mod certificate;
mod connection;
mod listener;
mod options;
mod ping_limit;
mod tls;
mod transport;

pub use connection::{BoxError, ClientIdentity, MakeService};
pub use listener::{BindError, BoundAddress, GRACE_PERIOD, Listener};
pub use options::{HttpOptions, Keepalive};
pub use tls::{TlsAcceptor, TlsError};
