//! The codec of the services that answer with key-values.

use std::fmt;
use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use crate::encode::wire::Encode;

/// What is set aside for a message before its size is known. Most requests and replies fit, and
/// allocators are quick with blocks of up to a KiB; tonic's default of 8 KiB is beyond that.
const BUFFER_BYTES: usize = 1024;

/// Small messages of a stream that are ready together leave in one buffer of up to this size.
const YIELD_BYTES: usize = 32 * 1024;

/// Reads generated messages, writes those of [`wire`](crate::encode::wire).
pub(crate) struct WireCodec<R, Q>(PhantomData<(R, Q)>);

/// Writes messages of one type.
pub(crate) struct WireEncoder<R>(PhantomData<R>);

fn buffer_settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}

impl<R, Q> Default for WireCodec<R, Q> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R, Q> Codec for WireCodec<R, Q>
where
    R: Encode + Send + 'static,
    Q: Message + Default + 'static,
{
    type Encode = R;
    type Decode = Q;
    type Encoder = WireEncoder<R>;
    type Decoder = ProstDecoder<Q>;

    fn encoder(&mut self) -> WireEncoder<R> {
        WireEncoder(PhantomData)
    }

    fn decoder(&mut self) -> ProstDecoder<Q> {
        ProstDecoder::new(buffer_settings())
    }
}

impl<R: Encode> Encoder for WireEncoder<R> {
    type Item = R;
    type Error = Status;

    fn encode(&mut self, reply: R, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(reply.size_hint());
        reply.encode(buf);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffer_settings()
    }
}

impl<R, Q> fmt::Debug for WireCodec<R, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireCodec").finish()
    }
}

impl<R> fmt::Debug for WireEncoder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireEncoder").finish()
    }
}
