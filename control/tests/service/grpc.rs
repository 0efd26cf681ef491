//! The service over gRPC.

use revstore_control::proto::{self};
use revstore_engine::LeaseId;
use tonic::Code;

use super::fixture::Fixture;

#[tokio::test]
async fn all_methods_are_served_over_grpc() {
    let fixture = Fixture::new();
    let engine = fixture.control.engine();
    let mut client = fixture.grpc();
    let mode = "manual".to_owned();
    let set = client
        .clock_set(proto::ClockSetRequest { mode })
        .await
        .unwrap();
    assert_eq!(set.into_inner().mode, "manual");
    engine.grant(LeaseId::new(5), 10).unwrap();
    let advance = proto::ClockAdvanceRequest {
        by: "2s".to_owned(),
        to_next: false,
    };
    assert_eq!(
        client
            .clock_advance(advance)
            .await
            .unwrap()
            .into_inner()
            .now,
        "2s"
    );
    let pending = client
        .clock_pending(proto::ClockPendingRequest::default())
        .await;
    assert_eq!(pending.unwrap().into_inner().pending[0].due, "10s");
    let leases = client
        .leases(proto::LeasesRequest::default())
        .await
        .unwrap();
    assert_eq!(leases.into_inner().leases[0].remaining, "8s");
    let number = 5;
    let expire = proto::ExpireRequest {
        number,
        ..Default::default()
    };
    assert_eq!(
        client.expire(expire).await.unwrap().into_inner().id,
        "0000000000000005"
    );
    engine.put("key", "").unwrap();
    let compact = client
        .store_compact(proto::StoreCompactRequest { revision: 2 })
        .await;
    assert_eq!(compact.unwrap().into_inner().compacted, 2);
    let alarm = proto::AlarmRequest {
        action: "clear".to_owned(),
        name: "corrupt".to_owned(),
    };
    let refused = client.alarm(alarm).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "an engine has no alarms")
    );
    let condition = Some(proto::wait_request::Condition::Key("key".into()));
    let wait = proto::WaitRequest {
        condition,
        timeout: String::new(),
    };
    assert_eq!(client.wait(wait).await.unwrap().into_inner().revision, 2);
}
