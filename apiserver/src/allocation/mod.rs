//! What the server allocates to services: cluster IPs, each an `IPAddress`, and ports of the nodes.
//!
//! A service is written in one transaction with its addresses and with the bitmap of all ports, so nothing is given
//! twice or lost, however many servers use one store, and whatever fails. The keys and the values of the bitmap are those
//! of kube-apiserver, which may use the same store. There is no state in the process.

mod addresses;
mod node_ports;
mod range;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use revstore_engine::KeyRange;
use revstore_kinds as kinds;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{Allocator, JsonObject};
use revstore_watch_cache::source::{
    ConditionalWrite, ListRequest, Source, StoredKeyValue, WriteAction,
};
use revstore_watch_cache::status::{FieldPath, ResourceName, Status, StatusCause};
use serde_json::{Value, json};

pub(crate) use node_ports::empty as empty_node_ports;
pub use range::{AddressRange, PortRange, RangeError, ServiceRanges};

use crate::builtin::{self, edit, field::Field};
use node_ports::{NodePorts, PortError};

/// Allocates cluster IPs and ports of the nodes to services.
#[derive(Clone)]
pub(crate) struct ServiceAllocator {
    pub(crate) source: Arc<dyn Source>,
    /// The beginning of all keys.
    pub(crate) prefix: String,
    pub(crate) ranges: ServiceRanges,
    pub(crate) now: builtin::Now,
    /// Whether the store changes what services need. Others, such as that of the status, only release it.
    pub(crate) allocates: bool,
}

impl fmt::Debug for ServiceAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAllocator")
            .field("ranges", &self.ranges)
            .field("allocates", &self.allocates)
            .finish_non_exhaustive()
    }
}

impl Allocator for ServiceAllocator {
    fn allocate<'a>(
        &'a self,
        new: &'a mut JsonObject,
        old: Option<&'a JsonObject>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Vec<ConditionalWrite>, RequestError>> {
        Box::pin(async move {
            let mut writes = Vec::new();
            if !self.allocates {
                return Ok(writes);
            }
            let families = self.ranges.families();
            let changes = builtin::prepare_allocation(new, old, &families);
            let changes = changes.map_err(|causes| invalid(new, causes))?;
            if !changes.needed.is_empty() {
                self.allocate_addresses(new, &changes.needed, dry_run, &mut writes)
                    .await?;
            }
            if let Some(old) = old
                && !dry_run
            {
                self.release_addresses(old, &changes.released, &mut writes)
                    .await?;
            }
            if uses_ports(new) || old.is_some_and(uses_ports) {
                self.allocate_ports(new, old, dry_run, &mut writes).await?;
            }
            Ok(writes)
        })
    }

    fn release<'a>(
        &'a self,
        object: &'a JsonObject,
    ) -> BoxFuture<'a, Result<Vec<ConditionalWrite>, RequestError>> {
        Box::pin(async move {
            let mut writes = Vec::new();
            let spec = Field::root(object).child("spec");
            let ips = spec.child("clusterIPs");
            let ips: Vec<String> = ips.items().map(|ip| ip.text().to_owned()).collect();
            self.release_addresses(object, &ips, &mut writes).await?;
            if uses_ports(object) {
                let (mut ports, stored) = self.node_ports(false).await?;
                release_ports(&mut ports, object);
                self.write_ports(ports, stored, &mut writes)?;
            }
            Ok(writes)
        })
    }
}

impl ServiceAllocator {
    /// Returns the key of the bitmap of ports of the nodes.
    pub(crate) fn node_ports_key(&self) -> Bytes {
        format!("{}/ranges/servicenodeports", self.prefix).into()
    }

    /// Reads a key as it is now.
    pub(crate) async fn read(&self, key: Bytes) -> Result<Option<StoredKeyValue>, RequestError> {
        let found = self.list(KeyRange::One(key)).await?;
        Ok(found.into_iter().next())
    }

    async fn list(&self, range: KeyRange) -> Result<Vec<StoredKeyValue>, RequestError> {
        let request = ListRequest {
            range,
            at: None,
            limit: None,
        };
        let page = self.source.list(request).await;
        page.map(|page| page.items)
            .map_err(|error| RequestError::Internal(error.to_string()))
    }

    async fn node_ports(
        &self,
        dry_run: bool,
    ) -> Result<(NodePorts, Option<StoredKeyValue>), RequestError> {
        let stored = self.read(self.node_ports_key()).await?;
        let value = stored.as_ref().map(|stored| &stored.value);
        Ok((NodePorts::read(self.ranges.ports, value, dry_run)?, stored))
    }

    fn write_ports(
        &self,
        ports: NodePorts,
        stored: Option<StoredKeyValue>,
        writes: &mut Vec<ConditionalWrite>,
    ) -> Result<(), RequestError> {
        let Some(value) = ports.into_value()? else {
            return Ok(());
        };
        writes.push(ConditionalWrite {
            key: self.node_ports_key(),
            expected: stored.map(|stored| stored.mod_revision),
            action: WriteAction::Put {
                value,
                time_to_live: None,
            },
        });
        Ok(())
    }

    async fn allocate_ports(
        &self,
        new: &mut JsonObject,
        old: Option<&JsonObject>,
        dry_run: bool,
        writes: &mut Vec<ConditionalWrite>,
    ) -> Result<(), RequestError> {
        let (mut ports, stored) = self.node_ports(dry_run).await?;
        if has_node_ports(new) {
            match old {
                Some(old) => update_ports(&mut ports, new, old)?,
                None => init_ports(&mut ports, new)?,
            }
        } else if let Some(old) = old.filter(|old| has_node_ports(old)) {
            numbers(old).for_each(|port| ports.release(port));
        }
        let had_check = old.is_some_and(checks_health);
        if checks_health(new) && !had_check {
            allocate_health_check(&mut ports, new)?;
        } else if had_check
            && !checks_health(new)
            && let Some(port) = old.and_then(health_check)
        {
            ports.release(port);
        }
        self.write_ports(ports, stored, writes)
    }
}

/// Returns whether a type has a port on each node.
fn has_node_ports(service: &JsonObject) -> bool {
    ["NodePort", "LoadBalancer"].contains(&edit::text_at(service, &["spec", "type"]))
}

/// Returns whether nodes report on a port which of them have endpoints.
fn checks_health(service: &JsonObject) -> bool {
    edit::text_at(service, &["spec", "type"]) == "LoadBalancer"
        && edit::text_at(service, &["spec", "externalTrafficPolicy"]) == "Local"
}

fn uses_ports(service: &JsonObject) -> bool {
    has_node_ports(service) || numbers(service).next().is_some()
}

fn port_of(field: &Field<'_>) -> Option<u16> {
    let number = field.int().filter(|number| *number != 0)?;
    u16::try_from(number).ok()
}

fn numbers(service: &JsonObject) -> impl Iterator<Item = u16> {
    let ports = Field::root(service).child("spec").child("ports");
    let numbers: Vec<u16> = ports
        .items()
        .filter_map(|port| port_of(&port.child("nodePort")))
        .collect();
    numbers.into_iter()
}

fn health_check(service: &JsonObject) -> Option<u16> {
    let spec = Field::root(service).child("spec");
    port_of(&spec.child("healthCheckNodePort"))
}

fn release_ports(ports: &mut NodePorts, service: &JsonObject) {
    numbers(service).for_each(|port| ports.release(port));
    if checks_health(service)
        && let Some(port) = health_check(service)
    {
        ports.release(port);
    }
}

fn invalid(service: &JsonObject, causes: Vec<StatusCause>) -> RequestError {
    let name = edit::text_at(service, &["metadata", "name"]);
    Status::invalid(&ResourceName::new("", "Service"), name, causes).into()
}

/// Returns whether each port of a service gets a port of the nodes.
fn wants_all_ports(service: &JsonObject) -> bool {
    let spec = Field::root(service).child("spec");
    let wants = spec.child("allocateLoadBalancerNodePorts");
    spec.child("type").text() != "LoadBalancer" || !wants.is_set() || wants.flag()
}

/// A port of a service.
struct ServicePort {
    index: usize,
    port: i64,
    protocol: String,
    /// 0 for any.
    node_port: i64,
}

fn service_ports(service: &JsonObject) -> Vec<ServicePort> {
    let ports = Field::root(service).child("spec").child("ports");
    let port = |(index, port): (usize, Field<'_>)| ServicePort {
        index,
        port: port.child("port").int().unwrap_or_default(),
        protocol: port.child("protocol").text().to_owned(),
        node_port: port.child("nodePort").int().unwrap_or_default(),
    };
    ports.items().enumerate().map(port).collect()
}

fn set_node_port(service: &mut JsonObject, index: usize, number: u16) {
    let port =
        edit::child_mut(service, "spec").and_then(|spec| edit::items_mut(spec, "ports").nth(index));
    if let Some(port) = port {
        port.insert("nodePort".to_owned(), number.into());
    }
}

/// Allocates a port that a service asks for.
fn allocate_chosen(
    ports: &mut NodePorts,
    service: &JsonObject,
    index: usize,
    number: i64,
) -> Result<u16, RequestError> {
    // A number that is no port is in no range. 0 is in none, either.
    let port = u16::try_from(number).unwrap_or_default();
    let allocated = ports.allocate(port);
    allocated.map(|()| port).map_err(|error| {
        let path = FieldPath::new("spec").child("ports").index(index);
        let cause = StatusCause::invalid(path.child("nodePort"), number, &error.to_string());
        invalid(service, vec![cause])
    })
}

fn allocate_any(ports: &mut NodePorts) -> Result<u16, RequestError> {
    ports
        .allocate_next()
        .map_err(|error| RequestError::Internal(format!("failed to allocate a nodePort: {error}")))
}

/// Allocates the ports of a new service. Ports with the same number and different protocols get the same port of the
/// nodes.
fn init_ports(ports: &mut NodePorts, service: &mut JsonObject) -> Result<(), RequestError> {
    let all = wants_all_ports(service);
    let wanted = service_ports(service);
    let mut given: BTreeMap<i64, u16> = BTreeMap::new();
    for port in &wanted {
        if port.node_port == 0 && !all {
            continue;
        }
        let number = match given.get(&port.port) {
            None => {
                let mut same = wanted.iter().filter(|other| other.port == port.port);
                let chosen = same.find(|other| other.node_port != 0);
                let number = match chosen {
                    Some(chosen) => allocate_chosen(ports, service, port.index, chosen.node_port)?,
                    None => allocate_any(ports)?,
                };
                given.insert(port.port, number);
                number
            }
            Some(number) if port.node_port == 0 || port.node_port == i64::from(*number) => *number,
            Some(_) => allocate_chosen(ports, service, port.index, port.node_port)?,
        };
        set_node_port(service, port.index, number);
    }
    Ok(())
}

/// Allocates the ports that an update adds, and releases those that it removes.
fn update_ports(
    ports: &mut NodePorts,
    service: &mut JsonObject,
    old: &JsonObject,
) -> Result<(), RequestError> {
    let all = wants_all_ports(service);
    let old_numbers: Vec<u16> = numbers(old).collect();
    let mut added: Vec<u16> = Vec::new();
    let mut seen: Vec<(String, i64)> = Vec::new();
    for port in service_ports(service) {
        if port.node_port == 0 && !all {
            continue;
        }
        let number = if port.node_port == 0 {
            let number = allocate_any(ports)?;
            set_node_port(service, port.index, number);
            i64::from(number)
        } else {
            let has = |list: &[u16]| list.iter().any(|known| i64::from(*known) == port.node_port);
            if !has(&old_numbers) && !has(&added) {
                added.push(allocate_chosen(ports, service, port.index, port.node_port)?);
            }
            port.node_port
        };
        let key = (port.protocol, number);
        if seen.contains(&key) {
            let message = format!("duplicate nodePort: {{{} {}}}", key.0, key.1);
            return Err(RequestError::Unclassified(message));
        }
        seen.push(key);
    }
    let kept: Vec<u16> = numbers(service).collect();
    for port in old_numbers {
        if !kept.contains(&port) {
            ports.release(port);
        }
    }
    Ok(())
}

fn allocate_health_check(
    ports: &mut NodePorts,
    service: &mut JsonObject,
) -> Result<(), RequestError> {
    let spec = Field::root(service).child("spec");
    let requested = spec.child("healthCheckNodePort").int().unwrap_or_default();
    if requested != 0 {
        let port = u16::try_from(requested).unwrap_or_default();
        return ports.allocate(port).map_err(|error: PortError| {
            RequestError::Internal(format!(
                "failed to allocate requested HealthCheck NodePort {requested}: {error}"
            ))
        });
    }
    let port = ports.allocate_next().map_err(|error| {
        RequestError::Internal(format!(
            "failed to allocate a HealthCheck NodePort 0: {error}"
        ))
    })?;
    if let Some(spec) = edit::child_mut(service, "spec") {
        spec.insert("healthCheckNodePort".to_owned(), json!(port));
    }
    Ok(())
}

/// Parses a stored object, in JSON or as kube-apiserver writes it.
fn decode(value: &Bytes) -> Result<Value, String> {
    if value.starts_with(kinds::MAGIC) {
        kinds::from_protobuf(value).map_err(|error| error.to_string())
    } else {
        serde_json::from_slice(value).map_err(|error| error.to_string())
    }
}
