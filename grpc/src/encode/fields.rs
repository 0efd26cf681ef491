//! Fields of messages, as they go on the wire.
//!
//! Numbers are all below 16 and so take one byte, with the type of the field. What is zero or empty is
//! left out, as the third version of the language wants it.

use bytes::BufMut;
use prost::encoding::{WireType, bool, encoded_len_varint, int64};

pub(crate) fn bytes_len(bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        0
    } else {
        delimited_len(bytes.len())
    }
}

/// Small fields on their way to a buffer, which takes them in one piece: each piece has its price. Up to
/// six of them.
pub(crate) struct Small {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Small {
    const FIELDS_MAX: usize = 6;
    pub(crate) const FIELD_BYTES_MAX: usize = 11;
    const BYTES_MAX: usize = Self::FIELDS_MAX * Self::FIELD_BYTES_MAX;

    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; Self::BYTES_MAX],
            len: 0,
        }
    }

    /// A number, unless it is zero.
    pub(crate) fn int(&mut self, number: u8, value: i64) {
        if value != 0 {
            self.byte(number << 3 | WireType::Varint as u8);
            self.varint(value.cast_unsigned());
        }
    }

    /// What stands before `len` bytes, unless there are none.
    pub(crate) fn delimiter(&mut self, number: u8, len: usize) {
        if len > 0 {
            self.prefix(number, len);
        }
    }

    /// What stands before a message.
    pub(crate) fn prefix(&mut self, number: u8, len: usize) {
        self.byte(number << 3 | WireType::LengthDelimited as u8);
        self.varint(len as u64);
    }

    /// Fields that were written before.
    pub(crate) fn raw(&mut self, fields: &[u8]) {
        self.bytes[self.len..][..fields.len()].copy_from_slice(fields);
        self.len += fields.len();
    }

    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.byte(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.byte(value.to_le_bytes()[0]);
    }

    fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn put(self, buf: &mut impl BufMut) {
        buf.put_slice(self.as_slice());
    }
}

pub(crate) fn delimited_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

pub(crate) fn int_len(value: i64) -> usize {
    if value == 0 {
        0
    } else {
        int64::encoded_len(1, &value)
    }
}

pub(crate) fn put_int(number: u8, value: i64, buf: &mut impl BufMut) {
    if value != 0 {
        let mut small = Small::new();
        small.int(number, value);
        small.put(buf);
    }
}

pub(crate) fn bool_len(value: bool) -> usize {
    if value {
        bool::encoded_len(1, &value)
    } else {
        0
    }
}

pub(crate) fn put_bool(number: u32, value: bool, buf: &mut impl BufMut) {
    if value {
        bool::encode(number, &value, buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_int(value: i64) {
        let mut expected = Vec::new();
        if value != 0 {
            int64::encode(15, &value, &mut expected);
        }
        let mut written = Vec::new();
        put_int(15, value, &mut written);
        assert_eq!(written, expected, "{value}");
        assert_eq!(written.len(), int_len(value), "{value}");
    }

    #[test]
    fn numbers_of_every_length_are_written_as_the_library_does() {
        check_int(0);
        for bits in 0..64 {
            let power = 1_i64 << bits;
            for value in [power, power.wrapping_sub(1), !power] {
                check_int(value);
            }
        }
    }

    #[test]
    fn six_fields_of_the_greatest_length_have_room() {
        let mut small = Small::new();
        for number in 1..=6 {
            small.int(number, -1);
        }
        let mut written = Vec::new();
        small.put(&mut written);
        assert_eq!(written.len(), Small::BYTES_MAX);
    }
}
