//! Cluster IPs: an address belongs to the service that its `IPAddress` names.

use std::collections::HashSet;
use std::net::IpAddr;

use bytes::Bytes;
use revstore_engine::KeyRange;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::source::{ConditionalWrite, WriteAction};
use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::{Value, json};

use super::range::AddressRange;
use super::{ServiceAllocator, decode, invalid};
use crate::builtin::edit;

/// The number of random addresses that are looked up, one by one, before all addresses in use are read.
const PROBES_MAX: usize = 16;
/// The name of the object with the ranges of the flags.
pub(super) const DEFAULT_RANGES: &str = "kubernetes";

impl ServiceAllocator {
    fn address_key(&self, ip: IpAddr) -> Bytes {
        format!("{}/ipaddresses/{ip}", self.prefix).into()
    }

    /// Allocates cluster IPs to a service: those that it names, and any others.
    pub(super) async fn allocate_addresses(
        &self,
        service: &mut JsonObject,
        needed: &[(usize, String)],
        dry_run: bool,
        writes: &mut Vec<ConditionalWrite>,
    ) -> Result<(), RequestError> {
        let ranges = self.address_ranges().await?;
        let list = edit::at(service, &["spec", "clusterIPs"]);
        let list = list.and_then(Value::as_array);
        let mut ips: Vec<String> = list.into_iter().flatten().map(text).collect();
        for (index, family) in needed {
            let ranges: Vec<AddressRange> = ranges
                .iter()
                .filter(|range| range.family() == family)
                .copied()
                .collect();
            let named = ips.get(*index).filter(|ip| !ip.is_empty()).cloned();
            let ip = if let Some(text) = named {
                let checked = self.check_named(&text, &ranges, dry_run).await?;
                checked.map_err(|reason| {
                    let path = FieldPath::new("spec").child("clusterIPs");
                    let detail = format!("failed to allocate IP {text}: {reason}");
                    invalid(
                        service,
                        vec![StatusCause::invalid(path, json!(ips), &detail)],
                    )
                })?
            } else {
                let Some(ip) = self.pick(&ranges, dry_run).await? else {
                    let name = edit::text_at(service, &["metadata", "name"]);
                    return Err(RequestError::Internal(format!(
                        "failed to allocate a serviceIP for Service {name:?}: range is full"
                    )));
                };
                ips.resize_with(ips.len().max(index + 1), String::new);
                ips[*index] = ip.to_string();
                ip
            };
            if !dry_run {
                writes.push(self.taken_by(ip, family, service)?);
            }
        }
        if let Some(spec) = edit::child_mut(service, "spec") {
            spec.insert("clusterIP".to_owned(), json!(ips.first()));
            spec.insert("clusterIPs".to_owned(), json!(ips));
        }
        Ok(())
    }

    /// Adds the writes that release cluster IPs. An address of another object stays.
    pub(super) async fn release_addresses(
        &self,
        service: &JsonObject,
        ips: &[String],
        writes: &mut Vec<ConditionalWrite>,
    ) -> Result<(), RequestError> {
        for ip in ips.iter().filter_map(|ip| ip.parse().ok()) {
            let key = self.address_key(ip);
            let Some(stored) = self.read(key.clone()).await? else {
                continue;
            };
            let address = decode(&stored.value).map_err(RequestError::Internal)?;
            let parent = &address["spec"]["parentRef"];
            let own = parent_of(service);
            if ["resource", "namespace", "name"]
                .iter()
                .all(|field| parent[field] == own[field])
            {
                writes.push(ConditionalWrite {
                    key,
                    expected: Some(stored.mod_revision),
                    action: WriteAction::Delete,
                });
            }
        }
        Ok(())
    }

    /// Returns the ranges of all objects that describe some, and those of the flags if their object is missing.
    async fn address_ranges(&self) -> Result<Vec<AddressRange>, RequestError> {
        let range = KeyRange::prefix(format!("{}/servicecidrs/", self.prefix));
        let (mut first, mut others) = (None, Vec::new());
        for stored in self.list(range).await? {
            // What is no object has no ranges.
            let Ok(object) = decode(&stored.value) else {
                continue;
            };
            let conditions = object["status"]["conditions"].as_array();
            let is_refused = conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] != "True");
            let is_ready = !is_refused && object["metadata"]["deletionTimestamp"].is_null();
            let cidrs = object["spec"]["cidrs"].as_array();
            let ranges = cidrs.into_iter().flatten().filter(|_| is_ready);
            let ranges = ranges.filter_map(|cidr| cidr.as_str()?.parse().ok());
            if object["metadata"]["name"] == DEFAULT_RANGES {
                first = Some(ranges.collect::<Vec<_>>());
            } else {
                others.extend(ranges);
            }
        }
        let mut ranges = first.unwrap_or_else(|| self.ranges.addresses.clone());
        ranges.extend(others);
        Ok(ranges)
    }

    /// Returns an address that a service names, or why it cannot have it.
    async fn check_named(
        &self,
        text: &str,
        ranges: &[AddressRange],
        dry_run: bool,
    ) -> Result<Result<IpAddr, String>, RequestError> {
        let Ok(ip) = text.parse::<IpAddr>() else {
            return Ok(Err("provided IP is not valid".to_owned()));
        };
        if !ranges.iter().any(|range| range.contains(ip)) {
            return Ok(Err(match ranges.first() {
                Some(range) if dry_run => format!(
                    "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
                ),
                _ => "the provided network does not match the current range".to_owned(),
            }));
        }
        // A dry run does not look who has the address, as in kube-apiserver.
        if !dry_run && self.read(self.address_key(ip)).await?.is_some() {
            return Ok(Err("provided IP is already allocated".to_owned()));
        }
        Ok(Ok(ip))
    }

    /// Returns an address that nobody has, or `None` if there is none.
    async fn pick(
        &self,
        ranges: &[AddressRange],
        dry_run: bool,
    ) -> Result<Option<IpAddr>, RequestError> {
        if dry_run {
            // An address that no service can have.
            return Ok(ranges.first().map(AddressRange::network));
        }
        if let Some(range) = ranges.first().filter(|range| range.size() > 0) {
            for _ in 0..PROBES_MAX {
                let ip = range.nth(fastrand::u128(range.static_size()..range.size()));
                if self.read(self.address_key(ip)).await?.is_none() {
                    return Ok(Some(ip));
                }
            }
        }
        let prefix = format!("{}/ipaddresses/", self.prefix);
        let all = self.list(KeyRange::prefix(prefix.clone())).await?;
        let name = |key: &Bytes| -> Option<IpAddr> {
            let name = key.strip_prefix(prefix.as_bytes())?;
            std::str::from_utf8(name).ok()?.parse().ok()
        };
        let used: HashSet<IpAddr> = all.iter().filter_map(|stored| name(&stored.key)).collect();
        Ok(ranges.iter().find_map(|range| free_address(*range, &used)))
    }

    /// Returns the write of the address of a service.
    fn taken_by(
        &self,
        ip: IpAddr,
        family: &str,
        service: &JsonObject,
    ) -> Result<ConditionalWrite, RequestError> {
        let address = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IPAddress",
            "metadata": {
                "name": ip.to_string(),
                "uid": new_uid(),
                "creationTimestamp": (self.now)(),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": family,
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": {"parentRef": parent_of(service)},
        });
        let value = serde_json::to_vec(&address);
        let value = value.map_err(|error| RequestError::Internal(error.to_string()))?;
        Ok(ConditionalWrite {
            key: self.address_key(ip),
            expected: None,
            action: WriteAction::Put {
                value: value.into(),
                time_to_live: None,
            },
        })
    }
}

/// Returns an address of a range that is not used: one behind those for users who choose one, as long as there are any.
/// The number of steps is bounded by that of the used addresses.
fn free_address(range: AddressRange, used: &HashSet<IpAddr>) -> Option<IpAddr> {
    let (first, size) = (range.static_size(), range.size());
    let part = |from: u128, to: u128| {
        let start = if from < to {
            fastrand::u128(from..to)
        } else {
            to
        };
        (start..to).chain(from..start)
    };
    let mut indexes = part(first, size).chain(part(0, first));
    indexes
        .by_ref()
        .map(|index| range.nth(index))
        .find(|ip| !used.contains(ip))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn parent_of(service: &JsonObject) -> Value {
    json!({
        "resource": "services",
        "namespace": edit::text_at(service, &["metadata", "namespace"]),
        "name": edit::text_at(service, &["metadata", "name"]),
    })
}

/// Returns a random UUID of version 4.
fn new_uid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}
