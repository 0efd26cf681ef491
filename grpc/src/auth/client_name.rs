//! The name in a client's certificate.

use std::sync::Arc;

/// The common name in the certificate of a connection's client, verified by the server that accepted
/// the connection.
///
/// A server that requires client certificates puts it into the extensions of each request. While auth
/// is enabled, a request without a token has the permissions of the user with this name.
///
/// ```
/// use revstore_grpc::CertifiedName;
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(CertifiedName::new("ann"));
/// ```
// TL-2
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedName(Arc<str>);

impl CertifiedName {
    /// Creates the name of a client.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name; empty if the certificate has none.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
