//! The network side of a server: listening sockets, TLS, and HTTP connections.
//!
//! A [`Listener`] is bound to an address, accepts connections, and serves each of them with a service that a
//! [`MakeService`] creates. `listener` accepts connections, `connection` performs the handshake and runs the
//! requests, `http2` and the library hyper read them, `transport` reads and writes bytes, `ping_limit` inspects the
//! HTTP/2 frames, and `upgrade` hands connections over to other protocols. `gate` refuses and ends connections, for
//! programs that ask for it.
//!
//! `endpoint_url`, `listen_url`, `options` and those of `tls` contain the settings, which a program creates in
//! code or from its flags. `tls` also has the certificates of the server and the checks of those of clients.

mod connection;
mod driver;
mod endpoint_url;
mod gate;
mod http1;
mod http2;
mod listen_url;
mod listener;
mod options;
mod ping_limit;
mod request_body;
mod task_waker;
mod tls;
mod transport;
mod upgrade;

pub use connection::{
    BoxError, ClientIdentity, MakeService, serve_connection, serve_connection_until,
};
pub use endpoint_url::{EndpointUrl, UrlError, join_urls};
pub use gate::{BLACK_HOLES_MAX, ConnectionGate, ConnectionHandle};
pub use listen_url::{ListenAddress, ListenUrl};
pub use listener::{BindError, BoundAddress, GRACE_PERIOD, Listener, serve_gated_connection};
pub use options::{HttpOptions, Keepalive};
pub use request_body::{BodyCopy, BodyRead, RequestBody};
pub use tls::{
    Certificate, ClientAuth, ConnectorError, TlsAcceptor, TlsError, TlsOptions, TlsVersion,
    client_tls, unverified_client_tls,
};
pub use upgrade::{Drain, UpgradeOffer, Upgraded};
