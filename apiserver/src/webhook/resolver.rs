//! From a service to an address.

use std::sync::Arc;

use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::selector::Selector;
use revstore_watch_cache::{ListOptions, RequestError, Scope};
use serde_json::Value;

use crate::catalog::{Catalog, Stored};
use crate::webhook::WebhookRoute;

/// The label with the name of the service of an `EndpointSlice`.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Finds the addresses of services: by the routes of the flag, by ready endpoints, or by their cluster IPs.
#[derive(Debug)]
pub(crate) struct Resolver {
    routes: Vec<WebhookRoute>,
    services: Option<Arc<Stored>>,
    slices: Option<Arc<Stored>>,
}

impl Resolver {
    /// Returns a resolver for the services of a catalog.
    pub(crate) fn new(routes: Vec<WebhookRoute>, catalog: &Catalog) -> Self {
        let stored = |group: &str, plural: &str| {
            let resource = catalog.find(group, "v1", plural).ok();
            resource.and_then(|resource| resource.stored.clone())
        };
        Self {
            routes,
            services: stored("", "services"),
            slices: stored("discovery.k8s.io", "endpointslices"),
        }
    }

    /// Returns the host and the port of a service.
    ///
    /// # Errors
    /// Why there is none, as kube-apiserver says it.
    pub(super) async fn resolve(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<(String, u16), String> {
        let mut routes = self.routes.iter();
        if let Some(route) = routes.find(|route| route.is_of(namespace, name, port)) {
            return split(&route.address);
        }
        let missing = || format!("service {name:?} not found");
        let stored = self.services.as_ref().ok_or_else(missing)?;
        let reference = ObjectRef::namespaced(namespace, name);
        let found = stored.cache.get(&reference, &GetOptions::default()).await;
        let found = found.map_err(|error| error.to_string())?;
        let found = found.ok_or_else(missing)?;
        let service: Value = serde_json::from_slice(found.value()).unwrap_or_default();
        let text = |pointer: &str| {
            let text = service.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        if text("/spec/type") == "ExternalName" {
            return Ok((text("/spec/externalName").to_owned(), port));
        }
        let ports = service.pointer("/spec/ports").and_then(Value::as_array);
        let mut ports = ports.into_iter().flatten();
        let Some(service_port) = ports.find(|known| known["port"].as_u64() == Some(port.into()))
        else {
            return Err(format!("no service port {port} found for service {name:?}"));
        };
        let port_name = service_port["name"].as_str().unwrap_or_default();
        if let Ok(Some(ready)) = self.ready_endpoint(namespace, name, port_name).await {
            return Ok(ready);
        }
        match text("/spec/clusterIP") {
            "None" | "" => Err("cannot route to service with ClusterIP \"None\"".to_owned()),
            address => Ok((address.to_owned(), port)),
        }
    }

    /// Returns the address of a ready endpoint of a service, if there is one.
    async fn ready_endpoint(
        &self,
        namespace: &str,
        name: &str,
        port_name: &str,
    ) -> Result<Option<(String, u16)>, RequestError> {
        let Some(slices) = &self.slices else {
            return Ok(None);
        };
        let selector = Selector::parse(&format!("{SERVICE_LABEL}={name}"), "")?;
        let options = ListOptions::default().selector(selector);
        let scope = Scope::Namespace(namespace.into());
        let list = slices.cache.list(&scope, &options).await?;
        let mut ready = Vec::new();
        for object in list.items.readable() {
            let slice: Value = serde_json::from_slice(object?.value()).unwrap_or_default();
            let list = |field: &str| slice[field].as_array().into_iter().flatten();
            let port = list("ports").find(|port| port["name"].as_str() == Some(port_name));
            let port = port.and_then(|port| port["port"].as_u64());
            let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else {
                continue;
            };
            let endpoints = list("endpoints")
                .filter(|endpoint| endpoint["conditions"]["ready"].as_bool() != Some(false))
                .filter_map(|endpoint| endpoint["addresses"][0].as_str());
            ready.extend(endpoints.map(|address| (address.to_owned(), port)));
        }
        Ok(fastrand::choice(ready))
    }
}

/// Splits an address into its host and its port.
fn split(address: &str) -> Result<(String, u16), String> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_matches(['[', ']']).to_owned();
        Some((host, port.parse().ok()?))
    });
    parts.ok_or_else(|| format!("address {address}: missing port in address"))
}
