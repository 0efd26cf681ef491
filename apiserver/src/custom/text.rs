//! Texts as Go writes them, and the rules for names.

pub(crate) use revstore_watch_cache::names::subdomain_error;
pub(crate) use revstore_watch_cache::status::quoted;

/// The exponent from which Go writes floating-point numbers with one.
const FLOAT_EXPONENT_END: i32 = 6;

/// Returns a floating-point number as Go's `%v`.
pub(crate) fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..FLOAT_EXPONENT_END).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// The maximum length of a DNS label.
const LABEL_BYTES_MAX: usize = 63;

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether a text is a DNS label of any length, in lower case.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| is_lower(*byte))
        && bytes.last().is_some_and(|byte| is_lower(*byte))
        && bytes.iter().all(|byte| is_lower(*byte) || *byte == b'-')
}

/// Returns whether a text is a short name of Kubernetes: a DNS label in lower case.
pub(crate) fn is_short_name(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && is_label(text)
}

/// Returns whether a text is a long name of Kubernetes: a DNS subdomain in lower case.
pub(crate) fn is_long_name(text: &str) -> bool {
    subdomain_error(text).is_none()
}

/// Returns what is wrong with a text that must be a DNS label that begins with a letter, in lower case.
pub(crate) fn label_error(text: &str) -> Option<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_BYTES_MAX {
        errors.push(format!("must be no more than {LABEL_BYTES_MAX} characters"));
    }
    if !is_label(text) || !text.starts_with(|letter: char| letter.is_ascii_lowercase()) {
        errors.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
             'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    (!errors.is_empty()).then(|| errors.join(","))
}

#[cfg(test)]
mod tests {
    use super::{float, label_error, quoted};

    #[test]
    fn texts_are_those_of_go() {
        for (number, text) in [
            (10.0, "10"),
            (0.5, "0.5"),
            (123_456.0, "123456"),
            (1_000_000.0, "1e+06"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (-2.25, "-2.25"),
        ] {
            assert_eq!(float(number), text);
        }
        assert_eq!(quoted("a\"\n\u{1}é"), "\"a\\\"\\n\\x01é\"");
        assert_eq!(label_error("widgets"), None);
        assert!(label_error("1x").is_some_and(|error| error.starts_with("a DNS-1035 label")));
    }
}
