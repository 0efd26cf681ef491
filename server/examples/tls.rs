//! A server with TLS that requires client certificates, and a client that presents one.
//!
//! ```sh
//! cargo run -p revstore --example tls
//! ```
//!
//! The example creates an authority and issues both certificates. If auth were enabled, the common name in
//! the client's certificate would be its user name.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::{
    error::Error,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use revstore::{Certificate, ClientAuth, Server, TlsOptions};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name);
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    fs::write(file("ca.pem"), authority.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(authority, key);
    let server_files = issue(
        &issuer,
        "server",
        (file("server.pem"), file("server-key.pem")),
    )?;
    let client_files = issue(&issuer, "ann", (file("ann.pem"), file("ann-key.pem")))?;

    let (cert_file, key_file) = server_files;
    let tls = TlsOptions::new(Certificate::Files {
        cert_file,
        key_file,
    })
    .client_auth(ClientAuth::new(file("ca.pem")).names_users(true));
    let server = Server::builder().tls(tls).start()?;
    println!("serving at {}", server.endpoint());

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem"))?)?;
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(client_files.0)?],
            PrivateKeyDer::from_pem_file(client_files.1)?,
        )?;
    let connection = ClientConnection::new(Arc::new(client), "localhost".try_into()?)?;
    let address = server.address().ok_or("the server has no TCP address")?;
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    println!("{response}");
    Ok(())
}

/// Issues a certificate for `localhost` with a common name. Writes the certificate and its key into
/// two files, and returns their paths.
fn issue(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
    (cert_file, key_file): (PathBuf, PathBuf),
) -> Result<(PathBuf, PathBuf), Box<dyn Error>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(["localhost".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.signed_by(&key, issuer)?;
    fs::write(&cert_file, certificate.pem())?;
    fs::write(&key_file, key.serialize_pem())?;
    Ok((cert_file, key_file))
}
