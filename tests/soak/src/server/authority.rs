//! The authority of a soak: certificates of the server and the clients, and lists of revoked ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use etcd_client::{Certificate, Identity, TlsOptions};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::BoxError;

/// A certificate authority with its files.
#[derive(Debug)]
pub(crate) struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    next_serial: AtomicU64,
    revoked: Mutex<Vec<u64>>,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) serial: u64,
    certificate: String,
    key: String,
}

impl Authority {
    /// Creates an authority, and writes all files that a server needs into `directory`.
    pub(crate) fn new(directory: &Path) -> Result<Self, BoxError> {
        let mut params = params("soak authority", 1)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let authority = Self {
            directory: directory.to_owned(),
            issuer: Issuer::new(params, key),
            certificate,
            next_serial: AtomicU64::new(2),
            revoked: Mutex::default(),
        };
        authority.write("ca.crt", authority.certificate.pem().as_bytes())?;
        authority.rotate()?;
        authority.write_revoked(&[])?;
        Ok(authority)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Issues a certificate.
    pub(crate) fn issue(&self, name: &str) -> Result<Pair, BoxError> {
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        let key = KeyPair::generate()?;
        let certificate = params(name, serial)?.signed_by(&key, &self.issuer)?;
        Ok(Pair {
            serial,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Exchanges the certificate of the server and its key; returns the new one.
    pub(crate) fn rotate(&self) -> Result<CertificateDer<'static>, BoxError> {
        let pair = self.issue("server")?;
        // A handshake between the two writes finds a key that does not match, and fails; etcd reads
        // both files at each handshake as well. One file with both is exchanged at once.
        let both = format!("{}{}", pair.certificate, pair.key);
        self.write("server.pem", both.as_bytes())?;
        Ok(CertificateDer::from_pem_slice(pair.certificate.as_bytes())?)
    }

    /// Adds a certificate to the list of revoked ones.
    pub(crate) fn revoke(&self, serial: u64) -> Result<(), BoxError> {
        let revoked = {
            let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
            revoked.push(serial);
            revoked.clone()
        };
        self.write_revoked(&revoked)
    }

    fn write_revoked(&self, serials: &[u64]) -> Result<(), BoxError> {
        let entries = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2000, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2000, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(serials.len() as u64 + 1),
            issuing_distribution_point: None,
            revoked_certs: entries.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        // etcd reads DER.
        self.write("revoked.crl", list.signed_by(&self.issuer)?.der())
    }

    /// Replaces a file as a whole.
    fn write(&self, file: &str, content: &[u8]) -> Result<(), BoxError> {
        let new = self.path(&format!("{file}.new"));
        fs::write(&new, content)?;
        fs::rename(new, self.path(file))?;
        Ok(())
    }

    /// Returns the TLS options of a stock client.
    pub(crate) fn options(&self, pair: &Pair) -> TlsOptions {
        TlsOptions::new()
            .ca_certificate(Certificate::from_pem(self.certificate.pem()))
            .identity(Identity::from_pem(&pair.certificate, &pair.key))
            .domain_name("127.0.0.1")
    }

    /// Returns the TLS options of a client that writes frames itself, with the given protocol.
    pub(crate) fn config(
        &self,
        pair: &Pair,
        protocol: &[u8],
    ) -> Result<Arc<ClientConfig>, BoxError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone())?;
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }
}

fn params(name: &str, serial: u64) -> Result<CertificateParams, BoxError> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    Ok(params)
}
