//! Credentials: the token and the certificate name of a client.

use std::sync::Arc;

use http::HeaderMap;
use tonic::Extensions;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// The metadata names of tokens (AU-4).
pub(crate) const TOKEN_NAMES: [&str; 2] = ["token", "authorization"];

/// The token and the certificate name of a client. A stream stores them for its later requests.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    token: Option<MetadataValue<Ascii>>,
    certified: Option<CertifiedName>,
}

/// The identity that a client claims.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClaimedIdentity<'a> {
    /// The user for which Authenticate returned this token.
    Token(&'a str),
    /// The user named by the client's certificate (TL-2).
    Certificate(&'a str),
}

impl Credentials {
    /// Returns the credentials in a request.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Self {
        Self::new(request.metadata(), request.extensions())
    }

    /// Returns the credentials in the headers of a request.
    pub(crate) fn of_headers(headers: HeaderMap, certified: Option<CertifiedName>) -> Self {
        let mut extensions = Extensions::new();
        certified.map(|name| extensions.insert(name));
        Self::new(&MetadataMap::from_headers(headers), &extensions)
    }

    fn new(metadata: &MetadataMap, extensions: &Extensions) -> Self {
        let token = TOKEN_NAMES.iter().find_map(|name| metadata.get(*name));
        Self {
            token: token.cloned(),
            certified: extensions.get().cloned(),
        }
    }

    /// Returns the claimed identity. A token has precedence over a certificate (TL-2).
    pub(crate) fn identity(&self) -> Option<ClaimedIdentity<'_>> {
        // A token consists of visible ASCII characters. Any other value matches no token.
        let token = self.token.as_ref();
        let token = token.map(|token| ClaimedIdentity::Token(token.to_str().unwrap_or("")));
        let certified = self.certified.as_ref();
        token.or_else(|| certified.map(|name| ClaimedIdentity::Certificate(name.as_str())))
    }
}

/// The common name in the certificate of the client of a connection. The server that accepted the
/// connection has verified the certificate.
///
/// A server that requires client certificates inserts the name into the extensions of each request.
/// While auth is enabled, a request without a token has the permissions of the user with this name.
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

    /// Returns the name, which is empty if the certificate has no common name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
