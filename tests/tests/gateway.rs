//! Tests of the JSON gateway (HT-20 to HT-23) with revstore and, if it is installed, with a real etcd. The
//! expected responses were recorded with etcd 3.5.16.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use revstore_tests::server::revstore::Revstore;
use revstore_tests::server::{Endpoint as _, Options, Servers};
use revstore_tests::{gateway, http, poll};

revstore_tests::on_every_server! {
    needs: [];
    kv_methods_return_json,
    ht_21_alternative_forms_of_fields_are_accepted,
    invalid_requests_return_json_errors,
    txn_responses_contain_the_response_of_each_operation,
    txn_2_transactions_nest_as_deeply_as_in_grpc,
    li_9_calls_end_at_their_timeout,
    watch_streams_one_object_per_message,
    failed_watches_are_cancelled,
    lease_methods_return_json,
    auth_uses_the_authorization_header,
    lock_and_election_methods_return_json,
    ht_20_user_and_role_methods_return_json,
    maintenance_methods_return_json,
    invalid_cluster_changes_fail,
    ht_20_all_paths_exist,
    ht_23_each_message_of_a_stream_is_one_line_in_one_chunk,
}

fn replay(servers: &Servers, session: &str) {
    let options = Options {
        json_gateway: true,
        ..Options::default()
    };
    let server = servers.fresh(&options);
    if let Err(error) = gateway::replay(server.address(), session) {
        panic!("{error}\n{}", server.logs());
    }
}

fn kv_methods_return_json(servers: &Servers) {
    replay(
        servers,
        r#"
        > kv/put {"key":"Zm9v","value":"YmFy"}
        200
        {"header":"@2"}
        > kv/put {"key":"Zm9v","prev_kv":true,"lease":0}
        200
        {"header":"@3","prev_kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}}
        > kv/range {"key":"Zm9v"}
        200
        {"header":"@3","kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"3","version":"2"}],"count":"1"}
        > /v3beta/kv/range {"key":"AA==","range_end":"AA==","count_only":true}
        200
        {"header":"@3","count":"1"}
        > kv/range {"key":"Zm9v","revision":"2"}
        200
        {"header":"@3","kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}
        > kv/range {"key":"Zm9v","revision":9}
        400
        {"code":11,"message":"etcdserver: mvcc: required revision is a future revision"}
        > kv/deleterange {"key":"Zm9v","prev_kv":true}
        200
        {"header":"@4","deleted":"1","prev_kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"3","version":"2"}]}
        > kv/deleterange {"key":"Zm9v"}
        200
        {"header":"@4"}
        > kv/compaction {"revision":"4","physical":true}
        200
        {"header":"@4"}
        > kv/compaction {"revision":"4"}
        400
        {"code":11,"message":"etcdserver: mvcc: required revision has been compacted"}
        "#,
    );
}

/// HT-21: the gateway accepts alternative forms of fields.
fn ht_21_alternative_forms_of_fields_are_accepted(servers: &Servers) {
    replay(
        servers,
        r#"
        > kv/put {"key":"/+8=","value":null,"nonsense":{"a":[1]}}
        200
        {"header":"@2"}
        > kv/range {"key":"_-8","limit":"1","sortOrder":"DESCEND","sort_target":4}
        200
        {"header":"@2","kvs":[{"key":"/+8=","create_revision":"2","mod_revision":"2","version":"1"}],"count":"1"}
        > kv/range {"key":"_-8=","limit":1.0,"sort_order":"NONSENSE"} and the rest is ignored
        200
        {"header":"@2","kvs":[{"key":"/+8=","create_revision":"2","mod_revision":"2","version":"1"}],"count":"1"}
        > cluster/member/list
        200
        {"header":"@","members":[{"ID":"10276657743932975437","name":"default","peerURLs":["http://localhost:2380"],"clientURLs":["http://localhost:2379"]}]}
        "#,
    );
}

/// The text of a parser error is not compared, because it differs between builds of etcd (HT-24).
fn invalid_requests_return_json_errors(servers: &Servers) {
    replay(
        servers,
        r#"
        > kv/range
        400
        {"code":3,"message":"etcdserver: key is not provided"}
        > kv/range {"key":null}
        400
        {"code":3,"message":"etcdserver: key is not provided"}
        > kv/range {"key":"Zm9v"
        400
        {"code":3,"message":"unexpected EOF"}
        > kv/range []
        400
        {"code":3,"message":"%_%"}
        > kv/range null
        400
        {"code":3,"message":"%_%"}
        > kv/range {"key":5}
        400
        {"code":3,"message":"%_%"}
        > kv/range {"key":"!!"}
        400
        {"code":3,"message":"%_%"}
        > kv/range {"key":"Zm9v","limit":1.5}
        400
        {"code":3,"message":"%_%"}
        > kv/range {"key":"Zm9v","limit":99999999999999999999}
        400
        {"code":3,"message":"%_%"}
        > kv/range {"key":"Zm9v","serializable":"true"}
        400
        {"code":3,"message":"%_%"}
        > kv/txn {"compare":[{"key":"Zm9v","version":1,"value":"YQ=="}]}
        400
        {"code":3,"message":"%_%"}
        GET kv/range
        501
        {"code":12,"message":"Method Not Allowed"}
        PUT kv/range {"key":"Zm9v"}
        501
        {"code":12,"message":"Method Not Allowed"}
        > kv/nonsense {}
        404
        {"code":5,"message":"Not Found"}
        > kv/range/ {}
        404
        {"code":5,"message":"Not Found"}
        GET nonsense
        404
        {"code":5,"message":"Not Found"}
        > kv/put {"key":"Zm9v","lease":7}
        404
        {"code":5,"message":"etcdserver: requested lease not found"}
        "#,
    );
}

fn txn_responses_contain_the_response_of_each_operation(servers: &Servers) {
    replay(
        servers,
        r#"
        > kv/txn {"compare":[{"key":"Zm9v","target":"CREATE","createRevision":"0"}],"success":[{"request_put":{"key":"Zm9v","value":"YmFy"}},{"requestRange":{"key":"Zm9v"}},{"request_txn":{"compare":[{"key":"eA==","result":"GREATER","version":3}],"failure":[{"request_delete_range":{"key":"eA=="}}]}}]}
        200
        {"header":"@2","succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}},{"response_range":{"header":{"revision":"2"},"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}},{"response_txn":{"header":{},"responses":[{"response_delete_range":{"header":{"revision":"2"}}}]}}]}
        > kv/txn {"compare":[{"key":"Zm9v","target":"VALUE","result":"NOT_EQUAL","value":"YmFy"}]}
        200
        {"header":"@2"}
        > kv/txn {"success":[{}]}
        400
        {"code":3,"message":"etcdserver: key not found"}
        > kv/txn {"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}
        400
        {"code":3,"message":"etcdserver: duplicate key given in txn request"}
        "#,
    );
}

/// The sessions of this file cannot contain such transactions, because `serde_json` does not read them.
fn txn_2_transactions_nest_as_deeply_as_in_grpc(servers: &Servers) {
    let options = Options {
        json_gateway: true,
        ..Options::default()
    };
    let server = servers.fresh(&options);
    let txn = |nested: usize| {
        let (start, end) = (r#"{"success":[{"request_txn":"#, "}]}");
        let put = r#"{"success":[{"request_put":{"key":"aw=="}}]}"#;
        let body = start.repeat(nested) + put + &end.repeat(nested);
        let request = http::Request {
            method: "POST",
            path: "/v3/kv/txn",
            headers: &[],
            body: &body,
        };
        request.send(server.address()).expect("a response")
    };
    for nested in [0, 41, 42, 48, 49, 50, 127] {
        let response = txn(nested);
        assert_eq!(response.status, 200, "{nested} levels: {response:?}");
        let count = |text: &str| response.body.matches(text).count();
        assert_eq!(count(r#""response_txn":"#), nested, "{response:?}");
        assert_eq!(count(r#""response_put":"#), 1, "{response:?}");
        assert_eq!(count("{"), count("}"), "{response:?}");
        // The header of the response, and the empty one of each nested transaction.
        assert_eq!(count(r#""header":{"#), nested + 2, "{response:?}");
    }
    for nested in [128, 1_000, 3_332] {
        let response = txn(nested);
        let text = "etcdserver: too many operations in txn request";
        assert_eq!(response.status, 400, "{nested} levels: {response:?}");
        assert!(response.body.contains(text), "{response:?}");
    }
}

fn li_9_calls_end_at_their_timeout(servers: &Servers) {
    let options = Options {
        json_gateway: true,
        ..Options::default()
    };
    let server = servers.fresh(&options);
    let call = |path: &str, timeout: &str, body: &str| {
        let request = http::Request {
            method: "POST",
            path: &format!("/v3/{path}"),
            headers: &[("Grpc-Timeout", timeout)],
            body,
        };
        let response = request.send(server.address()).expect("a response");
        let lines = response.body.lines().map(|line| {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON in each line")
        });
        (response.status, lines.collect::<Vec<_>>())
    };
    let check_error = |path: &str, timeout: &str, body: &str, expected: (u16, u64, &str)| {
        let (status, lines) = call(path, timeout, body);
        let error = lines[0].get("error").filter(|error| error.is_object());
        let error = error.unwrap_or(&lines[0]);
        let found = (status, error["code"].as_u64(), error["message"].as_str());
        let (status, code, message) = expected;
        assert_eq!(
            found,
            (status, Some(code), Some(message)),
            "{path} {timeout}"
        );
    };
    let exceeded = (504, 4, "context deadline exceeded");
    let (key, name) = (r#"{"key":"aw=="}"#, r#"{"name":"bA=="}"#);
    for timeout in ["60S", "0S", "123456789S", "1H"] {
        assert_eq!(call("kv/put", timeout, key).0, 200, "{timeout}");
    }
    check_error("kv/put", "-1S", key, exceeded);
    for (timeout, message) in [
        ("5", "invalid grpc-timeout: 5"),
        ("1x", "invalid grpc-timeout: 1x"),
        ("1.5S", "invalid grpc-timeout: 1.5S"),
    ] {
        check_error("kv/put", timeout, key, (400, 3, message));
        check_error("watch", timeout, "{", (400, 3, message));
    }
    assert_eq!(call("lock/lock", "60S", name).0, 200);
    check_error("lock/lock", "100m", name, exceeded);
    // The waiter has left the queue, and its lease is still there, like that of the holder.
    let locks = r#"{"key":"bC8=","range_end":"bDA=","count_only":true}"#;
    assert_eq!(call("kv/range", "60S", locks).1[0]["count"], "1");
    let leases = call("lease/leases", "60S", "{}").1;
    assert_eq!(leases[0]["leases"].as_array().map(Vec::len), Some(2));
    // A stream ends with a line.
    let watch = r#"{"create_request":{"key":"aw=="}}"#;
    let (status, lines) = call("watch", "100m", watch);
    assert_eq!(status, 200, "{lines:?}");
    assert_eq!(lines[0]["result"]["created"], true, "{lines:?}");
    assert_eq!(lines[1]["error"]["message"], "context deadline exceeded");
}

fn watch_streams_one_object_per_message(servers: &Servers) {
    replay(
        servers,
        r#"
        > kv/put {"key":"Zm9v","value":"YmFy"}
        200
        {"header":"@2"}
        > kv/deleterange {"key":"Zm9v"}
        200
        {"header":"@3"  ,"deleted":"1"}
        >> watch {"create_request":{"key":"Zm9v","start_revision":"1","prev_kv":true}}
        200
        {"result":{"header":"@3","created":true}}
        {"result":{"header":"@3","events":[{"kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}},{"type":"DELETE","kv":{"key":"Zm9v","mod_revision":"3"},"prev_kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}}]}}
        # Several requests on one stream. The server reads no request after invalid input. The watches continue.
        >> watch {"create_request":{"key":"Zm9v","watch_id":7}} {"cancelRequest":{"watchId":7}} {"create_request":{"key":"Zm9v","filters":["NOPUT"],"startRevision":"2"}} {"nonsense
        200
        {"result":{"header":"@3","watch_id":"7","created":true}}
        {"result":{"header":"@3","watch_id":"7","canceled":true}}
        {"result":{"header":"@3","created":true}}
        {"result":{"header":"@3","events":[{"type":"DELETE","kv":{"key":"Zm9v","mod_revision":"3"}}]}}
        "#,
    );
}

fn failed_watches_are_cancelled(servers: &Servers) {
    replay(
        servers,
        r#"
        > kv/put {"key":"Zm9v"}
        200
        {"header":"@2"}
        > kv/put {"key":"Zm9v"}
        200
        {"header":"@3"}
        > kv/compaction {"revision":"3"}
        200
        {"header":"@3"}
        >> watch {"create_request":{"key":"Zm9v","start_revision":"1"}}
        200
        {"result":{"header":"@3","created":true}}
        {"result":{"header":"@","canceled":true,"compact_revision":"3"}}
        >> watch {"create_request":{"key":"Zm9v","range_end":"YQ=="}}
        200
        {"result":{"header":"@3","watch_id":"-1","created":true,"canceled":true,"cancel_reason":"mvcc: watcher range is empty"}}
        "#,
    );
}

fn lease_methods_return_json(servers: &Servers) {
    replay(
        servers,
        r#"
        > lease/grant {"TTL":"1000","ID":"77"}
        200
        {"header":"@1","ID":"77","TTL":"1000"}
        > lease/grant {"TTL":"1000","ID":77}
        400
        {"code":9,"message":"etcdserver: lease already exists"}
        > lease/grant {"TTL":1000}
        200
        {"header":"@1","ID":"%id%","TTL":"1000"}
        > lease/keepalive {"ID":"%id%"}
        200
        {"result":{"header":"@1","ID":"%id%","TTL":"1000"}}
        > lease/keepalive {"ID":"77"}{"ID":"78"} nonsense {"ID":"77"}
        200
        {"result":{"header":"@1","ID":"77","TTL":"1000"}}
        {"result":{"header":"@1","ID":"78"}}
        > lease/keepalive
        200
        > lease/revoke {"ID":"%id%"}
        200
        {"header":"@1"}
        > kv/lease/revoke {"ID":"%id%"}
        404
        {"code":5,"message":"etcdserver: requested lease not found"}
        > kv/put {"key":"Zm9v","lease":"77"}
        200
        {"header":"@2"}
        > lease/timetolive {"ID":"77","keys":true}
        200
        {"header":"@2","ID":"77","TTL":"%_%","grantedTTL":"1000","keys":["Zm9v"]}
        > kv/lease/timetolive {"ID":"78"}
        200
        {"header":"@2","ID":"78","TTL":"-1"}
        > lease/leases {}
        200
        {"header":"@2","leases":[{"ID":"77"}]}
        > kv/lease/leases
        200
        {"header":"@2","leases":[{"ID":"77"}]}
        "#,
    );
}

fn auth_uses_the_authorization_header(servers: &Servers) {
    replay(
        servers,
        r#"
        > auth/authenticate {"name":"root","password":"r"}
        400
        {"code":9,"message":"etcdserver: authentication is not enabled"}
        > auth/status
        200
        {"header":"@1","authRevision":"1"}
        > auth/enable
        400
        {"code":9,"message":"etcdserver: root user does not exist"}
        > auth/user/add {"name":"root","password":"r"}
        200
        {"header":"@1"}
        > auth/user/grant {"user":"root","role":"root"}
        200
        {"header":"@1"}
        > auth/user/add {"name":"ann","password":"a"}
        200
        {"header":"@1"}
        > auth/role/add {"name":"reader"}
        200
        {"header":"@1"}
        > auth/role/grant {"name":"reader","perm":{"permType":"READWRITE","key":"YQ=="}}
        200
        {"header":"@1"}
        > auth/role/get {"role":"reader"}
        200
        {"header":"@1","perm":[{"permType":"READWRITE","key":"YQ=="}]}
        > auth/user/grant {"user":"ann","role":"reader"}
        200
        {"header":"@1"}
        > auth/user/get {"name":"ann"}
        200
        {"header":"@1","roles":["reader"]}
        > auth/user/list
        200
        {"header":"@1","users":["ann","root"]}
        > auth/enable
        200
        {"header":"@1"}
        > auth/authenticate {"name":"ann","password":"b"}
        400
        {"code":3,"message":"etcdserver: authentication failed, invalid user ID or password"}
        > auth/authenticate {"name":"ann","password":"a"}
        200
        {"header":"@1","token":"%ann%"}
        > auth/authenticate {"name":"root","password":"r"}
        200
        {"header":"@1","token":"%root%"}
        > kv/put {"key":"YQ=="}
        400
        {"code":3,"message":"etcdserver: user name is empty"}
        > maintenance/hash
        500
        {"code":2,"message":"auth: user name is empty"}
        > maintenance/snapshot
        500
        {"error":{"code":2,"message":"auth: user name is empty"}}
        as nonsense
        > kv/put {"key":"YQ=="}
        401
        {"code":16,"message":"etcdserver: invalid auth token"}
        as Bearer %ann%
        > kv/put {"key":"YQ=="}
        401
        {"code":16,"message":"etcdserver: invalid auth token"}
        as %ann%
        > kv/put {"key":"YQ=="}
        200
        {"header":"@2"}
        > kv/put {"key":"Yg=="}
        403
        {"code":7,"message":"etcdserver: permission denied"}
        > auth/user/list
        403
        {"code":7,"message":"etcdserver: permission denied"}
        >> watch {"create_request":{"key":"YQ==","start_revision":1}}
        200
        {"result":{"header":"@2","created":true}}
        {"result":{"header":"@2","events":[{"kv":{"key":"YQ==","create_revision":"2","mod_revision":"2","version":"1"}}]}}
        >> watch {"create_request":{"key":"Yg=="}}
        200
        {"result":{"header":"@2","watch_id":"-1","created":true,"canceled":true,"cancel_reason":"rpc error: code = PermissionDenied desc = etcdserver: permission denied"}}
        as %root%
        > auth/disable
        200
        {"header":"@2"}
        as nobody
        > kv/range {"key":"YQ==","count_only":true}
        200
        {"header":"@2","count":"1"}
        "#,
    );
}

/// HT-20: the methods for users and roles, on all their paths.
fn ht_20_user_and_role_methods_return_json(servers: &Servers) {
    replay(
        servers,
        r#"
        > auth/user/add {"name":"ann","password":"a"}
        200
        {"header":"@1"}
        > auth/user/add {"name":"bob","options":{"no_password":true}}
        200
        {"header":"@1"}
        > auth/user/changepw {"name":"ann","password":"b"}
        200
        {"header":"@1"}
        > auth/user/changepw {"name":"nobody","password":"b"}
        400
        {"code":9,"message":"etcdserver: user name not found"}
        > auth/role/add {"name":"r"}
        200
        {"header":"@1"}
        > auth/role/add {"name":"s"}
        200
        {"header":"@1"}
        > auth/role/list
        200
        {"header":"@1","roles":["r","s"]}
        > auth/role/grant {"name":"r","perm":{"permType":"WRITE","key":"YQ==","range_end":"Yg=="}}
        200
        {"header":"@1"}
        > auth/role/get {"role":"r"}
        200
        {"header":"@1","perm":[{"permType":"WRITE","key":"YQ==","range_end":"Yg=="}]}
        > auth/role/revoke {"role":"r","key":"YQ==","range_end":"Yg=="}
        200
        {"header":"@1"}
        > auth/role/get {"role":"r"}
        200
        {"header":"@1"}
        > auth/user/grant {"user":"ann","role":"r"}
        200
        {"header":"@1"}
        > auth/user/get {"name":"ann"}
        200
        {"header":"@1","roles":["r"]}
        > auth/user/revoke {"name":"ann","role":"r"}
        200
        {"header":"@1"}
        > auth/user/get {"name":"ann"}
        200
        {"header":"@1"}
        > auth/role/delete {"role":"s"}
        200
        {"header":"@1"}
        > auth/role/list
        200
        {"header":"@1","roles":["r"]}
        > auth/user/delete {"name":"bob"}
        200
        {"header":"@1"}
        > auth/user/list
        200
        {"header":"@1","users":["ann"]}
        > auth/disable
        200
        {"header":"@1"}
        "#,
    );
}

fn lock_and_election_methods_return_json(servers: &Servers) {
    replay(
        servers,
        r#"
        > lease/grant {"TTL":"1000","ID":"77"}
        200
        {"header":"@1","ID":"77","TTL":"1000"}
        > lock/lock {"name":"bA==","lease":"77"}
        200
        {"header":"@2","key":"bC80ZA=="}
        > lock/unlock {"key":"bC80ZA=="}
        200
        {"header":"@3"}
        > election/leader {"name":"ZQ=="}
        500
        {"code":2,"message":"election: no leader"}
        > election/campaign {"name":"ZQ==","lease":"77","value":"djE="}
        200
        {"header":"@4","leader":{"name":"ZQ==","key":"ZS80ZA==","rev":"4","lease":"77"}}
        > election/proclaim {"leader":{"name":"ZQ==","key":"ZS80ZA==","rev":"4","lease":"77"},"value":"djI="}
        200
        {"header":"@5"}
        >> election/observe {"name":"ZQ=="}
        200
        {"result":{"header":"@5","kv":{"key":"ZS80ZA==","create_revision":"4","mod_revision":"5","version":"2","value":"djI=","lease":"77"}}}
        > election/resign {"leader":{"name":"ZQ==","key":"ZS80ZA==","rev":"4","lease":"77"}}
        200
        {"header":"@6"}
        > election/proclaim {}
        500
        {"code":2,"message":"\"leader\" field must be provided"}
        "#,
    );
}

fn maintenance_methods_return_json(servers: &Servers) {
    replay(
        servers,
        r#"
        > maintenance/alarm {"action":"ACTIVATE","memberID":"5","alarm":"CORRUPT"}
        200
        {"header":"@1","alarms":[{"memberID":"5","alarm":"CORRUPT"}]}
        > kv/put {"key":"Zm9v"}
        500
        {"code":15,"message":"etcdserver: corrupt cluster"}
        > maintenance/alarm {"action":2,"memberID":5,"alarm":2}
        200
        {"header":"@1","alarms":[{"memberID":"5","alarm":"CORRUPT"}]}
        > maintenance/alarm {"action":"ACTIVATE","alarm":"NOSPACE"}
        200
        {"header":"@1","alarms":[{"alarm":"NOSPACE"}]}
        > kv/put {"key":"Zm9v"}
        429
        {"code":8,"message":"etcdserver: mvcc: database space exceeded"}
        > maintenance/alarm
        200
        {"header":"@1","alarms":[{"alarm":"NOSPACE"}]}
        > maintenance/defragment
        200
        {}
        > maintenance/transfer-leadership {"targetID":"1"}
        400
        {"code":9,"message":"etcdserver: bad leader transferee"}
        > maintenance/transfer-leadership {"targetID":"10276657743932975437"}
        200
        {}
        > maintenance/downgrade {"action":"VALIDATE","version":"nonsense"}
        400
        {"code":3,"message":"etcdserver: wrong downgrade target version format"}
        "#,
    );
}

fn invalid_cluster_changes_fail(servers: &Servers) {
    replay(
        servers,
        r#"
        > cluster/member/add {"peerURLs":["nonsense"]}
        400
        {"code":3,"message":"etcdserver: given member URLs are invalid"}
        > cluster/member/add {"isLearner":true,"peerURLs":["http://localhost:2380"]}
        400
        {"code":9,"message":"etcdserver: Peer URLs already exists"}
        > cluster/member/remove {"ID":"1"}
        404
        {"code":5,"message":"etcdserver: member not found"}
        > cluster/member/update {"ID":"1","peerURLs":["http://localhost:2390"]}
        404
        {"code":5,"message":"etcdserver: member not found"}
        > cluster/member/promote {"ID":"10276657743932975437"}
        400
        {"code":9,"message":"etcdserver: can only promote a learner member"}
        "#,
    );
}

/// The paths in HT-20. A GET request fails with 501 if the path exists, and has no effect.
const PATHS: [&str; 55] = [
    "kv/range",
    "kv/put",
    "kv/deleterange",
    "kv/txn",
    "kv/compaction",
    "watch",
    "lease/grant",
    "lease/revoke",
    "lease/keepalive",
    "lease/timetolive",
    "lease/leases",
    "kv/lease/revoke",
    "kv/lease/timetolive",
    "kv/lease/leases",
    "cluster/member/add",
    "cluster/member/remove",
    "cluster/member/update",
    "cluster/member/list",
    "cluster/member/promote",
    "maintenance/alarm",
    "maintenance/status",
    "maintenance/defragment",
    "maintenance/hash",
    "maintenance/hashkv",
    "maintenance/snapshot",
    "maintenance/transfer-leadership",
    "maintenance/downgrade",
    "auth/enable",
    "auth/disable",
    "auth/status",
    "auth/authenticate",
    "auth/user/add",
    "auth/user/get",
    "auth/user/list",
    "auth/user/delete",
    "auth/user/changepw",
    "auth/user/grant",
    "auth/user/revoke",
    "auth/role/add",
    "auth/role/get",
    "auth/role/list",
    "auth/role/delete",
    "auth/role/grant",
    "auth/role/revoke",
    "lock/lock",
    "lock/unlock",
    "election/campaign",
    "election/proclaim",
    "election/leader",
    "election/observe",
    "election/resign",
    "/v3beta/kv/range",
    "/v3beta/watch",
    "/v3beta/auth/user/add",
    "/v3beta/election/observe",
];

/// HT-20 and HT-22: a GET request fails with 501 on every path.
fn ht_20_all_paths_exist(servers: &Servers) {
    let known = PATHS.map(|path| {
        format!("GET {path}\n501\n{{\"code\":12,\"message\":\"Method Not Allowed\"}}\n")
    });
    replay(servers, &known.concat());
}

/// HT-23: checks the bytes of a streamed response.
fn ht_23_each_message_of_a_stream_is_one_line_in_one_chunk(servers: &Servers) {
    let server = servers.fresh(&Options {
        json_gateway: true,
        ..Options::default()
    });
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream
        .set_read_timeout(Some(poll::LIMIT))
        .expect("the limit is above zero");
    let length = WATCH_FOO.len();
    write!(
        stream,
        "POST /v3/watch HTTP/1.1\r\nHost: node\r\nContent-Length: {length}\r\n\r\n{WATCH_FOO}"
    )
    .expect("the request is written");
    let mut response = BufReader::new(stream);
    let mut line = move || {
        let mut line = String::new();
        response.read_line(&mut line).expect("a response");
        line.to_ascii_lowercase()
    };
    assert_eq!(line(), "http/1.1 200 ok\r\n");
    let head: Vec<_> = std::iter::repeat_with(&mut line)
        .take_while(|line| line != "\r\n")
        .collect();
    assert!(head.contains(&"content-type: application/json\r\n".to_owned()));
    assert!(head.contains(&"transfer-encoding: chunked\r\n".to_owned()));
    let size = line();
    let size = usize::from_str_radix(size.trim_end(), 16).expect("the size of a chunk");
    let object = line();
    assert_eq!(object.len(), size, "{object:?}");
    assert!(
        object.starts_with(r#"{"result":{"#) && object.ends_with("}}\n"),
        "{object:?}"
    );
    assert_eq!(line(), "\r\n");
}

/// Opens a watch through the gateway and reads its first response. The request has the chunk `body` and
/// stays open for further chunks.
fn open_watch(server: &Revstore, body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream
        .set_read_timeout(Some(poll::LIMIT))
        .expect("the limit is above zero");
    let head = "POST /v3/watch HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n";
    write!(stream, "{head}{:x}\r\n{body}\r\n", body.len()).expect("the request is written");
    let mut response = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("created") {
        line.clear();
        assert_ne!(response.read_line(&mut line).expect("a response"), 0);
    }
    response
}

const WATCH_FOO: &str = r#"{"create_request":{"key":"Zm9v"}}"#;

/// Returns the number of watchers that the metrics of a server report.
fn watchers(server: &Revstore) -> Option<String> {
    let page = http::get(server.address(), "/metrics")
        .expect("a response")
        .body;
    let mut lines = page.lines();
    let count = lines.find_map(|line| line.strip_prefix("etcd_debugging_mvcc_watcher_total "))?;
    Some(count.to_owned())
}

#[test]
fn ht_23_a_closed_connection_cancels_its_watches() {
    let server = Revstore::start(&Options::default()).unwrap();
    let invalid = format!("{WATCH_FOO} nonsense");
    for (body, is_complete) in [(WATCH_FOO, false), (&invalid, false), (WATCH_FOO, true)] {
        let mut watch = open_watch(&server, body);
        if is_complete {
            // The chunk that ends the body.
            watch.get_mut().write_all(b"0\r\n\r\n").unwrap();
        }
        assert_eq!(watchers(&server).as_deref(), Some("1"));
        drop(watch);
        let is_unregistered = || (watchers(&server)? == "0").then_some(());
        assert_eq!(
            poll::until(poll::LIMIT, is_unregistered),
            Some(()),
            "{body}"
        );
    }
}

#[test]
fn ht_23_a_stream_accepts_further_requests() {
    let server = Revstore::start(&Options::default()).unwrap();
    let mut watch = open_watch(&server, WATCH_FOO);
    let cancel = r#"{"cancel_request":{}}"#;
    // One JSON object in two chunks.
    let (start, end) = cancel.split_at(5);
    for piece in [start, end] {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        watch.get_mut().write_all(chunk.as_bytes()).unwrap();
    }
    let mut line = String::new();
    while !line.contains("canceled") {
        line.clear();
        assert_ne!(watch.read_line(&mut line).unwrap(), 0);
    }
}

#[test]
fn fl_15_open_streams_end_with_server_stopped() {
    let server = Revstore::start(&Options::default()).unwrap();
    let mut watch = open_watch(&server, WATCH_FOO);
    drop(server);
    let mut rest = String::new();
    watch.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains(r#""message":"etcdserver: server stopped""#),
        "{rest}"
    );
}

#[test]
fn li_3_the_size_of_responses_is_not_limited() {
    let server = Revstore::start(&Options::default()).unwrap();
    for key in ["a", "b", "c", "d", "e"] {
        let value = vec![b'v'; 1_000_000];
        server.server().engine().put(key, value).unwrap();
    }
    let request = http::Request {
        method: "POST",
        path: "/v3/kv/range",
        headers: &[],
        body: r#"{"key":"YQ==","range_end":"eg=="}"#,
    };
    let response = request.send(server.address()).unwrap();
    assert_eq!(response.status, 200);
    // Base64 encodes 3 bytes as 4 letters.
    let letters = response.body.matches("dnZ2").count() * 4;
    assert!(letters > 5_000_000 / 3 * 4 - 100, "{letters}");
}

#[test]
fn requests_above_the_size_limits_fail() {
    let server = Revstore::start(&Options::default()).unwrap();
    let put = |value_bytes: usize| {
        let body = format!(
            r#"{{"key":"Zm9v","value":"{}"}}"#,
            "AAAA".repeat(value_bytes / 3)
        );
        let request = http::Request {
            method: "POST",
            path: "/v3/kv/put",
            headers: &[],
            body: &body,
        };
        let response = request.send(server.address()).unwrap();
        (response.status, response.body)
    };
    assert_eq!(put(1_572_837).0, 200);
    // LI-1
    let (status, body) = put(1_572_840);
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("etcdserver: request is too large"), "{body}");
    // LI-2
    let (status, body) = put(2_100_000);
    assert_eq!(status, 429, "{body}");
    assert!(
        body.contains("grpc: received message larger than max"),
        "{body}"
    );
}
