//! The compression of header fields in HTTP/2, HPACK, as far as it takes to decode a block and to encode it without
//! references to a table.

use std::collections::VecDeque;

use bytes::Bytes;

/// The size of the table of a client's fields. This server announces no other one.
const TABLE_BYTES_MAX: usize = 4_096;

/// What an entry of the table takes besides its name and value.
pub(super) const FIELD_BYTES: usize = 32;

/// The lengths of the names in the static table.
const STATIC_NAME_BYTES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];

/// The index of `:authority` in the static table.
const AUTHORITY_INDEX: usize = 1;
const AUTHORITY: &[u8] = b":authority";

/// A block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The name of a header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// An index of the static table.
    Static(usize),
    Literal(Bytes),
}

/// A header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// An index of the static table.
    Static(usize),
    Literal {
        name: Name,
        value: Bytes,
        /// Whether the field must not be stored in tables.
        is_sensitive: bool,
    },
}

impl Name {
    fn len(&self) -> usize {
        match self {
            Self::Static(index) => usize::from(STATIC_NAME_BYTES[index - 1]),
            Self::Literal(name) => name.len(),
        }
    }

    /// Returns whether this is the name `:authority`.
    fn is_authority(&self) -> bool {
        match self {
            Self::Static(index) => *index == AUTHORITY_INDEX,
            Self::Literal(name) => name == AUTHORITY,
        }
    }
}

impl Field {
    /// Returns the field `:authority` with a value.
    pub(super) fn authority(value: Bytes) -> Self {
        Self::Literal {
            name: Name::Static(AUTHORITY_INDEX),
            value,
            is_sensitive: false,
        }
    }

    /// Returns the value of the field if its name is `:authority`.
    pub(super) fn as_authority(&self) -> Option<&[u8]> {
        match self {
            Self::Static(AUTHORITY_INDEX) => Some(&[]),
            Self::Literal { name, value, .. } if name.is_authority() => Some(value),
            Self::Static(_) | Self::Literal { .. } => None,
        }
    }

    /// Returns the size of the field as HTTP/2 counts it. For an entry of the static table, its value is not counted.
    pub(super) fn len(&self) -> usize {
        FIELD_BYTES
            + match self {
                Self::Static(index) => usize::from(STATIC_NAME_BYTES[index - 1]),
                Self::Literal { name, value, .. } => name.len() + value.len(),
            }
    }

    /// Encodes the field without a reference to the table of the connection.
    pub(super) fn encode(&self, block: &mut Vec<u8>) {
        match self {
            Self::Static(index) => encode_integer(0x80, 7, *index, block),
            Self::Literal {
                name,
                value,
                is_sensitive,
            } => {
                let kind = if *is_sensitive { 0x10 } else { 0 };
                match name {
                    Name::Static(index) => encode_integer(kind, 4, *index, block),
                    Name::Literal(name) => {
                        encode_integer(kind, 4, 0, block);
                        encode_string(name, block);
                    }
                }
                encode_string(value, block);
            }
        }
    }
}

/// The decoder of the blocks of one client.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The fields that the client can refer to, the newest one first.
    table: VecDeque<Field>,
    table_bytes: usize,
    table_bytes_max: usize,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            table: VecDeque::new(),
            table_bytes: 0,
            table_bytes_max: TABLE_BYTES_MAX,
        }
    }

    /// Decodes a block, and calls `on_field` with each field. After an error, no further block can be decoded.
    pub(super) fn decode(
        &mut self,
        mut block: &[u8],
        mut on_field: impl FnMut(&Field),
    ) -> Result<(), Malformed> {
        let input = &mut block;
        while let Some(first) = input.first() {
            if first & 0x80 != 0 {
                let index = decode_integer(input, 7)?;
                on_field(self.field(index)?.as_ref());
            } else if first & 0xe0 == 0x20 {
                let bytes_max = decode_integer(input, 5)?;
                if bytes_max > TABLE_BYTES_MAX {
                    return Err(Malformed);
                }
                self.table_bytes_max = bytes_max;
                self.evict(bytes_max);
            } else {
                let (is_stored, is_sensitive) = (first & 0x40 != 0, first & 0xf0 == 0x10);
                let name = match decode_integer(input, if is_stored { 6 } else { 4 })? {
                    0 => Name::Literal(decode_string(input)?),
                    index => self.field(index)?.into_name(),
                };
                let field = Field::Literal {
                    name,
                    value: decode_string(input)?,
                    is_sensitive,
                };
                on_field(&field);
                if is_stored {
                    self.store(field);
                }
            }
        }
        Ok(())
    }

    /// Returns the field with an index, which counts from 1.
    fn field(&self, index: usize) -> Result<Entry<'_>, Malformed> {
        let index = index.checked_sub(1).ok_or(Malformed)?;
        match index.checked_sub(STATIC_NAME_BYTES.len()) {
            None => Ok(Entry::Static(Field::Static(index + 1))),
            Some(index) => self.table.get(index).map(Entry::Stored).ok_or(Malformed),
        }
    }

    fn store(&mut self, field: Field) {
        let bytes = field.len();
        self.evict(self.table_bytes_max.saturating_sub(bytes));
        if bytes <= self.table_bytes_max {
            self.table_bytes += bytes;
            self.table.push_front(field);
        }
    }

    /// Removes the oldest fields until the others have at most this size.
    fn evict(&mut self, bytes_max: usize) {
        while self.table_bytes > bytes_max
            && let Some(field) = self.table.pop_back()
        {
            self.table_bytes -= field.len();
        }
    }
}

/// A field of one of the two tables.
enum Entry<'a> {
    Static(Field),
    Stored(&'a Field),
}

impl Entry<'_> {
    fn as_ref(&self) -> &Field {
        match self {
            Self::Static(field) => field,
            Self::Stored(field) => field,
        }
    }

    fn into_name(self) -> Name {
        match self.as_ref() {
            Field::Static(index) => Name::Static(*index),
            Field::Literal { name, .. } => name.clone(),
        }
    }
}

/// The maximum number of bytes of an integer after its first one: more than the size of any block needs.
const INTEGER_BYTES_MAX: u32 = 4;

fn decode_integer(input: &mut &[u8], prefix_bits: u32) -> Result<usize, Malformed> {
    let prefix_max = (1 << prefix_bits) - 1;
    let mut value = usize::from(*input.split_off_first().ok_or(Malformed)?) & prefix_max;
    if value < prefix_max {
        return Ok(value);
    }
    for position in 0..INTEGER_BYTES_MAX {
        let byte = *input.split_off_first().ok_or(Malformed)?;
        value += usize::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn encode_integer(kind: u8, prefix_bits: u32, value: usize, block: &mut Vec<u8>) {
    let prefix_max = (1 << prefix_bits) - 1;
    let byte = |value: usize| u8::try_from(value).expect("a part of at most 8 bits");
    if value < prefix_max {
        block.push(kind | byte(value));
        return;
    }
    block.push(kind | byte(prefix_max));
    let mut rest = value - prefix_max;
    while rest > 0x7f {
        block.push(0x80 | byte(rest & 0x7f));
        rest >>= 7;
    }
    block.push(byte(rest));
}

fn decode_string(input: &mut &[u8]) -> Result<Bytes, Malformed> {
    let is_compressed = input.first().ok_or(Malformed)? & 0x80 != 0;
    let length = decode_integer(input, 7)?;
    let bytes = input.split_off(..length).ok_or(Malformed)?;
    if is_compressed {
        decompress(bytes)
    } else {
        Ok(Bytes::copy_from_slice(bytes))
    }
}

fn encode_string(value: &[u8], block: &mut Vec<u8>) {
    encode_integer(0, 7, value.len(), block);
    block.extend_from_slice(value);
}

/// The lengths in bits of the Huffman codes of all bytes, and of the end of a string. The codes of one length are
/// consecutive numbers in the order of the bytes, and those of a length continue the shorter ones.
const CODE_BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

const CODE_BITS_MAX: usize = 30;

/// The Huffman codes, sorted.
struct Codes {
    /// For each length, the number of its codes.
    counts: [u32; CODE_BITS_MAX + 1],
    /// The bytes in the order of their codes; the last one is the end of a string.
    symbols: [u8; 256],
}

static CODES: Codes = {
    let mut codes = Codes {
        counts: [0; CODE_BITS_MAX + 1],
        symbols: [0; 256],
    };
    let (mut bits, mut found) = (1, 0);
    while bits <= CODE_BITS_MAX {
        let mut symbol = 0;
        while symbol < CODE_BITS.len() {
            if CODE_BITS[symbol] as usize == bits {
                codes.counts[bits] += 1;
                if found < codes.symbols.len() {
                    codes.symbols[found] = symbol.to_le_bytes()[0];
                }
                found += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    codes
};

/// Decodes a string with Huffman codes.
fn decompress(bytes: &[u8]) -> Result<Bytes, Malformed> {
    // The shortest code has 5 bits.
    let mut string = Vec::with_capacity(bytes.len() * 8 / 5);
    // The bits since the last code; the first code of their length; the number of shorter codes.
    let (mut code, mut bits, mut first, mut shorter) = (0_u32, 0, 0_u32, 0_u32);
    let is_one = |byte: u8, bit: u32| byte >> bit & 1 != 0;
    for (byte, bit) in (bytes.iter()).flat_map(|byte| (0..8).rev().map(move |bit| (*byte, bit))) {
        code = code << 1 | u32::from(is_one(byte, bit));
        first <<= 1;
        bits += 1;
        let count = *CODES.counts.get(bits).ok_or(Malformed)?;
        if code - first < count {
            let symbol = CODES.symbols.get((shorter + code - first) as usize);
            string.push(*symbol.ok_or(Malformed)?);
            (code, bits, first, shorter) = (0, 0, 0, 0);
        } else {
            first += count;
            shorter += count;
        }
    }
    // The last byte is filled with the first bits of the code of the end, which are ones.
    if bits >= 8 || code + 1 != 1 << bits {
        return Err(Malformed);
    }
    Ok(string.into())
}
