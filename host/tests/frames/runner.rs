//! Runs a script on the server of a connection in memory, with a time that passes only when nothing else can run.

use std::{
    convert::Infallible,
    future::{Future, pending},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use revstore_host::net::{self, HttpOptions, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::script::{self, Step};

/// The capacity of the socket, in both directions.
const SOCKET_BYTES: usize = 64 * 1024;

/// The time after which a connection must have ended whose client has closed it.
const END_TIME: Duration = Duration::from_secs(60);

/// The maximum number of polls of a connection for each byte of its client, and besides. A connection that is polled more
/// often is awake without a reason.
const POLLS_PER_BYTE: usize = 2;
const POLLS_MAX: usize = 20_000;

/// The response to a request whose body was read.
const ANSWER: &str = "read";

/// Runs a script, and serves a well-behaved client meanwhile.
pub(crate) fn run(bytes: &[u8]) {
    let steps = script::steps(bytes);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (other, server) = tokio::io::duplex(SOCKET_BYTES);
        tokio::spawn(serve(server));
        let (mut other, others) = h2::client::handshake(other).await.unwrap();
        tokio::spawn(others);
        let (mut client, server) = tokio::io::duplex(SOCKET_BYTES);
        let mut sent = 0;
        let mut connection = pin!(Counted {
            future: Box::pin(serve(server)),
            polls: 0,
        });
        let session = async {
            for step in &steps {
                apply(step, &mut client, &mut sent).await;
            }
            drop(client);
            check(&mut other).await;
            sent
        };
        let mut session = pin!(session);
        let mut has_ended = false;
        let sent = loop {
            tokio::select! {
                sent = &mut session => break sent,
                () = &mut connection, if !has_ended => has_ended = true,
            }
        };
        if !has_ended {
            let end = tokio::time::timeout(END_TIME, &mut connection).await;
            assert!(end.is_ok(), "the connection has not ended");
        }
        assert!(
            connection.polls <= POLLS_MAX + POLLS_PER_BYTE * sent,
            "{} polls",
            connection.polls
        );
    });
}

/// A future that counts how often it is polled.
struct Counted<F> {
    future: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.polls += 1;
        self.future.as_mut().poll(context)
    }
}

/// Serves a connection. Its errors are those of the client.
async fn serve(server: DuplexStream) {
    let _ = net::serve_connection(server, HttpOptions::new(), |_| service_fn(respond)).await;
}

async fn respond(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    match request.uri().path() {
        "/read" => {
            // An error of the body is one of the client.
            let _ = request.into_body().collect().await;
        }
        "/wait" => pending().await,
        _ => {}
    }
    Ok(Response::new(Full::from(ANSWER)))
}

/// Applies a step. A client that the server no longer reads from or answers goes on with the next step.
async fn apply(step: &Step, client: &mut DuplexStream, sent: &mut usize) {
    const PATIENCE: Duration = Duration::from_millis(1);
    match step {
        Step::Send(bytes) => {
            *sent += bytes.len();
            let _ = tokio::time::timeout(PATIENCE, client.write_all(bytes)).await;
        }
        Step::Read => {
            let mut bytes = vec![0; SOCKET_BYTES];
            let _ = tokio::time::timeout(PATIENCE, client.read(&mut bytes)).await;
        }
        Step::Wait(seconds) => tokio::time::sleep(Duration::from_secs((*seconds).into())).await,
        Step::End => {
            let _ = client.shutdown().await;
        }
    }
}

/// Checks that another client of the server gets its answer.
async fn check(other: &mut h2::client::SendRequest<Bytes>) {
    let request = Request::post("http://node/read").body(()).unwrap();
    let (response, mut body) = other.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"body"), true).unwrap();
    let answer = response.await.unwrap().into_body().data().await;
    assert_eq!(answer.unwrap().unwrap(), ANSWER);
}
