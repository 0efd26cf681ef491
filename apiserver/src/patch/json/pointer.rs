//! JSON pointers (RFC 6901) as the library reads them that kube-apiserver uses.

use serde_json::Value;

/// The place that a pointer names: the container and the key in it.
pub(super) struct Place<'a> {
    pub(super) container: &'a mut Value,
    pub(super) key: String,
    /// The number of containers around the value.
    pub(super) depth: usize,
}

/// Returns the place that a pointer names, or `None` if a container on its way is missing. The text before
/// the first slash is ignored.
pub(super) fn find<'a>(root: &'a mut Value, pointer: &str) -> Option<Place<'a>> {
    let (_, rest) = pointer.split_once('/')?;
    let (parents, key) = rest
        .rsplit_once('/')
        .map_or((None, rest), |(parents, key)| (Some(parents), key));
    let mut container = root;
    let mut depth = 1;
    for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
        container = match container {
            Value::Array(items) => {
                let index = index(part, items.len())?;
                items.get_mut(index)?
            }
            Value::Object(object) => object.get_mut(&unescape(part))?,
            _ => return None,
        };
        depth += 1;
    }
    let is_container = container.is_array() || container.is_object();
    is_container.then(|| Place {
        container,
        key: unescape(key),
        depth,
    })
}

fn unescape(part: &str) -> String {
    if !part.contains('~') {
        return part.to_owned();
    }
    // `~1` first would make `~01` a slash.
    let mut text = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        text.push_str(&rest[..at]);
        let (letter, length) = match rest.as_bytes().get(at + 1) {
            Some(b'0') => ('~', 2),
            Some(b'1') => ('/', 2),
            _ => ('~', 1),
        };
        text.push(letter);
        rest = &rest[at + length..];
    }
    text.push_str(rest);
    text
}

/// Returns an index into a list of `length` items, or behind its end. Negative ones count from the end.
pub(super) fn index(text: &str, length: usize) -> Option<usize> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: usize = digits.parse().ok()?;
    if text.starts_with('-') && number > 0 {
        length.checked_sub(number)
    } else {
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{find, index};

    #[test]
    fn pointers_name_a_key_in_a_container() {
        let mut value = json!({"a": {"b/c": [1, {"~": 2}]}, "s": "x", "": {"": 0}});
        for (pointer, key, depth) in [
            ("/a", Some("a"), 1),
            ("x/a", Some("a"), 1),
            ("/a/b~1c/0", Some("0"), 3),
            ("/a/b~1c/-1/~0", Some("~"), 4),
            ("/a/b~1c/+1/~01", Some("~1"), 4),
            ("/missing", Some("missing"), 1),
            ("//", Some(""), 2),
            ("", None, 0),
            ("a", None, 0),
            ("/s/x", None, 0),
            ("/missing/x", None, 0),
            ("/a/b~1c/2/x", None, 0),
            ("/a/b~1c/-3/x", None, 0),
        ] {
            let found = find(&mut value, pointer);
            assert_eq!(
                found.map(|place| (place.key, place.depth)),
                key.map(|key| (key.to_owned(), depth)),
                "{pointer}"
            );
        }
    }

    #[test]
    fn indices_may_be_negative() {
        for (text, expected) in [
            ("0", Some(0)),
            ("01", Some(1)),
            ("+2", Some(2)),
            ("-0", Some(0)),
            ("-1", Some(2)),
            ("-3", Some(0)),
            ("-4", None),
            ("7", Some(7)),
            ("", None),
            ("-", None),
            ("1_0", None),
            ("x", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(index(text, 3), expected, "{text}");
        }
    }
}
