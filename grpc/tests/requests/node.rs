//! A node that a script is played against.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use prost_reflect::prost::Message;
use prost_reflect::{DynamicMessage, ReflectMessage, Value};
use revstore_engine::{Engine, ManualClock};
use revstore_grpc::{AuthOptions, Identity, Limits, Services, Shutdown};
use revstore_proto::authpb::Permission;
use revstore_proto::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, CompactionRequest, LeaseGrantRequest,
    PutRequest,
};
use tonic::{Code, Status};

use crate::exchange::Exchange;
use crate::script::{Call, Script, Setup, Step, frame, method};
use crate::whole;

/// Calls that are open at a time; the oldest is broken off for one more.
const OPEN_MAX: usize = 6;

/// Real time that a call may take which waits for nobody; hashing on a busy machine is the slowest.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls that an open call gets between two steps: it may need a second to see what the first did.
const POLLS: usize = 3;

/// The most revisions that somebody makes who stands in line: the place, a value for it, and its end.
const LINE_REVISIONS_MAX: i64 = 3;

struct Node {
    clock: ManualClock,
    engine: Engine,
    services: Services,
    shutdown: Shutdown,
    open: Vec<Exchange>,
    tokens: Vec<String>,
    /// The revision after the last step.
    revision: i64,
}

/// Plays the script that some bytes make, and judges what comes of it.
pub(crate) fn play(script: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (setup, script) = Script::of(script);
    runtime.block_on(async {
        let mut node = Node::new(setup).await;
        for step in script {
            node.step(step).await;
        }
        node.end().await;
    });
}

impl Node {
    async fn new(setup: Setup) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let shutdown = Shutdown::new();
        let limits = Limits {
            request_bytes_max: 2000,
            txn_ops_max: 3,
            quota_bytes: Some(8000),
        };
        let services = Services::builder(engine.clone())
            .identity(Identity {
                cluster_id: 1,
                member_id: 2,
                name: "default".into(),
                peer_urls: vec!["http://localhost:2380".into()],
                client_urls: vec!["http://localhost:2379".into()],
            })
            .limits(if setup.small_limits {
                limits
            } else {
                Limits::default()
            })
            .auth(AuthOptions {
                bcrypt_cost: 4,
                ..AuthOptions::default()
            })
            .shutdown(shutdown.clone());
        let mut node = Self {
            clock,
            services: services.build(),
            shutdown,
            open: Vec::new(),
            tokens: Vec::new(),
            revision: engine.current_revision().0,
            engine,
        };
        if setup.history {
            node.write_history().await;
        }
        if setup.auth {
            node.enable_auth().await;
        }
        node
    }

    async fn write_history(&mut self) {
        for id in 1..4 {
            self.expect("Lease", "LeaseGrant", LeaseGrantRequest { ttl: 60, id })
                .await;
        }
        for (key, lease) in [("a", 1), ("b", 2), ("a", 0), ("a/1", 1), ("c", 3), ("b", 2)] {
            let put = PutRequest {
                key: key.into(),
                value: "v".into(),
                lease,
                ..PutRequest::default()
            };
            self.expect("KV", "Put", put).await;
        }
        let revision = 4;
        self.expect(
            "KV",
            "Compact",
            CompactionRequest {
                revision,
                physical: true,
            },
        )
        .await;
    }

    /// `root` may do all, `u` what the role `r` may.
    async fn enable_auth(&mut self) {
        for role in ["root", "r"] {
            self.expect("Auth", "RoleAdd", AuthRoleAddRequest { name: role.into() })
                .await;
        }
        let grant = AuthRoleGrantPermissionRequest {
            name: "r".into(),
            perm: Some(Permission {
                perm_type: 2,
                key: "a".into(),
                range_end: "b".into(),
            }),
        };
        self.expect("Auth", "RoleGrantPermission", grant).await;
        for (user, role) in [("root", "root"), ("u", "r")] {
            let add = AuthUserAddRequest {
                name: user.into(),
                password: "p".into(),
                ..AuthUserAddRequest::default()
            };
            self.expect("Auth", "UserAdd", add).await;
            let grant = AuthUserGrantRoleRequest {
                user: user.into(),
                role: role.into(),
            };
            self.expect("Auth", "UserGrantRole", grant).await;
        }
        self.expect("Auth", "AuthEnable", AuthEnableRequest {})
            .await;
        for user in ["root", "u"] {
            let login = AuthenticateRequest {
                name: user.into(),
                password: "p".into(),
            };
            self.expect("Auth", "Authenticate", login).await;
        }
    }

    /// Makes a call that succeeds.
    async fn expect(&mut self, service: &str, name: &str, request: impl Message) {
        let call = Call {
            method: method(service, name).clone(),
            data: vec![frame(&request.encode_to_vec())],
            intact: true,
            stays_open: false,
            sender: None,
        };
        let status = self.call(&call).await;
        assert_eq!(status.map(|status| status.code()), Some(Code::Ok), "{name}");
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Call(call) => {
                self.call(&call).await;
            }
            Step::Say { call, data } => {
                if let Some(open) = self.open.get(call) {
                    open.say(&data);
                    self.listen(call).await;
                }
            }
            Step::HalfClose { call } => {
                if let Some(open) = self.open.get_mut(call) {
                    open.half_close();
                    self.listen(call).await;
                }
            }
            Step::HangUp { call } => {
                if call < self.open.len() {
                    drop(self.open.remove(call));
                    self.check_growth(LINE_REVISIONS_MAX);
                }
            }
            Step::Listen => {
                for call in (0..self.open.len()).rev() {
                    self.listen(call).await;
                }
            }
            Step::Advance(by) => {
                let leases = self.engine.leases().len();
                self.clock.advance(by);
                self.check_growth(i64::try_from(leases).unwrap());
            }
        }
    }

    /// Makes a call; returns how it ended, if it did.
    async fn call(&mut self, call: &Call) -> Option<Status> {
        let token = call.sender.and_then(|sender| self.tokens.get(sender));
        let mut exchange = Exchange::begin(&self.services, call, token.map(String::as_str));
        let status = if exchange.may_wait() {
            let status = poll_some(&mut exchange).await;
            self.check_growth(LINE_REVISIONS_MAX);
            status
        } else {
            let ended = poll_fn(|context| exchange.poll(context));
            let ended = tokio::time::timeout(PATIENCE, ended).await;
            let status = ended.unwrap_or_else(|_| panic!("no end to {call:?}"));
            self.check_growth(i64::from(writes(call.method.full_name())));
            Some(status)
        };
        let Some(status) = status else {
            self.open.push(exchange);
            if self.open.len() > OPEN_MAX {
                drop(self.open.remove(0));
                self.check_growth(LINE_REVISIONS_MAX);
            }
            return None;
        };
        self.check_answer(call, &exchange, &status);
        if let Some(token) = exchange.messages.first().and_then(token_of) {
            self.tokens.push(token);
        }
        Some(status)
    }

    fn check_answer(&self, call: &Call, exchange: &Exchange, status: &Status) {
        assert!(
            !call.intact || status.code() != Code::Internal,
            "{status:?} to {call:?}"
        );
        if call.method.is_server_streaming() {
            return;
        }
        let expected = usize::from(status.code() == Code::Ok);
        assert_eq!(exchange.messages.len(), expected, "{status:?} to {call:?}");
        // Everything happens on this thread: what the answer tells is what is.
        if let Some(revision) = exchange.messages.first().and_then(header_revision) {
            assert!((0..=self.revision).contains(&revision), "{exchange:?}");
            if call.method.parent_service().name() == "KV" {
                assert_eq!(revision, self.revision, "{exchange:?}");
            }
        }
    }

    /// Reads the answer of an open call as far as it goes.
    async fn listen(&mut self, call: usize) {
        let ended = poll_some(&mut self.open[call]).await;
        if ended.is_some() {
            drop(self.open.remove(call));
        }
        self.check_growth(LINE_REVISIONS_MAX);
    }

    /// DM-1: no revision is lost, and none is made that nobody asked for.
    fn check_growth(&mut self, most: i64) {
        let now = self.engine.current_revision().0;
        assert!(
            (0..=most).contains(&(now - self.revision)),
            "from revision {} to {now}, where {most} more are the most",
            self.revision
        );
        self.revision = now;
    }

    /// Looks whether the store is whole, and whether the node can go down.
    async fn end(mut self) {
        whole::check(&self.engine);
        self.shutdown.begin();
        for open in &mut self.open {
            let ended = poll_some(open).await;
            assert!(
                ended.is_some(),
                "FL-15: goes on after the shutdown: {open:?}"
            );
        }
        self.open.clear();
        self.check_growth(i64::try_from(OPEN_MAX).unwrap() * LINE_REVISIONS_MAX);
        whole::check(&self.engine);
    }
}

/// Polls a call as long as it may have more to say.
async fn poll_some(exchange: &mut Exchange) -> Option<Status> {
    for _ in 0..POLLS {
        let polled = poll_fn(|context| Poll::Ready(exchange.poll(context)));
        if let Poll::Ready(status) = polled.await {
            return Some(status);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Whether a method that waits for nobody may make a revision; it makes one at most (I1).
fn writes(method: &str) -> bool {
    matches!(
        method,
        "etcdserverpb.KV.Put"
            | "etcdserverpb.KV.DeleteRange"
            | "etcdserverpb.KV.Txn"
            | "etcdserverpb.Lease.LeaseRevoke"
            | "v3lockpb.Lock.Unlock"
            | "v3electionpb.Election.Proclaim"
            | "v3electionpb.Election.Resign"
    )
}

fn header_revision(message: &DynamicMessage) -> Option<i64> {
    let header = message.descriptor().get_field_by_name("header")?;
    if !message.has_field(&header) {
        return None;
    }
    let header = message.get_field(&header);
    header.as_message()?.get_field_by_name("revision")?.as_i64()
}

fn token_of(message: &DynamicMessage) -> Option<String> {
    match message.get_field_by_name("token")?.into_owned() {
        Value::String(token) => Some(token),
        _ => None,
    }
}
