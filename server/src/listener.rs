//! Sockets to listen on: bound in one go, so that the first fault is told before anything serves.

use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{fs::FileTypeExt, net::UnixListener},
    path::{Path, PathBuf},
};

use revstore_host::config::{ListenAddress, ListenUrl};

/// A socket that is bound and takes connections, though nobody answers them yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: ListenSocket,
    address: BoundAddress,
    url: ListenUrl,
}

/// The socket itself, not yet known to a runtime.
#[derive(Debug)]
pub(crate) enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Where a listener really is: with the port that the system picked (FL-10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

/// A socket file, removed with this value (TL-3).
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

/// Why a URL cannot be listened on. The text is Go's, since people search for it (FL-9).
#[derive(Debug, thiserror::Error)]
#[error("listen {address}: bind: {}", reason(source))]
pub struct BindError {
    address: AsDialled,
    /// What the system says.
    source: io::Error,
}

impl Listener {
    /// Binds the address of a URL.
    pub(crate) fn bind(url: &ListenUrl) -> Result<Self, BindError> {
        Self::try_bind(url).map_err(|source| BindError {
            address: AsDialled(url.address().clone()),
            source,
        })
    }

    fn try_bind(url: &ListenUrl) -> io::Result<Self> {
        let (socket, address) = match url.address() {
            ListenAddress::Tcp(address) => {
                let socket = TcpListener::bind(address)?;
                socket.set_nonblocking(true)?;
                let address = BoundAddress::Tcp(socket.local_addr()?);
                (ListenSocket::Tcp(socket), address)
            }
            ListenAddress::Unix(path) => {
                remove_stale(path)?;
                let socket = UnixListener::bind(path)?;
                let file = SocketFile(path.clone());
                socket.set_nonblocking(true)?;
                let address = BoundAddress::Unix(path.clone());
                (ListenSocket::Unix(socket, file), address)
            }
        };
        Ok(Self {
            socket,
            address,
            url: url.clone(),
        })
    }

    pub(crate) fn address(&self) -> &BoundAddress {
        &self.address
    }

    /// Whether connections begin with a TLS handshake.
    pub(crate) fn is_tls(&self) -> bool {
        self.url.is_tls()
    }

    /// The URL that reaches this socket. Under TLS with the host that was given, because that is
    /// what the certificate is made out to; otherwise with the address.
    pub(crate) fn endpoint(&self) -> String {
        let scheme = self.url.url().scheme().as_str();
        match &self.address {
            BoundAddress::Unix(path) => format!("{scheme}:{}", path.display()),
            BoundAddress::Tcp(address) => match self.url.url().host_and_port() {
                Ok((host, _)) if self.is_tls() && !host.contains(':') => {
                    format!("{scheme}://{host}:{}", address.port())
                }
                _ => format!("{scheme}://{address}"),
            },
        }
    }

    pub(crate) fn into_socket(self) -> ListenSocket {
        self.socket
    }
}

/// Makes room for a socket file where a server that was killed left one. Other files stay, and
/// binding then fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If it is gone already, somebody else did the work.
        let _ = fs::remove_file(&self.0);
    }
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// An address in front of which Go puts the kind of network.
#[derive(Debug)]
struct AsDialled(ListenAddress);

impl fmt::Display for AsDialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ListenAddress::Tcp(address) => write!(f, "tcp {address}"),
            ListenAddress::Unix(path) => write!(f, "unix {}", path.display()),
        }
    }
}

/// The system's words for the faults that one meets, without Rust's additions.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        io::ErrorKind::AddrNotAvailable => "cannot assign requested address".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use revstore_host::config::EndpointUrl;

    fn url(text: &str) -> ListenUrl {
        EndpointUrl::parse(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn fl_10_port_0_is_replaced_by_the_systems_choice() {
        let listener = Listener::bind(&url("http://127.0.0.1:0")).unwrap();
        let BoundAddress::Tcp(address) = listener.address() else {
            panic!("{listener:?}");
        };
        assert_ne!(address.port(), 0);
    }

    #[test]
    fn fl_9_a_port_in_use_is_told_in_gos_words() {
        let first = Listener::bind(&url("http://127.0.0.1:0")).unwrap();
        let second = Listener::bind(&url(&format!("http://{}", first.address()))).unwrap_err();
        assert_eq!(
            second.to_string(),
            format!(
                "listen tcp {}: bind: address already in use",
                first.address()
            )
        );
    }

    #[test]
    fn tl_3_a_socket_file_is_taken_over_and_removed_but_other_files_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let url = url(&format!("unix://{}", path.display()));
        std::mem::forget(UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&url).unwrap();
        assert!(path.exists());
        drop(listener);
        assert!(!path.exists());

        fs::write(&path, "data").unwrap();
        let refused = Listener::bind(&url).unwrap_err().to_string();
        assert!(
            refused.ends_with("bind: address already in use"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }
}
