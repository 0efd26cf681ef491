//! Tests of the protocols of the ports: HTTP/1.1 and HTTP/2, without TLS, with TLS, and over Unix sockets.

use std::{
    future::poll_fn,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
};

use crate::certificates::{CertificateAuthority, any_issuer_client, tls, tls_channel};
use crate::support::{
    ANY_PORT, AUTO_TLS, ServerProcess, block_on, connect, display, get, http_over, put,
    try_http_over, watch,
};
use revstore::{Certificate, ClientAuth, Server, TlsOptions};
use revstore_proto::etcdserverpb::{
    AuthEnableRequest, AuthUserAddRequest, AuthUserGrantRoleRequest, AuthUserListRequest,
    AuthenticateRequest, MemberListRequest, auth_client::AuthClient, cluster_client::ClusterClient,
};
use rustls::{
    CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion,
    version::{TLS12, TLS13},
};
use tonic::{Code, body::Body, transport::Endpoint};
use tower_service::Service;

#[test]
fn ht_1_one_port_serves_grpc_and_http() {
    let server = Server::builder().start().unwrap();
    let address = server.address().unwrap();
    block_on(async {
        assert_eq!(put(connect(address).await, "a").await.unwrap(), 2);
    });
    assert_eq!(get(address, "/health").status, 200);
}

#[test]
fn ht_4_an_upgrade_to_http_2_is_ignored() {
    let server = Server::builder().start().unwrap();
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    let request =
        b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\n\
          Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

/// A difference listed in `docs/differences.md`: etcd returns 415.
#[test]
fn ht_4_the_http_endpoints_are_also_served_over_http_2() {
    let server = Server::builder().start().unwrap();
    block_on(async {
        let mut channel = connect(server.address().unwrap()).await;
        let request = http::Request::get("/health").body(Body::empty()).unwrap();
        poll_fn(|context| channel.poll_ready(context))
            .await
            .unwrap();
        let response = channel.call(request).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert_eq!(response.status(), 200);
    });
}

/// Returns the HTTP/2 settings of a server, as pairs of identifier and value.
fn settings(address: SocketAddr) -> Vec<(u16, u32)> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let [_, high, low, kind, ..] = head;
    assert_eq!(kind, 4, "the first frame contains settings");
    let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
    stream.read_exact(&mut payload).unwrap();
    let settings = payload.chunks_exact(6).map(|it| {
        let id = u16::from_be_bytes([it[0], it[1]]);
        (id, u32::from_be_bytes([it[2], it[3], it[4], it[5]]))
    });
    settings.collect()
}

const MAX_CONCURRENT_STREAMS: u16 = 3;

#[test]
fn li_4_concurrent_streams_are_unlimited_by_default() {
    let limit = |address| {
        let settings = settings(address).into_iter();
        let limit = settings.rev().find(|(id, _)| *id == MAX_CONCURRENT_STREAMS);
        limit.map(|(_, value)| value)
    };
    let server = Server::builder().start().unwrap();
    assert_eq!(limit(server.address().unwrap()), None);
    let mut process = ServerProcess::start(ANY_PORT.iter().chain([&"--max-concurrent-streams=3"]));
    assert_eq!(limit(process.address_of("client")), Some(3));
}

#[test]
fn li_4_a_stream_above_the_limit_waits_until_another_ends() {
    let mut process = ServerProcess::start(ANY_PORT.iter().chain([&"--max-concurrent-streams=3"]));
    let address = process.address_of("client");
    block_on(async {
        let channel = connect(address).await;
        let mut watches = Vec::new();
        for _ in 0..3 {
            watches.push(watch(channel.clone(), "a").await);
        }
        let waiting = tokio::spawn(put(channel, "b"));
        // The server continues to serve open streams and other connections.
        assert_eq!(put(connect(address).await, "a").await.unwrap(), 2);
        for open in &mut watches {
            let response = open.responses.message().await.unwrap().unwrap();
            assert_eq!(response.events.len(), 1);
        }
        assert!(!waiting.is_finished());
        watches.pop();
        assert_eq!(waiting.await.unwrap().unwrap(), 3);
    });
}

/// Starts a server with TLS and a certificate for its address.
fn tls_server(
    authority: &CertificateAuthority,
    client_auth: Option<ClientAuth>,
) -> (Server, SocketAddr) {
    let pair = authority.issue("server", "127.0.0.1");
    let mut tls = TlsOptions::new(Certificate::Files {
        cert_file: pair.cert_file,
        key_file: pair.key_file,
    });
    tls.client_auth = client_auth;
    let server = Server::builder().tls(tls).start().unwrap();
    let address = server.address().unwrap();
    (server, address)
}

#[test]
fn ht_2_alpn_negotiates_h2_if_offered_and_nothing_otherwise() {
    let authority = CertificateAuthority::new();
    let (server, address) = tls_server(&authority, None);
    assert!(server.endpoint().starts_with("https://"));
    for (offered, negotiated) in [
        (&["h2", "http/1.1"] as &[&str], Some(b"h2" as &[u8])),
        (&["http/1.1"], None),
        (&[], None),
    ] {
        let mut stream = tls(address, authority.client(None, offered)).unwrap();
        assert_eq!(stream.conn.alpn_protocol(), negotiated, "{offered:?}");
        if negotiated.is_none() {
            assert_eq!(http_over(&mut stream, "GET", "/health").status, 200);
        }
    }
    block_on(async {
        let client = authority.client(None, &["h2"]);
        let channel = tls_channel(address, client).await.unwrap();
        assert_eq!(put(channel, "a").await.unwrap(), 2);
    });
}

#[test]
fn ht_3_a_request_without_tls_to_a_tls_port_gets_no_response() {
    let authority = CertificateAuthority::new();
    let (_server, address) = tls_server(&authority, None);
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    assert_eq!(response, b"");
}

fn client_auth(authority: &CertificateAuthority) -> ClientAuth {
    let mut auth = ClientAuth::default();
    auth.trusted_ca_file = Some(authority.file());
    auth.names_users = true;
    auth
}

/// Returns whether the server accepts a client with a certificate for `name`. With TLS 1.3 the
/// client receives the rejection after its handshake has completed.
fn is_served(authority: &CertificateAuthority, address: SocketAddr, name: Option<&str>) -> bool {
    let pair = name.map(|name| authority.issue(name, name));
    let client = authority.client(pair.as_ref(), &["h2"]);
    block_on(async {
        match tls_channel(address, client).await {
            Ok(channel) => put(channel, "a").await.is_ok(),
            Err(_) => false,
        }
    })
}

#[test]
fn tl_1_client_certificates_are_required_with_a_trusted_ca() {
    let authority = CertificateAuthority::new();
    let (_server, address) = tls_server(&authority, Some(client_auth(&authority)));
    assert!(is_served(&authority, address, Some("client")));
    assert!(!is_served(&authority, address, None));
}

#[test]
fn tl_1_client_certificates_must_contain_an_allowed_hostname() {
    let authority = CertificateAuthority::new();
    let mut auth = client_auth(&authority);
    auth.allowed_hostnames = vec!["a.example".to_owned(), "b.example".to_owned()];
    let (_server, address) = tls_server(&authority, Some(auth));
    assert!(is_served(&authority, address, Some("b.example")));
    assert!(!is_served(&authority, address, Some("c.example")));
}

#[test]
fn tl_7_sessions_are_resumed_only_without_client_certificates() {
    let authority = CertificateAuthority::new();
    let own = authority.issue("client", "127.0.0.1");
    for (auth, second) in [
        (None, HandshakeKind::Resumed),
        (Some(client_auth(&authority)), HandshakeKind::Full),
    ] {
        let (_server, address) = tls_server(&authority, auth);
        let client = authority.client(Some(&own), &[]);
        let old = authority.client_at(Some(&own), &TLS12);
        for client in [client, old] {
            for expected in [HandshakeKind::Full, second] {
                let mut stream = tls(address, client.clone()).unwrap();
                // The client receives the tickets of TLS 1.3 together with the response.
                assert_eq!(http_over(&mut stream, "GET", "/health").status, 200);
                assert_eq!(stream.conn.handshake_kind(), Some(expected));
            }
        }
    }
}

/// Starts a server with TLS on client URLs, whose certificate and trusted certificates are those of an authority.
fn start_with_authority<const N: usize>(
    authority: &CertificateAuthority,
    flags: [String; N],
) -> ServerProcess {
    let server = authority.issue("server", "127.0.0.1");
    let common = [
        "--listen-client-urls=https://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=https://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        format!("--cert-file={}", display(&server.cert_file)),
        format!("--key-file={}", display(&server.key_file)),
        format!("--trusted-ca-file={}", display(&authority.file())),
    ];
    ServerProcess::start(common.into_iter().chain(flags))
}

#[test]
fn tl_5_a_missing_list_of_revoked_certificates_is_logged_and_read_when_it_exists() {
    let authority = CertificateAuthority::new();
    let list = authority.path().join("crl");
    let mut process = start_with_authority(
        &authority,
        [format!("--client-crl-file={}", display(&list))],
    );
    let address = process.address_of("client");
    let file = format!("cannot read the revoked certificates in {}", display(&list));
    assert!(
        process
            .wait_for_line("refusing all clients")
            .contains(&file)
    );
    assert!(!is_served(&authority, address, Some("client")));
    let line = process.wait_for_line("rejected connection");
    assert!(
        line.contains(&file) && line.contains(r#""remote-addr":"127.0.0.1:"#),
        "{line}"
    );

    std::fs::write(&list, authority.crl(&[7])).unwrap();
    assert!(is_served(&authority, address, Some("client")));
    let other = authority.issue_with_serial("other", 7);
    let mut stream = tls(address, authority.client(Some(&other), &[])).unwrap();
    // As in etcd, the connection ends without an alert.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    process.wait_for_line("certificate serial 07 revoked");
}

#[test]
fn tl_2_the_common_name_of_a_certificate_identifies_the_user() {
    let authority = CertificateAuthority::new();
    let (_server, address) = tls_server(&authority, Some(client_auth(&authority)));
    let client = |name, alpn: &[&str]| {
        let pair = authority.issue(name, "127.0.0.1");
        authority.client(Some(&pair), alpn)
    };
    let channel = async |name| tls_channel(address, client(name, &["h2"])).await.unwrap();
    let put_over_gateway = || {
        let mut stream = tls(address, client("root", &[])).unwrap();
        let response = http_over(&mut stream, "POST", "/v3/kv/put");
        (response.status, response.body)
    };
    block_on(async {
        let mut root = AuthClient::new(channel("root").await);
        for name in ["root", "ann"] {
            let user = AuthUserAddRequest {
                name: name.to_owned(),
                password: "p".to_owned(),
                ..AuthUserAddRequest::default()
            };
            root.user_add(user).await.unwrap();
        }
        let grant = AuthUserGrantRoleRequest {
            user: "root".to_owned(),
            role: "root".to_owned(),
        };
        root.user_grant_role(grant).await.unwrap();
        let (status, body) = put_over_gateway();
        assert_eq!(status, 400);
        assert!(body.contains("key is not provided"), "{body}");
        root.auth_enable(AuthEnableRequest {}).await.unwrap();

        put(channel("root").await, "a").await.unwrap();
        for (name, code, text) in [
            (
                "ann",
                Code::PermissionDenied,
                "etcdserver: permission denied",
            ),
            (
                "bob",
                Code::FailedPrecondition,
                "etcdserver: user name not found",
            ),
            ("", Code::InvalidArgument, "etcdserver: user name is empty"),
        ] {
            let channel = channel(name).await;
            let status = put(channel.clone(), "a").await.unwrap_err();
            assert_eq!(status.code(), Code::PermissionDenied, "{name:?}");
            let mut cluster = ClusterClient::new(channel.clone());
            let members = cluster.member_list(MemberListRequest::default());
            members.await.unwrap();
            let mut auth = AuthClient::new(channel);
            let status = auth.user_list(AuthUserListRequest {}).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (code, text), "{name:?}");
        }
        // A token has precedence over a certificate.
        let login = AuthenticateRequest {
            name: "root".to_owned(),
            password: "p".to_owned(),
        };
        let token = root.authenticate(login).await.unwrap().into_inner().token;
        let mut request = tonic::Request::new(AuthUserListRequest {});
        request
            .metadata_mut()
            .insert("token", token.parse().unwrap());
        AuthClient::new(channel("ann").await)
            .user_list(request)
            .await
            .unwrap();

        let (status, body) = put_over_gateway();
        assert_eq!(status, 400);
        assert!(body.starts_with("CommonName of client"), "{body}");
        let mut stream = tls(address, client("", &[])).unwrap();
        let body = http_over(&mut stream, "POST", "/v3/kv/put").body;
        assert!(!body.contains("CommonName"), "{body}");
    });
}

#[test]
fn fl_11_all_listen_urls_are_served() {
    let urls = "http://127.0.0.1:0,http://127.0.0.2:0,http://[::1]:0";
    let urls = if TcpListener::bind("[::1]:0").is_ok() {
        urls
    } else {
        urls.trim_end_matches(",http://[::1]:0")
    };
    let mut process = ServerProcess::start([
        format!("--listen-client-urls={urls}").as_str(),
        "--advertise-client-urls=http://127.0.0.1:0",
        "--listen-peer-urls=http://127.0.0.1:0",
    ]);
    process.wait_for_line("ready to serve client requests");
    let lines = process.log.clone().into_iter();
    let lines = lines.filter(|line| line.contains("serving client traffic"));
    let addresses = lines.map(|line| {
        let (_, rest) = line.split_once(r#""address":""#).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    });
    let addresses: Vec<SocketAddr> = addresses.collect();
    assert_eq!(addresses.len(), urls.split(',').count());
    for (revision, address) in (2..).zip(addresses) {
        block_on(async {
            assert_eq!(put(connect(address).await, "a").await.unwrap(), revision);
        });
    }
}

#[test]
fn tl_1_a_replaced_certificate_is_reloaded() {
    let old = CertificateAuthority::new();
    let (_server, address) = tls_server(&old, None);
    tls(address, old.client(None, &[])).unwrap();

    // Another authority, so that a client can distinguish the certificates.
    let new = CertificateAuthority::new();
    let pair = new.issue("server", "127.0.0.1");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
    for (from, to) in [
        (&pair.key_file, "server-key.pem"),
        (&pair.cert_file, "server.pem"),
    ] {
        let to = old.path().join(to);
        std::fs::copy(from, &to).unwrap();
        // Some file systems have coarse modification times, which would hide the change.
        let file = std::fs::File::options().write(true).open(to).unwrap();
        file.set_modified(later).unwrap();
    }
    tls(address, new.client(None, &[])).unwrap();
    tls(address, old.client(None, &[])).unwrap_err();
}

#[test]
fn tl_1_tls_flags_require_client_certificates() {
    let authority = CertificateAuthority::new();
    let mut process = start_with_authority(
        &authority,
        [
            "--client-cert-auth".to_owned(),
            "--tls-min-version=TLS1.3".to_owned(),
        ],
    );
    let address = process.address_of("client");
    assert!(is_served(&authority, address, Some("client")));
    assert!(!is_served(&authority, address, None));
}

/// The peers' flags apply to peer URLs, and the clients' flags do not.
#[test]
fn tl_4_peer_urls_have_flags_of_their_own() {
    let (clients, peers) = (CertificateAuthority::new(), CertificateAuthority::new());
    let (client_pair, peer_pair) = (
        clients.issue("server", "127.0.0.1"),
        peers.issue("server", "127.0.0.1"),
    );
    let start = |flags: &[&str]| {
        let own = [
            "--listen-client-urls=https://127.0.0.1:0".to_owned(),
            "--advertise-client-urls=https://127.0.0.1:0".to_owned(),
            "--listen-peer-urls=https://127.0.0.1:0".to_owned(),
            format!("--cert-file={}", display(&client_pair.cert_file)),
            format!("--key-file={}", display(&client_pair.key_file)),
            format!("--peer-cert-file={}", display(&peer_pair.cert_file)),
            format!("--peer-key-file={}", display(&peer_pair.key_file)),
            format!("--peer-trusted-ca-file={}", display(&peers.file())),
        ];
        let own = own.iter().map(String::as_str);
        ServerProcess::start(own.chain(flags.iter().copied()))
    };
    let status_of = |address, user: Option<(&str, &str)>| {
        let user = user.map(|(name, host)| peers.issue(name, host));
        let stream = tls(address, peers.client(user.as_ref(), &[])).ok()?;
        // With TLS 1.3 the client receives the rejection after its handshake has completed.
        try_http_over(stream, "GET", "/version").map(|response| response.status)
    };
    let status = |address, user: Option<&str>| status_of(address, user.map(|it| (it, "127.0.0.1")));
    let mut process = start(&["--peer-client-cert-auth"]);
    let address = process.address_of("peer");
    assert_eq!(status(address, Some("member")), Some(200));
    assert_eq!(status(address, None), None);
    // The certificate of a peer is for its address, or for a host name with that address.
    assert_eq!(status_of(address, Some(("other", "127.0.0.2"))), None);
    assert_eq!(status_of(address, Some(("name", "localhost"))), Some(200));
    // Clients need no certificate.
    assert!(is_served(&clients, process.address_of("client"), None));

    let mut process = start(&["--peer-cert-allowed-cn=member,other"]);
    let address = process.address_of("peer");
    assert_eq!(status(address, Some("member")), Some(200));
    assert_eq!(status(address, Some("stranger")), None);

    let mut process = start(&["--peer-cert-allowed-hostname=10.0.0.1"]);
    assert_eq!(status(process.address_of("peer"), Some("member")), None);

    let mut process = start(&["--experimental-peer-skip-client-san-verification"]);
    let address = process.address_of("peer");
    assert_eq!(status_of(address, Some(("other", "127.0.0.2"))), Some(200));
}

/// Returns the TLS version and cipher suite that a client negotiates with a server started with
/// `flags`.
fn negotiated(
    authority: &CertificateAuthority,
    flags: &[&str],
    client: Arc<ClientConfig>,
) -> Option<(ProtocolVersion, CipherSuite)> {
    let pair = authority.issue("server", "127.0.0.1");
    let own = [
        "--listen-client-urls=https://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=https://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        format!("--cert-file={}", display(&pair.cert_file)),
        format!("--key-file={}", display(&pair.key_file)),
    ];
    let own = own.iter().map(String::as_str);
    let mut process = ServerProcess::start(own.chain(flags.iter().copied()));
    let mut stream = tls(process.address_of("client"), client).ok()?;
    assert_eq!(http_over(&mut stream, "GET", "/health").status, 200);
    let suite = stream.conn.negotiated_cipher_suite()?.suite();
    Some((stream.conn.protocol_version()?, suite))
}

#[test]
fn tl_1_tls_versions_and_cipher_suites_follow_the_flags() {
    let authority = CertificateAuthority::new();
    let negotiated = |flags: &[&str], client| negotiated(&authority, flags, client);
    let version = |flags: &[&str], client| negotiated(flags, client).map(|(version, _)| version);
    let (old, new) = (
        authority.client_at(None, &TLS12),
        authority.client_at(None, &TLS13),
    );
    let both = || authority.client(None, &[]);

    assert_eq!(version(&[], old.clone()), Some(ProtocolVersion::TLSv1_2));
    assert_eq!(version(&[], both()), Some(ProtocolVersion::TLSv1_3));
    let only_new = &["--tls-min-version=TLS1.3"];
    assert_eq!(version(only_new, old.clone()), None);
    assert_eq!(
        version(only_new, new.clone()),
        Some(ProtocolVersion::TLSv1_3)
    );
    let only_old = &["--tls-max-version=TLS1.2"];
    assert_eq!(version(only_old, new), None);
    assert_eq!(version(only_old, both()), Some(ProtocolVersion::TLSv1_2));

    // The suite with the lowest preference of both sides.
    let suites = &["--cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"];
    let (_, suite) = negotiated(suites, old).unwrap();
    assert_eq!(
        suite,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
    );
}

#[test]
fn tl_1_an_invalid_certificate_is_fatal() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.pem");
    std::fs::write(&file, "no certificate").unwrap();
    let process = ServerProcess::start([
        "--listen-client-urls=https://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=https://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        format!("--cert-file={}", display(&file)),
        format!("--key-file={}", display(&file)),
    ]);
    let (status, log) = process.wait();
    assert_eq!(status.code(), Some(1));
    assert!(log.last().unwrap().contains("bad.pem"), "{log:?}");
}

#[test]
fn tl_1_auto_tls_creates_a_certificate() {
    let mut process = ServerProcess::start(AUTO_TLS);
    let address = process.address_of("client");
    // A client that trusts only another authority rejects the generated certificate.
    let error = tls(address, CertificateAuthority::new().client(None, &[])).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let mut stream = tls(address, any_issuer_client(&[])).unwrap();
    assert_eq!(http_over(&mut stream, "GET", "/health").status, 200);
    block_on(async {
        let channel = tls_channel(address, any_issuer_client(&["h2"]));
        put(channel.await.unwrap(), "a").await.unwrap();
    });
}

#[test]
fn tl_3_a_unix_socket_serves_grpc_and_http_and_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_revstore"));
    command.current_dir(directory.path()).args([
        "--listen-client-urls=unix://localhost:1",
        "--advertise-client-urls=unix://localhost:1",
        "--listen-peer-urls=http://127.0.0.1:0",
    ]);
    let mut process = ServerProcess::spawn(&mut command);
    process.wait_for_line("ready to serve client requests");
    let path = directory.path().join("localhost:1");
    let response = http_over(UnixStream::connect(&path).unwrap(), "GET", "/health");
    assert_eq!(response.status, 200);
    block_on(async {
        let endpoint = Endpoint::new(format!("unix:{}", path.display())).unwrap();
        put(endpoint.connect().await.unwrap(), "a").await.unwrap();
    });
    process.signal("TERM");
    let _ = process.wait();
    assert!(!path.exists());
}
