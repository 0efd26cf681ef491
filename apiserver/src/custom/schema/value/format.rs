//! The formats of texts and numbers in schemas.

use std::net::Ipv6Addr;
use std::sync::OnceLock;

use regex::Regex;
use revstore_cel::{is_date, is_date_time, is_duration};

use crate::custom::text;

/// A format that values are checked for. Others are ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Int32,
    Int64,
    Float,
    Double,
    /// A format of texts.
    Text(fn(&str) -> bool),
}

impl Format {
    /// Returns the format `name` for values of a type, which is empty if there is none or are several.
    pub(crate) fn find(name: &str, kind: &str) -> Option<Self> {
        match (kind, name) {
            ("integer", "int32") => Some(Self::Int32),
            ("integer", "int64") => Some(Self::Int64),
            ("number", "float") => Some(Self::Float),
            ("number", "double") => Some(Self::Double),
            ("" | "string", _) => text_format(&name.replace('-', "")).map(Self::Text),
            _ => None,
        }
    }
}

fn text_format(name: &str) -> Option<fn(&str) -> bool> {
    let is_format: fn(&str) -> bool = match name {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => is_ipv4,
        "ipv6" => |text| text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some('3')),
        "uuid4" => |text| is_uuid(text, Some('4')),
        "uuid5" => |text| is_uuid(text, Some('5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_ssn,
        "hexcolor" => is_hex_color,
        "rgbcolor" => is_rgb_color,
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => text::is_short_name,
        "k8slongname" => text::is_long_name,
        _ => return None,
    };
    Some(is_format)
}

/// Returns whether a text is a URI, or an absolute path.
pub(crate) fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return false;
    }
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    let rest = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => {
            if !rest.starts_with('/') {
                return true;
            }
            rest
        }
        _ => text,
    };
    if rest == "*" {
        return true;
    }
    let Some(path) = rest.strip_prefix('/') else {
        return false;
    };
    let path = path.split('?').next().unwrap_or_default();
    let has_authority = rest.len() < text.len() && path.starts_with('/');
    let authority = if has_authority {
        path[1..].split('/').next().unwrap_or_default()
    } else {
        ""
    };
    let bytes = path.as_bytes();
    let escapes_are_valid = bytes.iter().enumerate().all(|(at, byte)| {
        *byte != b'%'
            || bytes
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = match host.rsplit_once(']') {
        Some((_, rest)) => rest.strip_prefix(':').unwrap_or_default(),
        None => host.split_once(':').map_or("", |(_, port)| port),
    };
    escapes_are_valid
        && !host.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
        && host.contains('[') == host.contains(']')
        && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(start) => match start.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_atom = |atom: &str| {
        !atom.is_empty()
            && atom.chars().all(|letter| {
                letter.is_ascii_alphanumeric()
                    || "!#$%&'*+-/=?^_`{|}~".contains(letter)
                    || !letter.is_ascii()
            })
    };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    (is_quoted || local.split('.').all(is_atom)) && (is_literal || domain.split('.').all(is_atom))
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: OnceLock<Regex> = OnceLock::new();
    let regex = HOSTNAME.get_or_init(|| {
        let pattern = "^([a-zA-Z0-9\\p{S}\\p{L}]((-?[a-zA-Z0-9\\p{S}\\p{L}]{0,62})?)|\
             ([a-zA-Z0-9\\p{S}\\p{L}](([-a-zA-Z0-9\\p{S}\\p{L}]{0,61}[a-zA-Z0-9\\p{S}\\p{L}])?)(\\.)){1,}\
             ([a-zA-Z\\p{L}]){2,63})$";
        Regex::new(pattern).expect("the pattern is valid")
    });
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && regex.is_match(text)
}

/// Returns whether a text is an address with dots. Leading zeros are allowed.
fn is_ipv4(text: &str) -> bool {
    if text.contains(':') {
        return text.contains('.') && text.parse::<Ipv6Addr>().is_ok();
    }
    let is_octet = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.trim_start_matches('0').len() <= 3
            && part.parse::<u32>().is_ok_and(|octet| octet <= 255)
    };
    text.split('.').count() == 4 && text.split('.').all(is_octet)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else {
        return false;
    };
    let max = if address.contains(':') { 128 } else { 32 };
    let is_address =
        address.parse::<Ipv6Addr>().is_ok() || !address.contains(':') && is_ipv4(address);
    is_address
        && !prefix.is_empty()
        && prefix.bytes().all(|byte| byte.is_ascii_digit())
        && prefix.parse::<u32>().is_ok_and(|bits| bits <= max)
}

fn is_mac(text: &str) -> bool {
    let (separator, digits, counts) = match text.find([':', '-', '.']) {
        Some(4) => ('.', 4, [3, 4, 10]),
        Some(2) if text.as_bytes()[2] != b'.' => (char::from(text.as_bytes()[2]), 2, [6, 8, 20]),
        _ => return false,
    };
    let is_group =
        |group: &str| group.len() == digits && group.bytes().all(|b| b.is_ascii_hexdigit());
    counts.contains(&text.split(separator).count()) && text.split(separator).all(is_group)
}

/// Returns whether a text is a UUID of a version. Each of its dashes may be missing.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut hex = String::with_capacity(32);
    for letter in text.chars() {
        match letter {
            '-' if [8, 12, 16, 20].contains(&hex.len()) => {}
            letter if letter.is_ascii_hexdigit() => hex.push(letter.to_ascii_lowercase()),
            _ => return false,
        }
        if hex.len() > 32 {
            return false;
        }
    }
    let is_variant = hex.len() == 32 && "89ab".contains(&hex[16..17]);
    hex.len() == 32
        && !text.contains("--")
        && version
            .is_none_or(|version| hex[12..].starts_with(version) && (version == '3' || is_variant))
}

/// Returns the text without white space and dashes, if it is short.
fn digits_of_isbn(text: &str) -> Option<Vec<u32>> {
    if text.len() > 64 {
        return None;
    }
    let digits: String = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '-')
        .collect();
    let last = digits.len().checked_sub(1)?;
    let mut values = Vec::new();
    for (at, letter) in digits.char_indices() {
        values.push(match letter.to_digit(10) {
            Some(digit) => digit,
            None if letter == 'X' && at == 9 && last == 9 => 10,
            None => return None,
        });
    }
    Some(values)
}

fn is_isbn10(text: &str) -> bool {
    digits_of_isbn(text).is_some_and(|digits| {
        digits.len() == 10
            && (1..)
                .zip(&digits)
                .map(|(at, digit)| at * digit)
                .sum::<u32>()
                % 11
                == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    digits_of_isbn(text).is_some_and(|digits| {
        let weights = [1, 3].iter().cycle();
        digits.len() == 13
            && digits
                .iter()
                .zip(weights)
                .map(|(digit, weight)| digit * weight)
                .sum::<u32>()
                % 10
                == 0
    })
}

fn is_credit_card(text: &str) -> bool {
    static CARD: OnceLock<Regex> = OnceLock::new();
    let regex = CARD.get_or_init(|| {
        let pattern = "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|\
             3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$";
        Regex::new(pattern).expect("the pattern is valid")
    });
    let digits: String = text.chars().filter(char::is_ascii_digit).take(32).collect();
    let luhn: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(at, byte)| {
            let digit = u32::from(byte - b'0') * if at % 2 == 0 { 1 } else { 2 };
            if digit > 9 { digit - 9 } else { digit }
        })
        .sum();
    regex.is_match(&digits) && luhn.is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            3 | 6 => b"- ".contains(byte),
            _ => byte.is_ascii_digit(),
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    [3, 6].contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text
        .strip_prefix("rgb(")
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return false;
    };
    let is_part = |part: &str| {
        let part = part.trim_matches(|c: char| c.is_ascii_whitespace());
        let is_plain =
            part == "0" || !part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit());
        is_plain && part.parse::<u8>().is_ok()
    };
    inner.split(',').count() == 3 && inner.split(',').all(is_part)
}

fn is_base64(text: &str) -> bool {
    let bytes = text.as_bytes();
    let padding = bytes.iter().rev().take_while(|byte| **byte == b'=').count();
    !bytes.is_empty()
        && bytes.len().is_multiple_of(4)
        && padding <= 2
        && bytes[..bytes.len() - padding]
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+/".contains(b))
}

#[cfg(test)]
mod tests {
    use super::Format;

    fn is_valid(format: &str, text: &str) -> bool {
        match Format::find(format, "string") {
            Some(Format::Text(is_valid)) => is_valid(text),
            other => panic!("{format}: {other:?}"),
        }
    }

    #[test]
    fn texts_are_checked_for_their_formats() {
        for (format, valid, invalid) in [
            ("date-time", "2014-12-15T19:30:20.000Z", "yesterday"),
            (
                "datetime",
                "2024-02-29t23:59:59+01:00",
                "2023-02-29T00:00:00Z",
            ),
            ("date-time", "2014-12-15T19:30:20z", "2014-12-15T19:30:20"),
            (
                "date-time",
                "2014-12-15T19:30:20-05:30",
                "2014-12-15T24:00:00Z",
            ),
            ("date", "2006-01-02", "2006-13-02"),
            ("email", "a.b+c@example.com", "a@"),
            ("email", "N <a@b>", "a b@c"),
            ("ipv4", "010.1.2.3", "1.2.3"),
            ("ipv4", "1.2.3.255", "1.2.3.256"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("cidr", "fd00::/64", "fd00::"),
            ("mac", "01:23:45:67:89:ab", "01:23:45:67:89"),
            ("mac", "0123.4567.89ab", "0123.4567"),
            (
                "uuid",
                "123E4567-e89b-12d3-a456-426614174000",
                "123e4567-e89b-12d3-a456",
            ),
            (
                "uuid4",
                "123e4567e89b42d3a456426614174000",
                "123e4567-e89b-12d3-a456-426614174000",
            ),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("isbn10", "0321751043", "0321751044"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("ssn", "111-22-3333", "111223333"),
            ("hexcolor", "#FFFFFF", "#FFFF"),
            ("rgbcolor", "rgb(255, 0,1)", "rgb(256,0,1)"),
            ("byte", "aGVsbG8=", "aGVsbG8"),
            ("duration", "1h2m3.5s", "x"),
            ("duration", "22 ns", "3 lightyears"),
            ("duration", "-5 minutes", ""),
            ("hostname", "example.com", "-a"),
            ("uri", "https://example.com:80/a?b=c", "example"),
            ("uri", "/path", "https://a b/"),
            ("uri", "mailto:a@b", "http://[::1"),
            ("k8s-short-name", "abc-1", "Abc"),
            ("k8s-long-name", "abc.d", "abc..d"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
        ] {
            assert!(is_valid(format, valid), "{format}: {valid}");
            assert!(!is_valid(format, invalid), "{format}: {invalid}");
        }
        assert!(is_valid("password", ""));
        assert!(Format::find("nosuch", "string").is_none());
        assert!(Format::find("byte", "integer").is_none());
        assert!(matches!(
            Format::find("int32", "integer"),
            Some(Format::Int32)
        ));
    }
}
