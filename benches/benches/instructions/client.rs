//! A client of HTTP/2 that does little, so that the instructions of the server weigh more in a count.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{Request, Version, header};
use prost::Message;
use revstore::InProcess;

/// A connection for unary calls, one after the other.
pub(crate) struct Client {
    requests: SendRequest<Bytes>,
}

impl Client {
    /// Connects to a server. The connection ends with the runtime.
    pub(crate) async fn connect(server: &InProcess) -> Self {
        let handshake = h2::client::handshake(server.connect()).await;
        let (requests, connection) = handshake.expect("a connection");
        tokio::spawn(connection);
        Self { requests }
    }

    /// Makes a call and reads its response.
    pub(crate) async fn call(&mut self, method: &'static str, message: &impl Message) {
        let request = Request::post(method)
            .version(Version::HTTP_2)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(())
            .expect("a valid request");
        let (response, mut body) = (self.requests)
            .send_request(request, false)
            .expect("a request");
        (body.send_data(in_frame(message), true)).expect("a message");
        let mut body = response.await.expect("a response").into_body();
        while let Some(data) = body.data().await {
            let length = data.expect("a frame").len();
            (body.flow_control().release_capacity(length)).expect("received bytes");
        }
        let trailers = body.trailers().await.expect("an end");
        let trailers = trailers.expect("trailers after a message");
        assert_eq!(trailers.get("grpc-status").expect("a status"), "0");
    }
}

/// Returns a message without compression in its frame.
fn in_frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("a small message"));
    message.encode(&mut frame).expect("room for the message");
    frame.freeze()
}
