//! Who may send requests.

use http::StatusCode;
use revstore_control::proto::{self};
use revstore_control::service::{Access, TokenFile};
use tonic::Code;

use super::fixture::{Fixture, post};

#[tokio::test]
async fn access_is_checked_for_json_and_grpc() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "secret\n").unwrap();
    let fixture = Fixture::with(Access {
        token: Some(TokenFile::open(&path).unwrap()),
        any_host: false,
    });
    let (status, answer) = fixture.post("ClockPending", "{}").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer["code"], i32::from(Code::Unauthenticated));
    let send = async |name: &'static str, value: &'static str| {
        let mut request = post("ClockPending", "{}");
        let headers = request.headers_mut();
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        headers.insert(name, value.parse().unwrap());
        fixture.send(request).await.0
    };
    assert_eq!(send("accept", "*/*").await, StatusCode::OK);
    assert_eq!(
        send("authorization", "Bearer other").await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(send("host", "example.com").await, StatusCode::FORBIDDEN);
    assert_eq!(
        send("origin", "http://localhost:2378").await,
        StatusCode::FORBIDDEN
    );

    let mut client = fixture.grpc();
    let refused = client
        .clock_pending(proto::ClockPendingRequest::default())
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    let mut request = tonic::Request::new(proto::ClockPendingRequest::default());
    let token = "Bearer secret".parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    client.clock_pending(request).await.unwrap();
}
