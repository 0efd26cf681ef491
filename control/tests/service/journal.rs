//! The journal.

use http::Request;
use http_body_util::Full;
use revstore_control::journal::{RECORDS_MAX, Record};
use revstore_control::proto;
use serde_json::Value;

use super::fixture::Fixture;

fn append(fixture: &Fixture, count: usize) {
    for number in 0..count {
        let method = ["etcdserverpb.KV/Put", "etcdserverpb.Watch/Watch"][number % 2];
        fixture.control.hooks().journal.append(Record {
            method,
            ..Record::default()
        });
    }
}

#[tokio::test]
async fn all_kept_records_are_listed() {
    let fixture = Fixture::new();
    append(&fixture, 300);
    for (body, expected) in [
        (r"{}", (1..=300).collect::<Vec<u64>>()),
        (r#"{"after": 150}"#, (151..=300).collect()),
        (
            r#"{"methods": ["Put"], "after": 1}"#,
            (3..=300).step_by(2).collect(),
        ),
        (r#"{"after": 300}"#, vec![]),
        (r#"{"after": 18446744073709551615}"#, vec![]),
    ] {
        let request = Request::post("/control/v1/JournalRead").header("host", "localhost");
        let (_, text) = fixture
            .send(request.body(Full::from(body.to_owned())).unwrap())
            .await;
        let numbers = text.lines().map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            record["number"].as_u64().unwrap()
        });
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "{body}");
    }
}

/// A call once kept all records that were there at its start, 16 MiB of them.
#[tokio::test]
async fn a_reader_that_does_not_read_keeps_no_records() {
    let fixture = Fixture::new();
    append(&fixture, RECORDS_MAX);
    let request = proto::JournalReadRequest {
        follow: true,
        ..proto::JournalReadRequest::default()
    };
    let response = fixture.grpc().journal_read(request).await.unwrap();
    let mut records = response.into_inner();
    assert_eq!(records.message().await.unwrap().unwrap().number, 1);
    append(&fixture, RECORDS_MAX);
    let mut last = 1;
    loop {
        let record = records.message().await.unwrap().unwrap();
        assert_eq!(record.number, last + 1 + record.dropped);
        last = record.number;
        if record.dropped > 0 {
            break;
        }
    }
    assert!(last > RECORDS_MAX as u64, "{last}");
}
