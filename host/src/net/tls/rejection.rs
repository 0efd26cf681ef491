//! Why a connection was rejected before its first request.

use std::{error::Error, fmt, io, net::SocketAddr};

use rustls::{AlertDescription, pki_types::CertificateDer};
use tracing::warn;

use super::client_address::{self, Names};
use crate::net::BoxError;

/// The address of a client without one, on a Unix socket, as Go writes it.
pub(crate) const UNNAMED: &str = "@";

/// The maximum number of names of a client's certificate in a log line. A certificate may have thousands.
const LOGGED_NAMES_MAX: usize = 16;

/// A connection was rejected in its TLS handshake, or because of the certificate of its client.
#[derive(Debug)]
pub(crate) struct Rejection {
    reason: BoxError,
    server_name: String,
    /// The names in the client's certificate, if it has sent one.
    names: Option<Names>,
}

/// The first bytes of a connection are not those of a TLS handshake.
#[derive(Debug, thiserror::Error)]
#[error("tls: first record does not look like a TLS handshake")]
pub(crate) struct NotTls;

impl Rejection {
    pub(crate) fn of(reason: impl Into<BoxError>) -> Self {
        Self {
            reason: reason.into(),
            server_name: String::new(),
            names: None,
        }
    }

    /// The rejection for a failed handshake. Frequent reasons have the texts of etcd.
    pub(super) fn of_handshake(error: io::Error) -> Self {
        match go_text(&error) {
            Some(text) => Self::of(text),
            None => Self::of(error),
        }
    }

    /// Sets the name of the server for which the client has asked.
    pub(crate) fn server_name(mut self, name: Option<&str>) -> Self {
        name.unwrap_or_default().clone_into(&mut self.server_name);
        self
    }

    /// Adds the names in the certificate of the client.
    pub(crate) fn certificate(mut self, certificate: Option<&CertificateDer<'_>>) -> Self {
        self.names = certificate.and_then(client_address::names);
        self
    }

    /// Logs the rejection by the listener `endpoint`, as etcd does.
    pub(crate) fn log(&self, endpoint: &str, address: Option<SocketAddr>) {
        let address = address.map_or_else(|| UNNAMED.to_owned(), |it| it.to_string());
        let error: &(dyn Error + 'static) = &*self.reason;
        let Some(names) = &self.names else {
            warn!(
                "remote-addr" = address,
                "server-name" = self.server_name,
                error,
                "rejected connection on {endpoint} endpoint"
            );
            return;
        };
        let addresses = names.addresses.iter().take(LOGGED_NAMES_MAX);
        let addresses: Vec<_> = addresses.map(ToString::to_string).collect();
        let hosts: Vec<_> = names.hosts.iter().take(LOGGED_NAMES_MAX).collect();
        warn!(
            "remote-addr" = address,
            "server-name" = self.server_name,
            "ip-addresses" = ?addresses,
            "dns-names" = ?hosts,
            error,
            "rejected connection on {endpoint} endpoint"
        );
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl Error for Rejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}

/// Returns the text of Go for a frequent reason of a failed handshake.
fn go_text(error: &io::Error) -> Option<String> {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Some("EOF".to_owned());
    }
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::NoCertificatesPresented => {
            Some("tls: client didn't provide a certificate".to_owned())
        }
        rustls::Error::AlertReceived(alert) => {
            Some(format!("remote error: tls: {}", go_alert(*alert)?))
        }
        rustls::Error::InvalidCertificate(error) => {
            Some(format!("tls: failed to verify certificate: {error}"))
        }
        _ => None,
    }
}

/// Returns Go's text for an alert about certificates or versions.
fn go_alert(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::HandshakeFailure => "handshake failure",
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        _ => return None,
    })
}
