//! Runs a script against a node and checks every result.

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

use crate::consistency;
use crate::open_call::OpenCall;
use crate::script::{Script, ScriptCall, ScriptStep, Setup, frame, method};

/// The maximum number of open calls. A further call cancels the oldest one.
const OPEN_CALLS_MAX: usize = 6;

/// The time limit for a call that does not wait for other calls. The slowest one hashes a password
/// on a busy machine.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of polls of an open call between two steps. A poll may make progress that only the
/// next poll reports.
const POLLS_PER_STEP: usize = 3;

/// The maximum number of revisions that a waiting lock or campaign call adds in one step: its key,
/// a new value of the key, and the deletion of the key.
const WAITER_REVISIONS_MAX: i64 = 3;

struct Runner {
    clock: ManualClock,
    engine: Engine,
    services: Services,
    shutdown: Shutdown,
    open: Vec<OpenCall>,
    /// Auth tokens, in the order in which they were issued.
    tokens: Vec<String>,
    /// The revision after the last step.
    revision: i64,
}

/// Decodes `script` into steps, runs them and checks each result and the final store.
pub(crate) fn run(script: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (setup, steps) = Script::decode(script);
    runtime.block_on(async {
        let mut runner = Runner::new(setup).await;
        for step in steps {
            runner.step(step).await;
        }
        runner.finish().await;
    });
}

impl Runner {
    async fn new(setup: Setup) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let shutdown = Shutdown::new();
        let small = Limits::default()
            .request_bytes_max(2000)
            .txn_ops_max(3)
            .quota_bytes(Some(8000));
        let services = Services::builder(engine.clone())
            .identity(
                Identity::new(1, 2)
                    .name("default")
                    .peer_urls(["http://localhost:2380"])
                    .client_urls(["http://localhost:2379"]),
            )
            .limits(if setup.small_limits {
                small
            } else {
                Limits::default()
            })
            .auth(AuthOptions::default().bcrypt_cost(4))
            .shutdown(shutdown.clone());
        let mut runner = Self {
            clock,
            services: services.build(),
            shutdown,
            open: Vec::new(),
            tokens: Vec::new(),
            revision: engine.current_revision().0,
            engine,
        };
        if setup.history {
            runner.write_history().await;
        }
        if setup.auth {
            runner.enable_auth().await;
        }
        runner
    }

    /// Grants leases, writes keys and compacts.
    async fn write_history(&mut self) {
        for id in 1..4 {
            self.call_ok("Lease", "LeaseGrant", LeaseGrantRequest { ttl: 60, id })
                .await;
        }
        for (key, lease) in [("a", 1), ("b", 2), ("a", 0), ("a/1", 1), ("c", 3), ("b", 2)] {
            let put = PutRequest {
                key: key.into(),
                value: "v".into(),
                lease,
                ..PutRequest::default()
            };
            self.call_ok("KV", "Put", put).await;
        }
        let revision = 4;
        self.call_ok(
            "KV",
            "Compact",
            CompactionRequest {
                revision,
                physical: true,
            },
        )
        .await;
    }

    /// Enables auth with the users `root` and `u`. `u` has the role `r`, which grants access to the
    /// keys from `a` up to `b`. Authenticates both users.
    async fn enable_auth(&mut self) {
        for role in ["root", "r"] {
            self.call_ok("Auth", "RoleAdd", AuthRoleAddRequest { name: role.into() })
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
        self.call_ok("Auth", "RoleGrantPermission", grant).await;
        for (user, role) in [("root", "root"), ("u", "r")] {
            let add = AuthUserAddRequest {
                name: user.into(),
                password: "p".into(),
                ..AuthUserAddRequest::default()
            };
            self.call_ok("Auth", "UserAdd", add).await;
            let grant = AuthUserGrantRoleRequest {
                user: user.into(),
                role: role.into(),
            };
            self.call_ok("Auth", "UserGrantRole", grant).await;
        }
        self.call_ok("Auth", "AuthEnable", AuthEnableRequest {})
            .await;
        for user in ["root", "u"] {
            let login = AuthenticateRequest {
                name: user.into(),
                password: "p".into(),
            };
            self.call_ok("Auth", "Authenticate", login).await;
        }
    }

    /// Sends a unary request and asserts that it succeeds.
    async fn call_ok(&mut self, service: &str, name: &str, request: impl Message) {
        let call = ScriptCall {
            method: method(service, name).clone(),
            data: vec![frame(&request.encode_to_vec())],
            well_formed: true,
            stays_open: false,
            token: None,
        };
        let status = self.call(&call).await;
        assert_eq!(status.map(|status| status.code()), Some(Code::Ok), "{name}");
    }

    async fn step(&mut self, step: ScriptStep) {
        match step {
            ScriptStep::Call(call) => {
                self.call(&call).await;
            }
            ScriptStep::Send { call, data } => {
                if let Some(open) = self.open.get(call) {
                    open.send(&data);
                    self.poll_open(call).await;
                }
            }
            ScriptStep::HalfClose { call } => {
                if let Some(open) = self.open.get_mut(call) {
                    open.half_close();
                    self.poll_open(call).await;
                }
            }
            ScriptStep::Cancel { call } => {
                if call < self.open.len() {
                    drop(self.open.remove(call));
                    self.check_growth(WAITER_REVISIONS_MAX);
                }
            }
            ScriptStep::PollOpen => {
                for call in (0..self.open.len()).rev() {
                    self.poll_open(call).await;
                }
            }
            ScriptStep::Advance(by) => {
                let leases = self.engine.leases().len();
                self.clock.advance(by);
                self.check_growth(i64::try_from(leases).unwrap());
            }
        }
    }

    /// Starts a call. Returns its status if it has ended, and adds it to the open calls otherwise.
    async fn call(&mut self, call: &ScriptCall) -> Option<Status> {
        let token = call.token.and_then(|index| self.tokens.get(index));
        let mut open = OpenCall::new(&self.services, call, token.map(String::as_str));
        let status = if open.may_wait() {
            let status = poll_some(&mut open).await;
            self.check_growth(WAITER_REVISIONS_MAX);
            status
        } else {
            let ended = poll_fn(|context| open.poll(context));
            let ended = tokio::time::timeout(CALL_TIMEOUT, ended).await;
            let status =
                ended.unwrap_or_else(|_| panic!("no response within {CALL_TIMEOUT:?} to {call:?}"));
            self.check_growth(i64::from(writes(call.method.full_name())));
            Some(status)
        };
        let Some(status) = status else {
            self.open.push(open);
            if self.open.len() > OPEN_CALLS_MAX {
                drop(self.open.remove(0));
                self.check_growth(WAITER_REVISIONS_MAX);
            }
            return None;
        };
        self.check_response(call, &open, &status);
        if let Some(token) = open.messages.first().and_then(token_of) {
            self.tokens.push(token);
        }
        Some(status)
    }

    /// Checks the number of messages, the status and the revision of a call that has ended.
    fn check_response(&self, call: &ScriptCall, ended: &OpenCall, status: &Status) {
        assert!(
            !call.well_formed || status.code() != Code::Internal,
            "unexpected status {status:?} of {call:?}"
        );
        if call.method.is_server_streaming() {
            return;
        }
        let expected = usize::from(status.code() == Code::Ok);
        assert_eq!(ended.messages.len(), expected, "{status:?} of {call:?}");
        // All steps run on this thread, so the store has not changed after the response was
        // created.
        if let Some(revision) = ended.messages.first().and_then(header_revision) {
            assert!((0..=self.revision).contains(&revision), "{ended:?}");
            if call.method.parent_service().name() == "KV" {
                assert_eq!(revision, self.revision, "{ended:?}");
            }
        }
    }

    /// Reads the ready part of the response to an open call. Removes the call if it has ended.
    async fn poll_open(&mut self, call: usize) {
        let ended = poll_some(&mut self.open[call]).await;
        if ended.is_some() {
            drop(self.open.remove(call));
        }
        self.check_growth(WAITER_REVISIONS_MAX);
    }

    /// DM-1: asserts that the last step added between 0 and `max` revisions.
    fn check_growth(&mut self, max: i64) {
        let current = self.engine.current_revision().0;
        assert!(
            (0..=max).contains(&(current - self.revision)),
            "from revision {} to {current}, where at most {max} more are allowed",
            self.revision
        );
        self.revision = current;
    }

    /// Checks the store, shuts the node down, and checks that all open calls end.
    async fn finish(mut self) {
        consistency::check(&self.engine);
        self.shutdown.begin();
        for open in &mut self.open {
            let ended = poll_some(open).await;
            assert!(
                ended.is_some(),
                "FL-15: still open after the shutdown: {open:?}"
            );
        }
        self.open.clear();
        self.check_growth(i64::try_from(OPEN_CALLS_MAX).unwrap() * WAITER_REVISIONS_MAX);
        consistency::check(&self.engine);
    }
}

/// Polls a call [`POLLS_PER_STEP`] times. Returns its status if it has ended.
async fn poll_some(call: &mut OpenCall) -> Option<Status> {
    for _ in 0..POLLS_PER_STEP {
        let polled = poll_fn(|context| Poll::Ready(call.poll(context)));
        if let Poll::Ready(status) = polled.await {
            return Some(status);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Returns whether a call of `method`, which does not wait for other calls, may add a revision. It
/// adds at most one (I1).
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
