//! Rows of services, endpoints, ingresses and network policies.

use super::{AGE, NAME, Printer, SELECTOR, age, first_of, labels, or, selector, text};
use crate::builtin::field::Field;

/// The number of hosts or addresses that are shown.
const SHOWN_MAX: usize = 3;

pub(super) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Service",
        columns: &[
            NAME,
            text("Type", "How the service can be reached."),
            text("Cluster-IP", "The address inside of the cluster."),
            text("External-IP", "The addresses outside of the cluster."),
            text("Port(s)", "The ports of the service."),
            AGE,
            SELECTOR,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let ip = spec.child("clusterIPs").items().next();
            let ports: Vec<String> = spec
                .child("ports")
                .items()
                .map(|port| port_text(&port))
                .collect();
            vec![
                spec.child("type").text().into(),
                or(ip.map_or("", |ip| ip.text()), "<none>"),
                external_ips(root).into(),
                or(&ports.join(","), "<none>"),
                age(root, clock),
                labels(&spec.child("selector")),
            ]
        },
    },
    Printer {
        group: "",
        kind: "Endpoints",
        columns: &[
            NAME,
            text("Endpoints", "The addresses that are ready."),
            AGE,
        ],
        cells: |root, clock| vec![or(&endpoints(root), "<none>"), age(root, clock)],
    },
    Printer {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        columns: &[
            NAME,
            text("AddressType", "The type of the addresses."),
            text("Ports", "The ports of the endpoints."),
            text("Endpoints", "The addresses of the endpoints."),
            AGE,
        ],
        cells: |root, clock| {
            let ports: Vec<String> = root
                .child("ports")
                .items()
                .map(|port| match port.child("port").int() {
                    Some(number) => number.to_string(),
                    None if port.child("name").is_set() => port.child("name").text().to_owned(),
                    None => "*".to_owned(),
                })
                .collect();
            let addresses: Vec<String> = root
                .child("endpoints")
                .items()
                .flat_map(|endpoint| endpoint.child("addresses").items())
                .map(|address| address.text().to_owned())
                .collect();
            vec![
                root.child("addressType").text().into(),
                or(&first_of(&ports, SHOWN_MAX), "<unset>"),
                or(&first_of(&addresses, SHOWN_MAX), "<unset>"),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "networking.k8s.io",
        kind: "Ingress",
        columns: &[
            NAME,
            text("Class", "The class of the ingress."),
            text("Hosts", "The hosts of the rules."),
            text("Address", "The addresses of the load balancer."),
            text("Ports", "The ports of the load balancer."),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let class = spec.child("ingressClassName");
            let tls = spec.child("tls").len() > 0;
            vec![
                if class.is_set() {
                    class.text().into()
                } else {
                    "<none>".into()
                },
                hosts(&spec).into(),
                balancer(root).into(),
                if tls { "80, 443" } else { "80" }.into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "networking.k8s.io",
        kind: "IngressClass",
        columns: &[
            NAME,
            text("Controller", "The controller of the class."),
            text("Parameters", "The object with further parameters."),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let parameters = spec.child("parameters");
            let shown = if parameters.is_set() {
                let of = |name: &'static str| parameters.child(name).text();
                let group = of("apiGroup");
                let dot = if group.is_empty() { "" } else { "." };
                format!("{}{dot}{group}/{}", of("kind"), of("name"))
            } else {
                "<none>".to_owned()
            };
            let default = "ingressclass.kubernetes.io/is-default-class";
            vec![
                super::storage::class_name(root, default),
                spec.child("controller").text().into(),
                shown.into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        columns: &[
            NAME,
            text(
                "Pod-Selector",
                "The labels of the pods that the policy is for.",
            ),
            AGE,
        ],
        cells: |root, clock| {
            vec![
                selector(&root.at(&["spec", "podSelector"])),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        columns: &[NAME, text("CIDRs", "The ranges of addresses."), AGE],
        cells: |root, clock| {
            let list = root.at(&["spec", "cidrs"]).items();
            let list: Vec<&str> = list.map(|cidr| cidr.text()).collect();
            vec![list.join(",").into(), age(root, clock)]
        },
    },
    Printer {
        group: "networking.k8s.io",
        kind: "IPAddress",
        columns: &[NAME, text("ParentRef", "The object that has the address.")],
        cells: |root, _| {
            let parent = root.at(&["spec", "parentRef"]);
            let of = |name: &'static str| parent.child(name).text();
            let names = [of("resource"), of("group"), of("namespace"), of("name")];
            let [resource, group, namespace, name] = names;
            let resource = match group {
                "" => resource.to_owned(),
                group => format!("{resource}.{group}"),
            };
            let parts = [resource.as_str(), namespace, name];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            vec![parts.join("/").into()]
        },
    },
];

fn port_text(port: &Field<'_>) -> String {
    let number = port.child("port").int().unwrap_or_default();
    let protocol = port.child("protocol").text();
    match port.child("nodePort").int() {
        Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

/// Returns the addresses of a load balancer, in order.
fn balancer(root: &Field<'_>) -> String {
    let mut addresses: Vec<&str> = root
        .at(&["status", "loadBalancer", "ingress"])
        .items()
        .map(|ingress| match ingress.child("ip").text() {
            "" => ingress.child("hostname").text(),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

fn external_ips(root: &Field<'_>) -> String {
    let spec = root.child("spec");
    let list: Vec<&str> = spec
        .child("externalIPs")
        .items()
        .map(|ip| ip.text())
        .collect();
    match spec.child("type").text() {
        "ClusterIP" | "NodePort" if list.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => list.join(","),
        "LoadBalancer" => {
            let balancer = balancer(root);
            let mut all: Vec<&str> = balancer.split(',').filter(|ip| !ip.is_empty()).collect();
            all.extend(list);
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        "ExternalName" => spec.child("externalName").text().to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn endpoints(root: &Field<'_>) -> String {
    let mut all = Vec::new();
    for subset in root.child("subsets").items() {
        let addresses = || subset.child("addresses").items();
        if subset.child("ports").len() == 0 {
            all.extend(addresses().map(|address| address.child("ip").text().to_owned()));
        }
        for port in subset.child("ports").items() {
            let number = port.child("port").int().unwrap_or_default();
            all.extend(addresses().map(|address| match address.child("ip").text() {
                ip if ip.contains(':') => format!("[{ip}]:{number}"),
                ip => format!("{ip}:{number}"),
            }));
        }
    }
    first_of(&all, SHOWN_MAX)
}

fn hosts(spec: &Field<'_>) -> String {
    let rules = spec.child("rules");
    let mut list: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules.items() {
        more |= list.len() == SHOWN_MAX;
        let host = rule.child("host").text();
        if !more && !host.is_empty() {
            list.push(host);
        }
    }
    if list.is_empty() {
        return "*".to_owned();
    }
    let shown = list.join(",");
    if more {
        format!("{shown} + {} more...", rules.len() - SHOWN_MAX)
    } else {
        shown
    }
}
