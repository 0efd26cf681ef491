use std::path::PathBuf;
use std::time::Duration;

/// The options of the tokens of service accounts, which correspond to flags of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceAccountOptions {
    /// The issuers whose tokens are accepted; the first one is that of new tokens. Without one there is a default.
    pub issuers: Vec<String>,
    /// The URL of the public keys in the document about the issuer; `None` for that of this server.
    pub jwks_uri: Option<String>,
    /// Files with the keys of the tokens that are accepted. Without one they are those of the key that signs.
    pub key_files: Vec<PathBuf>,
    /// The file with the key that signs tokens; `None` for a new one.
    pub signing_key_file: Option<PathBuf>,
    /// Who tokens are for; without one the issuers.
    pub audiences: Vec<String>,
    /// The longest lifetime of a token.
    pub max_expiration: Option<Duration>,
    /// Whether tokens that kubelets ask for pods live for a year.
    pub extend_expiration: bool,
}

impl Default for ServiceAccountOptions {
    fn default() -> Self {
        Self {
            issuers: Vec::new(),
            jwks_uri: None,
            key_files: Vec::new(),
            signing_key_file: None,
            audiences: Vec::new(),
            max_expiration: None,
            extend_expiration: true,
        }
    }
}
