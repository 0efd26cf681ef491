//! The rules for names of objects and of labels, with the texts of kube-apiserver.

/// The maximum length of the name in a key, and of the value of a label.
const NAME_BYTES_MAX: usize = 63;
/// The maximum length of a DNS subdomain: the name of an object, and the prefix of a key.
pub const SUBDOMAIN_BYTES_MAX: usize = 253;

/// Returns whether a text begins and ends with a letter or a digit, and has only letters, digits, `-`,
/// `_` and `.` between them.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_outer(bytes.first()) && is_outer(bytes.last()) && bytes.iter().all(|byte| is_inner(*byte))
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether a text is one label of a DNS name in lower case.
fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| is_lower(*byte))
        && bytes.last().is_some_and(|byte| is_lower(*byte))
        && bytes.iter().all(|byte| is_lower(*byte) || *byte == b'-')
}

/// Returns what is wrong with a text that must be a DNS subdomain in lower case, such as the name of an
/// object.
pub fn subdomain_error(text: &str) -> Option<String> {
    if text.len() > SUBDOMAIN_BYTES_MAX {
        return Some(format!(
            "must be no more than {SUBDOMAIN_BYTES_MAX} characters"
        ));
    }
    let valid = text.split('.').all(is_dns_label);
    (!valid).then(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
         '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned()
    })
}

/// Returns what is wrong with a text that must be a DNS label in lower case, such as the name of a
/// namespace.
pub fn dns_label_error(text: &str) -> Option<String> {
    if text.contains('.') && subdomain_error(text).is_none() {
        return Some("must not contain dots".to_owned());
    }
    if text.len() > NAME_BYTES_MAX {
        return Some(format!("must be no more than {NAME_BYTES_MAX} characters"));
    }
    (!is_dns_label(text)).then(|| {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
         must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used \
         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .to_owned()
    })
}

/// Returns what is wrong with the key of a label, of an annotation, or with a finalizer: a name, or a
/// prefix and a name, such as `example.com/name`.
pub fn qualified_name_error(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        return Some(
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
             regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional \
             DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                .to_owned(),
        );
    }
    match prefix {
        Some("") => return Some("prefix part must be non-empty".to_owned()),
        Some(prefix) if prefix.len() > SUBDOMAIN_BYTES_MAX => {
            return Some(format!(
                "prefix part must be no more than {SUBDOMAIN_BYTES_MAX} bytes"
            ));
        }
        Some(prefix) => {
            if let Some(error) = subdomain_error(prefix) {
                return Some(format!("prefix part {error}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        Some("name part must be non-empty".to_owned())
    } else if name.len() > NAME_BYTES_MAX {
        Some(format!(
            "name part must be no more than {NAME_BYTES_MAX} bytes"
        ))
    } else if is_name(name) {
        None
    } else {
        Some(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
             end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
             used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                .to_owned(),
        )
    }
}

/// Returns what is wrong with the value of a label.
pub fn label_value_error(value: &str) -> Option<String> {
    if value.len() > NAME_BYTES_MAX {
        return Some(format!("must be no more than {NAME_BYTES_MAX} bytes"));
    }
    (!value.is_empty() && !is_name(value)).then(|| {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
         '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  \
         or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            .to_owned()
    })
}
