//! The named formats of texts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::values::{Url, is_date, is_date_time};

/// A named format of texts.
#[derive(Debug)]
pub struct Format {
    /// The name of its function, behind `format.`.
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    /// The length of the pattern that the cost assumes.
    pub(crate) pattern_length: u64,
    check: fn(&str) -> Vec<String>,
}

/// The formats.
static FORMATS: [Format; 13] = [
    Format {
        key: "dns1123Label",
        name: "DNS1123Label",
        pattern_length: 30,
        check: |text| label(text, 63),
    },
    Format {
        key: "dns1123Subdomain",
        name: "DNS1123Subdomain",
        pattern_length: 60,
        check: subdomain,
    },
    Format {
        key: "dns1035Label",
        name: "DNS1035Label",
        pattern_length: 30,
        check: label_1035,
    },
    Format {
        key: "qualifiedName",
        name: "QualifiedName",
        pattern_length: 60,
        check: qualified_name,
    },
    Format {
        key: "dns1123LabelPrefix",
        name: "DNS1123LabelPrefix",
        pattern_length: 30,
        check: |text| label(&without_dash(text), 63),
    },
    Format {
        key: "dns1123SubdomainPrefix",
        name: "DNS1123SubdomainPrefix",
        pattern_length: 60,
        check: |text| subdomain(&without_dash(text)),
    },
    Format {
        key: "dns1035LabelPrefix",
        name: "DNS1035LabelPrefix",
        pattern_length: 30,
        check: |text| label_1035(&without_dash(text)),
    },
    Format {
        key: "labelValue",
        name: "LabelValue",
        pattern_length: 40,
        check: label_value,
    },
    Format {
        key: "uri",
        name: "URI",
        pattern_length: 1103,
        check: |text| Url::parse(text).err().into_iter().collect(),
    },
    Format {
        key: "uuid",
        name: "uuid",
        pattern_length: 70,
        check: |text| problem(is_uuid(text), "does not match the UUID format"),
    },
    Format {
        key: "byte",
        name: "byte",
        pattern_length: 84,
        check: |text| problem(STANDARD.decode(text).is_ok(), "invalid base64"),
    },
    Format {
        key: "date",
        name: "date",
        pattern_length: 71,
        check: |text| problem(is_date(text), "invalid date"),
    },
    Format {
        key: "datetime",
        name: "datetime",
        pattern_length: 71,
        check: |text| problem(is_date_time(text), "invalid datetime"),
    },
];

/// Returns the format with a name.
pub(crate) fn find(key: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.key == key)
}

impl Format {
    /// Returns what is wrong with a text.
    pub(crate) fn validate(&self, text: &str) -> Vec<String> {
        (self.check)(text)
    }
}

fn problem(is_fine: bool, message: &str) -> Vec<String> {
    if is_fine {
        Vec::new()
    } else {
        vec![message.to_owned()]
    }
}

/// Returns a prefix of a name as a name: a dash at its end is the begin of what follows.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => text.to_owned(),
    }
}

fn is_label(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| is_part(*byte))
        && bytes.last().is_some_and(|byte| is_part(*byte))
        && bytes.iter().all(|byte| is_part(*byte) || *byte == b'-')
}

fn too_long(text: &str, length_max: usize) -> Vec<String> {
    let message = format!("must be no more than {length_max} bytes");
    problem(text.len() <= length_max, &message)
}

fn label(text: &str, length_max: usize) -> Vec<String> {
    let mut found = too_long(text, length_max);
    found.extend(problem(is_label(text), "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"));
    found
}

fn label_1035(text: &str) -> Vec<String> {
    let is_fine = is_label(text) && text.starts_with(|letter: char| letter.is_ascii_lowercase());
    let mut found = too_long(text, 63);
    found.extend(problem(is_fine, "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"));
    found
}

fn subdomain(text: &str) -> Vec<String> {
    let mut found = too_long(text, 253);
    found.extend(problem(text.split('.').all(is_label), "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"));
    found
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn label_value(text: &str) -> Vec<String> {
    let mut found = too_long(text, 63);
    found.extend(problem(text.is_empty() || is_name(text), "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"));
    found
}

/// The form of a qualified name.
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn qualified_name(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let parts: Vec<_> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".to_owned());
            } else {
                found.extend(
                    subdomain(prefix)
                        .iter()
                        .map(|it| format!("prefix part {it}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    }
    found.extend(
        too_long(name, 63)
            .iter()
            .map(|it| format!("name part {it}")),
    );
    found.extend(problem(is_name(name), &format!("name part {QUALIFIED}")));
    found
}

fn is_uuid(text: &str) -> bool {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let dashes_at = |index: usize| text.as_bytes().get(index) == Some(&b'-');
    digits.len() == 32
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        && (text.len() == 32 || text.len() == 36 && [8, 13, 18, 23].into_iter().all(dashes_at))
}
