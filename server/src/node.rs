//! The node: from a configuration to ports that serve.
//!
//! Two steps: [`Sockets::bind`] does all that can go wrong, then [`Node::new`] puts a server on what
//! was bound. In between, the addresses are known.

use std::sync::Arc;

use axum::Router;
use revstore_engine::{Engine, EngineBuilder, Revision};
use revstore_grpc::{AuthOptions, AuthTokens, Gateway, Identity, Services, Shutdown};
use revstore_host::config::{EndpointUrl, ListenUrl};
use tokio::task::JoinSet;

use crate::{
    auth_token::AuthToken,
    auto_compaction::AutoCompaction,
    calls::Calls,
    config::Config,
    connection::{Protocol, Security},
    dispatch::{Dispatch, Grpc},
    http::{self, Facts, Probes},
    listener::{BindError, Listener},
    log::Log,
    serve::Port,
    start_error::StartError,
    tls::Acceptor,
    version::ETCD_VERSION,
};

/// All sockets of a server, bound: clients can connect, though nobody answers yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    clients: Vec<Listener>,
    client_http: Vec<Listener>,
    metrics: Vec<Listener>,
    peers: Vec<Listener>,
    tls: Option<Acceptor>,
    /// No socket, but what else may turn out not to be had.
    auth: AuthOptions,
}

impl Sockets {
    /// Binds every URL; those of peers first, as etcd does.
    pub(crate) fn bind(config: &Config) -> Result<Self, StartError> {
        let tls = config.tls.as_ref();
        let tls = tls.map(|tls| Acceptor::new(tls, &config.client_hosts()));
        Ok(Self {
            auth: auth(config)?,
            tls: tls.transpose()?,
            peers: bind_all(&config.listen_peer_urls)?,
            clients: bind_all(&config.listen_client_urls)?,
            client_http: bind_all(&config.listen_client_http_urls)?,
            metrics: bind_all(&config.listen_metrics_urls)?,
        })
    }

    /// Where clients connect.
    pub(crate) fn clients(&self) -> &[Listener] {
        &self.clients
    }
}

fn bind_all(urls: &[ListenUrl]) -> Result<Vec<Listener>, BindError> {
    urls.iter().map(Listener::bind).collect()
}

/// An engine with its services on bound sockets.
#[derive(Debug)]
pub(crate) struct Node {
    ports: Vec<Port>,
    shutdown: Shutdown,
    log: Log,
}

impl Node {
    /// Must run inside the runtime that is to serve.
    pub(crate) fn new(config: &Config, sockets: Sockets, engine: Engine, log: Log) -> Self {
        let shutdown = Shutdown::new();
        let identity = identity(config);
        let services = Services::builder(engine.clone())
            .identity(identity.clone())
            .version(ETCD_VERSION)
            .limits(limits(config))
            .auth(sockets.auth)
            .shutdown(shutdown.clone())
            .build();
        let calls = Calls::new();
        let facts = Arc::new(Facts {
            engine,
            services: services.clone(),
            calls: calls.clone(),
            identity,
            quota_bytes: config.limits.quota_backend_bytes,
            enable_pprof: config.enable_pprof,
            probes: Probes::default(),
        });
        log_traffic(&log, &sockets);
        Self {
            ports: ports(config, sockets, &Grpc { services, calls }, &facts),
            shutdown,
            log,
        }
    }

    /// The signal that stops the node.
    pub(crate) fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Serves until the signal is given and the last connection is over, or
    /// [`GRACE`](crate::serve::GRACE) has passed. Clones of `open` are dropped as ports are closed.
    pub(crate) async fn serve<T: Clone + Send + 'static>(self, open: T) {
        let mut serving = JoinSet::new();
        for port in self.ports {
            serving.spawn(port.serve(self.shutdown.clone(), open.clone(), self.log.clone()));
        }
        drop(open);
        // FL-13: harnesses wait for these words. The sockets have been accepting since they were
        // bound, and answer from here on.
        self.log.info("ready to serve client requests", &[]);
        while let Some(served) = serving.join_next().await {
            match served {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.log.error("cannot serve a port", &[("error", &error)]),
                Err(error) => self.log.error("a port failed", &[("error", &error)]),
            }
        }
    }
}

/// FL-10: the only place where the system's choice of a port can be read.
fn log_traffic(log: &Log, sockets: &Sockets) {
    let Sockets {
        clients,
        client_http,
        metrics,
        peers,
        tls: _,
        auth: _,
    } = sockets;
    let kinds = [
        (peers, "peer"),
        (clients, "client"),
        (client_http, "client HTTP"),
        (metrics, "metrics"),
    ];
    for (listeners, kind) in kinds {
        for listener in listeners {
            let how = if listener.is_tls() {
                "under TLS"
            } else {
                "in the clear"
            };
            let message = format!("serving {kind} traffic {how}");
            log.info(&message, &[("address", listener.address())]);
        }
    }
}

fn ports(config: &Config, sockets: Sockets, grpc: &Grpc, facts: &Arc<Facts>) -> Vec<Port> {
    let gateway = Gateway::new(grpc.clone(), &limits(config));
    let http = http::client_routes(facts, &gateway);
    let only_http = |routes: Router| Dispatch::new(None, Some(routes));
    let is_http_elsewhere = config.has_separate_http();
    let kinds = [
        (
            sockets.clients,
            Dispatch::new(
                Some(grpc.clone()),
                (!is_http_elsewhere).then(|| http.clone()),
            ),
        ),
        (sockets.client_http, only_http(http)),
        (sockets.metrics, only_http(http::metrics_routes(facts))),
        (sockets.peers, only_http(http::peer_routes(facts))),
    ];
    let mut ports = Vec::new();
    for (listeners, dispatch) in kinds {
        for listener in listeners {
            // Client and metrics URLs ask for TLS only where there is some, as `Config` promises.
            // A peer's may ask without: it is bound, and whoever comes is sent away.
            let security = match &sockets.tls {
                _ if !listener.is_tls() => Security::Plain,
                Some(acceptor) => Security::Tls(acceptor.clone()),
                None => Security::Closed,
            };
            let mut protocol = Protocol::new(&config.limits, &config.keepalive, security);
            if dispatch.is_only_grpc() {
                protocol = protocol.http2_only();
            }
            ports.push(Port {
                listener,
                protocol: Arc::new(protocol),
                dispatch: dispatch.clone(),
            });
        }
    }
    ports
}

/// Adds what a configuration says to what was set on an engine by hand.
pub(crate) fn configure(engine: EngineBuilder, config: &Config) -> EngineBuilder {
    let engine = engine
        .start_revision(Revision(config.start_revision))
        .lease_ttl_min(config.min_lease_ttl())
        .progress_interval(config.watch_progress_notify_interval);
    match auto_compaction(config.auto_compaction) {
        Some(policy) => engine.auto_compaction(policy),
        None => engine,
    }
}

fn auto_compaction(configured: AutoCompaction) -> Option<revstore_engine::AutoCompaction> {
    use revstore_engine::AutoCompaction as Policy;
    Some(match configured {
        AutoCompaction::Off => return None,
        AutoCompaction::Periodic { retention } => Policy::Periodic { period: retention },
        AutoCompaction::Revisions {
            retention,
            interval,
        } => Policy::Revisions {
            keep: retention,
            every: interval,
        },
        AutoCompaction::Size {
            retention,
            interval,
        } => Policy::Size {
            bytes_max: retention,
            every: interval,
        },
    })
}

fn limits(config: &Config) -> revstore_grpc::Limits {
    revstore_grpc::Limits {
        request_bytes_max: config.limits.max_request_bytes,
        txn_ops_max: config.limits.max_txn_ops,
        quota_bytes: config.limits.quota_backend_bytes,
    }
}

fn auth(config: &Config) -> Result<AuthOptions, StartError> {
    let tokens = match &config.auth.token {
        AuthToken::Simple => AuthTokens::Simple {
            ttl: config.auth.token_ttl,
        },
        AuthToken::Disabled => AuthTokens::Disabled,
        AuthToken::Jwt(_) => return Err(StartError::Jwt),
    };
    Ok(AuthOptions {
        tokens,
        bcrypt_cost: config.auth.bcrypt_cost,
    })
}

fn identity(config: &Config) -> Identity {
    let texts = |urls: &[EndpointUrl]| urls.iter().map(ToString::to_string).collect();
    Identity {
        cluster_id: config.cluster_id(),
        member_id: config.member_id(),
        name: config.name.clone(),
        peer_urls: texts(&config.advertise_peer_urls),
        client_urls: texts(&config.advertise_client_urls),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ac_1_policies_of_flags_become_policies_of_the_engine() {
        use revstore_engine::AutoCompaction as Policy;
        let time = Duration::from_secs(7);
        assert_eq!(auto_compaction(AutoCompaction::Off), None);
        assert_eq!(
            auto_compaction(AutoCompaction::Periodic { retention: time }),
            Some(Policy::Periodic { period: time })
        );
        assert_eq!(
            auto_compaction(AutoCompaction::Revisions {
                retention: 5,
                interval: time
            }),
            Some(Policy::Revisions {
                keep: 5,
                every: time
            })
        );
        assert_eq!(
            auto_compaction(AutoCompaction::Size {
                retention: 5,
                interval: time
            }),
            Some(Policy::Size {
                bytes_max: 5,
                every: time
            })
        );
    }
}
