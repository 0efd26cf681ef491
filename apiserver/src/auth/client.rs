//! The user of a connection: that of its client certificate.

use revstore_host::net::ClientIdentity;
use sha2::{Digest as _, Sha256};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode as _;
use x509_cert::der::oid::ObjectIdentifier;

use crate::auth::User;

/// The attribute of users that names their credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The object identifier of the uid in the subject of a certificate.
const UID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");

/// What a connection says about its client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Client {
    /// Nothing.
    #[default]
    Unknown,
    /// It has the certificate of a user.
    User(User),
    /// It has a certificate that is not valid, or of which it is not clear whose it is. Its requests need another
    /// credential.
    Invalid,
}

impl Client {
    /// Returns what the identity of a client says.
    pub(crate) fn new(identity: &ClientIdentity) -> Self {
        if identity.is_invalid {
            return Self::Invalid;
        }
        let name = identity.common_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Self::Unknown;
        }
        let certificate = identity.certificate.as_deref().unwrap_or_default();
        let Some(uid) = uid(certificate) else {
            return Self::Invalid;
        };
        let mut id = "X509SHA256=".to_owned();
        for byte in Sha256::digest(certificate) {
            for digit in [byte >> 4, byte & 15] {
                id.extend(char::from_digit(digit.into(), 16));
            }
        }
        let user = User {
            uid,
            extra: vec![(CREDENTIAL_ID.to_owned(), vec![id])],
            ..User::new(name, identity.organizations.iter().map(String::as_str))
        };
        Self::User(user.authenticated())
    }
}

/// Returns the uid in the subject of a certificate, which is empty if there is none. Returns `None` if it is empty, not a
/// text, or not the only one.
fn uid(certificate: &[u8]) -> Option<String> {
    let Ok(certificate) = CertificateInner::<Raw>::from_der(certificate) else {
        return Some(String::new());
    };
    let attributes = certificate.tbs_certificate().subject().iter();
    let mut uids = attributes.filter(|attribute| attribute.oid == UID);
    let Some(uid) = uids.next() else {
        return Some(String::new());
    };
    let uid = String::from_utf8(uid.value.value().to_vec()).ok()?;
    (!uid.is_empty() && uids.next().is_none()).then_some(uid)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// The identity of a client whose certificate has these uids.
    fn identity(name: &str, uids: &[&str]) -> ClientIdentity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        for uid in uids {
            let oid = vec![1, 3, 6, 1, 4, 1, 57_683, 2];
            let uid_type = DnType::CustomDnType(oid);
            params.distinguished_name.push(uid_type, *uid);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut identity = ClientIdentity::default();
        identity.common_name = Some(name.to_owned());
        identity.organizations = vec!["devs".to_owned()];
        identity.certificate = Some(certificate.der().to_vec().into());
        identity
    }

    #[test]
    fn users_have_the_uid_and_the_hash_of_their_certificate() {
        let Client::User(user) = Client::new(&identity("ann", &["u7"])) else {
            panic!("expected a user");
        };
        assert_eq!((&*user.name, &*user.uid), ("ann", "u7"));
        assert_eq!(user.groups, ["devs", "system:authenticated"]);
        let [(key, values)] = user.extra.as_slice() else {
            panic!("expected an attribute: {:?}", user.extra);
        };
        assert_eq!(key, CREDENTIAL_ID);
        let hash = values[0].strip_prefix("X509SHA256=").unwrap();
        assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Client::User(user) = Client::new(&identity("ann", &[])) else {
            panic!("expected a user");
        };
        assert_eq!(user.uid, "");
        assert_eq!(Client::new(&identity("ann", &[""])), Client::Invalid);
        assert_eq!(Client::new(&identity("", &["u7"])), Client::Unknown);
        let mut invalid = ClientIdentity::default();
        assert_eq!(Client::new(&invalid), Client::Unknown);
        invalid.is_invalid = true;
        assert_eq!(Client::new(&invalid), Client::Invalid);
    }
}
