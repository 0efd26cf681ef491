//! The patterns of schemas, which take linear time.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use revstore_cel::translate;

/// The maximum size of the compiled form. The weight is lower, so that this is only a second guard.
const COMPILED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The maximum size of the tables that a match fills as it goes.
const TABLE_BYTES_MAX: usize = 256 * 1024;

/// The pattern of a schema. It is compiled when it is first used.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: String,
    weight: u64,
    compiled: OnceLock<Option<Regex>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            weight: 1,
            compiled: OnceLock::new(),
        }
        .weighed()
    }

    fn weighed(mut self) -> Self {
        match translate(&self.text) {
            Ok((_, weight)) => self.weight = weight,
            Err(_) => self.compiled = OnceLock::from(None),
        }
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns what one character costs to match.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns what is wrong with the pattern.
    pub(crate) fn error(&self) -> Option<String> {
        compile(&self.text).err()
    }

    /// Returns whether a text has a match. An invalid pattern, which a definition cannot have, has none.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compile(&self.text).ok());
        compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

fn compile(text: &str) -> Result<Regex, String> {
    let (translated, _) = translate(text)?;
    RegexBuilder::new(&translated)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(TABLE_BYTES_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "expression is too large".to_owned(),
            other => {
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default();
                last.trim_start_matches("error: ").to_owned()
            }
        })
        .map_err(|error| format!("error parsing regexp: {error}"))
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(pattern: &str, text: &str) -> bool {
        let pattern = Pattern::new(pattern);
        assert_eq!(pattern.error(), None, "{}", pattern.text());
        pattern.is_match(text)
    }

    #[test]
    fn patterns_have_the_syntax_of_go() {
        for (pattern, text, expected) in [
            ("^x[0-9]$", "x1", true),
            ("^x[0-9]$", "x12", false),
            ("^\\d+$", "\u{661}", false),
            ("^\\w+$", "é", false),
            ("^\\W$", "é", true),
            ("^[\\w.-]+$", "a-b.c_1", true),
            ("^[^\\s]+$", "a b", false),
            ("^[[]$", "[", true),
            ("^[a&&b]$", "&", true),
            ("^[+--]+$", ",", true),
            ("^[]a]+$", "]a", true),
            ("^a{2$", "a{2", true),
            ("^a{,2}$", "a{,2}", true),
            ("^{}$", "{}", true),
            ("^\\Qa.b\\E$", "a.b", true),
            ("^\\Qa.b\\E$", "axb", false),
            ("^\\<\\_\\/$", "<_/", true),
            ("^\\x41\\x{42}\\103$", "ABC", true),
            ("^\\p{L}+\\PL$", "aé1", true),
            ("^\\p{^L}$", "1", true),
            ("^\\p{Greek}$", "α", true),
            ("^[[:alpha:]_]+$", "ab_", true),
            ("(?i)^ABC$", "abc", true),
            ("^(?P<n>a)(?<m>b)$", "ab", true),
            ("\\bfoo\\b", "a foo b", true),
            ("a\\Bb", "ab", true),
            ("^(a|b)*?$", "abab", true),
            (".", "\n", false),
            ("(?s)^.$", "\n", true),
            ("^a$", "a\n", false),
            ("", "x", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text:?}");
        }
    }

    #[test]
    fn invalid_and_large_patterns_are_refused() {
        let deep = "(".repeat(1000);
        let long = "a".repeat(crate::custom::schema::PATTERN_BYTES_MAX + 1);
        for pattern in [
            "(",
            ")",
            "[",
            "a**",
            "*",
            "\\",
            "a{1001}",
            "a{3,2}",
            "(?=a)",
            "(?x)a",
            "[b-a]",
            "\\1",
            "\\y",
            "\\pX",
            "((a{100}){100}){100}",
            "(\\p{L}{1000}){1000}",
            "(?P<n",
            "[[:foo:]]",
            &deep,
            &long,
        ] {
            let pattern = Pattern::new(pattern);
            let error = pattern.error().expect("it is refused");
            assert!(error.starts_with("error parsing regexp: "), "{error}");
            assert!(!pattern.is_match("a"));
        }
    }

    #[test]
    fn patterns_that_stop_other_engines_take_linear_time() {
        let text = format!("{}!", "a".repeat(100_000));
        assert!(!matches("^(a+)+$", &text));
        assert!(!matches("^(a|a)*$", &text));
        assert!(!matches("^(a?){50}a{50}$", "aaa"));
    }
}
