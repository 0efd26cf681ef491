//! Ranges of addresses and ports, as flags name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// Why a text is no range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a range")]
pub struct RangeError(String);

/// A range of addresses, as in CIDR notation.
///
/// ```
/// use revstore_apiserver::AddressRange;
/// let range: AddressRange = "10.0.0.0/24".parse()?;
/// assert_eq!(range.first().to_string(), "10.0.0.1");
/// assert_eq!(range.last().to_string(), "10.0.0.254");
/// # Ok::<(), revstore_apiserver::RangeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    length: u8,
}

impl AddressRange {
    /// Returns the address of the network, which no service gets.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// Returns the number of bits that all addresses share.
    pub fn prefix_length(&self) -> u8 {
        self.length
    }

    /// Returns the first address for services: the one after that of the network.
    pub fn first(&self) -> IpAddr {
        self.at(self.base().saturating_add(1))
    }

    /// Returns the last address for services. In IPv4 the last address of the network is for broadcasts.
    pub fn last(&self) -> IpAddr {
        let reserved = u128::from(self.network.is_ipv4());
        let last = self.base() | self.host_mask();
        self.at(last.saturating_sub(reserved))
    }

    /// Returns whether an address is one for services.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.network.is_ipv4()
            && (number(self.first())..=number(self.last())).contains(&number(ip))
    }

    /// Returns the name of the family in `spec.ipFamilies`.
    pub fn family(&self) -> &'static str {
        if self.network.is_ipv4() {
            "IPv4"
        } else {
            "IPv6"
        }
    }

    /// Returns the number of addresses for services.
    pub(super) fn size(&self) -> u128 {
        (number(self.last()) + 1).saturating_sub(number(self.first()))
    }

    /// Returns an address for services by its position.
    pub(super) fn nth(&self, index: u128) -> IpAddr {
        self.at(number(self.first()).saturating_add(index))
    }

    /// Returns how many of the first addresses are for those who choose one.
    pub(super) fn static_size(&self) -> u128 {
        match self.size() {
            ..=16 => 0,
            size => (size / 16).clamp(16, 256),
        }
    }

    fn base(&self) -> u128 {
        number(self.network)
    }

    fn host_mask(&self) -> u128 {
        let bits = if self.network.is_ipv4() { 32 } else { 128 };
        let host_bits = bits - u32::from(self.length);
        u128::MAX.checked_shr(128 - host_bits).unwrap_or_default()
    }

    fn at(&self, number: u128) -> IpAddr {
        match self.network {
            IpAddr::V4(_) => {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                Ipv4Addr::from_bits(number).into()
            }
            IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
        }
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl FromStr for AddressRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let fail = || RangeError(text.to_owned());
        let (network, length) = text.split_once('/').ok_or_else(fail)?;
        let network: IpAddr = network.parse().map_err(|_| fail())?;
        let length: u8 = length.parse().map_err(|_| fail())?;
        if length > if network.is_ipv4() { 32 } else { 128 } {
            return Err(fail());
        }
        let range = Self { network, length };
        let network = range.at(range.base() & !range.host_mask());
        Ok(Self { network, length })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

/// A range of ports.
///
/// ```
/// use revstore_apiserver::PortRange;
/// let range: PortRange = "30000-32767".parse()?;
/// assert_eq!(range, "30000+2767".parse()?);
/// # Ok::<(), revstore_apiserver::RangeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Returns the first port.
    pub fn first(self) -> u16 {
        self.first
    }

    /// Returns the last port.
    pub fn last(self) -> u16 {
        self.last
    }

    /// Returns whether a port is in the range.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Returns how many of the first ports are for those who choose one.
    pub(super) fn static_size(self) -> u16 {
        match self.last - self.first + 1 {
            ..=16 => 0,
            size => (size / 32).clamp(16, 128),
        }
    }
}

impl FromStr for PortRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let fail = || RangeError(text.to_owned());
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| fail());
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (Some((first, last)), _) => (port(first)?, port(last)?),
            (None, Some((first, more))) => {
                let first = port(first)?;
                (first, first.checked_add(port(more)?).ok_or_else(fail)?)
            }
            (None, None) => (port(text)?, port(text)?),
        };
        if first == 0 || first > last {
            return Err(fail());
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The ranges from which services get addresses and ports of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRanges {
    /// The ranges of cluster IPs: one, or one of each family.
    pub addresses: Vec<AddressRange>,
    /// The ports of the nodes.
    pub ports: PortRange,
}

impl ServiceRanges {
    /// Returns the families of the addresses, the default one first.
    pub(super) fn families(&self) -> Vec<&'static str> {
        self.addresses.iter().map(AddressRange::family).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressRange, PortRange};

    #[test]
    fn a_range_has_bounds() {
        let check = |text: &str, first: &str, last: &str, static_size: u128| {
            let range: AddressRange = text.parse().unwrap();
            assert_eq!(range.first().to_string(), first);
            assert_eq!(range.last().to_string(), last);
            assert_eq!(range.static_size(), static_size);
        };
        check("10.0.0.0/24", "10.0.0.1", "10.0.0.254", 16);
        check("10.0.0.7/28", "10.0.0.1", "10.0.0.14", 0);
        check("10.0.0.0/12", "10.0.0.1", "10.15.255.254", 256);
        check("fd00::/112", "fd00::1", "fd00::ffff", 256);
        let whole: AddressRange = "::/0".parse().unwrap();
        assert!(whole.contains("ff::1".parse().unwrap()));
        let one: AddressRange = "255.255.255.255/32".parse().unwrap();
        assert_eq!(one.size(), 0);
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "x/8",
            "::/129",
            "10.0.0.0/-1",
        ] {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
        for text in ["", "0-9", "9-8", "1-65536", "60000+9999", "-1"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
