//! The network side of a server: listening sockets, TLS, and HTTP connections.
//!
//! A [`Listener`] is bound, accepts connections and serves each of them with a service that a
//! [`MakeService`] creates. The files in the order of a request: `listener` (accept), `connection`
//! (handshake, HTTP, the loop that runs requests), `transport` (bytes in and out), with `ping_limit`
//! as an observer of the frames and `tls` and `certificate` for handshakes.

mod certificate;
mod connection;
mod listener;
mod ping_limit;
mod tls;
mod transport;

pub use connection::{BoxError, ClientIdentity, HttpOptions, Keepalive, MakeService};
pub use listener::{BindError, BoundAddress, GRACE_PERIOD, Listener};
pub use tls::{TlsAcceptor, TlsError};
