//! The rules for names in built-in kinds, with the texts of kube-apiserver.

use std::net::IpAddr;

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
    text.parse::<IpAddr>()
        .is_err()
        .then(|| NOT_AN_IP.to_owned())
}

/// Returns whether a text is a CIDR block.
pub(crate) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let max = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= max)
}

/// Returns whether a text is a percentage, such as `25%`.
pub(crate) fn is_percentage(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::{config_key_error, is_cidr, is_percentage, path_segment_error, port_name_errors};

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
        assert!(is_cidr("10.0.0.0/8") && !is_cidr("10.0.0.0/33") && !is_cidr("10.0.0.0"));
        assert!(is_percentage("25%") && !is_percentage("%") && !is_percentage("a%"));
    }
}
