//! Options of TLS listeners.

use std::path::PathBuf;

/// The certificate that TLS listeners present and the certificates that they require.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsOptions {
    /// The source of the server's certificate.
    pub certificate: Certificate,
    /// The certificates that clients must present; `None` if clients need no certificate.
    pub client_auth: Option<ClientAuth>,
    /// The cipher suites allowed for TLS 1.2, by their IANA names; empty for the default of the
    /// TLS library.
    pub cipher_suites: Vec<String>,
    /// The lowest version accepted. Default TLS 1.2.
    pub min_version: TlsVersion,
    /// The highest version accepted. Default TLS 1.3.
    pub max_version: TlsVersion,
}

impl TlsOptions {
    /// Returns options with this certificate and the defaults of the fields.
    pub fn new(certificate: Certificate) -> Self {
        Self {
            certificate,
            client_auth: None,
            cipher_suites: Vec::new(),
            min_version: TlsVersion::V1_2,
            max_version: TlsVersion::V1_3,
        }
    }

    /// Requires certificates of clients.
    #[must_use]
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.client_auth = Some(client_auth);
        self
    }

    /// Restricts the cipher suites of TLS 1.2 to those with these IANA names. The suites of TLS 1.3
    /// cannot be chosen, as in Go. Unknown names are ignored if at least one is known.
    #[must_use]
    pub fn cipher_suites(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.cipher_suites = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the lowest and the highest version.
    #[must_use]
    pub fn versions(mut self, min: TlsVersion, max: TlsVersion) -> Self {
        (self.min_version, self.max_version) = (min, max);
        self
    }
}

/// The source of a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// PEM files. A changed file takes effect at the next connection, so that a certificate can be renewed in
    /// place.
    Files {
        /// The certificate chain.
        cert_file: PathBuf,
        /// The private key of the certificate.
        key_file: PathBuf,
    },
    /// A self-signed certificate, created when the server starts.
    SelfSigned {
        /// The validity in years.
        validity_years: u64,
    },
}

/// The certificates that clients must present, or may present if they are [`optional`](Self::optional).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "options that do not depend on each other"
)]
pub struct ClientAuth {
    /// The authorities that sign client certificates, read once; `None` for the authorities of the system.
    pub trusted_ca_file: Option<PathBuf>,
    /// A file with lists of revoked certificates, in PEM or DER. It is read at each handshake. While it is missing
    /// or invalid, all clients are refused.
    pub crl_file: Option<PathBuf>,
    /// The allowed names. A certificate must contain at least one of them. Empty for any name.
    pub allowed_hostnames: Vec<String>,
    /// The allowed common names. A certificate must have one of them. Empty for any name.
    pub allowed_common_names: Vec<String>,
    /// Whether the common name of a certificate authenticates its client as the user of that name.
    pub names_users: bool,
    /// Whether clients without a certificate are accepted. Invalid certificates are refused also then, unless
    /// [`accept_invalid`](Self::accept_invalid) is set.
    pub optional: bool,
    /// Whether clients with an invalid certificate are accepted, as by Go's `tls.RequestClientCert`. They must have its key. Their
    /// identity is [marked](crate::net::ClientIdentity::is_invalid), and the program decides about it.
    pub accept_invalid: bool,
    /// Whether a certificate with addresses or host names must contain the address of its client, or a host
    /// name that resolves to it.
    pub verify_address: bool,
}

impl ClientAuth {
    /// Requires certificates signed by an authority in a PEM file.
    pub fn new(trusted_ca_file: impl Into<PathBuf>) -> Self {
        Self {
            trusted_ca_file: Some(trusted_ca_file.into()),
            ..Self::default()
        }
    }

    /// Rejects the certificates in a file of revoked certificates, by their serial numbers.
    #[must_use]
    pub fn crl_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.crl_file = Some(path.into());
        self
    }

    /// Requires that a certificate contains at least one of these names.
    #[must_use]
    pub fn allowed_hostnames(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allowed_hostnames = names.into_iter().map(Into::into).collect();
        self
    }

    /// Requires that a certificate has one of these common names.
    #[must_use]
    pub fn allowed_common_names(
        mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.allowed_common_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether a certificate with addresses or host names must contain the address of its client, or a
    /// host name that resolves to it.
    #[must_use]
    pub fn verify_address(mut self, verify_address: bool) -> Self {
        self.verify_address = verify_address;
        self
    }

    /// Sets whether clients without a certificate are accepted.
    #[must_use]
    pub fn optional(mut self, optional: bool) -> Self {
        self.optional = optional;
        self
    }

    /// Sets whether clients with an invalid certificate are accepted.
    #[must_use]
    pub fn accept_invalid(mut self, accept_invalid: bool) -> Self {
        self.accept_invalid = accept_invalid;
        self
    }

    /// Sets whether the common name of a certificate authenticates its client as a user.
    #[must_use]
    pub fn names_users(mut self, names_users: bool) -> Self {
        self.names_users = names_users;
        self
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}
