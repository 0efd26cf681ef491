//! Where Go reads the text of JSON in another way than `serde_json`.

use std::borrow::Cow;

/// Replaces escape sequences of halves of characters without the other half by `\ufffd`, as Go does. The text keeps its
/// length.
pub(super) fn whole_characters(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        at += match unit(&bytes[at..]) {
            None => 2,
            Some(0xd800..=0xdbff) if is_low(&bytes[at + 6..]) => 12,
            Some(0xd800..=0xdfff) => {
                bytes[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            Some(_) => 6,
        };
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn is_low(bytes: &[u8]) -> bool {
    matches!(unit(bytes), Some(0xdc00..=0xdfff))
}

/// Returns the number of the escape sequence at the beginning of a text: `\u` with four digits.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let text = std::str::from_utf8(digits).ok()?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    u16::from_str_radix(text, 16).ok().filter(|_| is_hex)
}

/// Returns for each number of a text that is a negative zero, in their order, whether it is an integer. `serde_json` reads
/// them all as floats.
pub(super) fn negative_zeros(text: &str) -> Vec<bool> {
    let mut found = Vec::new();
    if !text.contains("-0") && !text.contains("e-") && !text.contains("E-") {
        return found;
    }
    let bytes = text.as_bytes();
    let (mut at, mut is_string) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if is_string => at += 1,
            b'"' => is_string = !is_string,
            b'-' if !is_string => {
                let is_number =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let length = bytes[at..]
                    .iter()
                    .take_while(|byte| is_number(byte))
                    .count();
                let number = &text[at..at + length];
                if number.parse::<f64>().is_ok_and(|number| number == 0.0) {
                    found.push(number == "-0");
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{negative_zeros, whole_characters};

    #[test]
    fn halves_of_characters_are_replaced() {
        for (text, expected) in [
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\ud8"#, r#""\ud8"#),
            (r#""\ud83g""#, r#""\ud83g""#),
            (r#""\uD83D\"#, r#""\ufffd\"#),
        ] {
            assert_eq!(whole_characters(text), expected, "{text}");
        }
    }

    #[test]
    fn negative_zeros_are_found_outside_of_strings() {
        for (text, expected) in [
            ("[1, 0, -1, -10]", &[][..]),
            ("[-0, -0.0, -0e5, -1e-999]", &[true, false, false, false]),
            (r#"{"-0": "\"-0", "a": -0}"#, &[true]),
            ("-", &[]),
        ] {
            assert_eq!(negative_zeros(text), expected, "{text}");
        }
    }
}
