//! Bytes as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Reads bits behind the last byte as Go does.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Gives a text in base64 its canonical form. Costs a pass over the text; canonical texts, which are most, are not
/// copied.
///
/// # Errors
/// The text of Go's error.
///
/// ```
/// use revstore_kinds::normalize_base64;
/// let mut text = "eH\nk=".to_owned();
/// assert_eq!(normalize_base64(&mut text), Ok(()));
/// assert_eq!(text, "eHk=");
/// let error = normalize_base64(&mut "?".to_owned());
/// assert_eq!(error.unwrap_err(), "illegal base64 data at input byte 0");
/// ```
pub fn normalize_base64(text: &mut String) -> Result<(), String> {
    if STANDARD.decode(text.as_bytes()).is_ok() {
        return Ok(());
    }
    let stripped: String = text
        .chars()
        .filter(|letter| !matches!(letter, '\r' | '\n'))
        .collect();
    let error = match LENIENT.decode(stripped.as_bytes()) {
        Ok(bytes) => {
            *text = STANDARD.encode(bytes);
            return Ok(());
        }
        Err(error) => error,
    };
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            at
        }
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
            stripped.len() / 4 * 4
        }
    };
    Err(format!("illegal base64 data at input byte {at}"))
}
