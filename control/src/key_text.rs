//! Keys as texts for people and for the command line: [`escape`] and its inverse.

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
}
