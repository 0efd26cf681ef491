//! Client certificates and lists of revoked ones (TL-5 to TL-7) with revstore and, if it is installed, with a
//! real etcd. Each table has one expectation for both.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod authority;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    NameConstraints, date_time_ymd,
};
use revstore_tests::server::{Options, Servers};
use revstore_tests::{on_every_server, poll};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tempfile::TempDir;

use crate::authority::{Authority, Pair, any_ca, params, version_1_certificate, version_1_crl};

on_every_server! {
    needs: [];
    tl_5_a_revoked_certificate_is_refused_from_the_next_connection_on,
    tl_6_the_trusted_authorities_are_read_at_the_start,
    tl_6_certificates_of_authorities_and_of_version_1_are_accepted,
}

/// Sends a request over a new connection and returns whether it is served.
fn is_served(address: SocketAddr, config: &Arc<ClientConfig>) -> bool {
    let socket = TcpStream::connect_timeout(&address, poll::LIMIT).unwrap();
    socket.set_read_timeout(Some(poll::LIMIT)).unwrap();
    let connection = ClientConnection::new(config.clone(), address.ip().into()).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let request = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut status = [0; 12];
    let read = stream
        .write_all(request)
        .and_then(|()| stream.read_exact(&mut status));
    match read {
        Ok(()) => status == *b"HTTP/1.1 200",
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "no response");
            false
        }
    }
}

/// Starts a server that requires certificates which one of `trusted` has issued, with further flags. The
/// first of `trusted` issues its own.
fn start(
    servers: &Servers,
    directory: &TempDir,
    trusted: &[&Pair],
    issuer: &Authority,
    flags: &[String],
) -> Box<dyn revstore_tests::server::Endpoint> {
    let own = issuer.issue(&params("server", &[2], IsCa::NoCa));
    let mut tls_flags = vec!["--client-cert-auth".to_owned()];
    let trusted: String = trusted.iter().map(|it| it.pem()).collect();
    for (flag, text) in [
        ("trusted-ca-file", trusted),
        ("cert-file", own.pem().to_owned()),
        ("key-file", own.key.serialize_pem()),
    ] {
        let path = directory.path().join(flag);
        fs::write(&path, text).unwrap();
        tls_flags.push(format!("--{flag}={}", path.display()));
    }
    tls_flags.extend_from_slice(flags);
    servers.fresh(&Options {
        tls_flags,
        ..Options::default()
    })
}

/// The serial numbers in the lists of the test: one has its highest bit set, one has a zero byte inside, and
/// one has the maximum length.
const LISTED: [&[u8]; 4] = [&[0x90], &[5, 0, 7], &[0x7f; 20], &[0x77]];

/// What is at the path of the list.
enum AtPath {
    Nothing,
    Directory,
    File(Vec<u8>),
}

impl AtPath {
    /// Changes what is there. Files are replaced as a whole, as tools that rotate them do.
    fn put(&self, path: &Path) {
        if path.is_dir() {
            fs::remove_dir(path).unwrap();
        } else if path.exists() && !matches!(self, Self::File(_)) {
            fs::remove_file(path).unwrap();
        }
        match self {
            Self::Nothing => {}
            Self::Directory => fs::create_dir(path).unwrap(),
            Self::File(bytes) => {
                let new = path.with_extension("new");
                fs::write(&new, bytes).unwrap();
                fs::rename(new, path).unwrap();
            }
        }
    }
}

/// The serial numbers in a list.
type Serials = &'static [&'static [u8]];

/// Returns the states of the list in the order of the test: a name, what is at the path, and the serial
/// numbers in it, or `None` if it is not a list.
fn states(root: &Authority) -> Vec<(&'static str, AtPath, Option<Serials>)> {
    let other = Authority::root("other");
    let listed = root.crl(&LISTED, 2100);
    let der = listed.der().to_vec();
    let pem = listed.pem().unwrap().into_bytes();
    let empty = root.crl(&[], 2100);
    let all = |bytes: &[u8]| (AtPath::File(bytes.to_vec()), Some(&LISTED[..]));
    let none = |bytes: &[u8]| (AtPath::File(bytes.to_vec()), Some(&[] as &[_]));
    let no_list = |bytes: &[u8]| (AtPath::File(bytes.to_vec()), None);
    let states = [
        ("missing at the start", (AtPath::Nothing, None)),
        ("DER", all(&der)),
        ("no entries", none(empty.der())),
        ("PEM", all(&pem)),
        ("PEM without entries", none(empty.pem().unwrap().as_bytes())),
        ("of another authority", all(other.crl(&LISTED, 2100).der())),
        ("expired", all(root.crl(&LISTED, 2001).der())),
        ("version 1", all(&version_1_crl(&der))),
        ("missing", (AtPath::Nothing, None)),
        ("PEM after missing", all(&pem)),
        ("empty", no_list(b"")),
        ("garbage", no_list(b"garbage")),
        ("half of DER", no_list(&der[..der.len() / 2])),
        ("half of PEM", no_list(&pem[..pem.len() / 2])),
        ("DER and more", no_list(&[&der[..], b"0"].concat())),
        ("a directory", (AtPath::Directory, None)),
        ("no entries after a directory", none(empty.der())),
    ];
    let states = states.into_iter();
    states
        .map(|(name, (at, serials))| (name, at, serials))
        .collect()
}

fn tl_5_a_revoked_certificate_is_refused_from_the_next_connection_on(servers: &Servers) {
    let root = Authority::root("root");
    let intermediate = root.authority(params("intermediate", LISTED[3], any_ca()));
    let issue = |serial, is_ca| root.issue(&params("client", serial, is_ca));
    let leaf = intermediate.issue(&params("leaf", &[8], IsCa::NoCa));
    // The name of each client, the serial number that may be listed, and its configurations. They keep the
    // sessions of earlier connections, which etcd resumes.
    let clients = [
        (
            "other serial",
            &[6_u8] as &[u8],
            issue(&[6], IsCa::NoCa).client(&root),
        ),
        (
            "serial 90",
            LISTED[0],
            issue(LISTED[0], IsCa::NoCa).client(&root),
        ),
        (
            "serial 050007",
            LISTED[1],
            issue(LISTED[1], IsCa::NoCa).client(&root),
        ),
        (
            "20 bytes",
            LISTED[2],
            issue(LISTED[2], IsCa::NoCa).client(&root),
        ),
        (
            "authority",
            LISTED[0],
            issue(LISTED[0], any_ca()).client(&root),
        ),
        (
            "issuer",
            LISTED[3],
            leaf.with_chain(&[&intermediate]).client(&root),
        ),
    ];

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("crl");
    let flags = [format!("--client-crl-file={}", path.display())];
    let server = start(servers, &directory, &[root.pair()], &root, &flags);
    for (state, at_path, serials) in states(&root) {
        at_path.put(&path);
        for (name, serial, configs) in &clients {
            let expected = serials.is_some_and(|serials| !serials.contains(serial));
            for (version, config) in configs {
                let actual = is_served(server.address(), config);
                assert_eq!(actual, expected, "{state}, {name}, {version}");
            }
        }
    }
}

fn tl_6_the_trusted_authorities_are_read_at_the_start(servers: &Servers) {
    let (old, new) = (Authority::root("old"), Authority::root("new"));
    let directory = tempfile::tempdir().unwrap();
    let server = start(servers, &directory, &[old.pair()], &old, &[]);
    fs::write(directory.path().join("trusted-ca-file"), new.pair().pem()).unwrap();
    for (issuer, expected) in [(&old, true), (&new, false)] {
        let pair = issuer.issue(&params("client", &[9], IsCa::NoCa));
        for (version, config) in pair.client(&old) {
            assert_eq!(is_served(server.address(), &config), expected, "{version}");
        }
    }
}

fn tl_6_certificates_of_authorities_and_of_version_1_are_accepted(servers: &Servers) {
    let root = Authority::root("root");
    let stranger = Authority::root("stranger");
    let impostor = Authority::root("root");
    let last = IsCa::Ca(BasicConstraints::Constrained(0));
    let last = root.authority(params("last", &[3], last));
    let no_authority = root.authority(params("no authority", &[4], IsCa::NoCa));
    let mut limited = params("limited", &[5], any_ca());
    limited.name_constraints = Some(NameConstraints {
        permitted_subtrees: Vec::new(),
        excluded_subtrees: vec![GeneralSubtree::IpAddress(CidrSubnet::V4(
            [127, 0, 0, 0],
            [255, 0, 0, 0],
        ))],
    });
    let limited = root.authority(limited);

    let mut clients = Vec::new();
    let mut trusted = vec![root.pair().clone()];
    for (form, is_ca) in [("leaf", IsCa::NoCa), ("authority", any_ca())] {
        let plain = || params(form, &[9], is_ca);
        let edited = |edit: fn(&mut CertificateParams)| {
            let mut params = plain();
            edit(&mut params);
            params
        };
        let old = edited(|it| it.not_after = date_time_ymd(2001, 1, 1));
        let early = edited(|it| it.not_before = date_time_ymd(2100, 1, 1));
        let server = edited(|it| {
            it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        let both = edited(|it| {
            it.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ];
        });
        let own = Pair::self_signed(&plain());
        trusted.push(own.clone());
        for (case, expected, pair) in [
            ("of the root", true, root.issue(&plain())),
            (
                "of the last authority",
                true,
                last.issue(&plain()).with_chain(&[&last]),
            ),
            ("for both purposes", true, root.issue(&both)),
            ("trusted itself", true, own),
            ("without its chain", false, last.issue(&plain())),
            ("of a stranger", false, stranger.issue(&plain())),
            (
                "of a stranger with its chain",
                false,
                stranger.issue(&plain()).with_chain(&[&stranger]),
            ),
            ("of an impostor", false, impostor.issue(&plain())),
            (
                "of no authority",
                false,
                no_authority.issue(&plain()).with_chain(&[&no_authority]),
            ),
            (
                "of a limited authority",
                false,
                limited.issue(&plain()).with_chain(&[&limited]),
            ),
            ("expired", false, root.issue(&old)),
            ("not yet valid", false, root.issue(&early)),
            ("for servers", false, root.issue(&server)),
            ("self-signed", false, Pair::self_signed(&plain())),
            ("changed", false, root.issue(&plain()).changed()),
        ] {
            clients.push((form, case, expected, pair));
        }
    }
    let plain = || params("version 1", &[9], IsCa::NoCa);
    for (case, expected, issuer) in [
        ("of the root", true, &root),
        ("of the last authority", true, &last),
        ("of a stranger", false, &stranger),
        ("of an impostor", false, &impostor),
    ] {
        let pair = version_1_certificate(&issuer.issue(&plain()), issuer);
        clients.push(("version 1", case, expected, pair.with_chain(&[issuer])));
    }

    let directory = tempfile::tempdir().unwrap();
    let trusted: Vec<_> = trusted.iter().collect();
    let server = start(servers, &directory, &trusted, &root, &[]);
    for (form, case, expected, pair) in clients {
        for (version, config) in pair.client(&root) {
            let actual = is_served(server.address(), &config);
            assert_eq!(actual, expected, "{form}, {case}, {version}");
        }
    }
}
