//! Tests of the lines that the log has about connections, users, alarms and maintenance, with etcd's texts.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use revstore_proto::etcdserverpb::{
    AlarmRequest, AlarmType, AuthEnableRequest, AuthRoleAddRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, CompactionRequest, PutRequest, RangeRequest,
    RequestOp, SnapshotRequest, TxnRequest, alarm_request::AlarmAction, auth_client::AuthClient,
    kv_client::KvClient, maintenance_client::MaintenanceClient, request_op::Request as OpRequest,
};

use crate::support::{ANY_PORT, AUTO_TLS, ServerProcess, block_on, connect};

/// Checks the level, the message and the fields of the line with a message.
fn check(process: &mut ServerProcess, level: &str, message: &str, fields: &str) {
    let line = process.wait_for_line(&format!("\"msg\":\"{message}\""));
    assert!(
        line.starts_with(&format!("{{\"level\":\"{level}\"")),
        "{line}"
    );
    assert!(line.contains("\"caller\":\""), "{line}");
    let (_, end) = line.split_once(&format!("\"msg\":\"{message}\"")).unwrap();
    assert!(end.contains(fields), "expected {fields} in {line}");
}

#[test]
fn lines_about_users_alarms_and_maintenance_are_those_of_etcd() {
    let mut process = ServerProcess::start(ANY_PORT);
    let address = process.address_of("client");
    block_on(change(address));
    let process = &mut process;
    for (level, message, fields) in [
        ("info", "compact tree index", r#""revision":2"#),
        (
            "info",
            "finished scheduled compaction",
            r#""compact-revision":2,"took":""#,
        ),
        ("warn", "alarm raised", r#""alarm":"CORRUPT","from":"ff"}"#),
        (
            "warn",
            "alarm disarmed",
            r#""alarm":"CORRUPT","from":"ff"}"#,
        ),
        (
            "info",
            "sending database snapshot to client",
            r#""total-bytes":"#,
        ),
        (
            "info",
            "sending database sha256 checksum to client",
            r#""checksum-size":32"#,
        ),
        (
            "info",
            "successfully sent database snapshot to client",
            r#""took":""#,
        ),
        ("info", "added a user", r#""user-name":"root"}"#),
        ("info", "created a role", r#""role-name":"root"}"#),
        (
            "info",
            "granted a role to a user",
            r#""user-name":"root","user-roles":["root"],"added-role-name":"root"}"#,
        ),
        (
            "warn",
            "ignored grant role request to a user",
            r#""duplicate-role-name":"root"}"#,
        ),
        ("info", "enabled authentication", "}"),
        ("info", "invalid password", r#""user-name":"root"}"#),
        (
            "warn",
            "invalid authentication was requested",
            r#""user":"root","error":"auth: authentication failed, invalid user ID or password"}"#,
        ),
        ("warn", "invalid auth token", "}"),
    ] {
        check(process, level, message, fields);
    }
    process.signal("TERM");
    check(
        process,
        "info",
        "received signal; shutting down",
        r#""signal":"terminated"}"#,
    );
    check(
        process,
        "info",
        "closed etcd server",
        r#""name":"default","data-dir":"","advertise-peer-urls":["#,
    );
    assert!(
        !process.log.iter().any(|line| line.contains("secret")),
        "{:?}",
        process.log
    );
}

#[test]
fn ac_5_automatic_compactions_are_logged_once_each() {
    let flags = [
        "--auto-compaction-mode=revision",
        "--auto-compaction-retention=2",
        "--auto-compaction-interval=1ms",
    ];
    let mut process = ServerProcess::start(ANY_PORT.into_iter().chain(flags));
    let address = process.address_of("client");
    block_on(async {
        let mut kv = KvClient::new(connect(address).await);
        for _ in 0..2 {
            let put = PutRequest {
                key: "a".into(),
                ..PutRequest::default()
            };
            kv.put(put).await.unwrap();
        }
    });
    for (message, fields) in [
        (
            "starting auto revision compaction",
            r#""revision":1,"revision-compaction-retention":2}"#,
        ),
        ("compact tree index", r#""revision":1}"#),
        (
            "finished scheduled compaction",
            r#""compact-revision":1,"took":""#,
        ),
        (
            "completed auto revision compaction",
            r#""revision":1,"revision-compaction-retention":2,"took":""#,
        ),
    ] {
        check(&mut process, "info", message, fields);
    }
    let starts = process.log.iter();
    let starts = starts.filter(|line| line.contains("starting auto")).count();
    assert_eq!(starts, 1);
}

async fn change(address: SocketAddr) {
    let channel = connect(address).await;
    let mut kv = KvClient::new(channel.clone());
    kv.put(PutRequest {
        key: "a".into(),
        ..PutRequest::default()
    })
    .await
    .unwrap();
    let compaction = CompactionRequest {
        revision: 2,
        physical: true,
    };
    kv.compact(compaction).await.unwrap();
    let mut maintenance = MaintenanceClient::new(channel.clone());
    for action in [AlarmAction::Activate, AlarmAction::Deactivate] {
        let alarm = AlarmRequest {
            action: action.into(),
            member_id: 255,
            alarm: AlarmType::Corrupt.into(),
        };
        maintenance.alarm(alarm).await.unwrap();
    }
    let snapshot = maintenance.snapshot(SnapshotRequest {}).await;
    let mut snapshot = snapshot.unwrap().into_inner();
    while snapshot.message().await.unwrap().is_some() {}
    let mut auth = AuthClient::new(channel);
    let (name, password) = ("root".to_owned(), "secret".to_owned());
    let user = AuthUserAddRequest {
        name: name.clone(),
        password,
        ..AuthUserAddRequest::default()
    };
    auth.user_add(user).await.unwrap();
    let role = AuthRoleAddRequest { name: name.clone() };
    auth.role_add(role).await.unwrap();
    for _ in 0..2 {
        let (user, role) = (name.clone(), name.clone());
        auth.user_grant_role(AuthUserGrantRoleRequest { user, role })
            .await
            .unwrap();
    }
    auth.auth_enable(AuthEnableRequest {}).await.unwrap();
    let password = "secret guess".to_owned();
    let login = AuthenticateRequest { name, password };
    auth.authenticate(login).await.unwrap_err();
    let mut put = tonic::Request::new(PutRequest {
        key: "a".into(),
        ..PutRequest::default()
    });
    let token = "secret-token".parse().unwrap();
    put.metadata_mut().insert("authorization", token);
    kv.put(put).await.unwrap_err();
}

#[test]
fn slow_requests_are_logged_with_the_fields_of_etcd_and_without_values() {
    let mut process = ServerProcess::start(ANY_PORT.into_iter().chain([
        "--experimental-warning-apply-duration=1ns",
        "--experimental-warning-unary-request-duration=1ns",
    ]));
    let address = process.address_of("client");
    block_on(async {
        let mut kv = KvClient::new(connect(address).await);
        let put = PutRequest {
            key: "a".into(),
            value: "secret".into(),
            ..PutRequest::default()
        };
        kv.put(put.clone()).await.unwrap();
        let range = RangeRequest {
            key: "a".into(),
            range_end: "b".into(),
            ..RangeRequest::default()
        };
        kv.range(range.clone()).await.unwrap();
        let read = RequestOp {
            request: Some(OpRequest::RequestRange(range)),
        };
        let txn = TxnRequest {
            success: vec![read],
            ..TxnRequest::default()
        };
        kv.txn(txn).await.unwrap();
        let lost = PutRequest { lease: 77, ..put };
        kv.put(lost).await.unwrap_err();
    });
    let mut check = |line: &str, expected: &str| {
        let line = process.wait_for_line(line);
        assert!(line.starts_with("{\"level\":\"warn\""), "{line}");
        assert!(line.contains(expected), "expected {expected} in {line}");
    };
    check(
        r#""request":"header:<> put:<key:\"a\" value_size:6 >","response":"size:"#,
        r#""msg":"apply request took too long","took":""#,
    );
    check(
        "read-only range ",
        r#""expected-duration":"1ns","prefix":"read-only range ","request":"key:\"a\" range_end:\"b\" ","response":"range_response_count:1 size:"#,
    );
    check(
        "read-only txn ",
        r#""request":"compare:<> success:<request_range:<key:\"a\" range_end:\"b\" > > failure:<>","response":"responses:<range_response_count:1> size:"#,
    );
    check(
        "failed to apply request",
        r#"lease:77 >","response":"","error":"etcdserver: requested lease not found"}"#,
    );
    check(
        r#""response type":"/etcdserverpb.KV/Put""#,
        r#""request count":1,"request size":11,"response count":0,"response size":"#,
    );
    check(
        r#""response type":"/etcdserverpb.KV/Range""#,
        r#""request count":0,"request size":6,"response count":1,"response size":"#,
    );
    check(
        r#""remote":"127.0.0.1:"#,
        r#""msg":"request stats","start time":"2"#,
    );
    assert!(
        !process.log.iter().any(|line| line.contains("secret")),
        "{:?}",
        process.log
    );
}

#[test]
fn rejected_connections_are_logged_with_the_reason() {
    let mut process = ServerProcess::start(AUTO_TLS);
    let address = process.address_of("client");
    let mut rejected = |bytes: &[u8], reason: &str| {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(bytes).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let own = connection.local_addr().unwrap();
        let mut answer = Vec::new();
        // An alert is an answer.
        connection.read_to_end(&mut answer).unwrap();
        let line = process.wait_for_line(&format!("\"remote-addr\":\"{own}\""));
        let (start, end) = line.split_once("\"remote-addr\"").unwrap();
        assert!(start.starts_with("{\"level\":\"warn\""), "{line}");
        assert!(
            start.ends_with("\"msg\":\"rejected connection on client endpoint\","),
            "{line}"
        );
        let expected = format!(":\"{own}\",\"server-name\":\"\",\"error\":\"{reason}\"}}");
        assert_eq!(end, expected);
    };
    rejected(
        b"GET / HTTP/1.1\r\n\r\n",
        "tls: first record does not look like a TLS handshake",
    );
    rejected(b"", "EOF");
}

#[test]
fn a_client_that_floods_the_log_is_limited() {
    const CONNECTIONS: usize = 400;
    let mut process = ServerProcess::start(AUTO_TLS);
    let address = process.address_of("client");
    for _ in 0..CONNECTIONS {
        drop(TcpStream::connect(address).unwrap());
    }
    // All connections are in a line or in a count.
    let counted = |log: &[String]| -> usize {
        let lines = log.iter().map(|line| {
            if let Some((_, count)) = line.split_once("\"lines\":") {
                return count.trim_end_matches('}').parse().unwrap();
            }
            usize::from(line.contains("rejected connection") && line.contains("remote-addr"))
        });
        lines.sum()
    };
    while counted(&process.log) < CONNECTIONS {
        process.next_line();
    }
    assert_eq!(counted(&process.log), CONNECTIONS);
}
