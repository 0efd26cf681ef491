//! Requests of controllers: to the server itself, so that they are authorized, admitted and checked as those of clients.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use revstore_host::net::RequestBody;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::Propagation;
use revstore_watch_cache::{Object, RequestError};
use serde_json::{Value, json};

use super::monitor::Monitored;
use crate::auth;
use crate::http::Front;

/// The name of the program in whose place the controllers are, by which the managers of fields are named.
const AGENT: &str = "kube-controller-manager";

/// What one controller sends, as the service account that it has in kube-controller-manager.
#[derive(Clone, Debug)]
pub(super) struct Client {
    front: Arc<Front>,
    /// The name of the user.
    user: String,
}

/// The reason why a request of a controller has failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u16,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
        }
    }
}

impl Failure {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            message: message.into(),
        }
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.code == 404
    }

    pub(super) fn is_conflict(&self) -> bool {
        self.code == 409
    }
}

impl Client {
    /// Returns the client of the service account with a name.
    pub(super) fn new(front: &Arc<Front>, account: &str) -> Self {
        Self {
            front: front.clone(),
            user: auth::User::service_account_name("kube-system", account),
        }
    }

    pub(super) fn front(&self) -> &Arc<Front> {
        &self.front
    }

    /// Returns the newest version of an object, with its resource version.
    pub(super) async fn get(
        &self,
        resource: &Monitored,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let reference = ObjectRef {
            namespace: resource.namespaced.then(|| namespace.to_owned()),
            name: name.to_owned(),
        };
        let cache = &resource.stored.cache;
        Ok(cache.get(&reference, &GetOptions::default()).await?)
    }

    /// Creates an object. One that exists stays as it is.
    pub(super) async fn create(
        &self,
        resource: &Monitored,
        namespace: &str,
        object: &Value,
    ) -> Result<(), Failure> {
        let path = resource.collection_path(namespace);
        let sent = self
            .send(Method::POST, &path, "application/json", object)
            .await;
        match sent {
            Err(failure) if failure.is_conflict() => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Changes fields of an object by a merge patch.
    pub(super) async fn patch(
        &self,
        resource: &Monitored,
        (namespace, name): (&str, &str),
        change: &Value,
    ) -> Result<Value, Failure> {
        let path = resource.path(namespace, name);
        let media = "application/merge-patch+json";
        self.send(Method::PATCH, &path, media, change).await
    }

    /// Replaces an object, or what a subresource shows of it. `subresource` may be empty.
    pub(super) async fn update(
        &self,
        resource: &Monitored,
        (namespace, name): (&str, &str),
        subresource: &str,
        object: &Value,
    ) -> Result<Value, Failure> {
        let mut path = resource.path(namespace, name);
        if !subresource.is_empty() {
            path = format!("{path}/{subresource}");
        }
        self.send(Method::PUT, &path, "application/json", object)
            .await
    }

    /// Sends a request with an object to a path.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: &Value,
    ) -> Result<Value, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, media)
            .header(USER_AGENT, AGENT)
            .header("impersonate-user", &self.user)
            .body(RequestBody::full(Bytes::from(body.to_string())))
            .map_err(|error| Failure::new(error.to_string()))?;
        let client = auth::Client::default();
        // In a box: the future has the state of all verbs.
        let answer = Box::pin(self.front.answer(request, &client, true)).await;
        let status = answer.status;
        let body = answer.body.collect().await;
        let body = body
            .map_err(|error| Failure::new(error.to_string()))?
            .to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(value);
        }
        let message = value.get("message").and_then(Value::as_str);
        let message = message.map_or_else(|| status.to_string(), str::to_owned);
        Err(Failure {
            code: status.as_u16(),
            message,
        })
    }

    /// Deletes an object if it has a uid and, unless that is empty, a resource version. One that does not exist is
    /// deleted.
    pub(super) async fn delete(
        &self,
        resource: &Monitored,
        (namespace, name): (&str, &str),
        (uid, version): (&str, &str),
        propagation: Propagation,
    ) -> Result<(), Failure> {
        let mut preconditions = json!({"uid": uid});
        if !version.is_empty() {
            preconditions["resourceVersion"] = json!(version);
        }
        let policy = match propagation {
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
            _ => "Background",
        };
        let options = json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": preconditions,
            "propagationPolicy": policy,
        });
        let path = resource.path(namespace, name);
        match self
            .send(Method::DELETE, &path, "application/json", &options)
            .await
        {
            Err(failure) if failure.is_not_found() => Ok(()),
            sent => sent.map(drop),
        }
    }
}

/// Returns a part of a path as it is sent.
pub(super) fn escaped(part: &str) -> String {
    utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()
}
