//! The flags of the store.

use std::path::PathBuf;
use std::time::Duration;

use revstore_host::config::{ConfigError, Values};
use revstore_host::net::{EndpointUrl, ListenAddress, ListenUrl};

use super::flags;

/// An etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdServers {
    /// The client URLs, with the scheme `http` or `https`.
    pub urls: Vec<String>,
    /// The authorities of the certificates of the servers, which `https` needs.
    pub ca_file: Option<PathBuf>,
    /// The certificate of this server and its key.
    pub client_files: Option<(PathBuf, PathBuf)>,
}

impl EtcdServers {
    /// Returns the cluster with these client URLs.
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// Returns the cluster of `--etcd-servers`, or `None` for a store in this process.
pub(super) fn etcd(values: &mut Values) -> Result<Option<EtcdServers>, ConfigError> {
    let fail = |message: String| Err(ConfigError::new(message));
    let urls = values.get(&flags::ETCD_SERVERS);
    let ca_file = values.get(&flags::ETCD_CAFILE);
    let files = (
        values.get(&flags::ETCD_CERTFILE),
        values.get(&flags::ETCD_KEYFILE),
    );
    match (values.get(&flags::STORAGE).as_str(), urls.is_empty()) {
        ("etcd", true) => return fail("--storage=etcd needs --etcd-servers".to_owned()),
        ("embedded", false) => {
            values.warn("--etcd-servers has no effect with --storage=embedded");
            return Ok(None);
        }
        ("" | "embedded", true) => {
            if ca_file.is_some() || files != (None, None) {
                return fail(
                    "--etcd-cafile, --etcd-certfile and --etcd-keyfile need --etcd-servers"
                        .to_owned(),
                );
            }
            return Ok(None);
        }
        ("" | "etcd", false) => {}
        (other, _) => {
            return fail(format!("--storage={other}: must be 'embedded' or 'etcd'"));
        }
    }
    for text in &urls {
        match EndpointUrl::parse(text).map(|url| url.scheme()) {
            Ok("https") if ca_file.is_none() => {
                return fail(format!("--etcd-servers={text}: https needs --etcd-cafile"));
            }
            Ok("http") if ca_file.is_some() => {
                return fail(format!(
                    "--etcd-servers={text}: http has no use for --etcd-cafile"
                ));
            }
            Ok("http" | "https") => {}
            Ok(_) => {
                return fail(format!(
                    "--etcd-servers={text}: only http and https are supported"
                ));
            }
            Err(error) => return fail(format!("--etcd-servers: {error}")),
        }
    }
    let client_files = match files {
        (Some(certificate), Some(key)) if ca_file.is_some() => Some((certificate, key)),
        (None, None) => None,
        (Some(_), Some(_)) => {
            return fail("--etcd-certfile and --etcd-keyfile need --etcd-cafile".to_owned());
        }
        _ => return fail("--etcd-certfile and --etcd-keyfile must be given together".to_owned()),
    };
    Ok(Some(EtcdServers {
        urls,
        ca_file,
        client_files,
    }))
}

/// Returns the URLs of `--etcd-listen-url`.
pub(super) fn etcd_listen_urls(
    values: &mut Values,
    is_over_etcd: bool,
) -> Result<Vec<ListenUrl>, ConfigError> {
    let given = values.get(&flags::ETCD_LISTEN_URL);
    if is_over_etcd && !given.is_empty() {
        let message =
            "--etcd-listen-url serves the embedded store, which --storage=etcd does not use";
        return Err(ConfigError::new(message));
    }
    let mut urls = Vec::new();
    for url in given {
        if url.is_tls() {
            let message = format!("--etcd-listen-url={url}: only http and unix are supported");
            return Err(ConfigError::new(message));
        }
        let url = ListenUrl::try_from(url)
            .map_err(|error| ConfigError::new(format!("--etcd-listen-url: {error}")))?;
        if let ListenAddress::Tcp(address) = url.address()
            && !address.ip().is_loopback()
        {
            values.warn(format!(
                "--etcd-listen-url={url}: everybody in the network can read and change the store"
            ));
        }
        urls.push(url);
    }
    Ok(urls)
}

/// Returns the interval of `--etcd-compaction-interval`.
pub(super) fn compaction_interval(values: &Values) -> Result<Option<Duration>, ConfigError> {
    let interval = values.get(&flags::ETCD_COMPACTION_INTERVAL);
    if interval.0 < 0 {
        let message = "--etcd-compaction-interval must not be negative";
        return Err(ConfigError::new(message));
    }
    Ok(interval.positive())
}
