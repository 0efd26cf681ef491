//! What the server allocates to services: cluster IPs and ports of nodes.

use std::net::IpAddr;

use revstore_watch_cache::registry::JsonObject;

use super::super::field::Field;
use super::{HEADLESS, has_node_ports};

/// The port of a service that needs a port of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePort {
    /// The index of the port in `spec.ports`.
    pub index: usize,
    /// The protocol. One number may be used once for each protocol.
    pub protocol: String,
    /// The number, or `None` for any.
    pub number: Option<u16>,
}

/// What a service needs. The caller allocates it, and writes it into `spec.clusterIP`, `spec.clusterIPs`,
/// `spec.ports[].nodePort` and `spec.healthCheckNodePort`. Previous allocations that are not in the new
/// version are free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Whether a cluster IP is needed.
    pub needs_cluster_ip: bool,
    /// The cluster IPs that the service has or asks for.
    pub cluster_ips: Vec<IpAddr>,
    /// The ports of the nodes that the service needs.
    pub node_ports: Vec<NodePort>,
    /// Whether a port for health checks is needed.
    pub needs_health_check_port: bool,
}

/// Returns what a service needs that has been completed by its rules.
pub fn needed_allocation(service: &JsonObject) -> Allocation {
    let spec = Field::root(service).child("spec");
    let kind = spec.child("type").text();
    let mut allocation = Allocation::default();
    if kind == "ExternalName" {
        return allocation;
    }
    let ip = spec.child("clusterIP").text();
    allocation.needs_cluster_ip = ip != HEADLESS;
    allocation.cluster_ips = spec
        .child("clusterIPs")
        .items()
        .filter_map(|ip| ip.text().parse().ok())
        .collect();
    let manual = spec.child("allocateLoadBalancerNodePorts");
    let optional = kind == "LoadBalancer" && manual.is_set() && !manual.flag();
    if has_node_ports(kind) {
        for (index, port) in spec.child("ports").items().enumerate() {
            let number = port.child("nodePort").int().filter(|number| *number != 0);
            if number.is_none() && optional {
                continue;
            }
            allocation.node_ports.push(NodePort {
                index,
                protocol: port.child("protocol").text().to_owned(),
                number: number.and_then(|number| u16::try_from(number).ok()),
            });
        }
    }
    allocation.needs_health_check_port =
        kind == "LoadBalancer" && spec.child("externalTrafficPolicy").text() == "Local";
    allocation
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::needed_allocation;

    fn allocation(spec: &Value) -> super::Allocation {
        needed_allocation(json!({"spec": spec}).as_object().unwrap())
    }

    #[test]
    fn needs_follow_the_type() {
        let external = allocation(&json!({"type": "ExternalName"}));
        assert!(!external.needs_cluster_ip);
        let headless = allocation(&json!({"type": "ClusterIP", "clusterIP": "None"}));
        assert!(!headless.needs_cluster_ip);
        let ports = json!([{"port": 1, "protocol": "TCP"}, {"port": 2, "nodePort": 30001}]);
        let node = allocation(&json!({"type": "NodePort", "ports": ports}));
        assert!(node.needs_cluster_ip);
        let numbers: Vec<_> = node.node_ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers, [None, Some(30001)]);
        let optional = allocation(&json!({
            "type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false,
        }));
        assert_eq!(optional.node_ports.len(), 1);
    }
}
