//! The ports of the nodes, in the object in which kube-apiserver has them: a bitmap for all services.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use revstore_kinds as kinds;
use revstore_watch_cache::RequestError;
use serde_json::{Value, json};

use super::range::PortRange;

/// The port before the first that a dry run shows: one that no service can have.
const DRY_PORT: u16 = 32_768;

/// Why a port is not allocated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PortError {
    #[error("provided port is not in the valid range. The range of valid ports is {0}")]
    OutOfRange(PortRange),
    #[error("provided port is already allocated")]
    Taken,
    #[error("range is full")]
    Full,
}

/// The ports that are allocated, and the changes of one write.
#[derive(Debug)]
pub(super) struct NodePorts {
    range: PortRange,
    dry_run: bool,
    taken: BTreeSet<u16>,
    allocated: BTreeSet<u16>,
    released: BTreeSet<u16>,
}

impl NodePorts {
    /// Reads the stored object. Ports outside of the range are not kept.
    pub(super) fn read(
        range: PortRange,
        stored: Option<&Bytes>,
        dry_run: bool,
    ) -> Result<Self, RequestError> {
        let taken = match stored {
            Some(value) => read_bitmap(value)?,
            None => BTreeSet::new(),
        };
        Ok(Self {
            taken: taken
                .into_iter()
                .filter(|port| range.contains(*port))
                .collect(),
            range,
            dry_run,
            allocated: BTreeSet::new(),
            released: BTreeSet::new(),
        })
    }

    /// Allocates a port that was chosen.
    pub(super) fn allocate(&mut self, port: u16) -> Result<(), PortError> {
        // A dry run does not check the range, as in kube-apiserver.
        if !self.dry_run && !self.range.contains(port) {
            return Err(PortError::OutOfRange(self.range));
        }
        if self.taken.contains(&port) || !self.allocated.insert(port) {
            return Err(PortError::Taken);
        }
        Ok(())
    }

    /// Allocates any port: one behind those for users who choose one, as long as there are any.
    pub(super) fn allocate_next(&mut self) -> Result<u16, PortError> {
        if self.dry_run {
            let last = self.allocated.last().copied().unwrap_or(DRY_PORT);
            let port = last.saturating_add(1);
            self.allocated.insert(port);
            return Ok(port);
        }
        let dynamic = self.range.first() + self.range.static_size();
        let last = self.range.last();
        let start = fastrand::u16(dynamic..=last);
        let upper = (start..=last).chain(dynamic..start);
        let is_free = |port: &u16| !self.taken.contains(port) && !self.allocated.contains(port);
        let found = upper.chain(self.range.first()..dynamic).find(is_free);
        let port = found.ok_or(PortError::Full)?;
        self.allocated.insert(port);
        Ok(port)
    }

    /// Makes a port free when the write succeeds.
    pub(super) fn release(&mut self, port: u16) {
        self.released.insert(port);
    }

    /// Returns the ports that are allocated in the store.
    #[cfg(test)]
    pub(super) fn taken(&self) -> impl Iterator<Item = u16> {
        self.taken.iter().copied()
    }

    /// Returns the object to store, or `None` if nothing has changed.
    pub(super) fn into_value(self) -> Result<Option<Bytes>, RequestError> {
        let mut after: BTreeSet<u16> = self.taken.union(&self.allocated).copied().collect();
        after.retain(|port| !self.released.contains(port));
        if self.dry_run || after == self.taken {
            return Ok(None);
        }
        write_bitmap(self.range, &after).map(Some)
    }
}

/// Returns the object without any ports.
pub(crate) fn empty(range: PortRange) -> Result<Bytes, RequestError> {
    write_bitmap(range, &BTreeSet::new())
}

fn corrupt(error: impl std::fmt::Display) -> RequestError {
    RequestError::Internal(format!("the allocation of node ports is corrupt: {error}"))
}

fn read_bitmap(value: &Bytes) -> Result<BTreeSet<u16>, RequestError> {
    let object = super::decode(value).map_err(corrupt)?;
    let range = object["range"].as_str().unwrap_or_default();
    let range: PortRange = range.parse().map_err(corrupt)?;
    let data = object["data"].as_str().unwrap_or_default();
    let data = STANDARD.decode(data).map_err(corrupt)?;
    // One large number, the highest byte first; its lowest bit is the first port.
    let ports = data.iter().rev().enumerate().flat_map(|(index, byte)| {
        let bits = (0..8).filter(move |bit| byte & (1 << bit) != 0);
        bits.map(move |bit| usize::from(range.first()) + index * 8 + bit)
    });
    Ok(ports.filter_map(|port| u16::try_from(port).ok()).collect())
}

fn write_bitmap(range: PortRange, ports: &BTreeSet<u16>) -> Result<Bytes, RequestError> {
    let bits = |port: u16| usize::from(port - range.first());
    let length = ports.last().map_or(0, |last| bits(*last) / 8 + 1);
    let mut data = vec![0_u8; length];
    for port in ports {
        let bit = bits(*port);
        data[length - 1 - bit / 8] |= 1 << (bit % 8);
    }
    let object: Value = json!({
        "apiVersion": "v1",
        "kind": "RangeAllocation",
        "metadata": {},
        "range": range.to_string(),
        "data": STANDARD.encode(data),
    });
    let bytes = kinds::to_protobuf(&object).map_err(corrupt)?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;

    use super::{NodePorts, PortError, empty};

    const RANGE: &str = "30000-32767";

    fn ports(stored: Option<&Bytes>, dry_run: bool) -> NodePorts {
        NodePorts::read(RANGE.parse().unwrap(), stored, dry_run).unwrap()
    }

    #[test]
    fn the_bytes_are_those_of_kube_apiserver() {
        // From kube-apiserver 1.36.3.
        let recorded = "azhzAAoVCgJ2MRIPUmFuZ2VBbGxvY2F0aW9uEiEKEAoAEgAaACIAKgAyADgAQgASCzMwMDAwLTMyNzY3GgAaACIA";
        let recorded = STANDARD.decode(recorded).unwrap();
        assert_eq!(empty(RANGE.parse().unwrap()).unwrap(), recorded);
    }

    #[test]
    fn a_port_is_given_once() {
        let mut first = ports(None, false);
        first.allocate(30_100).unwrap();
        first.allocate(32_767).unwrap();
        assert_eq!(first.allocate(30_100), Err(PortError::Taken));
        assert!(matches!(first.allocate(80), Err(PortError::OutOfRange(_))));
        let stored = first.into_value().unwrap().unwrap();
        let mut second = ports(Some(&stored), false);
        assert_eq!(second.allocate(32_767), Err(PortError::Taken));
        second.release(32_767);
        let stored = second.into_value().unwrap().unwrap();
        assert_eq!(
            ports(Some(&stored), false)
                .taken
                .into_iter()
                .collect::<Vec<_>>(),
            [30_100]
        );
    }

    #[test]
    fn a_dry_run_shows_ports_that_do_not_exist() {
        let mut dry = ports(None, true);
        assert_eq!(dry.allocate_next(), Ok(32_769));
        assert_eq!(dry.allocate_next(), Ok(32_770));
        assert_eq!(dry.into_value().unwrap(), None);
    }

    #[test]
    fn the_ports_of_users_come_last() {
        let range = "30000-30019".parse().unwrap();
        let mut ports = NodePorts::read(range, None, false).unwrap();
        for _ in 0..4 {
            assert!(ports.allocate_next().unwrap() >= 30_016);
        }
        for _ in 0..16 {
            ports.allocate_next().unwrap();
        }
        assert_eq!(ports.allocate_next(), Err(PortError::Full));
    }

    #[test]
    fn a_corrupt_object_is_an_error() {
        for value in ["", "{}", "k8s\0x", r#"{"range":"1-9","data":"!"}"#] {
            let value = Bytes::from(value.to_owned());
            assert!(NodePorts::read(RANGE.parse().unwrap(), Some(&value), false).is_err());
        }
    }
}
