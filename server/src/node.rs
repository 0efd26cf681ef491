//! A node: an engine with its services on bound sockets.
//!
//! [`Sockets::bind`] executes all steps that can fail. After it, the addresses that the system chose are
//! known. [`ServingNode::new`] then builds the services.

use std::{
    fs::{DirBuilder, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::Router;
use revstore_engine::{EngineBuilder, Revision, StartRevisionError};
use revstore_grpc::{AuthOptions, AuthTokens, Gateway, Identity, JwtTokens, Services, Shutdown};
use revstore_host::net::{
    BindError, EndpointUrl, HttpOptions, ListenUrl, Listener, TlsAcceptor, TlsOptions,
};
use tokio::task::JoinSet;
use tracing::{error, info};

use crate::{
    config::{AllowList, AuthToken, Config, JwtOptions},
    http::{
        self, Access, ApplyTimes, CallCounters, CountedServices, Dispatch, HealthCounters,
        NodeInfo, Probe,
    },
    persist::{Journal, Store},
    start_error::StartError,
    version::ETCD_VERSION,
};

/// The bound sockets of a server. The system queues connections, which are not accepted yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    clients: Vec<Listener>,
    client_http: Vec<Listener>,
    metrics: Vec<Listener>,
    peers: Vec<Listener>,
    tls: Option<TlsAcceptor>,
    peer_tls: Option<TlsAcceptor>,
    /// The options of authentication. They are checked with the sockets, because they may be invalid.
    auth: AuthOptions,
}

impl Sockets {
    /// Creates the data directory and binds every URL. Peer URLs are bound first, as in etcd.
    pub(crate) fn bind(config: &Config) -> Result<Self, StartError> {
        if let Some(path) = &config.data_dir {
            create_data_dir(path).map_err(|source| StartError::DataDir {
                path: path.clone(),
                source,
            })?;
        }
        let acceptor = |tls: &Option<TlsOptions>, hosts: &[String]| {
            let tls = tls.as_ref();
            tls.map(|tls| TlsAcceptor::new(tls, hosts)).transpose()
        };
        let bind_all = |urls: &[ListenUrl]| -> Result<Vec<Listener>, BindError> {
            let urls = urls.iter();
            urls.map(|url| Listener::bind_with(url, config.reuse_port))
                .collect()
        };
        Ok(Self {
            auth: auth(config)?,
            tls: acceptor(&config.tls, &config.client_hosts())?,
            peer_tls: acceptor(&config.peer_tls, &config.peer_hosts())?,
            peers: bind_all(&config.listen_peer_urls)?,
            clients: bind_all(&config.listen_client_urls)?,
            client_http: bind_all(&config.listen_client_http_urls)?,
            metrics: bind_all(&config.listen_metrics_urls)?,
        })
    }

    /// Returns the listeners of the client URLs.
    pub(crate) fn clients(&self) -> &[Listener] {
        &self.clients
    }
}

/// An engine with its services on bound sockets.
#[derive(Debug)]
pub(crate) struct ServingNode {
    ports: Vec<Port>,
    services: Services,
    journal: Option<Journal>,
    shutdown: Shutdown,
}

/// A listener with the service of its connections.
#[derive(Debug)]
struct Port {
    listener: Listener,
    options: HttpOptions,
    tls: Option<TlsAcceptor>,
    dispatch: Dispatch,
}

impl ServingNode {
    /// Builds the services. Must run in the runtime that serves the node.
    pub(crate) fn new(config: &Config, sockets: Sockets, store: &Store) -> Self {
        let shutdown = Shutdown::new();
        let identity = store.keep_ids(identity(config));
        let engine = store.engine.clone();
        let mut services = Services::builder(engine.clone());
        if let Some((persist, metadata)) = &store.journal {
            services = services.persist(persist.clone(), metadata);
        } else {
            services = services.state(store.state.clone());
        }
        let services = services
            .identity(identity.clone())
            .version(ETCD_VERSION)
            .limits(config.limits)
            .auth(sockets.auth.clone())
            .shutdown(shutdown.clone())
            .watch_catch_up_delay(config.watch_catch_up_delay)
            .warning_apply_duration(config.warning_apply_duration)
            .warning_unary_request_duration(config.warning_unary_request_duration);
        // The names and buckets are valid.
        let apply_times = (config.extensive_metrics)
            .then(ApplyTimes::new)
            .and_then(Result::ok);
        let services = match &apply_times {
            Some(times) => services.apply_observer(Arc::new(times.clone())),
            None => services,
        };
        let services = services.build();
        let calls = CallCounters::new(config.extensive_metrics);
        let info = Arc::new(NodeInfo {
            probe: Probe::new(engine.clone()),
            persist: store.journal.as_ref().map(|(persist, _)| persist.clone()),
            engine,
            services: services.clone(),
            calls: calls.clone(),
            identity,
            quota_bytes: config.limits.quota_bytes,
            enable_pprof: config.enable_pprof,
            health_counters: HealthCounters::default(),
            apply_times,
        });
        log_addresses(&sockets);
        let services = CountedServices {
            services,
            calls,
            warning_duration: config.warning_unary_request_duration,
        };
        Self {
            services: info.services.clone(),
            journal: store.journal.as_ref().map(|(persist, _)| Journal {
                persist: persist.clone(),
                services: info.services.clone(),
            }),
            ports: ports(config, sockets, &services, &info),
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
        if let Some(log) = self.services.log_auto_compactions() {
            background.spawn(log);
        }
        let mut serving = JoinSet::new();
        for port in self.ports {
            let (shutdown, open) = (self.shutdown.clone(), open.clone());
            serving.spawn(port.listener.serve(
                port.options,
                port.tls,
                move |client| port.dispatch.for_client(client),
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

/// Logs the bound addresses (FL-10). A port that the system chose is reported only in the log.
fn log_addresses(sockets: &Sockets) {
    let Sockets {
        clients,
        client_http,
        metrics,
        peers,
        tls: _,
        peer_tls: _,
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
            let security = if listener.is_tls() {
                "with TLS"
            } else {
                "without TLS"
            };
            info!(address = %listener.address(), "serving {kind} traffic {security}");
        }
    }
}

/// Returns each listener with the service of its connections.
fn ports(
    config: &Config,
    sockets: Sockets,
    grpc: &CountedServices,
    info: &Arc<NodeInfo>,
) -> Vec<Port> {
    let gateway = (config.enable_grpc_gateway).then(|| Gateway::new(grpc.clone(), &config.limits));
    let client_routes = |hosts: AllowList| {
        let access = Access {
            hosts,
            origins: config.cors.clone(),
            has_gateway: config.enable_grpc_gateway,
        };
        http::client_routes(info, gateway.as_ref(), access)
    };
    // HT-16: with TLS, the certificate names the hosts.
    let (http, https) = (
        client_routes(config.host_whitelist.clone()),
        client_routes(AllowList::All),
    );
    let only_http = |routes: Router| Dispatch::new(None, Some(routes));
    let client = |routes: Router| {
        let http = (!config.has_separate_http()).then_some(routes);
        Dispatch::new(Some(grpc.clone()), http)
    };
    let metrics = only_http(http::metrics_routes(info));
    let peer = only_http(http::peer_routes(info));
    let options = HttpOptions::new()
        .max_concurrent_streams(config.max_concurrent_streams)
        .keepalive(config.keepalive);
    // Each kind with its certificate, and its service without and with TLS. `Config` guarantees a certificate
    // if a URL of the kind requires TLS.
    let tls = sockets.tls;
    let kinds = [
        (
            sockets.clients,
            "client",
            &tls,
            client(http.clone()),
            client(https.clone()),
        ),
        (
            sockets.client_http,
            "client",
            &tls,
            only_http(http),
            only_http(https),
        ),
        // As in etcd, the name of these is that of client ports.
        (sockets.metrics, "client", &tls, metrics.clone(), metrics),
        (sockets.peers, "peer", &sockets.peer_tls, peer.clone(), peer),
    ];
    let mut ports = Vec::new();
    for (listeners, endpoint, tls, dispatch, secure_dispatch) in kinds {
        let options = options.endpoint(endpoint);
        let options = if dispatch.is_only_grpc() {
            // HT-13.
            options.http2_only()
        } else {
            options
        };
        for listener in listeners {
            let dispatch = if listener.is_tls() {
                &secure_dispatch
            } else {
                &dispatch
            };
            ports.push(Port {
                options,
                tls: tls.clone(),
                dispatch: dispatch.clone(),
                listener,
            });
        }
    }
    ports
}

/// The maximum size of a key file of JWT tokens. A server does not start with a larger one, such as a
/// device that never ends.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

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

/// Creates the data directory and its parents if they do not exist. As in etcd, only the owner can read the
/// directory. Some programs check the directory after a test.
fn create_data_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn auth(config: &Config) -> Result<AuthOptions, StartError> {
    let tokens = match &config.auth.token {
        AuthToken::Simple => AuthTokens::Simple {
            ttl: config.auth.token_ttl,
        },
        AuthToken::Disabled => AuthTokens::Disabled,
        AuthToken::Jwt(options) => AuthTokens::Jwt(jwt(options)?),
    };
    Ok(AuthOptions::default()
        .tokens(tokens)
        .bcrypt_cost(config.auth.bcrypt_cost))
}

/// Reads the key files. As in etcd, a public key that the method does not use is read, too.
fn jwt(options: &JwtOptions) -> Result<JwtTokens, StartError> {
    let read = |option, path: &Option<PathBuf>| {
        let Some(path) = path else {
            return Ok(None);
        };
        let file = File::open(path).and_then(|file| {
            let mut key = Vec::new();
            file.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut key)?;
            if key.len() as u64 > KEY_FILE_BYTES_MAX {
                return Err(io::Error::other("the file is larger than 1 MiB"));
            }
            Ok(key)
        });
        let path = path.clone();
        file.map(Some).map_err(|source| StartError::JwtFile {
            option,
            path,
            source,
        })
    };
    let public = read("pub-key", &options.public_key)?;
    let private = read("priv-key", &options.private_key)?;
    let tokens = JwtTokens::new(
        options.sign_method,
        public.as_deref(),
        private.as_deref(),
        options.ttl,
    )?;
    if !tokens.can_sign() {
        tracing::warn!("there is no priv-key in --auth-token; Authenticate requests will fail");
    }
    Ok(tokens)
}

fn identity(config: &Config) -> Identity {
    let texts = |urls: &[EndpointUrl]| -> Vec<_> { urls.iter().map(ToString::to_string).collect() };
    Identity::new(config.cluster_id(), config.member_id())
        .name(&*config.name)
        .peer_urls(texts(&config.advertise_peer_urls))
        .client_urls(texts(&config.advertise_client_urls))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn fl_20_the_data_directory_is_created_with_its_parents_and_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        create_data_dir(&path).unwrap();
        fs::write(path.join("file"), "kept").unwrap();
        create_data_dir(&path).unwrap();
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "kept");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
