//! Tests of allocations by several servers over one store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use pollster::block_on;
use revstore_engine::{Engine, KeyRange, Range, SystemClock};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::ObjectRef;
use revstore_watch_cache::cache::FeederThread;
use revstore_watch_cache::registry::{DeleteRequest, JsonObject, WriteRequest};
use serde_json::{Value, json};

use super::node_ports::NodePorts;
use super::{ServiceRanges, decode};
use crate::catalog::{Catalog, Stored};
use crate::storage::Storage;

/// A server without ports for clients.
struct Front {
    storage: Storage,
    catalog: Catalog,
    /// Stops when it is dropped.
    _feeder: FeederThread,
}

impl Front {
    fn over(engine: &Engine, addresses: &str, ports: &str) -> Self {
        let ranges = ServiceRanges {
            addresses: addresses
                .split(',')
                .map(|range| range.parse().unwrap())
                .collect(),
            ports: ports.parse().unwrap(),
        };
        let clock = Arc::new(SystemClock::new());
        let (storage, feeder) = Storage::over(
            engine.clone(),
            clock,
            SystemTime::UNIX_EPOCH,
            "/registry",
            ranges,
        );
        let catalog = Catalog::default();
        let config = crate::catalog::RuntimeConfig::default();
        crate::catalog::add_builtin(&catalog, &storage, &config).unwrap();
        let feeder = feeder.spawn();
        block_on(async {
            catalog.wait_until_ready().await?;
            crate::bootstrap::create(&catalog, &storage, 6443).await
        })
        .unwrap();
        Self {
            storage,
            catalog,
            _feeder: feeder,
        }
    }

    fn services(&self) -> Arc<Stored> {
        let resource = self.catalog.find("", "v1", "services").unwrap();
        resource.stored.clone().unwrap()
    }

    fn create(&self, name: &str, spec: Value) -> Result<JsonObject, RequestError> {
        self.create_with(name, spec, false)
    }

    fn create_with(
        &self,
        name: &str,
        mut spec: Value,
        dry_run: bool,
    ) -> Result<JsonObject, RequestError> {
        if spec.get("ports").is_none() && spec["type"] != "ExternalName" {
            spec["ports"] = json!([{"port": 80}]);
        }
        let service = json!({"metadata": {"name": name}, "spec": spec});
        let service = service.as_object().cloned().unwrap();
        let request = WriteRequest::default().dry_run(dry_run);
        block_on(self.services().store.create("default", service, &request))
    }

    /// Merges fields into the specification of a service.
    fn change(&self, name: &str, fields: &Value) -> Result<JsonObject, RequestError> {
        let change = |old: Option<&JsonObject>| {
            let Some(mut new) = old.cloned() else {
                return Err(RequestError::Unclassified("it is gone".to_owned()));
            };
            for (name, value) in fields.as_object().unwrap() {
                new["spec"][name] = value.clone();
            }
            Ok(new)
        };
        let reference = ObjectRef::namespaced("default", name);
        let stored = self.services();
        let request = WriteRequest::default();
        let updated = stored.store.update_with(&reference, &request, change);
        Ok(block_on(updated)?.object)
    }

    fn delete(&self, name: &str) -> Result<(), RequestError> {
        let reference = ObjectRef::namespaced("default", name);
        let stored = self.services();
        block_on(stored.store.delete(&reference, &DeleteRequest::default())).map(drop)
    }

    fn values(&self, prefix: &str) -> Vec<Value> {
        let range = KeyRange::prefix(format!("/registry/{prefix}/"));
        let found = self
            .storage
            .engine
            .as_ref()
            .unwrap()
            .range(&Range::of(range))
            .unwrap();
        let values = found
            .kvs
            .iter()
            .map(|kv| decode(&kv.value_bytes()).unwrap());
        values.collect()
    }

    /// Checks that services have what is allocated, and each of it once.
    fn check(&self) {
        let (mut ips, mut ports) = (BTreeMap::new(), BTreeSet::new());
        for service in self.values("services/specs") {
            let name = service["metadata"]["name"].as_str().unwrap().to_owned();
            let spec = &service["spec"];
            for ip in spec["clusterIPs"].as_array().into_iter().flatten() {
                if ip != "None" {
                    let twice = ips.insert(ip.as_str().unwrap().to_owned(), name.clone());
                    assert_eq!(twice, None, "{ip} was given twice");
                }
            }
            let numbers = spec["ports"].as_array().into_iter().flatten();
            let numbers: BTreeSet<u64> = numbers
                .filter_map(|port| port["nodePort"].as_u64())
                .chain(spec["healthCheckNodePort"].as_u64())
                .collect();
            for number in numbers {
                assert!(ports.insert(number), "{number} was given twice");
            }
        }
        let addresses = self.values("ipaddresses").into_iter().map(|address| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let parent = &address["spec"]["parentRef"]["name"];
            (text(&address["metadata"]["name"]), text(parent))
        });
        assert_eq!(addresses.collect::<BTreeMap<_, _>>(), ips);
        let allocator = self.storage.service_allocator(true);
        let stored = block_on(allocator.read(allocator.node_ports_key())).unwrap();
        let read = NodePorts::read(
            allocator.ranges.ports,
            stored.as_ref().map(|it| &it.value),
            false,
        );
        let taken: BTreeSet<u64> = read.unwrap().taken().map(u64::from).collect();
        assert_eq!(taken, ports);
    }
}

fn front(addresses: &str) -> Front {
    Front::over(&Engine::builder().build(), addresses, "30000-32767")
}

fn message(result: Result<JsonObject, RequestError>) -> String {
    result.unwrap_err().status().message
}

#[test]
fn servers_over_one_store_give_nothing_twice() {
    let engine = Engine::builder().build();
    let fronts: Vec<_> = (0..2)
        .map(|_| Front::over(&engine, "10.0.0.0/25", "30000-30063"))
        .collect();
    let kinds = ["ClusterIP", "NodePort", "LoadBalancer"];
    thread::scope(|scope| {
        for (server, front) in fronts.iter().enumerate() {
            for worker in 0..2 {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(worker + 7);
                    let mut own: Vec<String> = Vec::new();
                    for round in 0..60 {
                        let name = format!("s-{server}-{worker}-{round}");
                        let kind = kinds[random.usize(..3)];
                        let mut spec = json!({"type": kind});
                        if kind == "LoadBalancer" {
                            spec["externalTrafficPolicy"] = json!("Local");
                        }
                        if random.bool() {
                            spec["clusterIP"] = json!(format!("10.0.0.{}", random.u8(1..127)));
                        }
                        // Taken addresses and a full range are errors that must leave nothing.
                        if front.create(&name, spec).is_ok() {
                            own.push(name);
                        }
                        if random.bool() && !own.is_empty() {
                            let name = own.swap_remove(random.usize(..own.len()));
                            front.delete(&name).unwrap();
                        } else if let Some(name) = own.last() {
                            let kind = kinds[random.usize(..3)];
                            let _ = front.change(name, &json!({"type": kind}));
                        }
                    }
                });
            }
        }
    });
    for front in &fronts {
        front.check();
    }
    for service in fronts[0].values("services/specs") {
        fronts[1]
            .delete(service["metadata"]["name"].as_str().unwrap())
            .unwrap();
    }
    fronts[0].check();
    assert!(fronts[0].values("ipaddresses").is_empty());
}

#[test]
fn a_range_can_be_used_up() {
    let front = front("10.0.0.0/28");
    for index in 0..13 {
        front.create(&format!("s{index}"), json!({})).unwrap();
    }
    assert_eq!(
        message(front.create("full", json!({}))),
        "Internal error occurred: failed to allocate a serviceIP for Service \"full\": range is full"
    );
    front.check();
    front.delete("s3").unwrap();
    front.create("s3", json!({})).unwrap();
    front.check();
}

#[test]
fn the_server_has_the_first_address() {
    let front = front("10.0.0.0/24");
    let addresses = front.values("ipaddresses");
    assert_eq!(addresses.len(), 1);
    assert_eq!(addresses[0]["metadata"]["name"], "10.0.0.1");
    assert_eq!(
        addresses[0]["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "kubernetes"})
    );
    let ranges = front.values("servicecidrs");
    assert_eq!(ranges[0]["spec"]["cidrs"], json!(["10.0.0.0/24"]));
    assert_eq!(ranges[0]["status"]["conditions"][0]["status"], "True");
    front.check();
}

#[test]
fn a_type_changes_back_and_forth() {
    let front = front("10.0.0.0/24");
    front
        .create("a", json!({"type": "ExternalName", "externalName": "x.y"}))
        .unwrap();
    for _ in 0..3 {
        let ports = json!([{"port": 80}]);
        let new = front
            .change("a", &json!({"type": "ClusterIP", "ports": ports}))
            .unwrap();
        assert!(new["spec"]["clusterIP"].is_string());
        front.check();
        front.change("a", &json!({"type": "NodePort"})).unwrap();
        front.check();
        let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        let new = front.change("a", &local).unwrap();
        assert!(new["spec"]["healthCheckNodePort"].is_number());
        front.check();
        let new = front
            .change("a", &json!({"externalTrafficPolicy": "Cluster"}))
            .unwrap();
        assert!(new["spec"].get("healthCheckNodePort").is_none());
        front.check();
        front
            .change("a", &json!({"type": "ExternalName", "externalName": "x.y"}))
            .unwrap();
        front.check();
        assert_eq!(front.values("ipaddresses").len(), 1);
    }
}

#[test]
fn a_refused_create_leaves_nothing() {
    let front = front("10.0.0.0/24");
    front.create("a", json!({"clusterIP": "10.0.0.9"})).unwrap();
    // It exists, its name is invalid, its port is, the address is taken, out of range, of no family.
    assert!(matches!(
        front.create("a", json!({"type": "NodePort"})),
        Err(RequestError::AlreadyExists { .. })
    ));
    let node_port = json!({"type": "NodePort"});
    assert!(message(front.create("A", node_port)).contains("metadata.name"));
    let ports = json!({"type": "NodePort", "ports": [{"port": 0}]});
    assert!(message(front.create("b", ports)).contains("spec.ports[0].port"));
    let taken = message(front.create("b", json!({"clusterIP": "10.0.0.9"})));
    assert!(taken.ends_with("failed to allocate IP 10.0.0.9: provided IP is already allocated"));
    for ip in ["10.0.0.0", "10.0.0.255", "10.0.1.1"] {
        let outside = message(front.create("b", json!({"clusterIP": ip})));
        assert!(outside.ends_with("the provided network does not match the current range"));
    }
    let family = message(front.create("b", json!({"clusterIP": "fd00::1"})));
    assert!(family.ends_with("IPv6 is not configured on this cluster"));
    let port = json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 80}]});
    assert!(message(front.create("b", port)).ends_with("The range of valid ports is 30000-32767"));
    front.check();
}

#[test]
fn a_dry_run_allocates_nothing() {
    let front = front("10.0.0.0/24");
    let before = front.storage.engine.as_ref().unwrap().current_revision();
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let shown = front.create_with("a", spec, true).unwrap();
    assert_eq!(shown["spec"]["clusterIP"], "10.0.0.0");
    assert_eq!(shown["spec"]["ports"][0]["nodePort"], 32_769);
    assert_eq!(shown["spec"]["healthCheckNodePort"], 32_770);
    assert_eq!(
        front.storage.engine.as_ref().unwrap().current_revision(),
        before
    );
}

#[test]
fn a_service_can_have_both_families() {
    let front = front("10.0.0.0/24,fd00::/112");
    let new = front
        .create("a", json!({"ipFamilyPolicy": "RequireDualStack"}))
        .unwrap();
    assert_eq!(new["spec"]["clusterIPs"].as_array().unwrap().len(), 2);
    front.check();
    let new = front
        .change("a", &json!({"ipFamilyPolicy": "SingleStack"}))
        .unwrap();
    assert_eq!(new["spec"]["ipFamilies"], json!(["IPv4"]));
    front.check();
    let new = front
        .change("a", &json!({"ipFamilyPolicy": "PreferDualStack"}))
        .unwrap();
    assert_eq!(new["spec"]["clusterIPs"].as_array().unwrap().len(), 2);
    front.check();
    front.delete("a").unwrap();
    front.check();
}

#[test]
fn further_ranges_are_used() {
    let front = front("10.0.0.0/29");
    let ranges = front
        .catalog
        .find("networking.k8s.io", "v1", "servicecidrs")
        .unwrap();
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/30"]}});
    let more = more.as_object().cloned().unwrap();
    let store = &ranges.stored.as_ref().unwrap().store;
    block_on(store.create("", more, &WriteRequest::default())).unwrap();
    for index in 0..7 {
        front.create(&format!("s{index}"), json!({})).unwrap();
    }
    assert!(message(front.create("full", json!({}))).contains("range is full"));
    front.check();
}

#[test]
fn a_removal_and_updates_at_once_release_everything() {
    let front = front("10.0.0.0/24");
    for round in 0..20 {
        front.create("a", json!({"type": "NodePort"})).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for kind in ["ClusterIP", "LoadBalancer", "NodePort"] {
                    // The service may be gone.
                    let _ = front.change("a", &json!({"type": kind}));
                }
            });
            scope.spawn(|| front.delete("a").unwrap());
        });
        front.check();
        assert_eq!(front.values("ipaddresses").len(), 1, "round {round}");
    }
}
