//! Server certificates, from PEM files or self-signed, and the common names of client certificates.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
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
use tracing::warn;
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{Decode, oid::ObjectIdentifier},
};

use crate::net::TlsError;

/// The object identifier `id-at-commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The object identifier `id-at-organizationName`.
const ORGANIZATION_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// The last year that the dates of a certificate can express.
const LAST_CERTIFICATE_YEAR: i32 = 9999;

/// The maximum size of a file with a certificate or a key.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A certificate and its key in PEM files. As in etcd, the files are read at each handshake, because certificates
/// are renewed in place.
///
/// The contents are compared: the date and the size of a file may be the same after a change.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    cert_file: PathBuf,
    key_file: PathBuf,
    provider: Arc<CryptoProvider>,
    /// A leaf lock, held to compare and copy or to replace the pair, never across an await.
    current: Mutex<Current>,
}

/// The pair in use.
#[derive(Debug)]
struct Current {
    pair: Arc<CertifiedKey>,
    /// The contents of its files.
    contents: Contents,
    /// The error of the last contents that could not be used, so that it is logged once.
    error: Option<String>,
}

/// The contents of the file of the certificate and of that of the key.
type Contents = [Vec<u8>; 2];

impl CertificateFiles {
    /// Reads both files.
    pub(super) fn open(
        cert_file: &Path,
        key_file: &Path,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let contents = read_files(cert_file, key_file)?;
        let pair = Arc::new(decode_pair(&contents, cert_file, key_file, provider)?);
        Ok(Self {
            cert_file: cert_file.to_owned(),
            key_file: key_file.to_owned(),
            provider: provider.clone(),
            current: Mutex::new(Current {
                pair,
                contents,
                error: None,
            }),
        })
    }

    /// Returns the pair in the files if it is not the one in use.
    fn renewed(&self) -> Result<Option<(Arc<CertifiedKey>, Contents)>, TlsError> {
        let contents = read_files(&self.cert_file, &self.key_file)?;
        if contents == self.current.lock().contents {
            return Ok(None);
        }
        let pair = decode_pair(&contents, &self.cert_file, &self.key_file, &self.provider)?;
        Ok(Some((Arc::new(pair), contents)))
    }

    /// Reads the files, and returns the pair to use.
    fn current(&self) -> Arc<CertifiedKey> {
        let renewed = self.renewed();
        let mut current = self.current.lock();
        match renewed {
            Ok(renewed) => {
                current.error = None;
                if let Some((pair, contents)) = renewed {
                    current.pair = pair;
                    current.contents = contents;
                }
                current.pair.clone()
            }
            // While only one of the files is renewed, the certificate and the key do not match. The old pair then
            // stays in use.
            Err(error) => {
                let error = error.to_string();
                let pair = current.pair.clone();
                let is_new = current.error.as_ref() != Some(&error);
                current.error = Some(error.clone());
                drop(current);
                if is_new {
                    warn!(error, "the previous certificate stays in use");
                }
                pair
            }
        }
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn read_files(cert_file: &Path, key_file: &Path) -> Result<Contents, TlsError> {
    Ok([read_file(cert_file)?, read_file(key_file)?])
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let file_error = |error| TlsError::File {
        path: path.to_owned(),
        source: pem::Error::Io(error),
    };
    let file = File::open(path).map_err(file_error)?;
    let mut content = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content);
    if read.map_err(file_error)? as u64 > FILE_BYTES_MAX {
        return Err(file_error(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(content)
}

fn decode_pair(
    [certificates, key]: &Contents,
    cert_file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = decode_certificates(certificates, cert_file)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| TlsError::File {
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
    decode_certificates(&read_file(path)?, path)
}

/// Decodes all certificates of `content`, which is the PEM file `path`.
fn decode_certificates(
    content: &[u8],
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file_error = |source| TlsError::File {
        path: path.to_owned(),
        source,
    };
    let certificates = CertificateDer::pem_slice_iter(content);
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

/// The names in the subject of a certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// The last common name, as in Go; `None` if there is none in UTF-8.
    pub(super) common_name: Option<String>,
    /// The organizations in UTF-8, in their order.
    pub(super) organizations: Vec<String>,
}

impl Subject {
    /// Reads the subject of a certificate. It is empty if the certificate cannot be decoded.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Self {
        let mut subject = Self::default();
        // `Raw` does not validate the certificate, because the handshake has verified it.
        let Ok(certificate) = CertificateInner::<Raw>::from_der(certificate) else {
            return subject;
        };
        for attribute in certificate.tbs_certificate().subject().iter() {
            let Ok(name) = String::from_utf8(attribute.value.value().to_vec()) else {
                continue;
            };
            match attribute.oid {
                COMMON_NAME => subject.common_name = Some(name),
                ORGANIZATION_NAME => subject.organizations.push(name),
                _ => {}
            }
        }
        subject
    }
}

/// Returns the [common name](Subject::common_name) of a certificate.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    Subject::read(certificate).common_name
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use rcgen::{DistinguishedName, DnType};
    use rustls::{client::verify_server_name, pki_types::ServerName, server::ParsedCertificate};

    use super::*;

    /// Writes a new certificate and its key, and gives both files the time `modified`. Returns the certificate.
    fn write_pair(directory: &Path, modified: SystemTime) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        write(directory, "cert.pem", &certificate.pem(), modified);
        write(directory, "key.pem", &key.serialize_pem(), modified);
        certificate.der().to_vec()
    }

    fn write(directory: &Path, name: &str, content: &str, modified: SystemTime) {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(modified).unwrap();
    }

    #[test]
    fn tl_1_files_with_the_same_date_are_read_again_and_others_than_a_pair_are_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let modified = SystemTime::UNIX_EPOCH;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let first = write_pair(directory, modified);
        let (cert_file, key_file) = (directory.join("cert.pem"), directory.join("key.pem"));
        let files = CertificateFiles::open(&cert_file, &key_file, &provider).unwrap();
        let check = |expected: &[u8]| assert_eq!(*files.current().cert[0], *expected);
        check(&first);
        let second = write_pair(directory, modified);
        check(&second);
        let other_key = KeyPair::generate().unwrap().serialize_pem();
        for key in [
            other_key.as_str(),
            "",
            "text",
            &" ".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1),
        ] {
            write(directory, "key.pem", key, modified);
            check(&second);
        }
        fs::remove_file(&key_file).unwrap();
        check(&second);
        check(&write_pair(directory, modified));
    }

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
    fn organizations_are_read_in_their_order() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, name) in [
            (DnType::OrganizationName, "system:masters"),
            (DnType::CommonName, "admin"),
        ] {
            params.distinguished_name.push(kind, name);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let subject = Subject::read(certificate.der());
        assert_eq!(subject.common_name.as_deref(), Some("admin"));
        assert_eq!(subject.organizations, ["system:masters"]);
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
