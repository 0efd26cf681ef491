//! The ports of a server, and the threads that serve them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use hyper::service::Service;
use revstore_control::Control;
use revstore_host::net::{
    Certificate, ClientAuth, ClientIdentity, EndpointUrl, HttpOptions, ListenUrl, Listener,
    RequestBody, TlsAcceptor, TlsError, TlsOptions,
};
use revstore_watch_cache::RequestError;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::blueprint::RunningBackground;
use super::runtime::ServerRuntime;
use super::{StartError, certificate};
use crate::auth::Client;
use crate::config::Config;
use crate::control::{ControlPort, ControlledService, Stage};
use crate::http::{ConnectionService, Front};

/// The port of a URL without one.
const HTTPS_PORT: u16 = 443;
/// The time for which a stopping server waits for requests in flight before it ends the watches. It is less than that
/// for which connections are kept ([`GRACE_PERIOD`](revstore_host::net::GRACE_PERIOD)).
pub(crate) const DRAIN_TIME: Duration = Duration::from_millis(500);

/// The open ports of a server: one at least.
pub(super) struct Ports {
    http: Option<Listener>,
    https: Option<(Listener, TlsAcceptor)>,
    /// The authority of the certificate, if the server has created it.
    authority: Option<String>,
}

/// What the ports serve.
pub(super) enum Served {
    /// The only front of a server without control, with what runs beside it.
    Fixed(Arc<Front>, RunningBackground),
    /// The fronts of a server with control, and the port of control.
    Controlled(Stage, Control, Option<ControlPort>),
}

/// The threads that serve the ports.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) shutdown: watch::Sender<bool>,
    pub(super) stopped: oneshot::Receiver<()>,
    pub(super) thread: JoinHandle<()>,
}

impl Ports {
    /// Opens the ports of a configuration. Generated certificates are written to `directory`.
    pub(super) fn bind(config: &Config, directory: &Path) -> Result<Self, StartError> {
        let http = config.http.map(|it| bind(it, "http")).transpose()?;
        let (mut https, mut authority) = (None, None);
        if let Some(address) = config.https {
            let listener = bind(address, "https")?;
            let files = certificate::files(config, directory, &listener)?;
            https = Some((listener, acceptor(config, files.certificate())?));
            authority = Some(files.authority);
        }
        Ok(Self {
            http,
            https,
            authority,
        })
    }

    /// Returns the URLs, that for plain HTTP first.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let https = self.https.as_ref().map(|(listener, _)| listener);
        let listeners = self.http.as_ref().into_iter().chain(https);
        listeners.map(Listener::endpoint).collect()
    }

    /// Returns the URL for clients with credentials: that with TLS if there is one.
    pub(super) fn secure_endpoint(&self) -> String {
        self.endpoints().pop().unwrap_or_default()
    }

    /// Returns the port of that URL.
    pub(super) fn secure_port(&self) -> u16 {
        let url = self.secure_endpoint();
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
        port.unwrap_or(HTTPS_PORT)
    }

    pub(super) fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// Serves the ports in a thread with a runtime, together with what follows the store.
    pub(super) fn serve(
        self,
        runtime: ServerRuntime,
        served: Served,
    ) -> Result<Running, StartError> {
        let (shutdown, mut begun) = watch::channel(false);
        let (until_stopped, stopped) = oneshot::channel::<()>();
        // The runtime is dropped in a thread of its own: the server may be dropped inside another runtime, and dropping
        // a runtime there panics.
        let thread = thread::Builder::new()
            .name("apiserver".to_owned())
            .spawn(move || {
                runtime.handle().block_on(async {
                    let mut ports = JoinSet::new();
                    match &served {
                        Served::Fixed(front, _) => {
                            let front = front.clone();
                            let make_service = move |client, trusted| ConnectionService {
                                front: front.clone(),
                                client: Arc::new(Client::new(&client)),
                                trusted,
                            };
                            self.spawn(&mut ports, &begun, make_service);
                        }
                        Served::Controlled(stage, _, _) => {
                            let controlled = stage.clone();
                            let make_service = move |client, trusted| {
                                ControlledService::new(&controlled, &client, trusted)
                            };
                            self.gated(stage).spawn(&mut ports, &begun, make_service);
                        }
                    }
                    // The listeners are closed, and clients are told to leave. What they have asked for is done before
                    // the watches end.
                    let drain = async |front: &Front| {
                        let _ = tokio::time::timeout(DRAIN_TIME, front.limits.drained()).await;
                    };
                    match served {
                        Served::Fixed(front, background) => {
                            // An error means that the server is gone.
                            let _ = begun.wait_for(|begun| *begun).await;
                            // What they have begun goes on with the next start.
                            drop(background);
                            drain(&front).await;
                            front.storage.cache.stop();
                        }
                        Served::Controlled(stage, control, port) => {
                            if let Some(port) = port {
                                port.spawn(&mut ports, control.clone(), until(&begun));
                            }
                            let _ = begun.wait_for(|begun| *begun).await;
                            // Waits for the ends of forks, which have threads of their own.
                            let _ = tokio::task::spawn_blocking(move || control.close()).await;
                            let closed = tokio::task::spawn_blocking(move || stage.close());
                            let Ok(staged) = closed.await else { return };
                            drain(&staged.front).await;
                            staged.stop_watches();
                        }
                    }
                    while ports.join_next().await.is_some() {}
                });
                drop(until_stopped);
                drop(runtime);
            })
            .map_err(StartError::Runtime)?;
        Ok(Running {
            shutdown,
            stopped,
            thread,
        })
    }

    /// Returns the ports of a server with control, which knows their connections.
    fn gated(self, stage: &Stage) -> Self {
        Self {
            http: self.http.map(|listener| listener.gate(stage.gate())),
            https: (self.https).map(|(listener, tls)| (listener.gate(stage.gate()), tls)),
            authority: self.authority,
        }
    }

    /// Serves each port in a task, until the shutdown has begun. `make_service` gets the client of a connection, and
    /// whether its requests without credentials are those of an administrator.
    fn spawn<S, B>(
        self,
        ports: &mut JoinSet<io::Result<()>>,
        begun: &watch::Receiver<bool>,
        make_service: impl Fn(ClientIdentity, bool) -> S + Clone + Send + Sync + 'static,
    ) where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
        S: Send + Unpin + 'static,
        S::Future: Send + 'static,
        B: HttpBody<Data = Bytes, Error = RequestError> + Send + 'static,
    {
        let http = self.http.map(|listener| (listener, true, None));
        let https = self
            .https
            .map(|(listener, tls)| (listener, false, Some(tls)));
        for (listener, trusted, tls) in http.into_iter().chain(https) {
            let (make_service, shutdown) = (make_service.clone(), until(begun));
            ports.spawn(async move {
                let make_service = move |client| make_service(client, trusted);
                listener
                    .serve(HttpOptions::new(), tls, make_service, shutdown, || {})
                    .await
            });
        }
    }
}

/// Returns futures that complete when the shutdown has begun.
fn until(
    begun: &watch::Receiver<bool>,
) -> impl Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + 'static {
    let begun = begun.clone();
    move || {
        let mut begun = begun.clone();
        Box::pin(async move {
            // An error means that the server is gone.
            let _ = begun.wait_for(|begun| *begun).await;
        })
    }
}

/// Returns the listener of an address.
fn bind(address: SocketAddr, scheme: &str) -> Result<Listener, StartError> {
    let url = EndpointUrl::parse(&format!("{scheme}://{address}"))?;
    Ok(Listener::bind(&ListenUrl::try_from(url)?)?)
}

/// Returns what accepts connections with TLS.
fn acceptor(config: &Config, certificate: Certificate) -> Result<TlsAcceptor, TlsError> {
    let mut options = TlsOptions::new(certificate);
    if let Some(path) = &config.client_ca_file {
        // An invalid certificate does not end the connection: the request may have another credential.
        let auth = ClientAuth::new(path).accept_invalid(true);
        options = options.client_auth(auth.names_users(true).optional(true));
    }
    TlsAcceptor::new(&options, &[])
}
