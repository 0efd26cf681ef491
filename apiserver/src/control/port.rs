//! The port for clients of control.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use http::{Request, Response};
use hyper::service::Service;
use revstore::ControlConfig;
use revstore_control::Control;
use revstore_control::service::{Access, ControlService};
use revstore_host::net::{HttpOptions, Listener, RequestBody};
use tokio::task::JoinSet;
use tower_service::Service as TowerService;

use crate::server::StartError;

/// The open port of control, with the rules of access to it.
pub(crate) struct ControlPort {
    listener: Listener,
    access: Access,
}

impl fmt::Debug for ControlPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPort").finish_non_exhaustive()
    }
}

impl ControlPort {
    /// Opens the port of the options, if they have one.
    ///
    /// # Errors
    /// The options do not protect the port, or it cannot be opened.
    pub(crate) fn bind(options: &ControlConfig) -> Result<Option<Self>, StartError> {
        let access = options.access().map_err(StartError::Control)?;
        let Some(url) = &options.listen_url else {
            return Ok(None);
        };
        let listener = Listener::bind(url)?;
        Ok(Some(Self { listener, access }))
    }

    /// Returns its URL.
    pub(crate) fn endpoint(&self) -> String {
        self.listener.endpoint()
    }

    /// Serves the port in a task.
    pub(crate) fn spawn<S>(
        self,
        ports: &mut JoinSet<io::Result<()>>,
        control: Control,
        shutdown: impl Fn() -> S + Send + 'static,
    ) where
        S: Future<Output = ()> + Send + 'static,
    {
        let service = ControlService::new(control, self.access);
        let options = HttpOptions::new().endpoint("control");
        ports.spawn(async move {
            let make_service = move |_client| PortService(service.clone());
            let serving = self
                .listener
                .serve(options, None, make_service, shutdown, || {});
            serving.await
        });
    }
}

/// The service of a connection.
#[derive(Clone, Debug)]
struct PortService(ControlService);

impl Service<Request<RequestBody>> for PortService {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<RequestBody>) -> Self::Future {
        TowerService::call(&mut self.0.clone(), request)
    }
}
