//! Tests of `--auth-token=jwt,...` (AU-14 to AU-16) with revstore and, if it is installed, with a real etcd.
//!
//! Not tested here: calls that etcd 3.5.16 permits to all users and 3.5.30 does not.

#![expect(
    clippy::unwrap_used,
    reason = "the cases are tests without the attribute"
)]

use std::future::Future;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use revstore_proto::authpb::Permission;
use revstore_proto::authpb::permission::Type;
use revstore_proto::etcdserverpb::auth_client::AuthClient;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::lease_client::LeaseClient;
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthStatusRequest,
    AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, LeaseGrantRequest, PutRequest, RangeRequest,
    RequestOp, TxnRequest,
};
use revstore_tests::http::{self, Request as HttpRequest};
use revstore_tests::server::{Endpoint, Options, REVSTORE, Servers};
use ring::hmac;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

revstore_tests::on_every_server! {
    needs: [];
    au_14_tokens_of_one_server_are_valid_for_the_other,
    au_16_a_change_of_auth_makes_tokens_old,
    au_15_and_16_tokens_of_another_issuer,
    au_14_a_server_with_a_public_key_only_verifies,
    au_15_the_gateway_accepts_tokens,
}

macro_rules! key {
    ($name:literal) => {
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../grpc/tests/keys/",
            $name,
            ".pem"
        )
    };
}

macro_rules! jwt {
    ($method:literal, $public:literal, $private:literal) => {
        concat!(
            "--auth-token=jwt,sign-method=",
            $method,
            ",pub-key=",
            key!($public),
            ",priv-key=",
            key!($private)
        )
    };
}

/// The flag for each method of etcd 3.5.
const METHODS: [&str; 12] = [
    jwt!("HS256", "rsa.pub", "rsa"),
    jwt!("HS384", "rsa.pub", "rsa"),
    jwt!("HS512", "rsa.pub", "rsa"),
    jwt!("RS256", "rsa.pub", "rsa"),
    jwt!("RS384", "rsa.pub", "rsa"),
    jwt!("RS512", "rsa.pub", "rsa"),
    jwt!("PS256", "rsa.pub", "rsa"),
    jwt!("PS384", "rsa.pub", "rsa"),
    jwt!("PS512", "rsa.pub", "rsa"),
    jwt!("ES256", "p256.pub", "p256"),
    jwt!("ES384", "p384.pub", "p384.sec1"),
    jwt!("ES512", "p521.pub", "p521"),
];

const OLD: (Code, &str) = (
    Code::InvalidArgument,
    "etcdserver: revision of auth store is old",
);
const INVALID: (Code, &str) = (Code::Unauthenticated, "etcdserver: invalid auth token");
const DENIED: (Code, &str) = (Code::PermissionDenied, "etcdserver: permission denied");
const EMPTY: (Code, &str) = (Code::InvalidArgument, "etcdserver: user name is empty");
const NOT_FOUND: (Code, &str) = (Code::FailedPrecondition, "etcdserver: user name not found");

/// A result that two servers can be compared by.
type Outcome = Result<(), (Code, String)>;

fn outcome<T>(result: Result<T, Status>) -> Outcome {
    match result {
        Ok(_) => Ok(()),
        Err(status) => Err((status.code(), status.message().to_owned())),
    }
}

fn fails(expected: (Code, &str)) -> Outcome {
    Err((expected.0, expected.1.to_owned()))
}

/// A server with a client.
struct Node {
    server: Box<dyn Endpoint>,
    channel: Channel,
}

macro_rules! call {
    ($client:ident, $node:expr, $token:expr, $method:ident, $request:expr) => {
        $client::new($node.channel.clone())
            .$method(with_token($token, $request))
            .await
    };
}

fn with_token<T>(token: &str, request: T) -> Request<T> {
    let mut request = Request::new(request);
    if !token.is_empty() {
        request
            .metadata_mut()
            .insert("token", token.parse().unwrap());
    }
    request
}

impl Node {
    /// Starts a server with auth enabled, the users `root` and `u`, and the auth revision 7. The role of `u`
    /// grants access to the key `k`.
    async fn start(servers: &Servers, flag: &'static str, json_gateway: bool) -> Self {
        let flags: &'static [&'static str] = Box::leak(Box::new([flag, "--bcrypt-cost=4"]));
        let options = Options {
            json_gateway,
            flags,
            ..Options::default()
        };
        let server = servers.fresh(&options);
        let endpoint = Channel::from_shared(format!("http://{}", server.address()));
        let channel = endpoint.unwrap().connect_lazy();
        let node = Self { server, channel };
        node.add_user("", "root").await.unwrap();
        node.add_user("", "u").await.unwrap();
        let role = AuthRoleAddRequest { name: "r".into() };
        call!(AuthClient, node, "", role_add, role).unwrap();
        let permission = AuthRoleGrantPermissionRequest {
            name: "r".into(),
            perm: Some(Permission {
                perm_type: Type::Readwrite.into(),
                key: "k".into(),
                range_end: "".into(),
            }),
        };
        call!(AuthClient, node, "", role_grant_permission, permission).unwrap();
        for (user, role) in [("root", "root"), ("u", "r")] {
            let grant = AuthUserGrantRoleRequest {
                user: user.into(),
                role: role.into(),
            };
            call!(AuthClient, node, "", user_grant_role, grant).unwrap();
        }
        call!(AuthClient, node, "", auth_enable, AuthEnableRequest {}).unwrap();
        node
    }

    async fn add_user(&self, token: &str, name: &str) -> Outcome {
        let request = AuthUserAddRequest {
            name: name.into(),
            password: name.into(),
            ..AuthUserAddRequest::default()
        };
        outcome(call!(AuthClient, self, token, user_add, request))
    }

    async fn authenticate(&self, name: &str) -> Result<String, Status> {
        let request = AuthenticateRequest {
            name: name.into(),
            password: name.into(),
        };
        let response = call!(AuthClient, self, "", authenticate, request)?;
        Ok(response.into_inner().token)
    }

    async fn token(&self, name: &str) -> String {
        self.authenticate(name).await.unwrap()
    }

    async fn read(&self, token: &str, key: &'static str) -> Outcome {
        let request = RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        };
        outcome(call!(KvClient, self, token, range, request))
    }

    async fn put(&self, token: &str, key: &'static str) -> Outcome {
        let request = PutRequest {
            key: key.into(),
            ..PutRequest::default()
        };
        outcome(call!(KvClient, self, token, put, request))
    }

    /// Sends a transaction that reads and, if `writes`, puts the key `k`.
    async fn txn(&self, token: &str, reads: bool, writes: bool) -> Outcome {
        let range = OpRequest::RequestRange(RangeRequest {
            key: "k".into(),
            ..RangeRequest::default()
        });
        let put = OpRequest::RequestPut(PutRequest {
            key: "k".into(),
            ..PutRequest::default()
        });
        let ops = [(reads, range), (writes, put)];
        let ops = ops.into_iter().filter(|(is_wanted, _)| *is_wanted);
        let request = TxnRequest {
            success: ops.map(|(_, op)| RequestOp { request: Some(op) }).collect(),
            ..TxnRequest::default()
        };
        outcome(call!(KvClient, self, token, txn, request))
    }

    /// Returns the outcomes of requests of each kind, which depend on the token in different ways.
    async fn outcomes(&self, token: &str) -> Vec<(&'static str, Outcome)> {
        let grant = LeaseGrantRequest { ttl: 100, id: 0 };
        let get_user = |name: &str| AuthUserGetRequest { name: name.into() };
        vec![
            ("read", self.read(token, "k").await),
            ("read other", self.read(token, "x").await),
            ("put", self.put(token, "k").await),
            ("put other", self.put(token, "x").await),
            ("empty txn", self.txn(token, false, false).await),
            ("read-only txn", self.txn(token, true, false).await),
            ("txn", self.txn(token, true, true).await),
            (
                "lease",
                outcome(call!(LeaseClient, self, token, lease_grant, grant)),
            ),
            (
                "status",
                outcome(call!(
                    AuthClient,
                    self,
                    token,
                    auth_status,
                    AuthStatusRequest {}
                )),
            ),
            (
                "user",
                outcome(call!(AuthClient, self, token, user_get, get_user("u"))),
            ),
            (
                "other user",
                outcome(call!(AuthClient, self, token, user_get, get_user("root"))),
            ),
        ]
    }
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future);
}

fn unix_time() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time after 1970").as_secs()
}

/// Returns a part of a token as JSON.
fn part(token: &str, index: usize) -> Value {
    let part = token.split('.').nth(index).expect("three parts");
    serde_json::from_slice(&BASE64.decode(part).expect("base64")).expect("JSON")
}

fn au_14_tokens_of_one_server_are_valid_for_the_other(servers: &Servers) {
    block_on(async {
        for flag in METHODS {
            let nodes = [
                Node::start(servers, flag, false).await,
                Node::start(&REVSTORE, flag, false).await,
            ];
            for issuer in &nodes {
                let token = issuer.token("u").await;
                let header = part(&token, 0);
                assert_eq!(header["typ"], "JWT");
                assert!(flag.contains(header["alg"].as_str().unwrap()));
                let claims = part(&token, 1);
                let ttl = claims["exp"].as_u64().unwrap() - unix_time();
                assert!((200..=300).contains(&ttl), "{claims}");
                let expected = json!({"exp": claims["exp"], "revision": 7, "username": "u"});
                assert_eq!(claims, expected);
                for node in &nodes {
                    assert_eq!(node.read(&token, "k").await, Ok(()), "{flag}");
                    assert_eq!(node.read(&token, "x").await, fails(DENIED), "{flag}");
                    let changed = format!("{token}AAAA");
                    assert_eq!(node.read(&changed, "k").await, fails(INVALID), "{flag}");
                }
            }
        }
    });
}

/// Requests for keys need a new token after any change of auth. Administration does not.
fn au_16_a_change_of_auth_makes_tokens_old(servers: &Servers) {
    block_on(async {
        let node = Node::start(servers, METHODS[0], false).await;
        let (root, user) = (node.token("root").await, node.token("u").await);
        assert_eq!(node.read(&root, "x").await, Ok(()));
        node.add_user(&root, "v").await.unwrap();
        let expected = |admin: Outcome| {
            vec![
                ("read", fails(OLD)),
                ("read other", fails(OLD)),
                ("put", fails(OLD)),
                ("put other", fails(OLD)),
                ("empty txn", fails(OLD)),
                ("read-only txn", fails(OLD)),
                ("txn", fails(OLD)),
                ("lease", Ok(())),
                ("status", admin.clone()),
                ("user", Ok(())),
                ("other user", admin),
            ]
        };
        assert_eq!(node.outcomes(&root).await, expected(Ok(())));
        assert_eq!(node.outcomes(&user).await, expected(fails(DENIED)));
        let user = node.token("u").await;
        assert_eq!(node.read(&user, "k").await, Ok(()));

        // A new password, and a deleted user.
        let change = AuthUserChangePasswordRequest {
            name: "u".into(),
            password: "u".into(),
            ..AuthUserChangePasswordRequest::default()
        };
        call!(AuthClient, node, &root, user_change_password, change).unwrap();
        assert_eq!(node.read(&user, "k").await, fails(OLD));
        let user = node.token("u").await;
        let delete = AuthUserDeleteRequest { name: "u".into() };
        call!(AuthClient, node, &root, user_delete, delete).unwrap();
        assert_eq!(node.read(&user, "k").await, fails(OLD));
        assert!(node.authenticate("u").await.is_err());
    });
}

/// Whoever has the secret can create tokens of any content.
fn au_15_and_16_tokens_of_another_issuer(servers: &Servers) {
    block_on(async {
        let secret = std::fs::read(key!("rsa")).unwrap();
        let sign = |algorithm: &str, claims: &str| {
            let header = BASE64.encode(format!(r#"{{"alg":"{algorithm}"}}"#));
            let message = format!("{header}.{}", BASE64.encode(claims));
            let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
            let signature = hmac::sign(&key, message.as_bytes());
            format!("{message}.{}", BASE64.encode(signature))
        };
        let nodes = [
            Node::start(servers, METHODS[0], false).await,
            Node::start(&REVSTORE, METHODS[0], false).await,
        ];
        let now = unix_time();
        for (claims, expected) in [
            (r#"{"username":"u","revision":7}"#.to_owned(), Ok(())),
            (r#"{"username":"u","revision":7.9}"#.to_owned(), Ok(())),
            (r#"{"username":"u","revision":6}"#.to_owned(), fails(OLD)),
            (r#"{"username":"u","revision":8}"#.to_owned(), fails(OLD)),
            (r#"{"username":"u","revision":0}"#.to_owned(), fails(EMPTY)),
            (r#"{"username":"x","revision":7}"#.to_owned(), fails(DENIED)),
            (r#"{"username":"x","revision":6}"#.to_owned(), fails(OLD)),
            (r#"{"username":"","revision":7}"#.to_owned(), fails(DENIED)),
            (r#"{"username":"u"}"#.to_owned(), fails(INVALID)),
            (r#"{"revision":7}"#.to_owned(), fails(INVALID)),
            (r#"{"username":7,"revision":7}"#.to_owned(), fails(INVALID)),
            (
                r#"{"username":"u","revision":"7"}"#.to_owned(),
                fails(INVALID),
            ),
            (
                r#"{"username":"u","revision":7,"revision":6}"#.to_owned(),
                fails(OLD),
            ),
            ("[]".to_owned(), fails(INVALID)),
            (
                format!(r#"{{"username":"u","revision":7,"exp":{now}}}"#),
                fails(INVALID),
            ),
            (
                format!(r#"{{"username":"u","revision":7,"exp":{}}}"#, now + 99),
                Ok(()),
            ),
            (
                r#"{"username":"u","revision":7,"exp":0}"#.to_owned(),
                Ok(()),
            ),
            (
                r#"{"username":"u","revision":7,"exp":0.5}"#.to_owned(),
                fails(INVALID),
            ),
            (
                r#"{"username":"u","revision":7,"exp":null}"#.to_owned(),
                fails(INVALID),
            ),
            (
                r#"{"username":"u","revision":7,"exp":"9999999999"}"#.to_owned(),
                fails(INVALID),
            ),
            (
                format!(r#"{{"username":"u","revision":7,"nbf":{}}}"#, now + 99),
                fails(INVALID),
            ),
            (
                format!(r#"{{"username":"u","revision":7,"iat":{}}}"#, now + 99),
                fails(INVALID),
            ),
            (
                format!(r#"{{"username":"u","revision":7,"nbf":{now},"iat":{now}.5}}"#),
                Ok(()),
            ),
        ] {
            let token = sign("HS256", &claims);
            for node in &nodes {
                assert_eq!(node.read(&token, "k").await, expected, "{claims}");
            }
            let [one, other] = &nodes;
            let outcomes = one.outcomes(&token).await;
            assert_eq!(outcomes, other.outcomes(&token).await, "{claims}");
        }
        let claims = r#"{"username":"root","revision":7}"#;
        for algorithm in ["none", "HS512", "RS256", "x", ""] {
            let token = sign(algorithm, claims);
            let unsigned = token.rsplit_once('.').unwrap().0;
            for token in [token.clone(), format!("{unsigned}."), unsigned.to_owned()] {
                for node in &nodes {
                    assert_eq!(node.read(&token, "k").await, fails(INVALID), "{token}");
                }
            }
        }
        // The user of the administrative calls must exist.
        let token = sign("HS256", r#"{"username":"x","revision":7}"#);
        for node in &nodes {
            assert_eq!(node.add_user(&token, "y").await, fails(NOT_FOUND));
        }
    });
}

fn au_14_a_server_with_a_public_key_only_verifies(servers: &Servers) {
    const VERIFY_ONLY: [&str; 2] = [
        concat!(
            "--auth-token=jwt,sign-method=RS256,pub-key=",
            key!("rsa.pub")
        ),
        concat!(
            "--auth-token=jwt,sign-method=ES256,pub-key=",
            key!("p256.cert")
        ),
    ];
    block_on(async {
        for (flag, signer) in VERIFY_ONLY.into_iter().zip([METHODS[3], METHODS[9]]) {
            let issuer = Node::start(&REVSTORE, signer, false).await;
            let node = Node::start(servers, flag, false).await;
            let status = node.authenticate("u").await.unwrap_err();
            let text = "auth: token signing attempted with verify-only key";
            assert_eq!((status.code(), status.message()), (Code::Unknown, text));
            let token = issuer.token("u").await;
            assert_eq!(node.read(&token, "k").await, Ok(()));
        }
    });
}

fn au_15_the_gateway_accepts_tokens(servers: &Servers) {
    block_on(async {
        let node = Node::start(servers, METHODS[9], true).await;
        let token = node.token("u").await;
        for (token, status) in [(token.as_str(), 200), ("a.b.c", 401)] {
            let request = HttpRequest {
                method: "POST",
                path: "/v3/kv/range",
                headers: &[("authorization", token)],
                body: r#"{"key":"aw=="}"#,
            };
            let response: http::Response = request.send(node.server.address()).unwrap();
            assert_eq!(response.status, status, "{response:?}");
        }
    });
}
