//! The names of properties in expressions.

/// The words that are no identifiers.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// What is escaped, and how.
const ESCAPES: [(&str, &str); 4] = [
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
];

/// Returns whether a name is a word of the language.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Returns the identifier of a property, if it can have one.
///
/// ```
/// use revstore_cel::{escape, unescape};
///
/// assert_eq!(escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(escape("a.b/c-d").as_deref(), Some("a__dot__b__slash__c__dash__d"));
/// assert_eq!(escape("with space"), None);
/// assert_eq!(unescape("a__dot__b").as_deref(), Some("a.b"));
/// ```
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        if let Some((plain, escaped)) = ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            out.push_str(escaped);
            rest = &rest[plain.len()..];
        } else if letter.is_ascii_alphanumeric() || letter == '_' {
            out.push(letter);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(out)
}

/// Returns the property of an identifier, if its escapes are known.
pub fn unescape(escaped: &str) -> Option<String> {
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(start) = rest.find("__") {
        let inner = &rest[start + 2..];
        let Some(end) = inner
            .find("__")
            .filter(|end| !inner[..*end].contains('_') && *end > 0)
        else {
            // No escape begins here.
            out.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        };
        out.push_str(&rest[..start]);
        let name = &inner[..end];
        let escape = format!("__{name}__");
        match ESCAPES.iter().find(|(_, known)| *known == escape) {
            Some((plain, _)) => out.push_str(plain),
            None if is_reserved(name) && escape.len() == escaped.len() => out.push_str(name),
            None => return None,
        }
        rest = &inner[end + 2..];
    }
    out.push_str(rest);
    Some(out)
}
