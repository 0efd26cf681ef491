//! The service of one connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::service::Service;
use revstore_host::net::RequestBody;

use crate::auth::Client;
use crate::http::{Body, Front};

/// The service of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionService {
    pub(crate) front: Arc<Front>,
    pub(crate) client: Arc<Client>,
    /// Whether requests without credentials are those of an administrator.
    pub(crate) trusted: bool,
}

impl Service<Request<RequestBody>> for ConnectionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let answer = this.front.answer(request, &this.client, this.trusted).await;
            Ok(answer.into_response())
        })
    }
}
