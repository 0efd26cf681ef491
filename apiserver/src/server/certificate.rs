//! The certificate of the server.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use revstore_host::net::{BoundAddress, Certificate, Listener};

use crate::config::Config;
use crate::server::StartError;

/// The files of a certificate and its key, and the authority that clients trust.
#[derive(Debug)]
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// In PEM.
    pub(super) authority: String,
}

impl Files {
    pub(super) fn certificate(&self) -> Certificate {
        Certificate::Files {
            cert_file: self.certificate.clone(),
            key_file: self.key.clone(),
        }
    }
}

/// Returns the certificate of the server: the files of the configuration, those in its certificate directory, or new
/// ones, in that directory or in `temporary`.
pub(super) fn files(
    config: &Config,
    temporary: &Path,
    listener: &Listener,
) -> Result<Files, StartError> {
    let (certificate, key) = match (&config.tls_files, &config.cert_dir) {
        (Some(files), _) => files.clone(),
        (None, directory) => {
            let directory = directory.as_deref().unwrap_or(temporary);
            (
                directory.join("apiserver.crt"),
                directory.join("apiserver.key"),
            )
        }
    };
    if config.tls_files.is_none() && !(certificate.exists() && key.exists()) {
        create(&certificate, &key, listener)?;
    }
    let authority = fs::read_to_string(&certificate).map_err(|source| StartError::File {
        path: certificate.clone(),
        source,
    })?;
    Ok(Files {
        certificate,
        key,
        authority,
    })
}

/// Creates a certificate, signed by an authority of its own, which is the last one in the file.
fn create(certificate: &Path, key: &Path, listener: &Listener) -> Result<(), StartError> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "revstore-apiserver-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut names = vec![
        "localhost".to_owned(),
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    if let BoundAddress::Tcp(address) = listener.address() {
        let address = address.ip().to_string();
        if !names.contains(&address) {
            names.push(address);
        }
    }
    let mut own = CertificateParams::new(names)?;
    own.distinguished_name
        .push(DnType::CommonName, "revstore-apiserver");
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    own.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    let own_key = KeyPair::generate()?;
    let own_pem = own.signed_by(&own_key, &issuer)?.pem();

    let write = |path: &Path, text: String| {
        fs::write(path, text).map_err(|source| StartError::File {
            path: path.to_owned(),
            source,
        })
    };
    if let Some(directory) = certificate.parent() {
        fs::create_dir_all(directory).map_err(|source| StartError::File {
            path: directory.to_owned(),
            source,
        })?;
    }
    write(key, own_key.serialize_pem())?;
    write(certificate, own_pem + &authority_pem)
}
