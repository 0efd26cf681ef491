//! gRPC calls by the name of a method, over a connection or to the services in this process.

use std::fmt;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use revstore_grpc::Services;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, StdError};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// The package of the services that a scenario may call. No two of their methods have the same name.
const PACKAGE: &str = "etcdserverpb";

/// A method of one of etcd's services.
#[derive(Clone, PartialEq, Eq)]
pub struct Method(MethodDescriptor);

impl fmt::Debug for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Method({})", self.name())
    }
}

impl Method {
    /// Returns the method with the given name, such as `Put`.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut services = pool().services().filter(|s| s.package_name() == PACKAGE);
        services.find_map(|service| service.methods().find(|m| m.name() == name).map(Self))
    }

    /// Returns the name of the method.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the type of its requests.
    pub fn input(&self) -> prost_reflect::MessageDescriptor {
        self.0.input()
    }

    /// Returns the type of its responses.
    pub fn output(&self) -> prost_reflect::MessageDescriptor {
        self.0.output()
    }

    /// Returns whether both sides send streams of messages.
    pub fn is_streaming(&self) -> bool {
        self.0.is_client_streaming() && self.0.is_server_streaming()
    }

    fn path(&self) -> PathAndQuery {
        let path = format!("/{}/{}", self.0.parent_service().full_name(), self.name());
        PathAndQuery::try_from(path).expect("a method name is valid in a path")
    }
}

/// Returns the descriptors of all messages and services.
fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::decode(revstore_proto::FILE_DESCRIPTOR_SET)
            .expect("revstore-proto contains valid descriptors")
    })
}

/// The destination of calls.
#[derive(Clone)]
pub enum Transport {
    /// A server behind a connection.
    Remote(Channel),
    /// The services in this process. Every message is encoded and decoded as on a connection.
    Local(Services),
}

impl fmt::Debug for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Remote(_) => "Remote",
            Self::Local(_) => "Local",
        })
    }
}

impl Transport {
    /// Calls a method with one request and one response.
    ///
    /// # Errors
    /// The status of a call that fails.
    pub async fn unary(&self, method: &Method, request: Bytes) -> Result<Bytes, Status> {
        let mut grpc = self.ready().await?;
        let response = grpc
            .unary(Request::new(request), method.path(), RawCodec)
            .await;
        response.map(tonic::Response::into_inner)
    }

    /// Opens a stream. Waits for the response headers, which etcd sends with its first message.
    ///
    /// # Errors
    /// The status of a call that fails.
    pub async fn streaming<S>(
        &self,
        method: &Method,
        requests: S,
    ) -> Result<Streaming<Bytes>, Status>
    where
        S: tokio_stream::Stream<Item = Bytes> + Send + 'static,
    {
        let mut grpc = self.ready().await?;
        let response = grpc
            .streaming(Request::new(requests), method.path(), RawCodec)
            .await;
        response.map(tonic::Response::into_inner)
    }

    async fn ready(&self) -> Result<Grpc<Self>, Status> {
        let mut grpc = Grpc::new(self.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready()
            .await
            .map_err(|error| Status::unknown(format!("not connected: {error}")))?;
        Ok(grpc)
    }
}

impl tower_service::Service<http::Request<Body>> for Transport {
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = BoxFuture<Self::Response, StdError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            Self::Remote(channel) => channel.poll_ready(context).map_err(Into::into),
            Self::Local(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match self {
            Self::Remote(channel) => {
                let response = channel.call(request);
                Box::pin(async { response.await.map_err(Into::into) })
            }
            Self::Local(services) => {
                let response = services.call(request);
                Box::pin(async { response.await.map_err(|never| match never {}) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_methods_are_unique() {
        let services = pool().services().filter(|s| s.package_name() == PACKAGE);
        let mut names: Vec<String> = services
            .flat_map(|service| {
                service
                    .methods()
                    .map(|m| m.name().to_owned())
                    .collect::<Vec<_>>()
            })
            .collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(
            Method::of_name("Put").unwrap().path(),
            "/etcdserverpb.KV/Put"
        );
        assert!(Method::of_name("Watch").unwrap().is_streaming());
        assert_eq!(Method::of_name("Push"), None);
    }
}

/// A codec for encoded messages.
#[derive(Clone, Copy, Debug)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
