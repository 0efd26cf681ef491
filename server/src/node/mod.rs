//! A node: an engine with its services and HTTP routes.
//!
//! [`Sockets::bind`] executes all steps that can fail. After it, the addresses that the system chose are
//! known. A [`Blueprint`] then builds a [`Node`] over an engine, and can build another one over another engine:
//! a server with control replaces its node while the ports stay. [`ServingNode`] serves a node on the ports.

mod serving;
mod sockets;

use std::sync::Arc;

use axum::Router;
use revstore_control::{Control, clock::ControlClock};
use revstore_engine::{Engine, EngineBuilder, Revision, StartRevisionError};
use revstore_grpc::{AuthOptions, Gateway, Identity, Services, ServicesBuilder, Shutdown};
use revstore_host::net::{EndpointUrl, HttpOptions};
use revstore_persist::{Metadata, Persist};

use crate::{
    config::{AllowList, Config, ControlConfig},
    control::{self, ControlledServices, Interceptor, Stage},
    http::{
        self, Access, ApplyTimes, CallCounters, CountedServices, HealthCounters, NodeInfo, Probe,
    },
    persist::Store,
    version::ETCD_VERSION,
};

pub(crate) use serving::ServingNode;
pub(crate) use sockets::Sockets;

/// All that nodes of one server have in common: with an engine it makes a node.
#[derive(Debug)]
pub(crate) struct Blueprint {
    config: Config,
    identity: Identity,
    auth: AuthOptions,
    /// The counters go on when the node is replaced.
    calls: CallCounters,
    apply_times: Option<ApplyTimes>,
    /// With control.
    interceptor: Option<Interceptor>,
}

/// An engine with its services, and the HTTP routes of each kind of port.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) grpc: CountedServices,
    /// Ends the open streams of the node.
    pub(crate) shutdown: Shutdown,
    client: Router,
    /// The routes of client ports with TLS.
    secure_client: Router,
    metrics: Router,
    peer: Router,
}

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortKind {
    /// gRPC calls, and the HTTP endpoints unless they have ports of their own.
    Client {
        has_http: bool,
    },
    ClientHttp,
    Metrics,
    Peer,
}

impl PortKind {
    /// Returns the name of the port in log lines about connections.
    pub(crate) fn endpoint(self) -> &'static str {
        match self {
            // As in etcd, the name of the metrics ports is that of client ports.
            Self::Client { .. } | Self::ClientHttp | Self::Metrics => "client",
            Self::Peer => "peer",
        }
    }

    /// Returns whether the port accepts only gRPC calls (HT-13).
    pub(crate) fn is_only_grpc(self) -> bool {
        self == Self::Client { has_http: false }
    }
}

impl Blueprint {
    pub(crate) fn new(
        config: &Config,
        identity: Identity,
        auth: AuthOptions,
        interceptor: Option<Interceptor>,
    ) -> Self {
        Self {
            config: config.clone(),
            identity,
            auth,
            calls: CallCounters::new(config.extensive_metrics),
            // The names and buckets are valid.
            apply_times: (config.extensive_metrics)
                .then(ApplyTimes::new)
                .and_then(Result::ok),
            interceptor,
        }
    }

    /// Builds the first node of a server, with the journal or the state of its store.
    fn build_over(&self, store: &Store) -> Node {
        let journal = store.journal.as_ref();
        self.build(store.engine.clone(), journal, |services| match journal {
            Some(_) => services,
            None => services.state(store.state.clone()),
        })
    }

    /// Builds a node over an engine, with its journal if it has one. `complete` may add to the options of the services.
    /// Must run in the runtime that serves the node. Costs less than a millisecond.
    pub(crate) fn build(
        &self,
        engine: Engine,
        journal: Option<&(Persist, Metadata)>,
        complete: impl FnOnce(ServicesBuilder) -> ServicesBuilder,
    ) -> Node {
        let config = &self.config;
        let shutdown = Shutdown::new();
        let mut services = Services::builder(engine.clone());
        if let Some((persist, metadata)) = journal {
            services = services.persist(persist.clone(), metadata);
        }
        let services = services
            .identity(self.identity.clone())
            .version(ETCD_VERSION)
            .limits(config.limits)
            .auth(self.auth.clone())
            .shutdown(shutdown.clone())
            .watch_catch_up_delay(config.watch_catch_up_delay)
            .warning_apply_duration(config.warning_apply_duration)
            .warning_unary_request_duration(config.warning_unary_request_duration);
        let services = match &self.apply_times {
            Some(times) => services.apply_observer(Arc::new(times.clone())),
            None => services,
        };
        let services = complete(services).build();
        let info = Arc::new(NodeInfo {
            probe: Probe::new(engine.clone()),
            persist: journal.map(|(persist, _)| persist.clone()),
            engine: engine.clone(),
            services: services.clone(),
            calls: self.calls.clone(),
            identity: self.identity.clone(),
            quota_bytes: config.limits.quota_bytes,
            enable_pprof: config.enable_pprof,
            health_counters: HealthCounters::default(),
            apply_times: self.apply_times.clone(),
        });
        let grpc = CountedServices {
            services,
            calls: self.calls.clone(),
            warning_duration: config.warning_unary_request_duration,
        };
        let gateway = self.gateway_routes(&grpc, &engine, &shutdown);
        let client_routes = |hosts: AllowList| {
            let access = Access {
                hosts,
                origins: config.cors.clone(),
                has_gateway: config.enable_grpc_gateway,
            };
            http::client_routes(&info, gateway.clone(), access)
        };
        Node {
            // HT-16: with TLS, the certificate names the hosts.
            client: client_routes(config.host_whitelist.clone()),
            secure_client: client_routes(AllowList::All),
            metrics: http::metrics_routes(&info),
            peer: http::peer_routes(&info),
            engine,
            grpc,
            shutdown,
        }
    }

    /// Returns the routes of the gateway; none if it is off.
    fn gateway_routes(
        &self,
        grpc: &CountedServices,
        engine: &Engine,
        shutdown: &Shutdown,
    ) -> Router<Arc<NodeInfo>> {
        let limits = &self.config.limits;
        match &self.interceptor {
            _ if !self.config.enable_grpc_gateway => Router::new(),
            None => http::gateway_routes(&Gateway::new(grpc.clone(), limits)),
            Some(interceptor) => {
                let services = ControlledServices::new(
                    grpc.clone(),
                    interceptor.clone(),
                    engine.clone(),
                    shutdown.clone(),
                    limits.message_bytes_max(),
                );
                http::gateway_routes(&Gateway::new(services, limits))
            }
        }
    }

    /// Returns the maximum length of a message of a client.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.config.limits.message_bytes_max()
    }
}

impl Node {
    /// Returns the services and the routes of a port.
    pub(crate) fn of_port(
        &self,
        kind: PortKind,
        is_tls: bool,
    ) -> (Option<&CountedServices>, Option<&Router>) {
        let client = if is_tls {
            &self.secure_client
        } else {
            &self.client
        };
        match kind {
            PortKind::Client { has_http } => (Some(&self.grpc), has_http.then_some(client)),
            PortKind::ClientHttp => (None, Some(client)),
            PortKind::Metrics => (None, Some(&self.metrics)),
            PortKind::Peer => (None, Some(&self.peer)),
        }
    }
}

/// Builds the node of a server without ports. Must run in the runtime that serves the node.
pub(crate) fn portless(config: &Config, sockets: Sockets, store: &Store) -> Node {
    let identity = store.keep_ids(identity(config));
    Blueprint::new(config, identity, sockets.auth, None).build_over(store)
}

/// Builds the stage of a server without ports that has control. Must run in the runtime that serves the node.
pub(crate) fn portless_stage(
    config: &Config,
    sockets: Sockets,
    store: &Store,
    (clock, options): (ControlClock, &ControlConfig),
    shutdown: Shutdown,
) -> (Stage, Control) {
    let identity = store.keep_ids(identity(config));
    let interceptor = Interceptor::new(store.engine.clock());
    let blueprint = Blueprint::new(config, identity, sockets.auth, Some(interceptor.clone()));
    let node = blueprint.build_over(store);
    let stage = Stage::new(blueprint, interceptor, node, shutdown);
    let control = control::control(&stage, clock, config, options);
    (stage, control)
}

/// Returns the settings of connections of a kind of port.
pub(crate) fn http_options(config: &Config, kind: PortKind) -> HttpOptions {
    let options = HttpOptions::new()
        .max_concurrent_streams(config.max_concurrent_streams)
        .keepalive(config.keepalive)
        .endpoint(kind.endpoint());
    if kind.is_only_grpc() {
        // HT-13.
        options.http2_only()
    } else {
        options
    }
}

/// Adds the settings of a configuration to those of an engine builder.
pub(crate) fn configure(
    engine: EngineBuilder,
    config: &Config,
) -> Result<EngineBuilder, StartRevisionError> {
    let engine = engine
        .start_revision(Revision(config.start_revision))?
        .lease_ttl_min(config.min_lease_ttl())
        .progress_interval(config.watch_progress_notify_interval);
    Ok(match config.auto_compaction {
        Some(policy) => engine.auto_compaction(policy),
        None => engine,
    })
}

pub(crate) fn identity(config: &Config) -> Identity {
    let texts = |urls: &[EndpointUrl]| -> Vec<_> { urls.iter().map(ToString::to_string).collect() };
    Identity::new(config.cluster_id(), config.member_id())
        .name(&*config.name)
        .peer_urls(texts(&config.advertise_peer_urls))
        .client_urls(texts(&config.advertise_client_urls))
}
