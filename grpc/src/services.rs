//! The services as one HTTP service for the connections of a server.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, ready};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::Body;
use revstore_engine::Engine;
use revstore_persist::{Metadata as StoredMetadata, Persist};
use revstore_proto::etcdserverpb::auth_server::AuthServer;
use revstore_proto::etcdserverpb::cluster_server::ClusterServer;
use revstore_proto::etcdserverpb::lease_server::LeaseServer;
use revstore_proto::etcdserverpb::maintenance_server::MaintenanceServer;
use revstore_proto::health::health_server::HealthServer;
use revstore_proto::v3electionpb::election_server::ElectionServer;
use revstore_proto::v3lockpb::lock_server::LockServer;
use tonic::Status;
use tonic::codegen::{BoxFuture, StdError};

use crate::auth::credentials::{CertifiedName, Credentials, TOKEN_NAMES};
use crate::auth::{Auth, AuthOptions, AuthStore};
use crate::compression;
use crate::deadline::{self, Deadline};
use crate::durable_body::DurableBody;
use crate::encode::large_answer::LargeAnswer;
use crate::encode::response::Headers;
use crate::generated::{KvServer, WatchServer};
use crate::heavy::{Heavy, HeavyStats};
use crate::limited_body::LimitedBody;
use crate::methods::{self, RpcMethod, ServiceId};
use crate::node::Node;
use crate::node::admission::{Alarms, Limits, RaftIndex};
use crate::node::compaction_log;
use crate::node::counters::{AtomicCounters, OpCounters};
use crate::node::durability::{Durability, RaftState, Restored};
use crate::node::identity::Identity;
use crate::node::members::{ClusterMember, Members, PromoteFailures};
use crate::node::shutdown::Shutdown;
use crate::node::slow::{self, ApplyObserver, SlowRequests};
use crate::node::state::NodeState;
use crate::service::auth::AuthService;
use crate::service::cluster::ClusterService;
use crate::service::concurrency::election::ElectionService;
use crate::service::concurrency::lock::LockService;
use crate::service::health::HealthService;
use crate::service::kv::KvService;
use crate::service::lease::LeaseService;
use crate::service::maintenance::MaintenanceService;
use crate::service::watch::WatchService;
use crate::status;

/// The default version of a server (MT-2). Clients enable features depending on it.
const VERSION: &str = "3.5.30";

/// The maximum size of the metadata of a call (LI-10).
const METADATA_BYTES_MAX: usize = 1 << 20;

/// The overhead of a header field, by which HTTP/2 counts its size.
const FIELD_BYTES: usize = 32;

/// etcd's gRPC services over an engine, as one HTTP service for any number of connections.
///
/// Clones share all state and cost one reference count. A call costs no more than a call of the generated
/// servers: there is no lock and no task per call. The size of request bodies is checked against [`Limits`]
/// while they are received.
///
/// Calls must run inside a tokio runtime: compactions and hashes use its threads for blocking work, and calls
/// with a timeout use its timers when they wait.
///
/// ```
/// use revstore_engine::Engine;
/// use revstore_grpc::Services;
/// use revstore_proto::etcdserverpb::PutRequest;
/// use revstore_proto::etcdserverpb::kv_client::KvClient;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let services = Services::builder(Engine::builder().build()).build();
/// // A client can call the services directly, without a connection.
/// let mut client = KvClient::new(services);
/// let put = PutRequest { key: "key".into(), value: "value".into(), ..PutRequest::default() };
/// assert_eq!(client.put(put).await?.into_inner().header.unwrap().revision, 2);
/// # Ok::<(), tonic::Status>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Services {
    inner: Arc<ServicesInner>,
}

#[derive(Debug)]
struct ServicesInner {
    node: Arc<Node>,
    kv: KvServer<KvService>,
    watch: WatchServer<WatchService>,
    lease: LeaseServer<LeaseService>,
    maintenance: MaintenanceServer<MaintenanceService>,
    cluster: ClusterServer<ClusterService>,
    auth: AuthServer<AuthService>,
    lock: LockServer<LockService>,
    election: ElectionServer<ElectionService>,
    health: HealthServer<HealthService>,
}

/// A builder of [`Services`], created by [`Services::builder`].
///
/// | option | default |
/// |---|---|
/// | [`identity`](Self::identity) | ids 0, no name, no URLs |
/// | [`version`](Self::version) | 3.5.30 |
/// | [`limits`](Self::limits) | etcd's |
/// | [`auth`](Self::auth) | etcd's: simple tokens for 300 s, bcrypt with cost 10 |
/// | [`shutdown`](Self::shutdown) | a signal that never begins |
/// | [`watch_catch_up_delay`](Self::watch_catch_up_delay) | none |
/// | [`persist`](Self::persist) | no journal |
/// | [`state`](Self::state) | that of a new node |
/// | [`warning_apply_duration`](Self::warning_apply_duration) | 100 ms |
/// | [`warning_unary_request_duration`](Self::warning_unary_request_duration) | 300 ms |
/// | [`apply_observer`](Self::apply_observer) | none |
#[derive(Clone, Debug)]
#[must_use = "services are created by `build`"]
pub struct ServicesBuilder {
    engine: Engine,
    identity: Identity,
    version: String,
    limits: Limits,
    auth: AuthOptions,
    shutdown: Shutdown,
    watch_catch_up_delay: Duration,
    warning_apply_duration: Duration,
    warning_unary_request_duration: Duration,
    apply_observer: Option<Arc<dyn ApplyObserver>>,
    persist: Option<(Persist, StoredMetadata)>,
    state: Option<NodeState>,
}

impl Services {
    /// Returns a builder of services over `engine`.
    pub fn builder(engine: Engine) -> ServicesBuilder {
        ServicesBuilder {
            engine,
            identity: Identity::default(),
            version: VERSION.to_owned(),
            limits: Limits::default(),
            auth: AuthOptions::default(),
            shutdown: Shutdown::new(),
            watch_catch_up_delay: Duration::ZERO,
            persist: None,
            state: None,
            warning_apply_duration: slow::APPLY,
            warning_unary_request_duration: slow::UNARY,
            apply_observer: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn heavy(&self) -> &Arc<Heavy> {
        &self.inner.node.heavy
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.inner.node.engine
    }

    /// Copies the state of the node, besides its keys and leases. It is not more recent than a fork of the
    /// engine that was created before: take that first.
    pub fn state(&self) -> NodeState {
        NodeState::of(&self.inner.node)
    }

    /// Begins the next Raft term, as if the leader had changed and were this node again, and returns the term: responses
    /// have it, the Raft index grows by the entry of the new leader, and leases get their whole time to live again, as a
    /// new leader of etcd grants it. Calls and streams go on. Returns `None`, and does nothing, after the highest term.
    pub fn begin_raft_term(&self) -> Option<u64> {
        let node = &self.inner.node;
        let term = node.headers.next_raft_term()?;
        node.raft_index.advance();
        for lease in node.engine.leases() {
            // A lease that has ended meanwhile stays so.
            let _ = node.engine.keep_alive(lease);
        }
        if let Some(durability) = &node.durability {
            durability.store_raft_term(node);
        }
        Some(term)
    }

    /// Returns the number of calls of [`begin_raft_term`](Self::begin_raft_term).
    pub fn raft_terms_begun(&self) -> u64 {
        self.inner.node.headers.raft_terms_begun()
    }

    /// Returns the alarms, for health checks.
    pub fn alarms(&self) -> &Alarms {
        &self.inner.node.alarms
    }

    /// Returns whether auth is enabled. Requests then need a user.
    pub fn is_auth_enabled(&self) -> bool {
        self.inner.node.auth.is_enabled()
    }

    /// Returns the user of a request with these headers, on a connection with this certificate: of its token while auth is
    /// enabled, or else of the certificate. Checks no permission.
    pub fn user_of(
        &self,
        headers: &HeaderMap,
        certified: Option<&CertifiedName>,
    ) -> Option<Arc<str>> {
        let mut tokens = HeaderMap::new();
        for name in TOKEN_NAMES {
            if let Some(token) = headers.get(name) {
                tokens.insert(name, token.clone());
            }
        }
        let credentials = Credentials::of_headers(tokens, certified.cloned());
        let node = &self.inner.node;
        (node.auth).claimed_user(credentials.identity(), node.engine.now())
    }

    /// Returns the number of changes of users, roles and permissions, plus one.
    // AU-1
    pub fn auth_revision(&self) -> u64 {
        self.inner.node.auth.read(AuthStore::revision)
    }

    /// Returns the counters of operations in transactions and of watch events.
    pub fn op_counters(&self) -> OpCounters {
        self.inner.node.counters.load()
    }

    /// Returns the use of the threads and the memory for heavy requests.
    pub fn heavy_stats(&self) -> HeavyStats {
        self.inner.node.heavy.stats()
    }

    /// Returns the number of executions that took longer than
    /// [`warning_apply_duration`](ServicesBuilder::warning_apply_duration).
    pub fn slow_applies(&self) -> u64 {
        self.inner.node.slow.count()
    }

    /// Logs automatic compactions of the engine as etcd does, until the future is dropped. Returns `None` if the
    /// engine has no policy, or if its compactions are read already.
    pub fn log_auto_compactions(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let engine = self.inner.node.engine.clone();
        let compactions = engine.auto_compactions()?;
        Some(compaction_log::run(engine, compactions))
    }

    /// Returns the members of the cluster, ordered by id: this node, and a learner that a client has added.
    pub fn members(&self) -> Vec<ClusterMember> {
        self.inner.node.members.list()
    }

    /// Returns the numbers of failed promotions of members.
    pub fn promote_failures(&self) -> PromoteFailures {
        self.inner.node.members.promote_failures()
    }

    /// Returns the number of proposals that etcd would have in its Raft log.
    // DM-13
    pub fn raft_index(&self) -> u64 {
        self.inner.node.raft_index.get()
    }

    /// Stores the number of proposals in the journal, if there is one. For the end of a server, before it closes the
    /// journal: services after those of a process that was killed continue with a higher number.
    pub fn store_raft_index(&self) {
        if let Some(durability) = &self.inner.node.durability {
            durability.store_raft_index(&self.inner.node);
        }
    }
}

impl ServicesBuilder {
    /// Sets the ids, the name and the URLs of the node.
    pub fn identity(self, identity: Identity) -> Self {
        Self { identity, ..self }
    }

    /// Sets the version of etcd that the server reports, as `major.minor.patch`.
    pub fn version(self, version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            ..self
        }
    }

    /// Sets the limits on requests and on the history.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the options of authentication. They take effect when auth is enabled.
    pub fn auth(self, auth: AuthOptions) -> Self {
        Self { auth, ..self }
    }

    /// Sets the signal that ends all open streams.
    pub fn shutdown(self, shutdown: Shutdown) -> Self {
        Self { shutdown, ..self }
    }

    /// Sets the time for which the responses of a watch stream wait after the creation of a watch that starts
    /// in the past, by the time of tokio. Without a delay, history is delivered immediately. etcd delivers it
    /// every 100 ms, which slows down clients that create such watches again and again without a pause.
    pub fn watch_catch_up_delay(self, delay: Duration) -> Self {
        Self {
            watch_catch_up_delay: delay,
            ..self
        }
    }

    /// Sets the time above which the execution of a range, a put, a deletion or a transaction is logged.
    pub fn warning_apply_duration(self, duration: Duration) -> Self {
        Self {
            warning_apply_duration: duration,
            ..self
        }
    }

    /// Sets the time of such a call above which its response has [`RequestStats`](crate::RequestStats) as an extension, for the log of the
    /// server.
    pub fn warning_unary_request_duration(self, duration: Duration) -> Self {
        Self {
            warning_unary_request_duration: duration,
            ..self
        }
    }

    /// Sets the receiver of the times of executions. With it, an execution reads the exact time twice.
    pub fn apply_observer(self, observer: Arc<dyn ApplyObserver>) -> Self {
        Self {
            apply_observer: Some(observer),
            ..self
        }
    }

    /// Sets the journal of the engine, and continues with the users, roles, alarms, members and the Raft state in its
    /// metadata.
    ///
    /// If the journal is synced always, the response of a call is sent when everything that it depends on is
    /// synced; watches may deliver events before. While the journal fails, writes fail and reads go on.
    pub fn persist(self, persist: Persist, metadata: &StoredMetadata) -> Self {
        Self {
            persist: Some((persist, metadata.clone())),
            ..self
        }
    }

    /// Continues with the users, roles, alarms, members and the Raft state of another node, instead of those of a
    /// [journal](Self::persist). The Raft term stays the same, and the ids in alarms and members are not changed.
    /// Members of a node with another [identity](Self::identity) are ignored.
    pub fn state(self, state: NodeState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    /// Creates the services.
    pub fn build(self) -> Services {
        let bytes_max = self.limits.message_bytes_max();
        let heavy = Arc::new(Heavy::new(&self.limits, self.engine.clock()));
        let metadata = self.persist.as_ref().map(|(_, metadata)| metadata);
        let mut restored = metadata.map(Restored::of).unwrap_or_default();
        restored.raft = restored.raft.map(RaftState::after_restart);
        if let Some(state) = &self.state {
            restored = state.restored();
        }
        let headers = Headers::new(self.identity.cluster_id, self.identity.member_id);
        let (headers, raft_index) = match restored.raft {
            None => (headers, RaftIndex::new()),
            Some(RaftState { term, index }) => (headers.with_raft_term(term), RaftIndex::at(index)),
        };
        let auth = Auth::new(self.auth, restored.auth, self.engine.clock());
        let node = Arc::new(Node {
            headers,
            engine: self.engine,
            members: Members::new(&self.identity, restored.members),
            identity: self.identity,
            version: self.version,
            limits: self.limits,
            alarms: Alarms::default(),
            auth,
            raft_index,
            counters: AtomicCounters::default(),
            heavy,
            shutdown: self.shutdown,
            watch_catch_up_delay: self.watch_catch_up_delay,
            durability: self.persist.map(|(persist, _)| Durability::new(persist)),
            slow: SlowRequests::new(
                self.warning_apply_duration,
                self.warning_unary_request_duration,
                self.apply_observer,
            ),
        });
        for alarm in restored.alarms {
            node.alarms.raise(alarm);
        }
        if let Some(durability) = &node.durability {
            durability.observe(&node);
            durability.reserve_raft_index(&node);
        }
        // `LimitedBody` rejects larger messages first. Without these calls, tonic's default limit would apply
        // to smaller messages.
        let inner = ServicesInner {
            kv: KvServer::new(KvService::new(node.clone())).max_decoding_message_size(bytes_max),
            watch: WatchServer::new(WatchService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            lease: LeaseServer::new(LeaseService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            maintenance: MaintenanceServer::new(MaintenanceService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            cluster: ClusterServer::new(ClusterService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            auth: AuthServer::new(AuthService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            lock: LockServer::new(LockService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            election: ElectionServer::new(ElectionService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            health: HealthServer::new(HealthService::new(node.clone()))
                .max_decoding_message_size(bytes_max),
            node,
        };
        Services {
            inner: Arc::new(inner),
        }
    }
}

impl<B> tower_service::Service<http::Request<B>> for Services
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<StdError>,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let inner = &*self.inner;
        let metadata = Metadata::of_call(request.headers());
        if metadata.bytes > METADATA_BYTES_MAX {
            let status = status::metadata_too_large(metadata.bytes, METADATA_BYTES_MAX);
            return ResponseFuture::of_status(status);
        }
        let path = request.uri().path();
        let Some(method) = RpcMethod::of_path(path) else {
            // LI-9 comes before HL-3.
            if let Some(Err(status)) = metadata.timeout.map(deadline::parse_header) {
                return ResponseFuture::bad_request(status);
            }
            return ResponseFuture::of_status(methods::no_such_method(path));
        };
        let deadline = match metadata.timeout {
            None => None,
            Some(timeout) => match Deadline::of_call(timeout, method) {
                Ok(deadline) => deadline,
                Err(status) => return ResponseFuture::bad_request(status),
            },
        };
        let mut is_compressed = false;
        if let Some(encoding) = metadata.encoding {
            is_compressed = match compression::is_compressed(encoding) {
                Ok(is_compressed) => is_compressed,
                Err(status) => return ResponseFuture::of_status(status),
            };
            // The generated servers see messages that are not compressed.
            request.headers_mut().remove(compression::ENCODING);
        }
        if let Some(deadline) = &deadline
            && method.waits_for_its_write()
        {
            request.extensions_mut().insert(deadline.write_start());
        }
        let bytes_max = inner.node.limits.message_bytes_max();
        let request = request.map(|body| LimitedBody::new(body, bytes_max, is_compressed));
        let response = match method.service_id {
            ServiceId::Kv => inner.kv.clone().call(request),
            ServiceId::Watch => inner.watch.clone().call(request),
            ServiceId::Lease => inner.lease.clone().call(request),
            ServiceId::Maintenance => inner.maintenance.clone().call(request),
            ServiceId::Cluster => inner.cluster.clone().call(request),
            ServiceId::Auth => inner.auth.clone().call(request),
            ServiceId::Lock => inner.lock.clone().call(request),
            ServiceId::Election => inner.election.clone().call(request),
            ServiceId::Health => inner.health.clone().call(request),
        };
        let response = match inner.node.durability {
            None => response,
            Some(_) => Box::pin(durable(inner.node.clone(), method, response)),
        };
        ResponseFuture {
            response: Some(response),
            deadline,
            is_begun: false,
            is_compressed,
        }
    }
}

/// Returns the response of a call when everything that it depends on is stored.
async fn durable(
    node: Arc<Node>,
    method: &'static RpcMethod,
    response: BoxFuture<http::Response<tonic::body::Body>, Infallible>,
) -> Result<http::Response<tonic::body::Body>, Infallible> {
    let Some(durability) = &node.durability else {
        return response.await;
    };
    let start = match durability.begin(&node, method).await {
        Ok(start) => start,
        Err(error) => return Ok(error.to_status().into_http()),
    };
    let response = response.await?;
    match durability.end(&node, method, start).await {
        Ok(()) if method.shows_later_writes() => {
            let durable = |body| tonic::body::Body::new(DurableBody::new(body, node.clone()));
            Ok(response.map(durable))
        }
        Ok(()) => Ok(response),
        Err(error) => Ok(error.to_status().into_http()),
    }
}

/// The future of a response of [`Services`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct ResponseFuture {
    /// `None` after the deadline.
    response: Option<BoxFuture<http::Response<tonic::body::Body>, Infallible>>,
    deadline: Option<Deadline>,
    /// Whether the future was polled.
    is_begun: bool,
    /// Whether the messages of the response are compressed.
    is_compressed: bool,
}

impl ResponseFuture {
    /// Returns the future of a call that fails before it reaches its service.
    fn of_status(status: Status) -> Self {
        Self::of_response(status.into_http())
    }

    /// Like [`of_status`](Self::of_status), for an error that is not sent with the HTTP status 200.
    fn bad_request(status: Status) -> Self {
        let mut response = status.into_http();
        *response.status_mut() = http::StatusCode::BAD_REQUEST;
        Self::of_response(response)
    }

    fn of_response(response: http::Response<tonic::body::Body>) -> Self {
        Self {
            response: Some(Box::pin(ready(Ok(response)))),
            deadline: None,
            is_begun: false,
            is_compressed: false,
        }
    }

    fn poll_response(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<http::Response<tonic::body::Body>, Infallible>> {
        let Some(response) = &mut self.response else {
            return Poll::Pending;
        };
        let polled = response.as_mut().poll(context);
        let polled = polled.map(|response| response.map(LargeAnswer::replace_body));
        if self.is_compressed {
            return polled.map(|response| response.map(compression::compress_response));
        }
        polled
    }
}

impl Future for ResponseFuture {
    type Output = Result<http::Response<tonic::body::Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let is_first = !mem::replace(&mut self.is_begun, true);
        let Some(mut deadline) = self.deadline.take() else {
            return self.poll_response(context);
        };
        if !(is_first && deadline.has_passed()) {
            if let Poll::Ready(response) = self.poll_response(context) {
                return Poll::Ready(response.map(|response| deadline.limit(response)));
            }
            if deadline.poll(context).is_pending() {
                self.deadline = Some(deadline);
                return Poll::Pending;
            }
        }
        // What the call holds is released before the client receives the status.
        self.response = None;
        Poll::Ready(Ok(deadline.status().into_http()))
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The metadata of a call, as far as it concerns all methods.
struct Metadata<'a> {
    /// The size of all fields.
    bytes: usize,
    encoding: Option<&'a HeaderValue>,
    timeout: Option<&'a HeaderValue>,
}

impl<'a> Metadata<'a> {
    fn of_call(headers: &'a HeaderMap) -> Self {
        let mut metadata = Self {
            bytes: 0,
            encoding: None,
            timeout: None,
        };
        // One pass, which is cheaper than to look a single name up.
        for (name, value) in headers {
            let name = name.as_str();
            metadata.bytes += name.len() + value.len() + FIELD_BYTES;
            match name {
                compression::ENCODING => metadata.encoding = metadata.encoding.or(Some(value)),
                // As in Go's gRPC library, the last one counts.
                deadline::TIMEOUT_HEADER => metadata.timeout = Some(value),
                _ => {}
            }
        }
        metadata
    }
}
