//! The values of literals.

/// Why a text cannot be read.
pub(super) type Reason = &'static str;

/// Returns the content of a literal of a string or of bytes, with its prefix and quotes.
pub(super) fn unquote(text: &str, is_bytes: bool) -> Result<Vec<u8>, Reason> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut rest = text.as_str();
    if is_bytes {
        rest = &rest[1..];
    }
    let is_raw = rest.starts_with(['r', 'R']);
    if is_raw {
        rest = &rest[1..];
    }
    let width = if rest.len() >= 6 && (rest.starts_with("'''") || rest.starts_with("\"\"\"")) {
        3
    } else {
        1
    };
    let content = &rest[width..rest.len() - width];
    if is_raw {
        return Ok(content.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(content.len());
    let mut letters = content.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            escape(&mut letters, is_bytes, &mut out)?;
        } else {
            out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}

/// Reads an escape sequence behind its backslash.
fn escape(
    letters: &mut std::str::Chars<'_>,
    is_bytes: bool,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let plain = match letters.next().ok_or("unable to unescape string")? {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        letter @ ('\\' | '\'' | '"' | '`' | '?') => letter as u8,
        'x' | 'X' => return code(letters, 2, 16, 0, is_bytes, out),
        'u' if !is_bytes => return code(letters, 4, 16, 0, false, out),
        'U' if !is_bytes => return code(letters, 8, 16, 0, false, out),
        digit @ '0'..='3' => return code(letters, 2, 8, digit as u32 - 48, is_bytes, out),
        _ => return Err("unable to unescape string"),
    };
    out.push(plain);
    Ok(())
}

/// Reads the digits of a code point or of a byte.
fn code(
    letters: &mut std::str::Chars<'_>,
    digits: usize,
    base: u32,
    first: u32,
    is_byte: bool,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let mut value = first;
    for _ in 0..digits {
        let digit = letters.next().and_then(|letter| letter.to_digit(base));
        value = value.wrapping_mul(base) + digit.ok_or("unable to unescape string")?;
    }
    if is_byte {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "two digits of 16 or three of 8"
        )]
        out.push(value as u8);
    } else {
        let letter = char::from_u32(value).ok_or("invalid unicode code point")?;
        out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(())
}

/// Returns the value of an integer, which may be negative or in hexadecimal digits.
pub(super) fn int(text: &str, is_negative: bool) -> Option<i64> {
    let signed = |digits: &str| {
        if is_negative {
            format!("-{digits}")
        } else {
            digits.to_owned()
        }
    };
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(&signed(digits), 16).ok(),
        None => signed(text).parse().ok(),
    }
}

/// Returns the value of an unsigned integer without its suffix.
pub(super) fn uint(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
