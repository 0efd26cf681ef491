//! Client certificates: whose they are, and what becomes of those that are not valid.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use revstore_apiserver::ApiServer;
use revstore_apiserver::auth::{AuthorizationMode, User};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::setup::TestResult;

type Authority = Issuer<'static, KeyPair>;

fn authority(name: &str) -> Result<(String, Authority), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok((pem, Issuer::new(params, key)))
}

/// A certificate of a client and its key.
type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn certificate(
    authority: &Authority,
    names: &[(DnType, &str)],
    usage: ExtendedKeyUsagePurpose,
    year: i32,
) -> Result<Pair, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, name) in names {
        params.distinguished_name.push(kind.clone(), *name);
    }
    params.extended_key_usages = vec![usage];
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((certificate.der().clone(), key.into()))
}

/// Sends a review of the user itself over TLS, and returns the status and the review.
fn review(
    address: &str,
    roots: &RootCertStore,
    pair: Option<&Pair>,
    fields: &str,
) -> Result<(u16, Value), Box<dyn std::error::Error>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots.clone());
    let config = match pair {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            builder.with_client_auth_cert(vec![certificate.clone()], key.clone_key())?
        }
    };
    let name = ServerName::try_from("127.0.0.1")?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n{fields}\r\n{{}}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).unwrap_or_default().parse()?;
    let body = answer.split_once("\r\n\r\n").unwrap_or_default().1;
    Ok((status, serde_json::from_str(body)?))
}

/// Returns the address of a server for HTTPS, and its authority.
fn https(server: &ApiServer) -> Result<(String, RootCertStore), Box<dyn std::error::Error>> {
    let kubeconfig = server.kubeconfig();
    let (_, rest) = kubeconfig
        .split_once("server: https://")
        .ok_or("no HTTPS")?;
    let address = rest
        .split_whitespace()
        .next()
        .ok_or("no address")?
        .trim_matches('"');
    let (_, rest) = kubeconfig
        .split_once("certificate-authority-data: ")
        .ok_or("no authority")?;
    let authority = rest.split_whitespace().next().ok_or("no authority")?;
    let authority = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, authority)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&authority) {
        roots.add(certificate?)?;
    }
    Ok((address.to_owned(), roots))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn certificates_that_are_not_valid_are_no_credential() -> TestResult {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let directory = tempfile::tempdir()?;
    let (pem, known) = authority("known")?;
    let (_, unknown) = authority("known")?;
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, pem)?;
    let server = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .client_ca_file(&file)
        .user("t", User::new("ann", ["devs"]))
        .start()?;
    let (address, roots) = https(&server)?;
    let (cn, group) = (DnType::CommonName, DnType::OrganizationName);
    let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57_683, 2]);
    let bob = [(cn.clone(), "bob"), (group.clone(), "devs")];
    let token = "Authorization: Bearer t\r\n";
    for (what, pair, without, with) in [
        (
            "valid",
            certificate(&known, &bob, ClientAuth, 2099)?,
            "bob",
            "bob",
        ),
        (
            "unknown authority",
            certificate(&unknown, &bob, ClientAuth, 2099)?,
            "",
            "ann",
        ),
        (
            "of a server",
            certificate(&known, &bob, ServerAuth, 2099)?,
            "",
            "ann",
        ),
        (
            "expired",
            certificate(&known, &bob, ClientAuth, 2021)?,
            "",
            "ann",
        ),
        (
            "no name",
            certificate(&known, &[(group, "system:masters")], ClientAuth, 2099)?,
            "system:anonymous",
            "ann",
        ),
        (
            "empty uid",
            certificate(
                &known,
                &[(cn.clone(), "bob"), (uid.clone(), "")],
                ClientAuth,
                2099,
            )?,
            "",
            "ann",
        ),
        // Whatever a name contains, it is a name.
        (
            "newline",
            certificate(&known, &[(cn.clone(), "a\nb")], ClientAuth, 2099)?,
            "a\nb",
            "a\nb",
        ),
        (
            "anonymous",
            certificate(
                &known,
                &[(cn.clone(), "system:anonymous")],
                ClientAuth,
                2099,
            )?,
            "system:anonymous",
            "system:anonymous",
        ),
    ] {
        for (fields, expected) in [("", without), (token, with)] {
            let (status, answer) = review(&address, &roots, Some(&pair), fields)?;
            let found = answer["status"]["userInfo"]["username"].as_str();
            // Anonymous users may not ask.
            let forbidden = answer["message"].as_str().unwrap_or_default();
            match expected {
                "" => assert_eq!(status, 401, "{what} {fields}: {answer}"),
                "system:anonymous" if found.is_none() => {
                    assert_eq!(status, 403, "{what} {fields}: {answer}");
                    assert!(forbidden.contains("system:anonymous"), "{what}: {answer}");
                }
                expected => assert_eq!(found, Some(expected), "{what} {fields}: {answer}"),
            }
        }
    }
    let names = [(cn, "bob"), (uid, "u7")];
    let pair = certificate(&known, &names, ClientAuth, 2099)?;
    let (_, answer) = review(&address, &roots, Some(&pair), "")?;
    let user = &answer["status"]["userInfo"];
    assert_eq!(
        (&user["uid"], &user["groups"][0]),
        (&"u7".into(), &"system:authenticated".into())
    );
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str();
    assert!(id.unwrap_or_default().starts_with("X509SHA256="), "{user}");
    let (status, _) = review(&address, &roots, None, "")?;
    assert_eq!(status, 403);
    Ok(())
}

#[test]
fn without_anonymous_requests_a_request_needs_a_credential() -> TestResult {
    let server = ApiServer::builder().anonymous_auth(false).start()?;
    let (address, roots) = https(&server)?;
    assert_eq!(review(&address, &roots, None, "")?.0, 401);
    Ok(())
}
