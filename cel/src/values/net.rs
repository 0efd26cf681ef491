//! Addresses and ranges of addresses.

use std::fmt;
use std::net::IpAddr;

use super::go_quote;

/// A range of addresses: an address in it, and the length of the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

/// Returns the first bits of an address as a number.
fn prefix(address: IpAddr, bits: u8) -> u128 {
    let (number, width) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    number
        .checked_shr(u32::from(width - bits.min(width)))
        .unwrap_or(0)
}

impl Cidr {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && prefix(self.address, self.bits) == prefix(address, self.bits)
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    /// Returns the range with the first address in it.
    pub(crate) fn masked(self) -> Self {
        let kept = prefix(self.address, self.bits);
        let shift = |width: u8| u32::from(width - self.bits.min(width));
        let address = match self.address {
            IpAddr::V4(_) => {
                let number = u32::try_from(kept).unwrap_or(0);
                IpAddr::V4(number.checked_shl(shift(32)).unwrap_or(0).into())
            }
            IpAddr::V6(_) => IpAddr::V6(kept.checked_shl(shift(128)).unwrap_or(0).into()),
        };
        Self { address, ..self }
    }
}

/// Reads an address. IPv4 addresses in IPv6 and zones are refused.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let quoted = go_quote(text, false);
    if let Some((address, zone)) = text.split_once('%')
        && address.parse::<std::net::Ipv6Addr>().is_ok()
        && !zone.is_empty()
    {
        return Err(format!(
            "IP address {quoted} with zone value is not allowed"
        ));
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {quoted} is not allowed"))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): unable to parse IP"
        )),
    }
}

/// Reads a range of addresses.
pub(crate) fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let quoted = go_quote(text, false);
    let context = "network address parse error during conversion from string: ";
    let fail = |reason: &str| format!("{context}{context}netip.ParsePrefix({quoted}): {reason}");
    let Some((address, bits)) = text.rsplit_once('/') else {
        return Err(fail("no '/'"));
    };
    let parsed: IpAddr = address.parse().map_err(|_| {
        fail(&format!(
            "ParseAddr({}): unable to parse IP",
            go_quote(address, false)
        ))
    })?;
    let is_number = bits.bytes().all(|digit| digit.is_ascii_digit())
        && !(bits.len() > 1 && bits.starts_with('0'));
    let width = if parsed.is_ipv4() { 32 } else { 128 };
    let Some(bits) = bits.parse::<u8>().ok().filter(|_| is_number) else {
        return Err(fail(&format!(
            "bad bits after slash: {}",
            go_quote(bits, false)
        )));
    };
    if bits > width {
        return Err(fail("prefix length out of range"));
    }
    if let IpAddr::V6(address) = parsed
        && address.to_ipv4_mapped().is_some()
    {
        return Err(format!(
            "{context}IPv4-mapped IPv6 address {quoted} is not allowed"
        ));
    }
    Ok(Cidr {
        address: parsed,
        bits,
    })
}
