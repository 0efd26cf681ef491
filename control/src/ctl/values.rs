//! The values of arguments. Those that the server parses, too, are checked before a connection is made, and sent as they are
//! written.

use bytes::Bytes;
use revstore_host::config::GoDuration;

use crate::fault::{Failure, Preset};
use crate::key_text::{split_range, unescape};

/// Checks a duration, which is not negative.
pub(super) fn duration(text: &str) -> Result<String, String> {
    match GoDuration::parse(text) {
        Ok(GoDuration(nanos)) if nanos < 0 => Err("the duration is negative".to_owned()),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks an error in the form `CODE:TEXT`.
pub(super) fn failure(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Failure>();
    parsed.map_or_else(|error| Err(error.to_string()), |_| Ok(text.to_owned()))
}

/// Checks the name of an error of etcd.
pub(super) fn preset(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Preset>();
    parsed.map_or_else(|error| Err(error.to_string()), |_| Ok(text.to_owned()))
}

/// Checks the id of a lease.
pub(super) fn lease(text: &str) -> Result<String, String> {
    match u64::from_str_radix(text, 16) {
        Ok(id) if id > 0 => Ok(text.to_owned()),
        _ => Err("the id of a lease is a hexadecimal number above 0".to_owned()),
    }
}

/// Returns a key, which is written with escapes.
pub(super) fn key(text: &str) -> Result<Bytes, String> {
    unescape(text).map(Bytes::from)
}

/// Returns a key that can be live: an empty one is none.
pub(super) fn live_key(text: &str) -> Result<Bytes, String> {
    let key = key(text)?;
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    Ok(key)
}

/// Returns the keys on both sides of the first colon that is not escaped.
pub(super) fn range(text: &str) -> Result<(Bytes, Bytes), String> {
    let (start, end) = split_range(text).ok_or("a range is written as A:B")?;
    Ok((key(start)?, key(end)?))
}
