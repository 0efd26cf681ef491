//! Server certificates, from PEM files or self-signed, and the common names of client certificates.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::{
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use time::OffsetDateTime;
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{Decode, oid::ObjectIdentifier},
};

use crate::net::TlsError;

/// The object identifier `id-at-commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The last year that the dates of a certificate can express.
const LAST_CERTIFICATE_YEAR: i32 = 9999;

/// A certificate and its key in PEM files. The files are read again when they change, because certificates
/// are renewed in place.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    cert_file: PathBuf,
    key_file: PathBuf,
    provider: Arc<CryptoProvider>,
    /// The pair in use, and the modification times of its files. A leaf lock, held to copy or to replace the
    /// pair, never across an await.
    current: Mutex<(ModificationTimes, Arc<CertifiedKey>)>,
}

/// The modification times of the two files; `None` for a file without a readable time.
type ModificationTimes = [Option<SystemTime>; 2];

impl CertificateFiles {
    /// Reads both files.
    pub(super) fn open(
        cert_file: &Path,
        key_file: &Path,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        // The times are read before the files, so that a change between the two is detected later.
        let modified = modification_times(cert_file, key_file);
        let pair = read_pair(cert_file, key_file, provider)?;
        Ok(Self {
            cert_file: cert_file.to_owned(),
            key_file: key_file.to_owned(),
            provider: provider.clone(),
            current: Mutex::new((modified, Arc::new(pair))),
        })
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let modified = modification_times(&self.cert_file, &self.key_file);
        let (known, pair) = self.current.lock().clone();
        if modified == known {
            return Some(pair);
        }
        // While only one of the files is renewed, the certificate and the key do not match. The old pair then
        // stays in use.
        let Ok(renewed) = read_pair(&self.cert_file, &self.key_file, &self.provider) else {
            return Some(pair);
        };
        let renewed = Arc::new(renewed);
        *self.current.lock() = (modified, renewed.clone());
        Some(renewed)
    }
}

fn modification_times(cert_file: &Path, key_file: &Path) -> ModificationTimes {
    [cert_file, key_file].map(|path| fs::metadata(path).and_then(|it| it.modified()).ok())
}

fn read_pair(
    cert_file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(cert_file)?;
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|source| TlsError::File {
        path: key_file.to_owned(),
        source,
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Rejected {
        subject: format!("{} with {}", cert_file.display(), key_file.display()),
        source,
    })
}

/// Reads all certificates of a PEM file. The file must contain at least one.
pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file_error = |source| TlsError::File {
        path: path.to_owned(),
        source,
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(file_error)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(file_error)?;
    if certificates.is_empty() {
        return Err(file_error(pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

/// A self-signed certificate, used for all server names.
#[derive(Debug)]
pub(super) struct SelfSigned(pub(super) Arc<CertifiedKey>);

impl ResolvesServerCert for SelfSigned {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Creates a certificate for `hosts`, valid from today.
pub(super) fn self_signed(
    hosts: &[String],
    validity_years: u64,
    provider: &CryptoProvider,
) -> Result<SelfSigned, TlsError> {
    let today = OffsetDateTime::now_utc();
    let (month, day) = (u8::from(today.month()), today.day());
    let years = i32::try_from(validity_years).unwrap_or(i32::MAX);
    let last_year = today
        .year()
        .saturating_add(years)
        .min(LAST_CERTIFICATE_YEAR);
    let mut params = CertificateParams::new(hosts)?;
    params.not_before = rcgen::date_time_ymd(today.year(), month, day);
    // 29 February does not exist in every year.
    params.not_after = rcgen::date_time_ymd(last_year, month, day.min(28));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key_der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    CertifiedKey::from_der(vec![certificate.der().clone()], key_der, provider)
        .map(|pair| SelfSigned(Arc::new(pair)))
        .map_err(|source| TlsError::Rejected {
            subject: "the self-signed certificate".to_owned(),
            source,
        })
}

/// Returns the common name of a certificate's subject, or `None` if the subject has no common name in UTF-8.
/// If there are several, returns the last one, as in Go.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    // `Raw` does not validate the certificate, because the handshake has verified it.
    let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
    let attributes = certificate.tbs_certificate().subject().iter();
    let names = attributes.filter(|attribute| attribute.oid == COMMON_NAME);
    names
        .filter_map(|name| String::from_utf8(name.value.value().to_vec()).ok())
        .last()
}

#[cfg(test)]
mod tests {
    use rcgen::{DistinguishedName, DnType};
    use rustls::{client::verify_server_name, pki_types::ServerName, server::ParsedCertificate};

    use super::*;

    fn check(names: &[(DnType, &str)], expected: Option<&str>) {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(common_name(certificate.der()).as_deref(), expected);
    }

    #[test]
    fn tl_2_the_common_name_is_found_among_other_attributes() {
        check(&[], None);
        check(&[(DnType::OrganizationName, "ops")], None);
        check(&[(DnType::CommonName, "ann")], Some("ann"));
        let both = [
            (DnType::OrganizationName, "ops"),
            (DnType::CommonName, "änn"),
            (DnType::CountryName, "DE"),
        ];
        check(&both, Some("änn"));
        assert_eq!(common_name(&CertificateDer::from(vec![0x30, 0x80])), None);
    }

    #[test]
    fn tl_1_a_self_signed_certificate_names_the_hosts() {
        let provider = rustls::crypto::ring::default_provider();
        let hosts = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let pair = self_signed(&hosts, 1, &provider).unwrap().0;
        let certificate = ParsedCertificate::try_from(&pair.cert[0]).unwrap();
        for host in hosts {
            let name = ServerName::try_from(host).unwrap();
            verify_server_name(&certificate, &name).unwrap();
        }
        let other = ServerName::try_from("example.com").unwrap();
        verify_server_name(&certificate, &other).unwrap_err();
        self_signed(&[], u64::MAX, &provider).unwrap();
    }
}
