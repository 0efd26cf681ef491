//! The options of TLS on client and peer URLs (TL-1).

use std::path::PathBuf;

use revstore_host::{
    config::{ConfigError, Flag, Values},
    net::{Certificate, ClientAuth, ListenUrl, TlsOptions, TlsVersion, join_urls},
};

use super::flags;

type Result<T> = std::result::Result<T, ConfigError>;

/// The flags of one kind of URL.
struct TlsFlags {
    /// The kind of URL, as etcd names it in messages.
    kind: &'static str,
    cert_file: Flag<Option<PathBuf>>,
    key_file: Flag<Option<PathBuf>>,
    auto_tls: Flag<bool>,
    client_cert_auth: Flag<bool>,
    trusted_ca_file: Flag<Option<PathBuf>>,
    crl_file: Flag<Option<PathBuf>>,
    allowed_hostnames: Flag<Vec<String>>,
    allowed_common_names: Flag<Vec<String>>,
    /// Whether the common name of a certificate is the name of a user.
    names_users: bool,
    /// Disables the comparison of a certificate with the address of its client; `None` if there is none.
    skip_address: Option<Flag<bool>>,
}

const CLIENT: TlsFlags = TlsFlags {
    kind: "client",
    cert_file: flags::CERT_FILE,
    key_file: flags::KEY_FILE,
    auto_tls: flags::AUTO_TLS,
    client_cert_auth: flags::CLIENT_CERT_AUTH,
    trusted_ca_file: flags::TRUSTED_CA_FILE,
    crl_file: flags::CLIENT_CRL_FILE,
    allowed_hostnames: flags::CLIENT_ALLOWED_HOSTNAMES,
    allowed_common_names: flags::CLIENT_ALLOWED_CNS,
    names_users: true,
    skip_address: None,
};

const PEER: TlsFlags = TlsFlags {
    kind: "peer",
    cert_file: flags::PEER_CERT_FILE,
    key_file: flags::PEER_KEY_FILE,
    auto_tls: flags::PEER_AUTO_TLS,
    client_cert_auth: flags::PEER_CLIENT_CERT_AUTH,
    trusted_ca_file: flags::PEER_TRUSTED_CA_FILE,
    crl_file: flags::PEER_CRL_FILE,
    allowed_hostnames: flags::PEER_ALLOWED_HOSTNAMES,
    allowed_common_names: flags::PEER_ALLOWED_CNS,
    names_users: false,
    skip_address: Some(flags::PEER_SKIP_SAN_VERIFICATION),
};

/// Returns the options of client and metrics URLs; `None` if none of them uses TLS. The versions and cipher
/// suites are checked even then, as in etcd.
pub(super) fn client(
    values: &mut Values,
    client_urls: &[ListenUrl],
    metrics_urls: &[ListenUrl],
) -> Result<Option<TlsOptions>> {
    let versions = versions(values)?;
    // Metrics URLs cause no warning: kubeadm uses http for them on purpose.
    CLIENT.warn_of_urls_without_tls(values, client_urls);
    let secure_url = client_urls.iter().find(|url| url.is_tls());
    if secure_url.is_none() && !metrics_urls.iter().any(ListenUrl::is_tls) {
        return Ok(None);
    }
    let Some(certificate) = CLIENT.certificate(values)? else {
        let flags = "TLS key/cert (--cert-file, --key-file) must be provided for";
        return Err(ConfigError::new(match secure_url {
            Some(url) => format!("{flags} client url {url} with HTTPS scheme"),
            None => format!("client {flags} metrics secure url"),
        }));
    };
    CLIENT.options(values, certificate, versions).map(Some)
}

/// Returns the options of peer URLs; `None` if none of them uses TLS.
pub(super) fn peer(values: &mut Values, urls: &[ListenUrl]) -> Result<Option<TlsOptions>> {
    let versions = versions(values)?;
    PEER.warn_of_urls_without_tls(values, urls);
    let secure_urls: Vec<_> = urls.iter().filter(|url| url.is_tls()).collect();
    if secure_urls.is_empty() {
        return Ok(None);
    }
    let Some(certificate) = PEER.certificate(values)? else {
        let urls: Vec<_> = secure_urls.iter().map(|url| url.url().clone()).collect();
        return Err(ConfigError::new(format!(
            "cannot listen on TLS for {}: KeyFile and CertFile are not presented (--peer-cert-file, \
             --peer-key-file)",
            join_urls(&urls)
        )));
    };
    PEER.options(values, certificate, versions).map(Some)
}

impl TlsFlags {
    /// Warns of flags that restrict who may connect and have no effect on URLs without TLS.
    fn warn_of_urls_without_tls(&self, values: &mut Values, urls: &[ListenUrl]) {
        let has_files =
            values.get(&self.cert_file).is_some() || values.get(&self.key_file).is_some();
        let client_cert_auth = values.get(&self.client_cert_auth);
        for url in urls.iter().filter(|url| !url.is_tls()) {
            if has_files {
                values.warn(format!(
                    "scheme is http or unix while key and cert files are present; ignoring key and \
                     cert files for {url}"
                ));
            }
            if client_cert_auth {
                let name = self.client_cert_auth.declaration.name;
                values.warn(format!(
                    "scheme is http or unix while --{name} is enabled; ignoring client cert auth for \
                     {url}"
                ));
            }
        }
    }

    /// Returns the certificate, if there is one. Files take precedence over a self-signed certificate.
    fn certificate(&self, values: &mut Values) -> Result<Option<Certificate>> {
        let auto_tls = values.get(&self.auto_tls);
        match (values.get(&self.cert_file), values.get(&self.key_file)) {
            // etcd refuses a validity of 0 years from a flag and takes it for 1 in a file. Here it is
            // always 1.
            (None, None) => Ok(auto_tls.then(|| Certificate::SelfSigned {
                validity_years: values.get(&flags::SELF_SIGNED_CERT_VALIDITY).max(1),
            })),
            (Some(cert_file), Some(key_file)) => {
                if auto_tls {
                    let name = self.auto_tls.declaration.name;
                    values.warn(format!("ignoring --{name} since certificates are given"));
                }
                Ok(Some(Certificate::Files {
                    cert_file,
                    key_file,
                }))
            }
            (cert, key) => {
                let text = |path: Option<PathBuf>| path.unwrap_or_default().display().to_string();
                let (key, cert) = (text(key), text(cert));
                Err(ConfigError::new(format!(
                    "KeyFile and CertFile must both be present[key: {key}, cert: {cert}]"
                )))
            }
        }
    }

    fn options(
        &self,
        values: &mut Values,
        certificate: Certificate,
        (min_version, max_version): (TlsVersion, TlsVersion),
    ) -> Result<TlsOptions> {
        let tls = TlsOptions::new(certificate).cipher_suites(values.get(&flags::CIPHER_SUITES));
        let mut tls = tls.versions(min_version, max_version);
        let mut client_auth = ClientAuth::default();
        client_auth.trusted_ca_file = values.get(&self.trusted_ca_file);
        client_auth.crl_file = values.get(&self.crl_file);
        client_auth.allowed_hostnames = values.get(&self.allowed_hostnames);
        client_auth.allowed_common_names = values.get(&self.allowed_common_names);
        let client_cert_auth = values.get(&self.client_cert_auth);
        client_auth.names_users = self.names_users && client_cert_auth;
        let skip_address = self.skip_address.as_ref();
        client_auth.verify_address = skip_address.is_some_and(|skip| !values.get(skip));
        let (names, hostnames) = (
            &client_auth.allowed_common_names,
            &client_auth.allowed_hostnames,
        );
        if !names.is_empty() && !hostnames.is_empty() {
            return Err(ConfigError::new(format!(
                "AllowedCNs and AllowedHostnames are mutually exclusive (cns={names:?}, \
                 hostnames={hostnames:?})"
            )));
        }
        if client_cert_auth || client_auth.trusted_ca_file.is_some() {
            tls.client_auth = Some(client_auth);
            return Ok(tls);
        }
        // As in etcd, a client is not asked for a certificate.
        let restrictions = [
            &self.crl_file.declaration,
            &self.allowed_hostnames.declaration,
            &self.allowed_common_names.declaration,
        ];
        for flag in restrictions {
            if values.is_given(flag) {
                values.warn(format!(
                    "--{} has no effect, because no certificate is required of {}s: --{} is missing",
                    flag.name, self.kind, self.client_cert_auth.declaration.name,
                ));
            }
        }
        Ok(tls)
    }
}

/// Returns the lowest and the highest version.
fn versions(values: &Values) -> Result<(TlsVersion, TlsVersion)> {
    let min_version = version(values, &flags::TLS_MIN_VERSION, TlsVersion::V1_2)?;
    let max_version = version(values, &flags::TLS_MAX_VERSION, TlsVersion::V1_3)?;
    if min_version > max_version {
        return Err(ConfigError::new(
            "min version (TLS1.3) is greater than max version (TLS1.2)",
        ));
    }
    if min_version == TlsVersion::V1_3 && !values.get(&flags::CIPHER_SUITES).is_empty() {
        return Err(ConfigError::new(
            "cipher suites cannot be configured when only TLS1.3 is enabled",
        ));
    }
    Ok((min_version, max_version))
}

fn version(values: &Values, flag: &Flag<String>, default: TlsVersion) -> Result<TlsVersion> {
    match values.get(flag).as_str() {
        "" => Ok(default),
        "TLS1.2" => Ok(TlsVersion::V1_2),
        "TLS1.3" => Ok(TlsVersion::V1_3),
        text => Err(ConfigError::new(format!(
            "unexpected TLS version {text:?} (must be one of: TLS1.2, TLS1.3)"
        ))),
    }
}
