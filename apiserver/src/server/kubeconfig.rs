//! The kubeconfig of a server.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::server::StartError;

/// Returns a token that cannot be guessed.
pub(super) fn new_token() -> String {
    let mut bytes = [0_u8; 24];
    // The system has random numbers; a failure here is one of the kernel, and a token of zeros would be worse.
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a kubeconfig with one cluster, one user and one context. JSON strings are valid in YAML.
pub(super) fn text(server: &str, authority: Option<&str>, token: &str) -> String {
    let authority = authority.map_or_else(String::new, |pem| {
        format!("    certificate-authority-data: {}\n", STANDARD.encode(pem))
    });
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: revstore\n  \
           cluster:\n    \
             server: {server}\n\
         {authority}\
         users:\n\
         - name: admin\n  \
           user:\n    \
             token: {token}\n\
         contexts:\n\
         - name: revstore\n  \
           context:\n    \
             cluster: revstore\n    \
             user: admin\n\
         current-context: revstore\n"
    )
}

/// Writes a kubeconfig to a file that only its owner can read. It is complete when it has its name.
pub(super) fn write(path: &Path, text: &str) -> Result<(), StartError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&temporary, path)
    };
    written().map_err(|source| StartError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_yaml_with_the_credentials() {
        let text = text("https://127.0.0.1:1", Some("PEM"), "secret");
        assert!(
            text.contains(
                "    server: https://127.0.0.1:1\n    certificate-authority-data: UEVN\n"
            )
        );
        assert!(text.contains("    token: secret\n"));
        assert_ne!(new_token(), new_token());
    }
}
