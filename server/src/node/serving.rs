//! A node on the ports of a server.

use std::net::SocketAddr;

use revstore_control::{Control, clock::ControlClock};
use revstore_grpc::{Services, Shutdown};
use revstore_host::net::{ClientIdentity, HttpOptions, Listener, TlsAcceptor};
use tokio::task::JoinSet;
use tracing::{error, info};

use super::{Blueprint, PortKind, Sockets, http_options, identity, sockets::log_addresses};
use crate::{
    config::Config,
    control::{self, Controlled, Interceptor, Stage},
    http::Dispatch,
    local_store::LocalStore,
    persist::{Journal, Store},
};

/// A node on bound sockets, or with control the stage of replaceable nodes.
#[derive(Debug)]
pub(crate) struct ServingNode {
    ports: Vec<Port>,
    served: Served,
    journal: Option<Journal>,
    shutdown: Shutdown,
}

/// What is behind the ports.
#[derive(Debug)]
enum Served {
    /// The services of the only node.
    Node(Services),
    /// With control. The stage frees the services of nodes that were replaced.
    Stage(Stage, Control),
}

/// A listener with the service of its connections.
#[derive(Debug)]
struct Port {
    listener: Listener,
    options: HttpOptions,
    tls: Option<TlsAcceptor>,
    service: PortService,
}

/// The service of a port.
#[derive(Debug)]
enum PortService {
    /// Without control.
    Fixed(Dispatch),
    Controlled(Controlled),
}

impl PortService {
    /// Returns the service of a connection with this client.
    fn for_client(&self, client: ClientIdentity) -> Dispatch {
        match self {
            Self::Fixed(dispatch) => dispatch.for_client(client),
            Self::Controlled(controlled) => controlled.for_client(client),
        }
    }
}

impl ServingNode {
    /// Builds the services. Must run in the runtime that serves the node. `clock` is that of a server with control, whose
    /// node is on a [`Stage`].
    pub(crate) fn new(
        config: &Config,
        mut sockets: Sockets,
        store: &Store,
        clock: Option<ControlClock>,
    ) -> Self {
        let identity = store.keep_ids(identity(config));
        let control = clock.zip(config.control.as_ref());
        let interceptor = control
            .is_some()
            .then(|| Interceptor::new(store.engine.clock()));
        let auth = sockets.auth.clone();
        let blueprint = Blueprint::new(config, identity, auth, interceptor.clone());
        let node = blueprint.build_over(store);
        log_addresses(&sockets);
        let control_port = sockets.control.take();
        let services = node.grpc.services.clone();
        let journal = store.journal.as_ref().map(|(persist, _)| Journal {
            persist: persist.clone(),
            services: services.clone(),
        });
        let (ports, served, shutdown) = match control.zip(interceptor) {
            None => {
                let service = |kind, is_tls| {
                    let (grpc, http) = node.of_port(kind, is_tls);
                    PortService::Fixed(Dispatch::new(grpc.cloned(), http.cloned()))
                };
                let shutdown = node.shutdown.clone();
                (
                    ports(config, sockets, service),
                    Served::Node(services),
                    shutdown,
                )
            }
            Some(((clock, options), interceptor)) => {
                let shutdown = Shutdown::new();
                let stage = Stage::new(blueprint, interceptor, node, shutdown.clone());
                let service = |kind, is_tls| {
                    PortService::Controlled(Controlled::new(stage.clone(), kind, is_tls))
                };
                let ports = ports(config, sockets, service).into_iter();
                let ports = ports.map(|port| Port {
                    listener: port.listener.gate(stage.gate()),
                    ..port
                });
                let control = control::control(&stage, clock, config, options);
                let port = control_port.map(|(listener, access)| {
                    let routes = control::routes(control.clone(), access);
                    Port {
                        listener,
                        options: HttpOptions::new().endpoint("control"),
                        tls: None,
                        service: PortService::Fixed(Dispatch::new(None, Some(routes))),
                    }
                });
                let served = Served::Stage(stage.clone(), control);
                (ports.chain(port).collect(), served, shutdown)
            }
        };
        Self {
            ports,
            served,
            journal,
            shutdown,
        }
    }

    /// Returns the signal that stops the node.
    pub(crate) fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Returns the journal, to close it in the end.
    pub(crate) fn journal(&self) -> Option<Journal> {
        self.journal.clone()
    }

    /// Returns the store for what else runs in the process, with the addresses of its clients, unless only requests may
    /// change it.
    pub(crate) fn local_store(
        &self,
        config: &Config,
        addresses: Vec<SocketAddr>,
    ) -> Option<LocalStore> {
        match &self.served {
            Served::Node(services) => LocalStore::new(config, services, addresses),
            Served::Stage(..) => None,
        }
    }

    /// Returns the control of a server that has it.
    pub(crate) fn control(&self) -> Option<Control> {
        match &self.served {
            Served::Node(_) => None,
            Served::Stage(_, control) => Some(control.clone()),
        }
    }

    /// Serves until the shutdown signal, and calls `on_ready` when it serves. After it, waits until the last connection has ended or
    /// [`GRACE_PERIOD`](revstore_host::net::GRACE_PERIOD) has passed. Each port drops a clone of `open` when
    /// it is closed.
    pub(crate) async fn serve<T: Clone + Send + 'static>(self, open: T, on_ready: impl FnOnce()) {
        if let Some(journal) = &self.journal {
            // DM-12: no client sees a term that a crash could repeat. While the disk fails, the node starts anyway.
            let _ = journal.persist.sync().await;
        }
        // Aborted when this returns.
        let mut background = JoinSet::new();
        match &self.served {
            Served::Node(services) => {
                if let Some(log) = services.log_auto_compactions() {
                    background.spawn(log);
                }
            }
            Served::Stage(stage, _) => {
                background.spawn(stage.clone().run());
            }
        }
        let mut serving = JoinSet::new();
        for port in self.ports {
            let (shutdown, open) = (self.shutdown.clone(), open.clone());
            serving.spawn(port.listener.serve(
                port.options,
                port.tls,
                move |client| port.service.for_client(client),
                move || shutdown.begun(),
                move || drop(open),
            ));
        }
        drop(open);
        // FL-13: test harnesses wait for this line. Connections are queued from the binding of the sockets
        // on, and are served from this line on.
        info!("ready to serve client requests");
        on_ready();
        while let Some(served) = serving.join_next().await {
            match served {
                Ok(Ok(())) => {}
                Ok(Err(error)) => error!(%error, "cannot serve a port"),
                Err(error) => error!(%error, "the task of a listener failed"),
            }
        }
    }
}

/// Returns each listener with the service of its connections, which `service` makes for a kind of port without or with
/// TLS.
fn ports(
    config: &Config,
    sockets: Sockets,
    service: impl Fn(PortKind, bool) -> PortService,
) -> Vec<Port> {
    let has_http = !config.has_separate_http();
    // Each kind with its certificate. `Config` guarantees a certificate if a URL of the kind requires TLS.
    let tls = sockets.tls;
    let kinds = [
        (sockets.clients, PortKind::Client { has_http }, &tls),
        (sockets.client_http, PortKind::ClientHttp, &tls),
        (sockets.metrics, PortKind::Metrics, &tls),
        (sockets.peers, PortKind::Peer, &sockets.peer_tls),
    ];
    let mut ports = Vec::new();
    for (listeners, kind, tls) in kinds {
        let options = http_options(config, kind);
        for listener in listeners {
            ports.push(Port {
                options,
                tls: tls.clone(),
                service: service(kind, listener.is_tls()),
                listener,
            });
        }
    }
    ports
}
