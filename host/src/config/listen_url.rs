//! URLs to listen on: an [`EndpointUrl`] that names something which can be bound.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use super::EndpointUrl;

/// Where a listener binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP address; port 0 lets the system pick one (FL-10).
    Tcp(SocketAddr),
    /// A socket file, relative to the working directory unless the URL has an absolute path
    /// (TL-3). To be removed before binding and at exit.
    Unix(PathBuf),
}

/// A URL to listen on, with the address it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenUrl {
    url: EndpointUrl,
    address: ListenAddress,
}

/// Why a URL cannot be listened on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenUrlError {
    /// The host is neither an IP address nor `localhost` (FL-10): a name could resolve to several
    /// addresses, or to another machine.
    #[error("expected IP in URL for binding ({url})")]
    NotAnAddress {
        /// The URL.
        url: EndpointUrl,
    },
    /// The port is above 65535.
    #[error("address {port}: invalid port")]
    Port {
        /// The port.
        port: String,
    },
    /// A Unix socket without a name.
    #[error("no socket file named in URL for binding ({url})")]
    NoSocketFile {
        /// The URL.
        url: EndpointUrl,
    },
}

impl ListenUrl {
    /// `http://localhost:port`; with port 0 the system picks one.
    pub fn localhost(port: u16) -> Self {
        Self {
            url: EndpointUrl::localhost(port),
            address: ListenAddress::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        }
    }

    /// The same address with TLS under it.
    #[must_use]
    pub fn under_tls(&self) -> Self {
        Self {
            url: self.url.under_tls(),
            address: self.address.clone(),
        }
    }

    /// The URL as it was given.
    pub fn url(&self) -> &EndpointUrl {
        &self.url
    }

    /// Where to bind.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Whether the listener speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.url.scheme().is_tls()
    }
}

impl TryFrom<EndpointUrl> for ListenUrl {
    type Error = ListenUrlError;

    fn try_from(url: EndpointUrl) -> Result<Self, ListenUrlError> {
        let address = address_of(&url)?;
        Ok(Self { url, address })
    }
}

fn address_of(url: &EndpointUrl) -> Result<ListenAddress, ListenUrlError> {
    if url.scheme().is_unix() {
        return match url.socket_path() {
            path if path.is_empty() => Err(ListenUrlError::NoSocketFile { url: url.clone() }),
            path => Ok(ListenAddress::Unix(path.into())),
        };
    }
    let not_an_address = || ListenUrlError::NotAnAddress { url: url.clone() };
    let (host, port) = url.host_and_port().map_err(|_| not_an_address())?;
    let ip = match host {
        // Where a name has addresses of both families, Go listens on the IPv4 one.
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().map_err(|_| not_an_address())?,
    };
    let port = match port {
        "" => 0,
        port => port.parse().map_err(|_| ListenUrlError::Port {
            port: port.to_owned(),
        })?,
    };
    Ok(ListenAddress::Tcp(SocketAddr::new(ip, port)))
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let url = EndpointUrl::parse(text).unwrap();
        let actual = ListenUrl::try_from(url)
            .map(|url| match url.address() {
                ListenAddress::Tcp(address) => address.to_string(),
                ListenAddress::Unix(path) => path.display().to_string(),
            })
            .map_err(|error| error.to_string());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(actual, expected, "{text:?}");
    }

    #[test]
    fn fl_10_addresses_and_localhost_only() {
        check("http://127.0.0.1:2379", Ok("127.0.0.1:2379"));
        check("https://0.0.0.0:0", Ok("0.0.0.0:0"));
        check("http://[::]:2379", Ok("[::]:2379"));
        check("http://localhost:2379", Ok("127.0.0.1:2379"));
        check("http://127.0.0.1:", Ok("127.0.0.1:0"));
        check(
            "http://example.com:2379",
            Err("expected IP in URL for binding (http://example.com:2379)"),
        );
        check(
            "http://:2379",
            Err("expected IP in URL for binding (http://:2379)"),
        );
        check("http://127.0.0.1:99999", Err("address 99999: invalid port"));
    }

    #[test]
    fn localhost_is_what_would_have_been_parsed() {
        let url = EndpointUrl::parse("http://localhost:0").unwrap();
        assert_eq!(ListenUrl::try_from(url).unwrap(), ListenUrl::localhost(0));
    }

    #[test]
    fn tl_3_socket_files_are_named_after_host_and_port() {
        check("unix://localhost:2379", Ok("localhost:2379"));
        check("unixs://127.0.0.1:23790", Ok("127.0.0.1:23790"));
        check("unix:///run/etcd.sock", Ok("/run/etcd.sock"));
        check(
            "unix://",
            Err("no socket file named in URL for binding (unix://)"),
        );
    }
}
