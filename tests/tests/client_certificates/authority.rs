//! Authorities, the certificates that they issue, and the clients that present them.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationList,
    CertificateRevocationListParams, DistinguishedName, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, SigningKey as _, date_time_ymd,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pair: Pair,
}

/// A certificate with its key, and the certificates of its issuers that its client sends.
#[derive(Clone)]
pub(crate) struct Pair {
    certificate: CertificateDer<'static>,
    pem: String,
    pub(crate) key: Arc<KeyPair>,
    chain: Vec<CertificateDer<'static>>,
}

/// Returns the parameters of a certificate for 127.0.0.1, which are fixed except for these.
pub(crate) fn params(name: &str, serial: &[u8], is_ca: IsCa) -> CertificateParams {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(serial));
    if let IsCa::Ca(_) = is_ca {
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
    }
    params.is_ca = is_ca;
    params
}

/// An authority that may issue the certificates of others.
pub(crate) fn any_ca() -> IsCa {
    IsCa::Ca(BasicConstraints::Unconstrained)
}

impl Authority {
    pub(crate) fn root(name: &str) -> Self {
        let params = params(name, &[1], any_ca());
        let pair = Pair::self_signed(&params);
        Self::new(params, pair)
    }

    /// Issues the certificate of another authority.
    pub(crate) fn authority(&self, params: CertificateParams) -> Self {
        let pair = self.issue(&params);
        Self::new(params, pair)
    }

    fn new(params: CertificateParams, pair: Pair) -> Self {
        let key = KeyPair::from_pem(&pair.key.serialize_pem()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            pair,
        }
    }

    pub(crate) fn pair(&self) -> &Pair {
        &self.pair
    }

    pub(crate) fn issue(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair::new(&certificate, key)
    }

    /// Returns a list of revoked certificates that is valid until 1 January of `year`.
    pub(crate) fn crl(&self, serials: &[&[u8]], year: i32) -> CertificateRevocationList {
        let entries = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: date_time_ymd(2000, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2000, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: entries.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap()
    }
}

impl Pair {
    fn new(certificate: &rcgen::Certificate, key: KeyPair) -> Self {
        Self {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            key: Arc::new(key),
            chain: Vec::new(),
        }
    }

    pub(crate) fn self_signed(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self::new(&params.self_signed(&key).unwrap(), key)
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn with_chain(mut self, chain: &[&Authority]) -> Self {
        let chain = chain.iter().map(|it| it.pair.certificate.clone());
        self.chain = chain.collect();
        self
    }

    /// Changes the common name without a new signature.
    pub(crate) fn changed(mut self) -> Self {
        let mut certificate = self.certificate.to_vec();
        let name = certificate
            .windows(4)
            .rposition(|it| it == b"leaf" || it == b"auth");
        certificate[name.unwrap()] = b'x';
        self.certificate = certificate.into();
        self
    }

    /// Returns the configurations of clients that present the certificate with TLS 1.2 and with TLS 1.3.
    pub(crate) fn client(&self, server: &Authority) -> [(&'static str, Arc<ClientConfig>); 2] {
        let mut roots = RootCertStore::empty();
        roots.add(server.pair.certificate.clone()).unwrap();
        let mut chain = vec![self.certificate.clone()];
        chain.extend_from_slice(&self.chain);
        [("TLS 1.2", &TLS12), ("TLS 1.3", &TLS13)].map(|(name, version)| {
            let builder = ClientConfig::builder_with_protocol_versions(&[version]);
            let builder = builder.with_root_certificates(roots.clone());
            let key = PrivateKeyDer::Pkcs8(self.key.serialize_der().into());
            let key = any_supported_type(&key).unwrap();
            // Not `with_client_auth_cert`, which rejects certificates of version 1.
            let resolver = SingleCertAndKey::from(CertifiedKey::new(chain.clone(), key));
            let config = builder.with_client_cert_resolver(Arc::new(resolver));
            (name, Arc::new(config))
        })
    }
}

/// Returns a certificate of version 1, which has no version and no extensions, with the values of `pair`.
pub(crate) fn version_1_certificate(pair: &Pair, issuer: &Authority) -> Pair {
    let parts = parts(&pair.certificate);
    let signed = self::parts(parts[0]);
    let signed = encode(0x30, &signed[1..7]);
    let signature = issuer.issuer.key().sign(&signed).unwrap();
    let signature = encode(0x03, &[&[0], &signature]);
    let certificate = encode(0x30, &[&signed, parts[1], &signature]);
    Pair {
        certificate: certificate.into(),
        ..pair.clone()
    }
}

/// Returns a list of version 1 with the entries of another one. Its signature does not match.
pub(crate) fn version_1_crl(list: &[u8]) -> Vec<u8> {
    let parts = parts(list);
    let signed = self::parts(parts[0]);
    let signed = encode(0x30, &signed[1..6]);
    encode(0x30, &[&signed, parts[1], parts[2]])
}

/// Returns the encoded parts of a value in DER.
fn parts(encoded: &[u8]) -> Vec<&[u8]> {
    let (mut rest, _) = split(encoded);
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (_, length) = split(rest);
        parts.push(&rest[..length]);
        rest = &rest[length..];
    }
    parts
}

/// Returns the content of the first value in DER, and the length of its encoding.
fn split(encoded: &[u8]) -> (&[u8], usize) {
    let (start, length) = match encoded[1] {
        short @ ..0x80 => (2, usize::from(short)),
        long => {
            let bytes = &encoded[2..2 + usize::from(long & 0x7f)];
            let length = bytes
                .iter()
                .fold(0, |all, &byte| all << 8 | usize::from(byte));
            (2 + bytes.len(), length)
        }
    };
    (&encoded[start..start + length], start + length)
}

fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let header: &[u8] = match length {
        [0, short @ ..0x80] => &[tag, short],
        [0, long] => &[tag, 0x81, long],
        [high, low] => &[tag, 0x82, high, low],
    };
    [header, &content].concat()
}
