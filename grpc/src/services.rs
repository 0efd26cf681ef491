//! The services together: what a server puts on its connections.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Body;
use revstore_engine::Engine;
use revstore_proto::etcdserverpb::auth_server::AuthServer;
use revstore_proto::etcdserverpb::cluster_server::ClusterServer;
use revstore_proto::etcdserverpb::lease_server::LeaseServer;
use revstore_proto::etcdserverpb::maintenance_server::MaintenanceServer;
use revstore_proto::health::health_server::HealthServer;
use revstore_proto::v3electionpb::election_server::ElectionServer;
use revstore_proto::v3lockpb::lock_server::LockServer;
use tonic::codegen::{BoxFuture, StdError};

use crate::auth::{Auth, AuthOptions};
use crate::encode::range_body::LargeRange;
use crate::encode::response::Headers;
use crate::generated::{KvServer, WatchServer};
use crate::node::Node;
use crate::node::alarms::Alarms;
use crate::node::counters::{Counters, Tally};
use crate::node::identity::Identity;
use crate::node::raft_index::RaftIndex;
use crate::node::shutdown::Shutdown;
use crate::request::limits::{LimitedBody, Limits};
use crate::routes::Service;
use crate::service::auth::AuthService;
use crate::service::cluster::ClusterService;
use crate::service::concurrency::election::ElectionService;
use crate::service::concurrency::lock::LockService;
use crate::service::health::HealthService;
use crate::service::kv::KvService;
use crate::service::lease::LeaseService;
use crate::service::maintenance::MaintenanceService;
use crate::service::watch::WatchService;

/// The version that a server has unless it says otherwise. Clients switch features by it (MT-2).
const VERSION: &str = "3.5.30";

/// etcd's gRPC services over an engine, as one HTTP service for any number of connections.
///
/// Clones share everything and cost one reference count. A call costs what the generated servers
/// cost: there is no router, no lock and no task of its own. Request bodies are checked against
/// [`Limits`] as they come in.
///
/// Calls must run inside a tokio runtime: compactions and hashes use its threads for blocking work.
///
/// ```
/// use revstore_engine::Engine;
/// use revstore_grpc::Services;
/// use revstore_proto::etcdserverpb::PutRequest;
/// use revstore_proto::etcdserverpb::kv_client::KvClient;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let services = Services::builder(Engine::builder().build()).build();
/// // A client can be put right on top, without a connection.
/// let mut client = KvClient::new(services);
/// let put = PutRequest { key: "key".into(), value: "value".into(), ..PutRequest::default() };
/// assert_eq!(client.put(put).await?.into_inner().header.unwrap().revision, 2);
/// # Ok::<(), tonic::Status>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Services {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
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

/// Sets the services up; made by [`Services::builder`].
///
/// | option | default |
/// |---|---|
/// | [`identity`](Self::identity) | ids 0, no name, no URLs |
/// | [`version`](Self::version) | 3.5.30 |
/// | [`limits`](Self::limits) | etcd's |
/// | [`auth`](Self::auth) | etcd's: simple tokens for 300 s, bcrypt with cost 10 |
/// | [`shutdown`](Self::shutdown) | a signal that nobody gives |
#[derive(Clone, Debug)]
#[must_use = "services are made by `build`"]
pub struct ServicesBuilder {
    engine: Engine,
    identity: Identity,
    version: String,
    limits: Limits,
    auth: AuthOptions,
    shutdown: Shutdown,
}

impl Services {
    /// Services over `engine`.
    pub fn builder(engine: Engine) -> ServicesBuilder {
        ServicesBuilder {
            engine,
            identity: Identity::default(),
            version: VERSION.to_owned(),
            limits: Limits::default(),
            auth: AuthOptions::default(),
            shutdown: Shutdown::new(),
        }
    }

    /// The alarms, which health checks ask about too.
    pub fn alarms(&self) -> &Alarms {
        &self.inner.node.alarms
    }

    /// Whether anybody is asked who they are.
    pub fn is_auth_enabled(&self) -> bool {
        self.inner.node.auth.is_on()
    }

    /// What was done that the number of calls does not tell.
    pub fn tally(&self) -> Tally {
        self.inner.node.counters.load()
    }

    /// How many proposals a cluster would have in its log by now (DM-13).
    pub fn raft_index(&self) -> u64 {
        self.inner.node.raft_index.get()
    }
}

impl ServicesBuilder {
    /// Who the node says it is.
    pub fn identity(self, identity: Identity) -> Self {
        Self { identity, ..self }
    }

    /// The version of etcd that the server stands for, as `major.minor.patch`.
    pub fn version(self, version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            ..self
        }
    }

    /// How much a client may ask for.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// How users log in, once auth is enabled.
    pub fn auth(self, auth: AuthOptions) -> Self {
        Self { auth, ..self }
    }

    /// The signal that ends all open streams.
    pub fn shutdown(self, shutdown: Shutdown) -> Self {
        Self { shutdown, ..self }
    }

    /// Makes the services.
    pub fn build(self) -> Services {
        let bytes_max = self.limits.message_bytes_max();
        let node = Arc::new(Node {
            headers: Headers::new(self.identity.cluster_id, self.identity.member_id),
            engine: self.engine,
            identity: self.identity,
            version: self.version,
            limits: self.limits,
            alarms: Alarms::default(),
            auth: Auth::new(self.auth),
            raft_index: RaftIndex::new(),
            counters: Counters::default(),
            shutdown: self.shutdown,
        });
        // `LimitedBody` is there first; this keeps tonic's default out of the way of larger limits.
        let inner = Inner {
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

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let inner = &*self.inner;
        let service = match Service::of_path(request.uri().path()) {
            Ok(service) => service,
            Err(status) => return ResponseFuture(Box::pin(ready(Ok(status.into_http())))),
        };
        let bytes_max = inner.node.limits.message_bytes_max();
        let request = request.map(|body| LimitedBody::new(body, bytes_max));
        ResponseFuture(match service {
            Service::Kv => inner.kv.clone().call(request),
            Service::Watch => inner.watch.clone().call(request),
            Service::Lease => inner.lease.clone().call(request),
            Service::Maintenance => inner.maintenance.clone().call(request),
            Service::Cluster => inner.cluster.clone().call(request),
            Service::Auth => inner.auth.clone().call(request),
            Service::Lock => inner.lock.clone().call(request),
            Service::Election => inner.election.clone().call(request),
            Service::Health => inner.health.clone().call(request),
        })
    }
}

/// The answer to a call of [`Services`], to be awaited.
#[must_use = "futures do nothing unless they are awaited"]
pub struct ResponseFuture(BoxFuture<http::Response<tonic::body::Body>, Infallible>);

impl Future for ResponseFuture {
    type Output = Result<http::Response<tonic::body::Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.0.as_mut().poll(context);
        answer.map(|answer| answer.map(LargeRange::replace_body))
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
