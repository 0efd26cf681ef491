//! The rules for names in built-in kinds, with the texts of kube-apiserver.

use std::net::{IpAddr, Ipv4Addr};

pub(crate) use revstore_watch_cache::names::{
    SUBDOMAIN_BYTES_MAX, dns_label_error, label_value_error, qualified_name_error, subdomain_error,
};

/// The maximum length of the name of a port.
const PORT_NAME_BYTES_MAX: usize = 15;
/// The maximum length of a key of a `ConfigMap` or a `Secret`.
const CONFIG_KEY_BYTES_MAX: usize = 253;
/// The text about a number that is not a port.
pub(crate) const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
/// The text about a number that is negative.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// The text about a field that cannot change.
pub(crate) const IMMUTABLE: &str = "field is immutable";
/// The text about a text that is no IP address.
pub(crate) const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Returns what is wrong with the name of an object whose name is a segment of a path, such as a role.
pub(crate) fn path_segment_error(name: &str) -> Option<String> {
    if name == "." || name == ".." {
        return Some(format!("may not be '{name}'"));
    }
    let found = ['/', '%'].into_iter().find(|letter| name.contains(*letter));
    found.map(|letter| format!("may not contain '{letter}'"))
}

/// Returns what is wrong with the name of a port.
pub(crate) fn port_name_errors(name: &str) -> Vec<&'static str> {
    let mut errors = Vec::new();
    if name.len() > PORT_NAME_BYTES_MAX {
        errors.push("must be no more than 15 characters");
    }
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_inner) {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen");
    }
    errors
}

/// Returns what is wrong with the name of an environment variable.
pub(crate) fn env_name_error(name: &str) -> Option<String> {
    let valid = name
        .bytes()
        .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=');
    (!valid).then(|| {
        "a valid environment variable name must consist only of printable ASCII characters other than \
         '='"
        .to_owned()
    })
}

/// Returns what is wrong with a key of a `ConfigMap` or a `Secret`.
pub(crate) fn config_key_error(key: &str) -> Option<String> {
    if key.len() > CONFIG_KEY_BYTES_MAX {
        return Some(format!(
            "must be no more than {CONFIG_KEY_BYTES_MAX} characters"
        ));
    }
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if key.is_empty() || !key.bytes().all(is_inner) {
        return Some(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
             'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
             '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if key.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// Returns the parts of a text that are wrong, with the reasons, if it must be a domain and a path below it, such as
/// `example.com/name`.
pub(crate) fn domain_prefixed_path_errors(text: &str) -> Vec<(&str, String)> {
    let (domain, path) = text.split_once('/').unwrap_or_default();
    if domain.is_empty() || path.is_empty() {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![(text, detail.to_owned())];
    }
    let domain = subdomain_error(domain).map(|detail| (domain, detail));
    let path = url_path_error(path).map(|detail| (path, detail.to_owned()));
    domain.into_iter().chain(path).collect()
}

/// Returns what is wrong with a path of a URL without a leading slash.
pub(crate) fn url_path_error(path: &str) -> Option<&'static str> {
    let valid = path
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte));
    (!valid)
        .then_some("Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')")
}

/// Returns what is wrong with a subdomain that may begin with `*.`.
pub(crate) fn wildcard_subdomain_error(text: &str) -> Option<String> {
    let rest = text.strip_prefix("*.");
    let valid = rest.is_some_and(|rest| subdomain_error(rest).is_none());
    (!valid).then(|| {
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
         must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric \
         character (e.g. '*.example.com', regex used for validation is \
         '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned()
    })
}

/// Returns what is wrong with a text that must be an IP address.
pub(crate) fn ip_error(text: &str) -> Option<String> {
    let detail = match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            "must not be an IPv4-mapped IPv6 address"
        }
        Ok(_) => return None,
        Err(_) if without_zeros(text).parse::<Ipv4Addr>().is_ok() => "must not have leading 0s",
        Err(_) => NOT_AN_IP,
    };
    Some(detail.to_owned())
}

/// Returns what is wrong with a text that must be an IP address in its canonical form.
pub(crate) fn canonical_ip_error(text: &str) -> Option<String> {
    ip_error(text).or_else(|| {
        let canonical = text.parse::<IpAddr>().ok()?.to_string();
        (canonical != text).then(|| format!("must be in canonical form (\"{canonical}\")"))
    })
}

/// Returns what is wrong with a text that must be a CIDR block in its canonical form.
pub(crate) fn canonical_cidr_error(text: &str) -> Option<String> {
    cidr_error(text).or_else(|| {
        let canonical = Cidr::parse(text)?.canonical();
        (canonical != text).then(|| format!("must be in canonical form (\"{canonical}\")"))
    })
}

/// Returns an IPv4 address without the zeros that its numbers begin with.
pub(super) fn without_zeros(text: &str) -> String {
    let numbers: Vec<&str> = text
        .split('.')
        .map(|number| match number.trim_start_matches('0') {
            "" if !number.is_empty() => "0",
            number => number,
        })
        .collect();
    numbers.join(".")
}

/// The text about a text that is no CIDR block.
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Returns what is wrong with a text that must be a CIDR block.
pub(crate) fn cidr_error(text: &str) -> Option<String> {
    let detail = match Cidr::parse(text) {
        Some(cidr) if cidr.is_mapped() => "must not have an IPv4-mapped IPv6 address",
        Some(cidr) if !cidr.is_network() => "must not have bits set beyond the prefix length",
        Some(_) => return None,
        None => {
            let (address, length) = text.split_once('/').unwrap_or((text, ""));
            let length = without_zeros(length);
            let bare = format!("{}/{length}", without_zeros(address));
            if Cidr::parse(&bare).is_some() || Cidr::parse(&format!("{address}/{length}")).is_some()
            {
                "must not have leading 0s in IP or prefix length"
            } else {
                NOT_A_CIDR
            }
        }
    };
    Some(detail.to_owned())
}

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    address: IpAddr,
    length: u32,
}

impl Cidr {
    /// Parses a text such as `10.0.0.0/8`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, digits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let length: u32 = digits.parse().ok()?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let plain = length.to_string() == digits;
        (plain && length <= max).then_some(Self { address, length })
    }

    /// Returns the bits of an address in the width of 128 bits, aligned to the left.
    fn bits(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.length).unwrap_or_default()
    }

    fn is_mapped(self) -> bool {
        matches!(self.address, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
    }

    /// Returns whether all bits of the address beyond the length are zero.
    pub(super) fn is_network(self) -> bool {
        Self::bits(self.address) & !self.mask() == 0
    }

    /// Returns whether the block has addresses of IPv4.
    pub(crate) fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// Returns whether another block is a part of this one, and smaller.
    pub(crate) fn contains_strictly(self, other: Self) -> bool {
        self.is_ipv4() == other.is_ipv4()
            && self.length < other.length
            && (Self::bits(self.address) ^ Self::bits(other.address)) & self.mask() == 0
    }

    /// Returns the text in its canonical form, in which a block of IPv4 in the form of IPv6 is one of IPv4.
    pub(super) fn unmapped(self) -> String {
        const PREFIX: u32 = 96;
        match self.address.to_canonical() {
            address @ IpAddr::V4(_) if self.address.is_ipv6() && self.length >= PREFIX => Self {
                address,
                length: self.length - PREFIX,
            }
            .canonical(),
            _ => self.canonical(),
        }
    }

    /// Returns the text in its canonical form.
    pub(crate) fn canonical(self) -> String {
        let bits = Self::bits(self.address) & self.mask();
        let address = match self.address {
            // The first 32 bits are the address.
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(bits.into()),
        };
        format!("{address}/{}", self.length)
    }
}

/// Returns what is wrong with a domain that must have at least two labels. It may end with a dot.
pub(crate) fn full_domain_error(text: &str) -> Option<String> {
    let domain = text.strip_suffix('.').unwrap_or(text);
    subdomain_error(domain).or_else(|| {
        let detail = "should be a domain with at least two segments separated by dots";
        (!domain.contains('.')).then(|| detail.to_owned())
    })
}

/// Returns what is wrong with a DNS subdomain that is the prefix of a name: it may end with a hyphen.
pub(crate) fn subdomain_prefix_error(text: &str) -> Option<String> {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            // The hyphen and the letter before it stand for any letter, as upstream has it.
            let mut name = rest.to_owned();
            name.pop();
            name.push('a');
            subdomain_error(&name)
        }
        _ => subdomain_error(text),
    }
}

/// Returns what is wrong with a DNS subdomain whose labels may have underscores.
pub(crate) fn underscored_subdomain_error(text: &str) -> Option<String> {
    if text.len() > SUBDOMAIN_BYTES_MAX {
        return Some(format!(
            "must be no more than {SUBDOMAIN_BYTES_MAX} characters"
        ));
    }
    // An underscore may stand where a hyphen may, and once at the start of a label.
    let valid = text.split('.').all(|label| {
        let label = label.strip_prefix('_').unwrap_or(label).replace('_', "-");
        !label.contains('.') && subdomain_error(&label).is_none()
    });
    (!valid).then(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
         '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
         validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
            .to_owned()
    })
}

/// Returns whether a text is a percentage, such as `25%`.
pub(crate) fn is_percentage(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::{
        Cidr, canonical_cidr_error, cidr_error, config_key_error, ip_error, is_percentage,
        path_segment_error, port_name_errors, subdomain_prefix_error, underscored_subdomain_error,
    };

    #[test]
    fn names_are_checked() {
        assert!(path_segment_error("system:admin").is_none());
        assert_eq!(
            path_segment_error("a/b").as_deref(),
            Some("may not contain '/'")
        );
        assert!(port_name_errors("http-1").is_empty());
        assert_eq!(
            port_name_errors("80"),
            ["must contain at least one letter (a-z)"]
        );
        assert!(config_key_error("a.b_C-1").is_none());
        assert_eq!(
            config_key_error("..a").as_deref(),
            Some("must not start with '..'")
        );
        assert!(is_percentage("25%") && !is_percentage("%") && !is_percentage("a%"));
    }

    #[test]
    fn domains_are_checked() {
        for good in ["a-", "a", "a.b-"] {
            assert_eq!(subdomain_prefix_error(good), None, "{good}");
        }
        for bad in ["-", "_a-", "-é-"] {
            assert!(subdomain_prefix_error(bad).is_some(), "{bad}");
        }
        for good in ["a", "_a._b", "a_b.c"] {
            assert_eq!(underscored_subdomain_error(good), None, "{good}");
        }
        for bad in ["", "a_", "__a", "a..b", "A"] {
            assert!(underscored_subdomain_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn addresses_and_blocks_are_checked() {
        for (text, error) in [
            ("1.2.3.4", None),
            ("2001:db8::1", None),
            ("01.2.3.4", Some("must not have leading 0s")),
            (
                "::ffff:1.2.3.4",
                Some("must not be an IPv4-mapped IPv6 address"),
            ),
            ("1.2.3", Some(super::NOT_AN_IP)),
        ] {
            assert_eq!(ip_error(text).as_deref(), error, "{text}");
        }
        for (text, error) in [
            ("10.0.0.0/8", None),
            ("0.0.0.0/0", None),
            ("2001:db8::/32", None),
            ("10.0.0.0", Some(super::NOT_A_CIDR)),
            ("10.0.0.0/33", Some(super::NOT_A_CIDR)),
            (
                "10.0.0.1/8",
                Some("must not have bits set beyond the prefix length"),
            ),
            (
                "10.0.0.0/08",
                Some("must not have leading 0s in IP or prefix length"),
            ),
            (
                "010.0.0.0/8",
                Some("must not have leading 0s in IP or prefix length"),
            ),
            (
                "::ffff:10.0.0.0/104",
                Some("must not have an IPv4-mapped IPv6 address"),
            ),
        ] {
            assert_eq!(cidr_error(text).as_deref(), error, "{text}");
        }
        assert_eq!(
            canonical_cidr_error("2001:0db8::/32").as_deref(),
            Some("must be in canonical form (\"2001:db8::/32\")")
        );
    }

    #[test]
    fn blocks_contain_smaller_ones() {
        let contains = |one: &str, two: &str| {
            let (one, two) = (Cidr::parse(one).unwrap(), Cidr::parse(two).unwrap());
            one.contains_strictly(two)
        };
        assert!(contains("10.0.0.0/8", "10.1.0.0/16") && contains("::/0", "2001:db8::/32"));
        assert!(!contains("10.0.0.0/8", "10.0.0.0/8") && !contains("10.0.0.0/8", "11.0.0.0/16"));
        assert!(!contains("0.0.0.0/0", "2001:db8::/32"));
    }
}
