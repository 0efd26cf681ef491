//! URLs to listen on.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use super::{EndpointUrl, UrlError};

/// The address that a listener binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP address. With port 0 the system chooses a port.
    Tcp(SocketAddr),
    /// A socket file. Its path is relative to the working directory unless the URL has an absolute path. The
    /// listener removes the file before it binds and when it is closed.
    Unix(PathBuf),
}

/// A URL to listen on, with its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenUrl {
    url: EndpointUrl,
    address: ListenAddress,
}

impl ListenUrl {
    /// Returns `http://localhost:port`. With port 0 the system chooses a port.
    pub fn localhost(port: u16) -> Self {
        Self {
            url: EndpointUrl::localhost(port),
            address: ListenAddress::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        }
    }

    /// Returns the same address with TLS.
    #[must_use]
    pub fn under_tls(&self) -> Self {
        Self {
            url: self.url.under_tls(),
            address: self.address.clone(),
        }
    }

    /// Returns the URL as given.
    pub fn url(&self) -> &EndpointUrl {
        &self.url
    }

    /// Returns the address to bind.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Returns whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.url.is_tls()
    }
}

impl TryFrom<EndpointUrl> for ListenUrl {
    type Error = UrlError;

    /// Returns an error if the host is neither an IP address nor `localhost` (another name could resolve to
    /// several addresses or to another machine), if the port is above 65535, or if a Unix socket has no name.
    fn try_from(url: EndpointUrl) -> Result<Self, UrlError> {
        let address = address_of(&url)?;
        Ok(Self { url, address })
    }
}

fn address_of(url: &EndpointUrl) -> Result<ListenAddress, UrlError> {
    let error = |message| Err(UrlError(message));
    if url.is_unix() {
        return match url.socket_path() {
            path if path.is_empty() => {
                error(format!("no socket file named in URL for binding ({url})"))
            }
            path => Ok(ListenAddress::Unix(path.into())),
        };
    }
    let (host, port) = url.host_and_port()?;
    // If a name has IPv4 and IPv6 addresses, Go listens on the IPv4 address.
    let host = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let Ok(ip) = host.parse::<IpAddr>() else {
        return error(format!("expected IP in URL for binding ({url})"));
    };
    match if port.is_empty() { "0" } else { port }.parse() {
        Ok(port) => Ok(ListenAddress::Tcp(SocketAddr::new(ip, port))),
        Err(_) => error(format!("address {port}: invalid port")),
    }
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
    fn fl_10_only_addresses_and_localhost_are_accepted() {
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
    fn localhost_equals_the_parsed_url() {
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
