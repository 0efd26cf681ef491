//! The list of revoked client certificates.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer,
    pem::{self, PemObject},
};
use tokio::{sync::Mutex, task};
use x509_cert::der::{
    self, Decode, Reader, SliceReader, Tag, TagNumber,
    asn1::{AnyRef, BitStringRef, SequenceRef},
};

/// The maximum size of a file of revoked certificates, about 1.6 million of them. A larger file is not read, and
/// the certificates of all clients are refused.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A file with lists of revoked certificates (TL-5). It is read at each handshake, because it is replaced in
/// place. If it cannot be read or decoded, the certificates of all clients are refused.
///
/// As in etcd, only the serial numbers in the file count. The signatures, issuers and dates of its lists do not.
#[derive(Debug)]
pub(super) struct RevocationList {
    path: PathBuf,
    /// The number of reads of the file that have started.
    started: AtomicU64,
    /// The result of the last read. No other lock is taken while it is held. It is held while the file is read,
    /// by the thread that reads, so that at most one thread does so, also if a read takes longer than the
    /// handshakes that wait for it.
    last: Arc<Mutex<LastRead>>,
}

/// The result of a read of the file.
#[derive(Debug, Default)]
struct LastRead {
    /// Which read it was: the value of [`RevocationList::started`].
    number: u64,
    /// `None` before the first read.
    revoked: Option<Result<Arc<RevokedCertificates>, RevocationError>>,
}

/// The certificates that a file lists.
#[derive(Debug)]
struct RevokedCertificates {
    /// The content of the file, so that the same content is decoded once.
    content: Vec<u8>,
    /// The serial numbers in big-endian order, without leading zeros.
    serials: HashSet<Box<[u8]>>,
}

/// The certificate of a client is revoked, or it is not known whether it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RevocationError {
    /// One of the certificates that the client sent is in the list.
    #[error("certificate serial {serial} revoked")]
    Revoked {
        /// Its serial number in hexadecimal digits.
        serial: String,
    },
    /// The file cannot be read, or is not a list of revoked certificates.
    #[error("cannot read the revoked certificates in {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A certificate of the client has no serial number.
    #[error("certificate without a serial number")]
    NoSerial,
}

impl RevocationList {
    /// Returns the list in a file, which is not read yet.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            started: AtomicU64::new(0),
            last: Arc::default(),
        }
    }

    /// Reads the file and looks up each of `certificates`, whoever issued them.
    ///
    /// # Errors
    /// One of them is revoked, or the file is not a list of revoked certificates.
    pub(super) async fn check(
        self: &Arc<Self>,
        certificates: &[CertificateDer<'_>],
    ) -> Result<(), RevocationError> {
        let revoked = self.load().await?;
        for certificate in certificates {
            let serial = serial(certificate).map_err(|_| RevocationError::NoSerial)?;
            if revoked.serials.contains(serial) {
                let digits = serial.iter().map(|byte| format!("{byte:02x}"));
                return Err(RevocationError::Revoked {
                    serial: digits.collect(),
                });
            }
        }
        Ok(())
    }

    /// Returns the content of the file as it is at some time during this call. Simultaneous calls share a read.
    async fn load(self: &Arc<Self>) -> Result<Arc<RevokedCertificates>, RevocationError> {
        // SeqCst, with `read`: a read with a higher number has started later. A weaker load could miss the number
        // of a read that is over, and that read may have missed a change that precedes this handshake.
        let arrived = self.started.load(Ordering::SeqCst);
        let mut last = self.last.clone().lock_owned().await;
        if last.number > arrived
            && let Some(revoked) = &last.revoked
        {
            return revoked.clone();
        }
        let this = self.clone();
        // The thread owns the lock: if this handshake ends first, no other one starts a second read.
        let read = task::spawn_blocking(move || this.read(&mut last));
        read.await.unwrap_or_else(|error| Err(self.error(&error)))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// The file is not a list of revoked certificates.
    pub(super) fn try_read(&self) -> Result<(), RevocationError> {
        self.read(&mut LastRead::default()).map(|_| ())
    }

    fn read(&self, last: &mut LastRead) -> Result<Arc<RevokedCertificates>, RevocationError> {
        last.number = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        let content = read_file(&self.path).map_err(|error| self.error(&error));
        let revoked = content.and_then(|content| match &last.revoked {
            // The contents are compared: the date of the file may be the same after a change.
            Some(Ok(known)) if known.content == content => Ok(known.clone()),
            _ => {
                let serials = decode(&content).map_err(|reason| self.error(&reason))?;
                Ok(Arc::new(RevokedCertificates { content, serials }))
            }
        });
        last.revoked = Some(revoked.clone());
        revoked
    }

    fn error(&self, reason: &dyn ToString) -> RevocationError {
        RevocationError::File {
            path: self.path.clone(),
            reason: reason.to_string(),
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe or a device could block the thread or have no end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "more than {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(content)
}

/// Returns the serial numbers of one list in DER, or of all lists in PEM.
fn decode(content: &[u8]) -> Result<HashSet<Box<[u8]>>, String> {
    let mut serials = HashSet::new();
    let Err(error) = add_serials(content, &mut serials) else {
        return Ok(serials);
    };
    serials.clear();
    let lists: Result<Vec<_>, pem::Error> =
        CertificateRevocationListDer::pem_slice_iter(content).collect();
    let lists = lists.map_err(|error| error.to_string())?;
    if lists.is_empty() {
        return Err(format!(
            "neither a list in PEM (X509 CRL) nor one in DER: {error}"
        ));
    }
    for list in lists {
        add_serials(&list, &mut serials).map_err(|error| error.to_string())?;
    }
    Ok(serials)
}

/// Adds the serial numbers of a list in DER. The list may have version 1, which has no version number.
///
/// This is not [`x509_cert::crl::CertificateList`], which has only version 2 and allocates each entry with its
/// extensions.
fn add_serials(list: &[u8], serials: &mut HashSet<Box<[u8]>>) -> der::Result<()> {
    let mut file = SliceReader::new(list)?;
    let mut list = sequence(&mut file)?;
    file.finish()?;
    let mut fields = sequence(&mut list)?;
    let _algorithm = sequence(&mut list)?;
    let _signature = BitStringRef::decode(&mut list)?;
    list.finish()?;

    if next_is(&fields, Tag::Integer) {
        fields.tlv_bytes()?;
    }
    let _algorithm = sequence(&mut fields)?;
    let _issuer = sequence(&mut fields)?;
    time(&mut fields)?;
    if next_is(&fields, Tag::UtcTime) || next_is(&fields, Tag::GeneralizedTime) {
        time(&mut fields)?;
    }
    if next_is(&fields, Tag::Sequence) {
        let mut entries = sequence(&mut fields)?;
        while !entries.is_finished() {
            let mut entry = sequence(&mut entries)?;
            serials.insert(integer(&mut entry)?.into());
            time(&mut entry)?;
            if !entry.is_finished() {
                let _extensions = sequence(&mut entry)?;
            }
            entry.finish()?;
        }
    }
    let extensions = Tag::ContextSpecific {
        constructed: true,
        number: TagNumber(0),
    };
    if next_is(&fields, extensions) {
        fields.tlv_bytes()?;
    }
    fields.finish()
}

/// Returns the serial number of a certificate of any version.
fn serial<'a>(certificate: &'a CertificateDer<'_>) -> der::Result<&'a [u8]> {
    let mut certificate = sequence(&mut SliceReader::new(certificate)?)?;
    let mut fields = sequence(&mut certificate)?;
    if !next_is(&fields, Tag::Integer) {
        let _version = fields.tlv_bytes()?;
    }
    integer(&mut fields)
}

/// Reads a sequence and returns a reader of its content.
fn sequence<'a>(reader: &mut SliceReader<'a>) -> der::Result<SliceReader<'a>> {
    SliceReader::new(<&SequenceRef>::decode(reader)?.as_bytes())
}

/// Reads an integer and returns its bytes without leading zeros.
fn integer<'a>(reader: &mut SliceReader<'a>) -> der::Result<&'a [u8]> {
    let value = AnyRef::decode(reader)?;
    value.header().tag().assert_eq(Tag::Integer)?;
    let value = value.value();
    let zeros = value.iter().take_while(|&&byte| byte == 0).count();
    Ok(&value[zeros..])
}

fn time(reader: &mut SliceReader<'_>) -> der::Result<()> {
    let value = AnyRef::decode(reader)?;
    match value.header().tag() {
        Tag::UtcTime | Tag::GeneralizedTime => Ok(()),
        tag => Err(tag.unexpected_error(Some(Tag::UtcTime)).into()),
    }
}

fn next_is(reader: &SliceReader<'_>, tag: Tag) -> bool {
    Tag::peek(reader).is_ok_and(|next| next == tag)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationList,
        CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams,
        SerialNumber, date_time_ymd,
    };
    use tempfile::TempDir;

    use super::*;

    fn list(serials: impl IntoIterator<Item = u64>) -> CertificateRevocationList {
        let entries = serials.into_iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2000, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2000, 1, 1),
            next_update: date_time_ymd(2001, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: entries.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let mut issuer = CertificateParams::default();
        issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(issuer, KeyPair::generate().unwrap());
        list.signed_by(&issuer).unwrap()
    }

    fn certificate(serial: u64) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate.der().clone()
    }

    /// Returns a list in a new file.
    fn open(content: &[u8]) -> (TempDir, Arc<RevocationList>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("crl");
        fs::write(&path, content).unwrap();
        (directory, Arc::new(RevocationList::new(&path)))
    }

    fn revoked(serial: &str) -> Result<(), RevocationError> {
        let serial = serial.to_owned();
        Err(RevocationError::Revoked { serial })
    }

    /// Checks that no certificate is accepted, and the end of the error.
    async fn check_refused(list: &Arc<RevocationList>, reason: &str) {
        let error = list.check(&[certificate(1)]).await.unwrap_err().to_string();
        let expected = format!(
            "cannot read the revoked certificates in {}: {reason}",
            list.path.display()
        );
        assert!(error.starts_with(&expected), "{error}");
    }

    #[tokio::test]
    async fn tl_5_a_change_that_keeps_length_and_date_is_noticed() {
        let mut content = list([5]).der().to_vec();
        let (_directory, revocations) = open(&content);
        let modified = fs::metadata(&revocations.path).unwrap().modified().unwrap();
        let (first, second) = ([certificate(5)], [certificate(6)]);
        assert_eq!(revocations.check(&first).await, revoked("05"));
        assert_eq!(revocations.check(&second).await, Ok(()));

        let entry = [2, 1, 5, 0x17];
        let serial = content.windows(4).position(|it| it == entry).unwrap() + 2;
        content[serial] = 6;
        let mut file = File::options().write(true).open(&revocations.path).unwrap();
        file.write_all(&content).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(revocations.check(&first).await, Ok(()));
        assert_eq!(
            revocations.check(&[first, second].concat()).await,
            revoked("06")
        );
    }

    #[tokio::test]
    async fn tl_5_all_lists_of_a_file_in_pem_count() {
        let [first, second] = [5, 6].map(|serial| list([serial]).pem().unwrap());
        let (_directory, revocations) = open(format!("Text\n{first}{second}").as_bytes());
        for (serial, digits) in [(5, "05"), (6, "06")] {
            assert_eq!(
                revocations.check(&[certificate(serial)]).await,
                revoked(digits)
            );
        }
        assert_eq!(revocations.check(&[certificate(7)]).await, Ok(()));

        // One of the lists is incomplete, or is something else.
        let half = &second[..second.len() / 2];
        fs::write(&revocations.path, format!("{first}{half}")).unwrap();
        check_refused(&revocations, "").await;
        let other = first.replacen("\nMI", "\nMA", 1);
        fs::write(&revocations.path, format!("{second}{other}")).unwrap();
        check_refused(&revocations, "").await;
    }

    #[tokio::test]
    async fn tl_5_a_file_that_is_no_list_refuses_all_clients() {
        let (directory, revocations) = open(b"");
        check_refused(
            &revocations,
            "neither a list in PEM (X509 CRL) nor one in DER: ",
        )
        .await;
        let own = certificate(5).to_vec();
        fs::write(&revocations.path, own).unwrap();
        check_refused(
            &revocations,
            "neither a list in PEM (X509 CRL) nor one in DER: ",
        )
        .await;
        let file = File::create(&revocations.path).unwrap();
        file.set_len(FILE_BYTES_MAX + 1).unwrap();
        check_refused(&revocations, "more than 67108864 bytes").await;
        fs::remove_file(&revocations.path).unwrap();
        check_refused(&revocations, "No such file or directory").await;
        std::os::unix::fs::symlink("/dev/zero", directory.path().join("crl")).unwrap();
        check_refused(&revocations, "not a regular file").await;
    }

    #[tokio::test]
    async fn tl_5_a_list_of_100_000_certificates_is_searched() {
        let (_directory, revocations) = open(list((1_000..).step_by(2).take(100_000)).der());
        for (serial, expected) in [
            (1_000, revoked("03e8")),
            (200_998, revoked("031126")),
            (1_001, Ok(())),
            (201_000, Ok(())),
        ] {
            assert_eq!(revocations.check(&[certificate(serial)]).await, expected);
        }
        let known = revocations.load().await.unwrap();
        let again = revocations.load().await.unwrap();
        assert!(
            Arc::ptr_eq(&known, &again),
            "the same content is decoded twice"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tl_5_a_check_sees_every_change_that_precedes_it() {
        let contents = [list([5]), list([6])].map(|list| list.der().to_vec());
        let (directory, revocations) = open(&contents[0]);
        let new = directory.path().join("new");
        let five = certificate(5);
        let mut earlier = Vec::new();
        for round in 1..50 {
            fs::write(&new, &contents[round % 2]).unwrap();
            fs::rename(&new, &revocations.path).unwrap();
            let expected = if round % 2 == 0 {
                revoked("05")
            } else {
                Ok(())
            };
            let checks: Vec<_> = (0..16)
                .map(|_| {
                    let (revocations, five) = (revocations.clone(), five.clone());
                    tokio::spawn(async move { revocations.check(&[five]).await })
                })
                .collect();
            for (number, check) in checks.into_iter().enumerate() {
                if number % 4 == 0 {
                    // Runs while the file changes. Either result is right.
                    earlier.push(check);
                } else {
                    assert_eq!(check.await.unwrap(), expected, "round {round}");
                }
            }
        }
        for check in earlier {
            let result = check.await.unwrap();
            assert!(result == Ok(()) || result == revoked("05"), "{result:?}");
        }
    }
}
