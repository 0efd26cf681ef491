//! The wire format of protobuf.

use super::ProtobufError;

pub(crate) const VARINT: u8 = 0;
pub(crate) const FIXED64: u8 = 1;
pub(crate) const BYTES: u8 = 2;
/// The beginning and the end of a group, which Kubernetes does not use.
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// Reads fields one after the other.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number and the wire type of the next field, if there is one.
    pub(crate) fn tag(&mut self) -> Result<Option<(u64, u8)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, wire) = (tag >> 3, u8::try_from(tag & 7).unwrap_or_default());
        if number == 0 || number > 0x1fff_ffff {
            return Err(ProtobufError::Tag(tag));
        }
        Ok(Some((number, wire)))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().enumerate() {
            if index == 10 || index == 9 && *byte > 1 {
                return Err(ProtobufError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(ProtobufError::Truncated)
    }

    pub(crate) fn number(&mut self, wire: u8, field: &'static str) -> Result<u64, ProtobufError> {
        if wire == VARINT {
            self.varint()
        } else {
            Err(ProtobufError::WireType { field, wire })
        }
    }

    pub(crate) fn double(&mut self, wire: u8, field: &'static str) -> Result<f64, ProtobufError> {
        if wire != FIXED64 {
            return Err(ProtobufError::WireType { field, wire });
        }
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<8>()
            .ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(
        &mut self,
        wire: u8,
        field: &'static str,
    ) -> Result<&'a [u8], ProtobufError> {
        if wire != BYTES {
            return Err(ProtobufError::WireType { field, wire });
        }
        let len = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
        self.take(len)
    }

    /// Passes over a field that is not known, with all that is in it if it is a group.
    pub(crate) fn skip(&mut self, mut wire: u8) -> Result<(), ProtobufError> {
        let mut groups = 0usize;
        loop {
            match wire {
                VARINT => self.varint().map(|_| ())?,
                FIXED64 => self.take(8).map(|_| ())?,
                BYTES => self.bytes(wire, "").map(|_| ())?,
                FIXED32 => self.take(4).map(|_| ())?,
                GROUP => groups += 1,
                GROUP_END if groups > 0 => groups -= 1,
                _ => return Err(ProtobufError::Tag(wire.into())),
            }
            if groups == 0 {
                return Ok(());
            }
            (_, wire) = self.tag()?.ok_or(ProtobufError::Truncated)?;
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ProtobufError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(crate) fn put_tag(out: &mut Vec<u8>, number: u8, wire: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire));
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    put_length(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes the tag and the length of a field of bytes, which follow.
pub(crate) fn put_length(out: &mut Vec<u8>, number: u8, length: usize) {
    put_tag(out, number, BYTES);
    put_varint(out, length as u64);
}

/// Writes a field of bytes that `write` appends.
pub(crate) fn put_nested<E>(
    out: &mut Vec<u8>,
    number: u8,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_tag(out, number, BYTES);
    let start = out.len();
    // One byte is enough for the length of most messages.
    out.push(0);
    write(out)?;
    let len = out.len() - start - 1;
    let mut prefix = Vec::with_capacity(5);
    put_varint(&mut prefix, len as u64);
    if let [byte] = prefix[..] {
        out[start] = byte;
    } else {
        out.splice(start..=start, prefix);
    }
    Ok(())
}
