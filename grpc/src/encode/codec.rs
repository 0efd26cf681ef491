//! Encoding of response messages: the trait of messages, the encoding of fields, and the codec for
//! tonic, which also decodes the requests.
//!
//! All field numbers are below 16, so a number and its wire type take one byte. As in every proto3
//! encoder, fields that are zero or empty are omitted.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use bytes::{Buf, BufMut};
use prost::Message;
use prost::encoding::{WireType, bool, encoded_len_varint, int64};
use revstore_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest, WatchRequest,
};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::request::nesting;
use crate::status;

/// The initial capacity of a message's buffer, before its size is known. Most requests and
/// responses fit, and allocators are fast with blocks of up to 1 KiB. tonic's default is 8 KiB.
const BUFFER_BYTES: usize = 1024;

/// The maximum total size of small messages of a stream that share one buffer if they are ready at
/// the same time.
const YIELD_BYTES: usize = 32 * 1024;

/// A message that can be encoded, but not decoded.
pub(crate) trait Encode {
    /// Returns the number of bytes that [`Encode::encode`] writes.
    fn encoded_len(&self) -> usize;

    /// Returns an estimate of [`Encode::encoded_len`] without visiting every record. Loading
    /// records from memory is most of the cost of a large range, so records are visited only once,
    /// when they are encoded.
    fn size_hint(&self) -> usize {
        self.encoded_len()
    }

    /// Writes the message into a buffer that has enough capacity or grows. Each record is dropped
    /// immediately after it is written, while it is in the processor's cache.
    fn encode(self, buf: &mut impl BufMut);
}

/// A nested message with its encoded length. The length is computed once, although every enclosing
/// message needs it.
#[derive(Debug)]
pub(crate) struct Measured<M> {
    message: M,
    len: usize,
}

impl<M: Encode> Measured<M> {
    pub(crate) fn new(message: M) -> Self {
        let len = message.encoded_len();
        Self { message, len }
    }

    pub(crate) fn into_inner(self) -> M {
        self.message
    }
}

impl<M> Deref for Measured<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M: Encode> Encode for Measured<M> {
    fn encoded_len(&self) -> usize {
        self.len
    }

    fn encode(self, buf: &mut impl BufMut) {
        self.message.encode(buf);
    }
}

/// A request message that can be decoded.
pub(crate) trait Decode: Sized {
    /// Decodes a message, which is the whole of `buf`.
    fn decode(buf: &mut DecodeBuf<'_>) -> Result<Self, Status>;
}

macro_rules! decoded_by_prost {
    ($($request:ty)*) => {
        $(impl Decode for $request {
            fn decode(buf: &mut DecodeBuf<'_>) -> Result<Self, Status> {
                Message::decode(buf).map_err(|error| status::malformed_message(&error))
            }
        })*
    };
}

decoded_by_prost! {
    RangeRequest PutRequest DeleteRangeRequest CompactionRequest WatchRequest
}

impl Decode for TxnRequest {
    fn decode(buf: &mut DecodeBuf<'_>) -> Result<Self, Status> {
        let message = buf.copy_to_bytes(buf.remaining());
        Ok(nesting::decode_txn(&message)?)
    }
}

/// A codec that decodes generated request messages and encodes the responses of this folder.
pub(crate) struct ResponseCodec<R, Q>(PhantomData<(R, Q)>);

/// The encoder of [`ResponseCodec`].
pub(crate) struct ResponseEncoder<R>(PhantomData<R>);

/// The decoder of [`ResponseCodec`].
pub(crate) struct RequestDecoder<Q>(PhantomData<Q>);

fn buffer_settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}

impl<R, Q> Default for ResponseCodec<R, Q> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R, Q> Codec for ResponseCodec<R, Q>
where
    R: Encode + Send + 'static,
    Q: Decode + Send + 'static,
{
    type Encode = R;
    type Decode = Q;
    type Encoder = ResponseEncoder<R>;
    type Decoder = RequestDecoder<Q>;

    fn encoder(&mut self) -> ResponseEncoder<R> {
        ResponseEncoder(PhantomData)
    }

    fn decoder(&mut self) -> RequestDecoder<Q> {
        RequestDecoder(PhantomData)
    }
}

impl<R: Encode> Encoder for ResponseEncoder<R> {
    type Item = R;
    type Error = Status;

    fn encode(&mut self, response: R, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(response.size_hint());
        response.encode(buf);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffer_settings()
    }
}

impl<Q: Decode> Decoder for RequestDecoder<Q> {
    type Item = Q;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Q>, Status> {
        Q::decode(buf).map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffer_settings()
    }
}

impl<R, Q> fmt::Debug for ResponseCodec<R, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCodec").finish()
    }
}

impl<R> fmt::Debug for ResponseEncoder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseEncoder").finish()
    }
}

impl<Q> fmt::Debug for RequestDecoder<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestDecoder").finish()
    }
}

/// A buffer on the stack for up to six small fields, which are copied into the output buffer with
/// one call. Each call to the output buffer has a fixed cost.
pub(crate) struct FieldBuffer {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl FieldBuffer {
    const FIELDS_MAX: usize = 6;
    pub(crate) const FIELD_BYTES_MAX: usize = 11;
    const BYTES_MAX: usize = Self::FIELDS_MAX * Self::FIELD_BYTES_MAX;

    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; Self::BYTES_MAX],
            len: 0,
        }
    }

    /// Appends an integer field, unless the value is zero.
    pub(crate) fn int(&mut self, number: u8, value: i64) {
        if value != 0 {
            self.byte(number << 3 | WireType::Varint as u8);
            self.varint(value.cast_unsigned());
        }
    }

    /// Appends the tag and length of a bytes field, unless the length is zero.
    pub(crate) fn bytes_prefix(&mut self, number: u8, len: usize) {
        if len > 0 {
            self.message_prefix(number, len);
        }
    }

    /// Appends the tag and length of a message field, which is written even if it is empty.
    pub(crate) fn message_prefix(&mut self, number: u8, len: usize) {
        self.byte(number << 3 | WireType::LengthDelimited as u8);
        self.varint(len as u64);
    }

    /// Appends encoded fields.
    pub(crate) fn encoded(&mut self, fields: &[u8]) {
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

    pub(crate) fn write_to(self, buf: &mut impl BufMut) {
        buf.put_slice(self.as_slice());
    }
}

/// Returns the size of a bytes field.
pub(crate) fn bytes_len(bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        0
    } else {
        delimited_len(bytes.len())
    }
}

/// Returns the size of a field with a length prefix whose contents take `len` bytes.
pub(crate) fn delimited_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

/// Returns the size of a message field.
pub(crate) fn message_len(message: &impl Encode) -> usize {
    delimited_len(message.encoded_len())
}

/// Returns the size of an integer field.
pub(crate) fn int_len(value: i64) -> usize {
    if value == 0 {
        0
    } else {
        int64::encoded_len(1, &value)
    }
}

/// Returns the size of a bool field.
pub(crate) fn bool_len(value: bool) -> usize {
    if value {
        bool::encoded_len(1, &value)
    } else {
        0
    }
}

pub(crate) fn write_int(number: u8, value: i64, buf: &mut impl BufMut) {
    if value != 0 {
        let mut fields = FieldBuffer::new();
        fields.int(number, value);
        fields.write_to(buf);
    }
}

pub(crate) fn write_bool(number: u32, value: bool, buf: &mut impl BufMut) {
    if value {
        bool::encode(number, &value, buf);
    }
}

pub(crate) fn write_message(number: u8, message: impl Encode, buf: &mut impl BufMut) {
    let mut fields = FieldBuffer::new();
    fields.message_prefix(number, message.encoded_len());
    fields.write_to(buf);
    message.encode(buf);
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
        write_int(15, value, &mut written);
        assert_eq!(written, expected, "{value}");
        assert_eq!(written.len(), int_len(value), "{value}");
    }

    #[test]
    fn integers_of_every_length_are_encoded_as_by_prost() {
        check_int(0);
        for bits in 0..64 {
            let power = 1_i64 << bits;
            for value in [power, power.wrapping_sub(1), !power] {
                check_int(value);
            }
        }
    }

    #[test]
    fn six_fields_of_maximal_length_fit() {
        let mut fields = FieldBuffer::new();
        for number in 1..=6 {
            fields.int(number, -1);
        }
        let mut written = Vec::new();
        fields.write_to(&mut written);
        assert_eq!(written.len(), FieldBuffer::BYTES_MAX);
    }
}
