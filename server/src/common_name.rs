//! The name that a certificate is made out to.

use rustls::pki_types::CertificateDer;
use yasna::{ASN1Result, BERReaderSeq, Tag, models::ObjectIdentifier};

/// `id-at-commonName`.
const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];

/// The common name of the subject: the last, if there are more, as in Go. Nothing if there is none,
/// or one in an alphabet that is not used any more.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let name = yasna::parse_der(certificate, |reader| {
        reader.read_sequence(|certificate| {
            let name = certificate.next().read_sequence(of_tbs)?;
            skip_rest(certificate)?;
            Ok(name)
        })
    });
    name.ok().flatten()
}

/// The part that is signed.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is bound to one lifetime"
)]
fn of_tbs(tbs: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Option<String>> {
    let _version = tbs
        .read_optional(|reader| reader.read_tagged(Tag::context(0), |reader| reader.read_der()))?;
    let (_serial, _signature) = (tbs.next().read_der()?, tbs.next().read_der()?);
    let (_issuer, _validity) = (tbs.next().read_der()?, tbs.next().read_der()?);
    let mut name = None;
    tbs.next().read_sequence_of(|names| {
        names.read_set_of(|attribute| {
            if let Some(found) = attribute.read_sequence(of_attribute)? {
                name = Some(found);
            }
            Ok(())
        })
    })?;
    skip_rest(tbs)?;
    Ok(name)
}

fn of_attribute(attribute: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Option<String>> {
    let kind = attribute.next().read_oid()?;
    let text = attribute.next().read_tagged_der()?;
    let is_name = kind == ObjectIdentifier::from_slice(&COMMON_NAME);
    Ok(is_name
        .then(|| String::from_utf8(text.value().to_vec()).ok())
        .flatten())
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is bound to one lifetime"
)]
fn skip_rest(sequence: &mut BERReaderSeq<'_, '_>) -> ASN1Result<()> {
    while sequence
        .read_optional(|reader| reader.read_der())?
        .is_some()
    {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

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
    fn tl_2_the_common_name_is_found_among_others() {
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
}
