//! Keys as texts for people and for the command line: [`escape`] and its inverse, [`unescape`].

use std::fmt::Write as _;

/// Returns a key as a text without control characters: `\xNN` stands for a byte that is no part of a character or belongs
/// to a control character, and `\\` for a backslash. The characters of `separators` have a backslash in front.
pub(crate) fn escape(key: &[u8], separators: &[char]) -> String {
    let mut text = String::new();
    let escaped = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // A text takes what is written.
            let _ = write!(text, "\\x{byte:02x}");
        }
    };
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                escaped(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            if c == '\\' || separators.contains(&c) {
                text.push('\\');
            }
            text.push(c);
        }
        escaped(&mut text, chunk.invalid());
    }
    text
}

/// Returns the key of a text with the escapes of [`escape`]. A text without a backslash is the key.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut key = Vec::new();
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        key.extend_from_slice(plain.as_bytes());
        let (byte, length) = match *escaped.as_bytes() {
            [b'x', high, low, ..] => (hex_byte(high, low), 3),
            [c @ (b'\\' | b':' | b','), ..] => (Some(c), 1),
            _ => (None, 0),
        };
        let byte = byte.ok_or(
            "a backslash must be followed by another one, by a separator (: or ,) or by x and two hexadecimal digits",
        )?;
        key.push(byte);
        rest = &escaped[length..];
    }
    key.extend_from_slice(rest.as_bytes());
    Ok(key)
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |byte| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Splits a text at the first colon that is not escaped.
pub(crate) fn split_range(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let at = text.bytes().position(|byte| {
        let is_separator = byte == b':' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_separator
    })?;
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_texts_without_control_characters() {
        assert_eq!(escape("a:é".as_bytes(), &[]), "a:é");
        assert_eq!(escape(b"a:b\\", &[':']), "a\\:b\\\\");
        assert_eq!(escape(b"\0\n\xff\xc3", &[]), "\\x00\\x0a\\xff\\xc3");
        assert_eq!(escape("\u{85}".as_bytes(), &[]), "\\xc2\\x85");
    }

    #[test]
    fn texts_are_keys_again() {
        for key in [
            &b""[..],
            b"a",
            "é:\\,".as_bytes(),
            b"\0\n\xff\xc3",
            b"\\x00",
        ] {
            for separators in [&[][..], &[':'], &[':', ',']] {
                assert_eq!(unescape(&escape(key, separators)).unwrap(), key);
            }
        }
        for text in ["\\", "a\\b", "\\x", "\\x0", "\\xg0", "\\xé"] {
            assert!(unescape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_are_split_at_the_first_colon_that_is_not_escaped() {
        assert_eq!(split_range("a:b:c"), Some(("a", "b:c")));
        assert_eq!(split_range("a\\:b:c"), Some(("a\\:b", "c")));
        assert_eq!(split_range("a\\\\:b"), Some(("a\\\\", "b")));
        assert_eq!(split_range("a\\:b"), None);
    }
}
