//! Warnings about addresses in forms that programs read in different ways.

use std::net::{IpAddr, Ipv6Addr};

use revstore_watch_cache::status::quoted;

use super::Warnings;
use crate::builtin::field::Field;
use crate::builtin::names::{Cidr, without_zeros};

/// Warns of an IP address that is not in its usual form.
pub(super) fn check_ip(field: &Field<'_>, warnings: &mut Warnings) {
    let text = field.text();
    let Some(address) = parse(text) else {
        return;
    };
    let usual = address.to_canonical();
    match text.parse::<IpAddr>() {
        Ok(strict) if strict == usual => {
            if strict.is_ipv6() && strict.to_string() != text {
                let shown = quoted(text);
                warnings.at(
                    field,
                    format!(
                        "IPv6 address {shown} should be in RFC 5952 canonical format (\"{strict}\")"
                    ),
                );
            }
        }
        // It has leading zeros, or is an address of IPv4 in the form of IPv6.
        _ => {
            let shown = quoted(text);
            warnings.at(
                field,
                format!("non-standard IP address {shown} is invalid: use \"{usual}\""),
            );
        }
    }
}

/// Warns of a block of addresses that is not in its usual form.
pub(super) fn check_cidr(field: &Field<'_>, warnings: &mut Warnings) {
    let text = field.text();
    let Some((address, length)) = text
        .split_once('/')
        .and_then(|(address, length)| Some((parse(address)?, length)))
    else {
        return;
    };
    let strict = Cidr::parse(text);
    let Some(cidr) = Cidr::parse(&format!("{address}/{}", without_zeros(length))) else {
        return;
    };
    let shown = quoted(text);
    let (usual, block) = (address.to_canonical(), cidr.unmapped());
    let mut is_usual = true;
    if !cidr.is_network() {
        is_usual = false;
        let width = if address.is_ipv4() { 32 } else { 128 };
        warnings.at(
            field,
            format!(
                "CIDR value {shown} is ambiguous in this context (should be \"{block}\" or \"{usual}/{width}\"?)"
            ),
        );
    }
    if strict.is_none() || usual != address {
        is_usual = false;
        warnings.at(
            field,
            format!("non-standard CIDR value {shown} is invalid: use \"{block}\""),
        );
    }
    if is_usual && address.is_ipv6() && block != text {
        warnings.at(
            field,
            format!("IPv6 CIDR value {shown} should be in RFC 5952 canonical format (\"{block}\")"),
        );
    }
}

/// Parses an address whose decimal numbers may begin with zeros.
fn parse(text: &str) -> Option<IpAddr> {
    if let Some((start, end)) = text.rsplit_once(':') {
        let plain = if end.contains('.') {
            format!("{start}:{}", without_zeros(end))
        } else {
            text.to_owned()
        };
        return plain.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    without_zeros(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(check: fn(&Field<'_>, &mut Warnings), text: &str, expected: &[&str]) {
        let object = json!({ "a": text });
        let mut warnings = Warnings::default();
        check(
            &Field::root(object.as_object().unwrap()).child("a"),
            &mut warnings,
        );
        let expected: Vec<String> = expected.iter().map(|it| format!("a: {it}")).collect();
        assert_eq!(warnings.texts, expected, "{text}");
    }

    // The texts are those of `GetWarningsForIP` and `GetWarningsForCIDR`, as scripts/apiserver prints them.
    #[test]
    fn addresses_in_other_forms_are_warned_of() {
        for text in [
            "1.2.3.4",
            "2001:db8::1",
            "::",
            "x",
            "",
            "1.2.3.256",
            "::1.2.3.4.5",
        ] {
            check(check_ip, text, &[]);
        }
        let other = "non-standard IP address \"01.2.3.4\" is invalid: use \"1.2.3.4\"";
        check(check_ip, "01.2.3.4", &[other]);
        let mapped = "non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\"";
        check(check_ip, "::ffff:1.2.3.4", &[mapped]);
        let long = "IPv6 address \"2001:DB8:0::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")";
        check(check_ip, "2001:DB8:0::1", &[long]);
    }

    #[test]
    fn blocks_in_other_forms_are_warned_of() {
        for text in [
            "10.0.0.0/8",
            "2001:db8::/32",
            "x/8",
            "10.0.0.0",
            "10.0.0.0/33",
        ] {
            check(check_cidr, text, &[]);
        }
        let ambiguous = "CIDR value \"10.1.2.3/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \
                         \"10.1.2.3/32\"?)";
        check(check_cidr, "10.1.2.3/8", &[ambiguous]);
        let zeros = "non-standard CIDR value \"10.0.0.0/08\" is invalid: use \"10.0.0.0/8\"";
        check(check_cidr, "10.0.0.0/08", &[zeros]);
        let mapped =
            "non-standard CIDR value \"::ffff:10.0.0.0/104\" is invalid: use \"10.0.0.0/8\"";
        check(check_cidr, "::ffff:10.0.0.0/104", &[mapped]);
        let long = "IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical format (\"2001:db8::/32\")";
        check(check_cidr, "2001:DB8::/32", &[long]);
    }
}
