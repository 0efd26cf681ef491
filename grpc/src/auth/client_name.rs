//! Who a connection says its client is.

use std::sync::Arc;

/// The name in the certificate that a client has shown, verified by whoever took the connection.
///
/// A server that demands certificates puts one into the extensions of each request. While auth is
/// enabled, a request without a token is that user's (TL-2).
///
/// ```
/// use revstore_grpc::CertifiedName;
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(CertifiedName::new("ann"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedName(Arc<str>);

impl CertifiedName {
    /// The client is called this.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name; empty if the certificate has none.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
