//! Calls whose answers may be large, and the conversion of large ones while they are sent.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderValue, Request, Response, header};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Full};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::StdError;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::http_response;
use super::json_writer::{JsonLayout, JsonWriter};
use super::routes::Route;
use crate::encode::large_answer::PartWorkers;
use crate::prefix::MessagePrefix;
use crate::status::{self, EtcdError};

/// The minimum length of an answer that is converted while it is sent.
const LARGE_BYTES_MIN: usize = 64 * 1024;

/// Calls a method with one message in each direction, whose answer has this layout.
pub(super) async fn call<S>(
    mut services: S,
    route: &Route,
    layout: &Arc<JsonLayout>,
    metadata: MetadataMap,
    message: Bytes,
) -> Result<Response<Body>, Status>
where
    S: GrpcService<Body>,
    S::ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
{
    let ready = std::future::poll_fn(|context| services.poll_ready(context)).await;
    ready.map_err(|error| broken(&error.into()))?;
    let called = services.call(request(route, metadata, &message)?).await;
    let response = called.map_err(|error| broken(&error.into()))?;
    check_status(Some(response.headers()))?;
    let workers = response.extensions().get::<PartWorkers>().cloned();
    let mut body = response.into_body();
    // The beginning of the answer: all of a small one.
    let mut received = BytesMut::new();
    let mut length = None;
    while length.is_none_or(|length| length < LARGE_BYTES_MIN) {
        let Some(frame) = body.frame().await else {
            break;
        };
        match frame.map_err(|error| broken(&error.into()))?.into_data() {
            Ok(data) => received.extend_from_slice(&data),
            Err(frame) => check_status(frame.trailers_ref())?,
        }
        if length.is_none()
            && let Some(prefix) = received.first_chunk()
        {
            // The flag is 0: the services compress no response to the gateway.
            length = Some(MessagePrefix::parse(*prefix).length as usize);
            received.advance(MessagePrefix::BYTES);
        }
    }
    match length {
        None => Err(status::gateway_broken(&"an answer without a message")),
        Some(length) if length < LARGE_BYTES_MIN => {
            if received.len() != length {
                return Err(status::gateway_broken(&"an answer of another length"));
            }
            http_response::object(&route.method.output(), received.freeze())
        }
        Some(length) => {
            let mut json = Vec::new();
            let writer = JsonWriter::new(layout.clone(), length, &mut json);
            let conversion = Conversion { writer, json };
            let state = State::Received(Box::new(conversion), received.freeze());
            let answer = JsonAnswer {
                body,
                workers,
                state,
            };
            Ok(http_response::large_object(answer))
        }
    }
}

fn request(route: &Route, metadata: MetadataMap, message: &Bytes) -> Result<Request<Body>, Status> {
    let length = u32::try_from(message.len());
    let length = length.map_err(|error| status::gateway_broken(&error))?;
    let mut framed = BytesMut::with_capacity(MessagePrefix::BYTES + message.len());
    framed.put_slice(&MessagePrefix { flag: 0, length }.to_bytes());
    framed.put_slice(message);
    let mut request = Request::new(Body::new(Full::new(framed.freeze())));
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = http::Uri::from(route.grpc_path.clone());
    *request.headers_mut() = metadata.into_headers();
    let headers = request.headers_mut();
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    let grpc = HeaderValue::from_static("application/grpc");
    headers.insert(header::CONTENT_TYPE, grpc);
    Ok(request)
}

/// Returns the status in headers or trailers as an error unless it is OK.
fn check_status(headers: Option<&http::HeaderMap>) -> Result<(), Status> {
    match headers.and_then(Status::from_header_map) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

fn broken(error: &StdError) -> Status {
    status::gateway_broken(error.as_ref())
}

/// A response body with the JSON of one large message. Each part is converted on a worker when the
/// client has read the previous one. An error ends the body before its end, so that the client sees
/// it.
pub(super) struct JsonAnswer<B> {
    body: B,
    /// The workers; `None` if the services are not ours.
    workers: Option<PartWorkers>,
    state: State,
}

enum State {
    /// Waits for the next part of the message.
    Reading(Box<Conversion>),
    /// A part was received.
    Received(Box<Conversion>, Bytes),
    /// A worker converts a part.
    Converting(Converting),
    Ended,
}

type Converting = Pin<Box<dyn Future<Output = Result<Converted, EtcdError>> + Send>>;

type Converted = Result<Box<Conversion>, Status>;

/// A message that is partly converted.
struct Conversion {
    writer: JsonWriter,
    /// The JSON that is not sent yet.
    json: Vec<u8>,
}

impl Conversion {
    fn convert(mut self: Box<Self>, part: &Bytes) -> Converted {
        // Base64 takes four bytes for three.
        self.json.reserve(part.len() / 2 * 3);
        self.writer.write(part, &mut self.json)?;
        Ok(self)
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin> JsonAnswer<B> {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, StdError>>> {
        loop {
            let converted = match std::mem::replace(&mut self.state, State::Ended) {
                State::Reading(conversion) => match self.poll_body(conversion, context) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Poll::Pending => return Poll::Pending,
                },
                State::Received(conversion, part) => match self.workers.clone() {
                    Some(workers) => {
                        let converting =
                            async move { workers.run(move || conversion.convert(&part)).await };
                        self.state = State::Converting(Box::pin(converting));
                        continue;
                    }
                    None => Ok(conversion.convert(&part)),
                },
                State::Converting(mut converting) => match converting.as_mut().poll(context) {
                    Poll::Ready(converted) => converted,
                    Poll::Pending => {
                        self.state = State::Converting(converting);
                        return Poll::Pending;
                    }
                },
                State::Ended => return Poll::Ready(None),
            };
            match converted.unwrap_or_else(|error| Err(error.to_status())) {
                Ok(mut conversion) => {
                    let json = std::mem::take(&mut conversion.json);
                    self.state = State::Reading(conversion);
                    if !json.is_empty() {
                        return Poll::Ready(Some(Ok(json.into())));
                    }
                }
                Err(status) => return Poll::Ready(Some(Err(Box::new(status)))),
            }
        }
    }

    /// Polls the message, and changes the state to `Received` or, at its end, leaves it at `Ended`.
    fn poll_body(
        &mut self,
        conversion: Box<Conversion>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), StdError>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let Poll::Ready(frame) = polled else {
            self.state = State::Reading(conversion);
            return Poll::Pending;
        };
        Poll::Ready(match frame.transpose() {
            Err(error) => Err(error.into()),
            Ok(Some(frame)) => match frame.into_data() {
                Ok(part) => {
                    self.state = State::Received(conversion, part);
                    Ok(())
                }
                Err(frame) => {
                    self.state = State::Reading(conversion);
                    check_status(frame.trailers_ref()).map_err(|status| {
                        self.state = State::Ended;
                        Box::new(status).into()
                    })
                }
            },
            Ok(None) if conversion.writer.is_complete() => Ok(()),
            Ok(None) => {
                let status = status::gateway_broken(&"an answer that ends early");
                Err(Box::new(status).into())
            }
        })
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin> HttpBody for JsonAnswer<B> {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let part = ready!(self.poll_part(context));
        Poll::Ready(part.map(|part| part.map(Frame::data)))
    }
}

impl<B> fmt::Debug for JsonAnswer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonAnswer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use revstore_engine::{Engine, ManualClock};
    use serde_json::Value;
    use tower_service::Service as _;

    use crate::{Gateway, Limits, Services};

    const KEYS: usize = 2_000;
    const VALUE: [u8; 200] = [0xF7; 200];

    fn services() -> Services {
        let engine = Engine::builder().clock(ManualClock::new()).build();
        for number in 0..KEYS {
            engine.put(format!("{number:06}"), VALUE.to_vec()).unwrap();
        }
        let limits = Limits::default().heavy_workers(1);
        Services::builder(engine).limits(limits).build()
    }

    async fn range(services: &Services, limit: usize) -> http::Response<tonic::body::Body> {
        let mut gateway = Gateway::new(services.clone(), &Limits::default());
        // From the first key on.
        let body = format!(r#"{{"key":"MA==","range_end":"AA==","limit":"{limit}"}}"#);
        let request = http::Request::post("/v3/kv/range").body(body).unwrap();
        gateway.call(request).await.unwrap()
    }

    async fn read(response: http::Response<tonic::body::Body>) -> Value {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        let body = response.into_body().collect().await.unwrap();
        serde_json::from_slice(&body.to_bytes()).expect("an object")
    }

    #[tokio::test]
    async fn a_large_answer_has_all_fields() {
        let services = services();
        for limit in [1, KEYS - 1] {
            let found = read(range(&services, limit).await).await;
            let kvs = found["kvs"].as_array().unwrap();
            assert_eq!(kvs.len(), limit);
            let last = &kvs[limit - 1];
            assert_eq!(last["key"], STANDARD.encode(format!("{:06}", limit - 1)));
            assert_eq!(last["value"], STANDARD.encode(VALUE));
            assert_eq!(last["mod_revision"], (limit + 1).to_string());
            assert_eq!(
                (&found["more"], &found["count"]),
                (&Value::Bool(true), &"2000".into())
            );
            assert_eq!(found["header"]["revision"], "2001");
        }
        assert_eq!(services.heavy_stats().answer_bytes, 0);
    }

    #[tokio::test]
    async fn large_answers_are_converted_on_workers_and_small_ones_at_once() {
        let services = services();
        let (release, released) = mpsc::channel::<()>();
        let heavy = services.heavy().clone();
        let occupied = tokio::spawn(async move {
            let work = move || released.recv().is_err();
            heavy.part_workers.run(work).await.unwrap()
        });
        tokio::task::yield_now().await;
        let response = range(&services, KEYS).await;
        let mut large = Box::pin(read(response));
        assert!((&mut large).now_or_never().is_none());
        assert_eq!(services.heavy_stats().waiting_for_worker, 1);
        let small = range(&services, 10).now_or_never();
        let small = read(small.expect("an answer at once")).now_or_never();
        assert_eq!(small.expect("an answer at once")["kvs"][9]["version"], "1");
        drop(release);
        assert!(occupied.await.unwrap());
        assert_eq!(large.await["kvs"].as_array().unwrap().len(), KEYS);
        // A client that leaves in the middle.
        let response = range(&services, KEYS).await;
        assert!(services.heavy_stats().answer_bytes > 0);
        drop(response);
        assert_eq!(services.heavy_stats().answer_bytes, 0);
    }
}
