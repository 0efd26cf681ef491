//! The server to which requests are sent.

use std::fmt::Display;
use std::sync::Arc;

use http::HeaderValue;
use revstore_host::net::client_tls;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::address::{Address, Stream, invalid};

/// A server of etcd's API or of a Kubernetes API.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) address: Address,
    pub(super) token: Option<String>,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    name: ServerName<'static>,
    /// For HTTP/2 and for HTTP/1.1.
    configs: [Arc<ClientConfig>; 2],
}

/// The version of HTTP of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http2,
    Http1,
}

impl Endpoint {
    /// Reads a URL: `http://HOST:PORT`, `https://HOST:PORT` or `unix:///PATH`. The certificate of a server with `https` is
    /// signed by one of `authorities`, in PEM, or else by one that the system trusts.
    ///
    /// Each request has the token: a call as metadata `token`, as clients of etcd send it, a request to a Kubernetes API as
    /// `Authorization: Bearer`.
    ///
    /// # Errors
    /// What is wrong with the URL, the token or the authorities.
    pub fn new(
        url: &str,
        token: Option<String>,
        authorities: Option<&[u8]>,
    ) -> Result<Self, String> {
        let invalid = |problem: &dyn Display| invalid(url, problem);
        let address = Address::parse(url)?;
        if let Some(token) = &token {
            HeaderValue::from_str(token)
                .map_err(|_| "the token has characters that a header cannot have".to_owned())?;
        }
        let tls = match &address.tls_name {
            None if authorities.is_some() => {
                return Err(invalid(&"certificates are for https"));
            }
            None => None,
            Some(name) => {
                let config = |protocol: &[u8]| {
                    client_tls(authorities, &[protocol]).map_err(|error| error.to_string())
                };
                let name = ServerName::try_from(name.clone());
                Some(Tls {
                    name: name.map_err(|error| invalid(&error))?,
                    configs: [config(b"h2")?, config(b"http/1.1")?],
                })
            }
        };
        Ok(Self {
            address,
            token,
            tls,
        })
    }

    /// Returns the scheme of requests.
    pub(super) fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }

    /// Connects to the server. Returns why that is not possible.
    pub(super) async fn connect(&self, version: Version) -> Result<Box<dyn Stream>, String> {
        let stream = self.address.connect().await?;
        let Some(tls) = &self.tls else {
            return Ok(stream);
        };
        let [http2, http1] = &tls.configs;
        let config = match version {
            Version::Http2 => http2,
            Version::Http1 => http1,
        };
        let connector = TlsConnector::from(config.clone());
        match connector.connect(tls.name.clone(), stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("cannot connect: {error}")),
        }
    }
}
