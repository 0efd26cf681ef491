//! Calls of webhooks: where they are, connections that are kept, time limits, and the errors of Go's client.

mod answer;
mod client;
mod client_config;
mod connector;
mod endpoint;
mod error;
mod resolver;
mod route;

pub(crate) use answer::Answer;
pub(crate) use client::{Clients, DEFAULT_TIMEOUT, REDIRECTS_MAX, new_uid, redirect};
pub(crate) use client_config::{bundle_error, place_errors};
pub(crate) use endpoint::{Endpoint, EndpointError, redirected_url};
pub(crate) use error::{LATE, dial_error, transport_error};
pub(crate) use resolver::Resolver;
pub use route::{RouteError, WebhookRoute};
