//! The subresources of pods that are not parts of them, and those of nodes and services that need a kubelet.

use std::net::IpAddr;

use http::StatusCode;
use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::GetOptions;
use revstore_watch_cache::registry::{ChangeFn, JsonObject, WriteRequest};
use revstore_watch_cache::status::{ResourceName, Status};
use serde_json::Value;

use crate::admission::{Admission, Operation};
use crate::builtin;
use crate::catalog::{Resource, Stored};
use crate::decode::WriteOptions;
use crate::http::{Answer, CREATED, Exchange, Form, Front, Target, status_value};
use crate::verbs::body::{read_object, read_plain};
use crate::verbs::offer;
use crate::verbs::read::{decoded, reference};
use crate::verbs::subresource::proxied::Proxied;
use crate::verbs::subresource::{
    check_name, clear_system_fields, current, log_options, name_of, set_namespace,
};

/// Answers a `Binding`, which gives a pod its node.
pub(crate) async fn bind(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &[Form::Whole]))?;
    let options = WriteOptions::create(&exchange.query)?;
    let mut binding = read_plain(exchange, "Binding", body).await?;
    set_namespace("Binding", &mut binding, &target.namespace)?;
    let admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: options.dry_run,
        deletion: None,
    };
    let mutated = admission.mutate(Operation::Create, Some(&mut binding), None);
    mutated.await?;
    check_name("Binding", &binding, &target.name)?;
    builtin::check_binding(&binding)?;
    let validated = admission.validate(Operation::Create, Some(&binding), None);
    validated.await?;
    bind_pod(front, resource, stored, target, &binding, options.dry_run).await?;
    Ok(Answer::value(CREATED, accepted, &created()))
}

/// Answers a `Binding` that is not sent to its pod, but names it.
pub(crate) async fn bind_named(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &[Form::Whole]))?;
    let options = WriteOptions::create(&exchange.query)?;
    let mut binding = read_object(exchange, resource, body, options.field_validation).await?;
    set_namespace("Binding", &mut binding, &target.namespace)?;
    clear_system_fields(&mut binding);
    let admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: options.dry_run,
        deletion: None,
    };
    let mutated = admission.mutate(Operation::Create, Some(&mut binding), None);
    mutated.await?;
    builtin::check_binding(&binding)?;
    let validated = admission.validate(Operation::Create, Some(&binding), None);
    validated.await?;
    let name = name_of(&binding).to_owned();
    if name.is_empty() {
        let message = "Name parameter required.".to_owned();
        return Err(RequestError::BadRequest(message));
    }
    let pods = front.catalog.find("", "v1", "pods").ok();
    let stored = pods
        .as_ref()
        .and_then(|pods| Some((pods, pods.stored.as_deref()?)));
    let Some((pods, stored)) = stored else {
        return Err(Status::unknown_resource().into());
    };
    let target = Target {
        name,
        ..target.clone()
    };
    bind_pod(front, pods, stored, &target, &binding, options.dry_run).await?;
    Ok(Answer::value(CREATED, accepted, &created()))
}

/// Gives a pod the node of a binding.
async fn bind_pod(
    front: &Front,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    binding: &JsonObject,
    dry_run: bool,
) -> Result<(), RequestError> {
    let now = front.now();
    let request = WriteRequest::default().dry_run(dry_run);
    let mut change = ChangeFn(|pod: Option<&JsonObject>| match pod {
        Some(pod) => builtin::bind(pod, binding, &now),
        None => Err(not_found(resource, target)),
    });
    let conditions = builtin::binding_conditions(binding);
    let (pods, reference) = (&stored.prepared, reference(resource, target));
    pods.update_if(&reference, &request, &conditions, &mut change)
        .await?;
    Ok(())
}

/// Answers a request for the log of a pod: there is no kubelet that has one.
pub(crate) async fn log(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    log_options::check(&exchange.query, &target.name)?;
    let options = GetOptions::default();
    let found = stored
        .cache
        .get(&reference(resource, target), &options)
        .await?;
    let pod = found.ok_or_else(|| not_found(resource, target))?;
    let pod = decoded(resource, stored, &pod)?;
    let names = container_names(&pod);
    let container = exchange.query.first("container").unwrap_or_default();
    if !container.is_empty() && !names.iter().any(|name| name == container) {
        return Err(RequestError::BadRequest(format!(
            "container {container} is not valid for pod {}",
            target.name
        )));
    }
    if container.is_empty() && names.len() > 1 {
        return Err(RequestError::BadRequest(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            target.name,
            names.join(" ")
        )));
    }
    match node_of(&pod) {
        None => Ok(Answer::text(StatusCode::NO_CONTENT, "")),
        Some(node) => Err(no_kubelet(node)),
    }
}

/// Answers a request to connect to a pod, a service or a node.
pub(crate) async fn connect(
    front: &Front,
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    let admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: false,
        deletion: None,
    };
    let mut options = connect_options(exchange, resource, target);
    let admitted = admission.admit_unstored(Operation::Connect, &mut options);
    admitted.await?;
    if target.subresource == "proxy" {
        return Err(proxy(exchange, resource, stored, target).await?);
    }
    let object = current(exchange, resource, stored, target).await?;
    match (resource.names.plural.as_str(), node_of(&object)) {
        ("pods", None) => Err(RequestError::BadRequest(format!(
            "pod {} does not have a host assigned",
            target.name
        ))),
        (_, Some(node)) => Err(no_kubelet(node)),
        _ => Err(no_kubelet(&target.name)),
    }
}

/// Returns why a request cannot be proxied to a pod, a service or a node.
///
/// # Errors
/// The object does not exist.
async fn proxy(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<RequestError, RequestError> {
    let Some(Proxied { name, port }) = Proxied::parse(&target.name) else {
        let singular = &resource.names.singular;
        let message = format!("invalid {singular} request {:?}", target.name);
        return Err(RequestError::BadRequest(message));
    };
    let named = Target {
        name: name.to_owned(),
        ..target.clone()
    };
    let object = current(exchange, resource, stored, &named).await?;
    Ok(match resource.names.plural.as_str() {
        "pods" if !has_reachable_address(&object) => {
            RequestError::BadRequest("address not allowed".to_owned())
        }
        "pods" => no_kubelet(node_of(&object).unwrap_or_default()),
        "services" => {
            let message = match port.parse::<i64>() {
                Ok(port) if !has_port(&object, port) => {
                    format!("no service port {port} found for service \"{name}\"")
                }
                _ => format!("no endpoints available for service \"{name}\""),
            };
            Status::service_unavailable(message).into()
        }
        _ => no_kubelet(name),
    })
}

/// Returns whether a pod has an address to which kube-apiserver proxies requests.
fn has_reachable_address(pod: &JsonObject) -> bool {
    let status = pod.get("status");
    let address = status.and_then(|status| status["podIP"].as_str());
    let address = address.and_then(|address| address.parse::<IpAddr>().ok());
    address.is_some_and(|address| match address {
        IpAddr::V4(address) => {
            !(address.is_loopback()
                || address.is_link_local()
                || address.is_multicast()
                || address.is_unspecified()
                || address.is_broadcast())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unicast_link_local()
                || address.is_multicast()
                || address.is_unspecified())
        }
    })
}

/// Returns whether a service has a port with a number.
fn has_port(service: &JsonObject, number: i64) -> bool {
    let ports = service
        .get("spec")
        .and_then(|spec| spec["ports"].as_array());
    let mut ports = ports.into_iter().flatten();
    ports.any(|port| port["port"] == number)
}

/// Returns the options of a connection, which are what plugins see of it.
fn connect_options(exchange: &Exchange, resource: &Resource, target: &Target) -> JsonObject {
    let subresource = resource.subresource(&target.subresource);
    let kind = subresource.map_or("", |subresource| &subresource.kind);
    let mut options = JsonObject::new();
    options.insert("kind".to_owned(), kind.into());
    options.insert("apiVersion".to_owned(), "v1".into());
    if target.subresource == "proxy" {
        let path = target.rest.trim_start_matches('/');
        if !path.is_empty() {
            options.insert("path".to_owned(), format!("/{path}").into());
        }
        return options;
    }
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if let Some(value) = exchange.query.first(name) {
            let is_set = !["", "0", "f", "F", "false", "False", "FALSE"].contains(&value);
            options.insert(name.to_owned(), is_set.into());
        }
    }
    if let Some(container) = exchange.query.first("container") {
        options.insert("container".to_owned(), container.into());
    }
    let command: Vec<Value> = exchange.query.all("command").map(Value::from).collect();
    if !command.is_empty() {
        options.insert("command".to_owned(), command.into());
    }
    if target.subresource == "portforward" {
        let ports = exchange.query.all("ports");
        let ports = ports.flat_map(|ports| ports.split(','));
        let ports: Vec<Value> = ports
            .filter_map(|port| Some(port.parse::<i32>().ok()?.into()))
            .collect();
        if !ports.is_empty() {
            options.insert("ports".to_owned(), ports.into());
        }
    }
    options
}

fn no_kubelet(node: &str) -> RequestError {
    Status::internal_error(format!(
        "this server has no connection to the kubelet of node \"{node}\""
    ))
    .into()
}

fn node_of(pod: &JsonObject) -> Option<&str> {
    let node = pod.get("spec")?.get("nodeName")?.as_str()?;
    (!node.is_empty()).then_some(node)
}

fn container_names(pod: &JsonObject) -> Vec<String> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let lists = lists
        .iter()
        .filter_map(|list| pod.get("spec")?.get(*list)?.as_array());
    let names = lists
        .flatten()
        .filter_map(|container| container["name"].as_str());
    names.map(str::to_owned).collect()
}

pub(super) fn not_found(resource: &Resource, target: &Target) -> RequestError {
    let name: ResourceName = resource.names.resource_name();
    Status::not_found(&name, &target.name).into()
}

/// Returns the answer to a request that has succeeded and has nothing to show.
pub(super) fn created() -> Value {
    let mut status = Status::success();
    status.code = CREATED.as_u16();
    status_value(&status)
}
