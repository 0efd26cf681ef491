//! The sockets of a server, and all else of its start that can fail.

use std::{
    fs::{DirBuilder, File},
    io::{self, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use revstore_control::service::Access;
use revstore_grpc::{AuthOptions, AuthTokens, JwtTokens};
use revstore_host::net::{BindError, BoundAddress, ListenUrl, Listener, TlsAcceptor, TlsOptions};
use tracing::info;

use crate::{
    config::{AuthToken, Config, JwtOptions},
    start_error::StartError,
};

/// The bound sockets of a server. The system queues connections, which are not accepted yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(super) clients: Vec<Listener>,
    pub(super) client_http: Vec<Listener>,
    pub(super) metrics: Vec<Listener>,
    pub(super) peers: Vec<Listener>,
    /// The port of control, with the rules of access to it.
    pub(super) control: Option<(Listener, Access)>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) peer_tls: Option<TlsAcceptor>,
    /// The options of authentication. They are checked with the sockets, because they may be invalid.
    pub(super) auth: AuthOptions,
}

impl Sockets {
    /// Creates the data directory and binds every URL, the client URLs unless `clients` are bound already. Peer URLs are bound
    /// first, as in etcd.
    pub(crate) fn bind(config: &Config, clients: Option<&[Listener]>) -> Result<Self, StartError> {
        if let Some(path) = &config.data_dir {
            create_data_dir(path).map_err(|source| StartError::DataDir {
                path: path.clone(),
                source,
            })?;
        }
        let acceptor = |tls: &Option<TlsOptions>, hosts: &[String]| {
            let tls = tls.as_ref();
            tls.map(|tls| TlsAcceptor::new(tls, hosts)).transpose()
        };
        let bind_all = |urls: &[ListenUrl]| -> Result<Vec<Listener>, BindError> {
            let urls = urls.iter();
            urls.map(|url| Listener::bind_with(url, config.reuse_port))
                .collect()
        };
        let control = config.control.as_ref().map(|options| {
            let access = options.access()?;
            let url = options.listen_url.as_ref();
            let listener = url.map(Listener::bind).transpose()?;
            Ok::<_, StartError>(listener.map(|listener| (listener, access)))
        });
        Ok(Self {
            control: control.transpose()?.flatten(),
            auth: auth(config)?,
            tls: acceptor(&config.tls, &config.client_hosts())?,
            peer_tls: acceptor(&config.peer_tls, &config.peer_hosts())?,
            peers: bind_all(&config.listen_peer_urls)?,
            clients: match clients {
                Some(bound) => (bound.iter().map(Listener::try_clone)).collect::<Result<_, _>>()?,
                None => bind_all(&config.listen_client_urls)?,
            },
            client_http: bind_all(&config.listen_client_http_urls)?,
            metrics: bind_all(&config.listen_metrics_urls)?,
        })
    }

    /// Returns the URL of the port of control.
    pub(crate) fn control_endpoint(&self) -> Option<String> {
        let (listener, _) = self.control.as_ref()?;
        Some(listener.endpoint())
    }

    /// Returns the TCP addresses of the client URLs without TLS.
    pub(crate) fn plain_client_addresses(&self) -> Vec<SocketAddr> {
        let plain = self.clients.iter().filter(|listener| !listener.is_tls());
        let addresses = plain.filter_map(|listener| match listener.address() {
            BoundAddress::Tcp(address) => Some(*address),
            BoundAddress::Unix(_) => None,
        });
        addresses.collect()
    }

    /// Returns the listeners of the client URLs.
    pub(crate) fn clients(&self) -> &[Listener] {
        &self.clients
    }
}

/// Logs the bound addresses (FL-10). A port that the system chose is reported only in the log.
pub(super) fn log_addresses(sockets: &Sockets) {
    let Sockets {
        clients,
        client_http,
        metrics,
        peers,
        control,
        tls: _,
        peer_tls: _,
        auth: _,
    } = sockets;
    let kinds = [
        (peers, "peer"),
        (clients, "client"),
        (client_http, "client HTTP"),
        (metrics, "metrics"),
    ];
    if let Some((listener, _)) = control {
        info!(address = %listener.address(), "serving control");
    }
    for (listeners, kind) in kinds {
        for listener in listeners {
            let security = if listener.is_tls() {
                "with TLS"
            } else {
                "without TLS"
            };
            info!(address = %listener.address(), "serving {kind} traffic {security}");
        }
    }
}

/// The maximum size of a key file of JWT tokens. A server does not start with a larger one, such as a
/// device that never ends.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// Creates the data directory and its parents if they do not exist. As in etcd, only the owner can read the
/// directory. Some programs check the directory after a test.
fn create_data_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn auth(config: &Config) -> Result<AuthOptions, StartError> {
    let tokens = match &config.auth.token {
        AuthToken::Simple => AuthTokens::Simple {
            ttl: config.auth.token_ttl,
        },
        AuthToken::Disabled => AuthTokens::Disabled,
        AuthToken::Jwt(options) => AuthTokens::Jwt(jwt(options)?),
    };
    Ok(AuthOptions::default()
        .tokens(tokens)
        .bcrypt_cost(config.auth.bcrypt_cost))
}

/// Reads the key files. As in etcd, a public key that the method does not use is read, too.
fn jwt(options: &JwtOptions) -> Result<JwtTokens, StartError> {
    let read = |option, path: &Option<PathBuf>| {
        let Some(path) = path else {
            return Ok(None);
        };
        let file = File::open(path).and_then(|file| {
            let mut key = Vec::new();
            file.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut key)?;
            if key.len() as u64 > KEY_FILE_BYTES_MAX {
                return Err(io::Error::other("the file is larger than 1 MiB"));
            }
            Ok(key)
        });
        let path = path.clone();
        file.map(Some).map_err(|source| StartError::JwtFile {
            option,
            path,
            source,
        })
    };
    let public = read("pub-key", &options.public_key)?;
    let private = read("priv-key", &options.private_key)?;
    let tokens = JwtTokens::new(
        options.sign_method,
        public.as_deref(),
        private.as_deref(),
        options.ttl,
    )?;
    if !tokens.can_sign() {
        tracing::warn!("there is no priv-key in --auth-token; Authenticate requests will fail");
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn fl_20_the_data_directory_is_created_with_its_parents_and_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        create_data_dir(&path).unwrap();
        fs::write(path.join("file"), "kept").unwrap();
        create_data_dir(&path).unwrap();
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "kept");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
