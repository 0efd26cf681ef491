//! What the ports speak: HTTP/1.1 and HTTP/2, in the clear, under TLS, over Unix sockets.

use std::{
    future::poll_fn,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
};

use crate::certificates::{Authority, tls, tls_channel, trusting_client};
use crate::support::{ANY_PORT, Process, block_on, connect, display, get, http_over, put, watch};
use revstore::{Certificate, ClientAuth, Server, TlsOptions};
use revstore_proto::etcdserverpb::{
    AuthEnableRequest, AuthUserAddRequest, AuthUserGrantRoleRequest, AuthUserListRequest,
    AuthenticateRequest, MemberListRequest, auth_client::AuthClient, cluster_client::ClusterClient,
};
use rustls::{
    CipherSuite, ClientConfig, ProtocolVersion,
    version::{TLS12, TLS13},
};
use tonic::{Code, body::Body, transport::Endpoint};
use tower_service::Service;

#[test]
fn ht_1_one_port_speaks_grpc_and_http() {
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
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// In `docs/differences.md`: etcd would answer 415.
#[test]
fn ht_4_the_endpoints_answer_over_http_2_too() {
    let server = Server::builder().start().unwrap();
    block_on(async {
        let mut channel = connect(server.address().unwrap()).await;
        let request = http::Request::get("/health").body(Body::empty()).unwrap();
        poll_fn(|context| channel.poll_ready(context))
            .await
            .unwrap();
        let answer = channel.call(request).await.unwrap();
        assert_eq!(answer.version(), http::Version::HTTP_2);
        assert_eq!(answer.status(), 200);
    });
}

/// The settings that a server announces, as pairs of identifier and value.
fn settings(address: SocketAddr) -> Vec<(u16, u32)> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let [_, high, low, kind, ..] = head;
    assert_eq!(kind, 4, "the first frame holds settings");
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
fn li_4_concurrent_streams_are_unlimited_unless_limited() {
    let limit = |address| {
        let settings = settings(address).into_iter();
        let limit = settings.rev().find(|(id, _)| *id == MAX_CONCURRENT_STREAMS);
        limit.map(|(_, value)| value)
    };
    let server = Server::builder().start().unwrap();
    assert_eq!(limit(server.address().unwrap()), None);
    let mut process = Process::start(ANY_PORT.iter().chain([&"--max-concurrent-streams=3"]));
    assert_eq!(limit(process.address_of("client")), Some(3));
}

#[test]
fn li_4_a_stream_too_many_waits_until_another_ends() {
    let mut process = Process::start(ANY_PORT.iter().chain([&"--max-concurrent-streams=3"]));
    let address = process.address_of("client");
    block_on(async {
        let channel = connect(address).await;
        let mut watches = Vec::new();
        for _ in 0..3 {
            watches.push(watch(channel.clone(), "a").await);
        }
        let waiting = tokio::spawn(put(channel, "b"));
        // What happens on other connections comes through meanwhile, and what could is in front.
        assert_eq!(put(connect(address).await, "a").await.unwrap(), 2);
        for open in &mut watches {
            let told = open.responses.message().await.unwrap().unwrap();
            assert_eq!(told.events.len(), 1);
        }
        assert!(!waiting.is_finished());
        watches.pop();
        assert_eq!(waiting.await.unwrap().unwrap(), 3);
    });
}

/// A server under TLS, with a certificate for its address.
fn secure(authority: &Authority, client_auth: Option<ClientAuth>) -> (Server, SocketAddr) {
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
fn ht_2_h2_is_agreed_on_when_offered_and_nothing_else_ever() {
    let authority = Authority::new();
    let (server, address) = secure(&authority, None);
    assert!(server.endpoint().starts_with("https://"));
    for (offered, agreed) in [
        (&["h2", "http/1.1"] as &[&str], Some(b"h2" as &[u8])),
        (&["http/1.1"], None),
        (&[], None),
    ] {
        let mut stream = tls(address, authority.client(None, offered)).unwrap();
        assert_eq!(stream.conn.alpn_protocol(), agreed, "{offered:?}");
        if agreed.is_none() {
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
fn ht_3_plain_http_to_a_tls_port_gets_no_reply() {
    let authority = Authority::new();
    let (_server, address) = secure(&authority, None);
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"");
}

fn client_auth(authority: &Authority) -> ClientAuth {
    let mut auth = ClientAuth::default();
    auth.trusted_ca_file = Some(authority.file());
    auth.names_users = true;
    auth
}

/// Whether a client with this certificate is served. Under TLS 1.3 the refusal comes after the
/// handshake, as far as the client can see.
fn is_served(authority: &Authority, address: SocketAddr, name: Option<&str>) -> bool {
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
fn tl_1_client_certificates_are_demanded_with_a_client_authority() {
    let authority = Authority::new();
    let (_server, address) = secure(&authority, Some(client_auth(&authority)));
    assert!(is_served(&authority, address, Some("client")));
    assert!(!is_served(&authority, address, None));
}

#[test]
fn tl_1_client_certificates_may_have_to_hold_a_name() {
    let authority = Authority::new();
    let mut auth = client_auth(&authority);
    auth.allowed_hostnames = vec!["a.example".to_owned(), "b.example".to_owned()];
    let (_server, address) = secure(&authority, Some(auth));
    assert!(is_served(&authority, address, Some("b.example")));
    assert!(!is_served(&authority, address, Some("c.example")));
}

#[test]
fn tl_2_a_certificate_says_who_asks() {
    let authority = Authority::new();
    let (_server, address) = secure(&authority, Some(client_auth(&authority)));
    let client = |name, alpn: &[&str]| {
        let pair = authority.issue(name, "127.0.0.1");
        authority.client(Some(&pair), alpn)
    };
    let channel = async |name| tls_channel(address, client(name, &["h2"])).await.unwrap();
    let root_by_gateway = || {
        let mut stream = tls(address, client("root", &[])).unwrap();
        let answer = http_over(&mut stream, "POST", "/v3/kv/put");
        (answer.status, answer.body)
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
        let (status, body) = root_by_gateway();
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
            let denied = put(channel.clone(), "a").await.unwrap_err();
            assert_eq!(denied.code(), Code::PermissionDenied, "{name:?}");
            let mut cluster = ClusterClient::new(channel.clone());
            let members = cluster.member_list(MemberListRequest::default());
            members.await.unwrap();
            let mut auth = AuthClient::new(channel);
            let refused = auth.user_list(AuthUserListRequest {}).await.unwrap_err();
            assert_eq!(
                (refused.code(), refused.message()),
                (code, text),
                "{name:?}"
            );
        }
        // A token says more than a certificate.
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

        let (status, body) = root_by_gateway();
        assert_eq!(status, 400);
        assert!(body.starts_with("CommonName of client"), "{body}");
        let mut stream = tls(address, client("", &[])).unwrap();
        let nameless = http_over(&mut stream, "POST", "/v3/kv/put").body;
        assert!(!nameless.contains("CommonName"), "{nameless}");
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
    let mut process = Process::start([
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
fn tl_1_a_renewed_certificate_is_taken_up() {
    let old = Authority::new();
    let (_server, address) = secure(&old, None);
    tls(address, old.client(None, &[])).unwrap();

    // Another authority altogether, so that it cannot be mistaken.
    let new = Authority::new();
    let pair = new.issue("server", "127.0.0.1");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
    for (from, to) in [
        (&pair.key_file, "server-key.pem"),
        (&pair.cert_file, "server.pem"),
    ] {
        let to = old.path().join(to);
        std::fs::copy(from, &to).unwrap();
        // File systems with coarse times would hide the change.
        let file = std::fs::File::options().write(true).open(to).unwrap();
        file.set_modified(later).unwrap();
    }
    tls(address, new.client(None, &[])).unwrap();
    tls(address, old.client(None, &[])).unwrap_err();
}

#[test]
fn tl_1_the_flags() {
    let authority = Authority::new();
    let server = authority.issue("server", "127.0.0.1");
    let mut process = Process::start([
        "--listen-client-urls=https://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=https://127.0.0.1:0".to_owned(),
        // A peer port under TLS is bound, although it has no certificate.
        "--listen-peer-urls=https://127.0.0.1:0".to_owned(),
        format!("--cert-file={}", display(&server.cert_file)),
        format!("--key-file={}", display(&server.key_file)),
        format!("--trusted-ca-file={}", display(&authority.file())),
        "--client-cert-auth".to_owned(),
        "--tls-min-version=TLS1.3".to_owned(),
    ]);
    let address = process.address_of("client");
    assert!(is_served(&authority, address, Some("client")));
    assert!(!is_served(&authority, address, None));
}

/// What a client and a server agree on that was started with `flags`.
fn agreed(
    authority: &Authority,
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
    let mut process = Process::start(own.chain(flags.iter().copied()));
    let mut stream = tls(process.address_of("client"), client).ok()?;
    assert_eq!(http_over(&mut stream, "GET", "/health").status, 200);
    let suite = stream.conn.negotiated_cipher_suite()?.suite();
    Some((stream.conn.protocol_version()?, suite))
}

#[test]
fn tl_1_versions_and_suites_are_those_of_the_flags() {
    let authority = Authority::new();
    let agreed = |flags: &[&str], client| agreed(&authority, flags, client);
    let version = |flags: &[&str], client| agreed(flags, client).map(|(version, _)| version);
    let (old, new) = (authority.client_at(&TLS12), authority.client_at(&TLS13));
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

    // The one that both like least.
    let suites = &["--cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"];
    let (_, suite) = agreed(suites, old).unwrap();
    assert_eq!(
        suite,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
    );
}

#[test]
fn tl_1_a_bad_certificate_is_fatal() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.pem");
    std::fs::write(&file, "no certificate").unwrap();
    let process = Process::start([
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
fn tl_1_auto_tls() {
    let mut process = Process::start([
        "--listen-client-urls=https://127.0.0.1:0",
        "--advertise-client-urls=https://127.0.0.1:0",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--auto-tls",
    ]);
    let address = process.address_of("client");
    // Nobody can know the certificate; a client that trusts another one gets far enough to say so.
    let refused = tls(address, Authority::new().client(None, &[])).unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let mut stream = tls(address, trusting_client(&[])).unwrap();
    assert_eq!(http_over(&mut stream, "GET", "/health").status, 200);
    block_on(async {
        let channel = tls_channel(address, trusting_client(&["h2"]));
        put(channel.await.unwrap(), "a").await.unwrap();
    });
}

#[test]
fn tl_3_a_unix_socket_serves_both_and_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_revstore"));
    command.current_dir(directory.path()).args([
        "--listen-client-urls=unix://localhost:1",
        "--advertise-client-urls=unix://localhost:1",
        "--listen-peer-urls=http://127.0.0.1:0",
    ]);
    let mut process = Process::spawn(&mut command);
    process.wait_for_line("ready to serve client requests");
    let path = directory.path().join("localhost:1");
    let answer = http_over(UnixStream::connect(&path).unwrap(), "GET", "/health");
    assert_eq!(answer.status, 200);
    block_on(async {
        let endpoint = Endpoint::new(format!("unix:{}", path.display())).unwrap();
        put(endpoint.connect().await.unwrap(), "a").await.unwrap();
    });
    process.signal("TERM");
    let _ = process.wait();
    assert!(!path.exists());
}
