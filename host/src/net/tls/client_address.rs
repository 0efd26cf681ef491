//! The comparison of the names in a client's certificate with the client's address (TL-4).

use std::{collections::BTreeSet, io, net::IpAddr};

use rustls::pki_types::CertificateDer;
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// The maximum number of host names of a certificate that are resolved. Further names do not count.
const RESOLVED_NAMES_MAX: usize = 16;

/// The names in a certificate that can have an address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) hosts: Vec<String>,
}

/// Checks that a certificate contains the address of its client, or a host name that resolves to it. A
/// certificate without any addresses and host names is accepted, as in etcd. `address` is `None` for a client
/// without an IP address, which only such a certificate may have.
///
/// etcd also resolves the address to names, which a name with a wildcard needs.
///
/// # Errors
/// The certificate is for other addresses, or cannot be decoded.
pub(super) async fn check(
    certificate: &CertificateDer<'_>,
    address: Option<IpAddr>,
) -> io::Result<()> {
    let refused = |reason: String| io::Error::new(io::ErrorKind::PermissionDenied, reason);
    let names = names(certificate).ok_or_else(|| refused("invalid certificate".to_owned()))?;
    if names == Names::default() {
        return Ok(());
    }
    // A client can connect to an IPv6 socket from an IPv4 address.
    let address = address.map(|address| address.to_canonical());
    if let Some(address) = address {
        if names.addresses.contains(&address) {
            return Ok(());
        }
        for host in names.hosts.iter().take(RESOLVED_NAMES_MAX) {
            // A name that cannot be resolved is none of this address.
            let resolved = tokio::net::lookup_host((host.as_str(), 0)).await;
            let mut resolved = resolved.into_iter().flatten();
            if resolved.any(|found| found.ip().to_canonical() == address) {
                return Ok(());
            }
        }
    }
    Err(refused(format!(
        "the certificate of the client is for {names:?}, not for its address {address:?}"
    )))
}

/// Returns the alternative names of a certificate's subject; `None` if they cannot be decoded.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Option<Names> {
    let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
    let extension = certificate.tbs_certificate().get_extension();
    let Some((_, SubjectAltName(alternatives))) = extension.ok()? else {
        return Some(Names::default());
    };
    let mut names = Names::default();
    for name in alternatives {
        match name {
            GeneralName::DnsName(name) => names.hosts.push(name.to_string()),
            GeneralName::IpAddress(bytes) => {
                let address = match *bytes.as_bytes() {
                    [a, b, c, d] => IpAddr::from([a, b, c, d]),
                    ref bytes => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
                };
                names.addresses.insert(address.to_canonical());
            }
            _ => {}
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    async fn is_accepted(names: &[&str], address: Option<&str>) -> bool {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let address = address.map(|address| address.parse().unwrap());
        check(certificate.der(), address).await.is_ok()
    }

    #[tokio::test]
    async fn tl_4_a_certificate_has_no_names_or_those_of_its_client() {
        for (names, address, expected) in [
            (&[] as &[&str], Some("10.0.0.1"), true),
            (&[], None, true),
            (&["10.0.0.1"], Some("10.0.0.1"), true),
            (&["10.0.0.1"], Some("::ffff:10.0.0.1"), true),
            (&["10.0.0.1"], Some("10.0.0.2"), false),
            (&["10.0.0.1"], None, false),
            (&["::1", "10.0.0.1"], Some("::1"), true),
            (&["10.0.0.2", "localhost"], Some("127.0.0.1"), true),
            (&["localhost"], Some("10.0.0.1"), false),
            (&["*.localhost"], Some("127.0.0.1"), false),
            (&["localhost"], None, false),
        ] {
            assert_eq!(
                is_accepted(names, address).await,
                expected,
                "{names:?} {address:?}"
            );
        }
        let garbage = CertificateDer::from(vec![0x30, 0x80]);
        check(&garbage, None).await.unwrap_err();
    }
}
