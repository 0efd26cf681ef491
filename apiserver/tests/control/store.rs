//! Replacements of the store, and forks.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use revstore::EndpointUrl;
use revstore_apiserver::control_api::store::DumpForm;
use revstore_apiserver::{ClockMode, ListenUrl};
use serde_json::{Value, json};

use crate::client::exchange::exchange_with_host;
use crate::client::{Watch, send_to, value};
use crate::fixture::{Fixture, MAPS, names, version};

#[test]
fn a_restore_brings_back_objects_definitions_and_policies() {
    let fixture = Fixture::new(ClockMode::Manual);
    let definition = json!({
        "metadata": {"name": "toys.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    fixture.put("a", "old");
    fixture.ok("StoreCheckpoint", &json!({"name": "bare"}));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(fixture.send("POST", path, &definition.to_string()).0, 201);
    let toys = "/apis/example.com/v1/namespaces/default/toys";
    while fixture.send("GET", toys, "").0 != 200 {}
    let toy = json!({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "t"}});
    assert_eq!(fixture.send("POST", toys, &toy.to_string()).0, 201);
    fixture.put("a", "new");
    fixture.ok("StoreCheckpoint", &json!({"name": "toys"}));

    fixture.ok("StoreRestore", &json!({"name": "bare"}));
    assert_eq!(fixture.send("GET", toys, "").0, 404);
    let read = fixture.send("GET", &format!("{MAPS}/a"), "").1;
    assert_eq!(read["data"]["text"], "old");
    fixture.ok("StoreRestore", &json!({"name": "toys"}));
    while fixture.send("GET", toys, "").0 != 200 {}
    assert_eq!(names(&fixture.send("GET", toys, "").1), ["t"]);
    let read = fixture.send("GET", &format!("{MAPS}/a"), "").1;
    assert_eq!(read["data"]["text"], "new");
}

#[test]
fn after_a_reset_a_client_sees_a_fresh_cluster() {
    let fixture = Fixture::new(ClockMode::Manual);
    let fresh = names(&fixture.send("GET", "/api/v1/namespaces", "").1).join(" ");
    fixture.put("a", "");
    let namespace = json!({"metadata": {"name": "team"}}).to_string();
    assert_eq!(
        fixture.send("POST", "/api/v1/namespaces", &namespace).0,
        201
    );
    fixture.ok("ClockAdvance", &json!({"by": "1h"}));
    let before = fixture.send("GET", &format!("{MAPS}/a"), "").1;
    fixture.ok("StoreReset", &json!({}));
    assert_eq!(
        names(&fixture.send("GET", "/api/v1/namespaces", "").1).join(" "),
        fresh
    );
    assert_eq!(fixture.send("GET", &format!("{MAPS}/a"), "").0, 404);
    // The time of day does not go back.
    fixture.put("a", "");
    let after = fixture.send("GET", &format!("{MAPS}/a"), "").1;
    let created = |object: &Value| {
        object["metadata"]["creationTimestamp"]
            .as_str()
            .map(str::to_owned)
    };
    assert!(created(&after) > created(&before));
    // Addresses of services are free again.
    let services = fixture
        .send("GET", "/api/v1/namespaces/default/services", "")
        .1;
    assert_eq!(names(&services), ["kubernetes"]);
}

#[test]
fn a_jump_raises_the_revision_and_watches_end() {
    let fixture = Fixture::new(ClockMode::System);
    let at = fixture.put("a", "");
    let mut watch = Watch::open(
        &fixture.server,
        &format!("{MAPS}?watch=true&resourceVersion={at}"),
    );
    fixture.ok("Wait", &json!({"watchers": 1}));
    fixture.ok("StoreJump", &json!({"revision": 5_000}));
    assert_eq!(watch.next(), None);
    assert_eq!(fixture.put("a", "2"), 5_000);
}

#[test]
fn the_history_before_a_raised_revision_is_kept() {
    let fixture = Fixture::new(ClockMode::Manual);
    let raise = |method: &str, body: &Value, next: i64| {
        let first = fixture.put("a", "1");
        let second = fixture.put("a", "2");
        fixture.ok("StoreCheckpoint", &json!({"name": "c"}));
        fixture.ok(method, body);
        // Answered by a cache that no event has brought to the current revision.
        let list = fixture.send("GET", MAPS, "").1;
        assert_eq!((names(&list)[0], version(&list)), ("a", next - 1));
        let at = |revision: i64| {
            let field = format!("Revstore-At-Revision: {revision}\r\n");
            let (status, object) = fixture.get_with(&format!("{MAPS}/a"), &field);
            assert_eq!(status, 200, "{object}");
            object["data"]["text"].clone()
        };
        assert_eq!(
            [first, second, next - 1].map(at),
            [json!("1"), json!("2"), json!("2")]
        );
        let watch = format!("{MAPS}?watch=true&resourceVersion={first}");
        let mut watch = Watch::open(&fixture.server, &watch);
        let mut texts = || {
            watch
                .next()
                .map(|event| event["object"]["data"]["text"].clone())
        };
        assert_eq!(texts(), Some(json!("2")));
        assert_eq!(fixture.put("a", "3"), next);
        assert_eq!(texts(), Some(json!("3")));
    };
    raise("StoreJump", &json!({"revision": 5_000}), 5_000);
    // The next round writes two revisions before the raise.
    let restore = json!({"name": "c", "bump_revision": 1_000});
    raise("StoreRestore", &restore, 6_003);
}

#[test]
fn a_fork_is_independent_and_ends_with_a_drop() {
    let fixture = Fixture::with(ClockMode::Manual, |builder| {
        builder.etcd_listen([ListenUrl::localhost(0)])
    });
    fixture.put("a", "old");
    let fork = fixture.ok("StoreFork", &json!({}));
    let url = fork["endpoint"].as_str().expect("a URL");
    assert!(
        fork["kubeconfig"]
            .as_str()
            .is_some_and(|text| text.contains("clusters:"))
    );
    let at = |path: &str| value(&send_to(url, "GET", path, ""));
    assert_eq!(at(&format!("{MAPS}/a")).1["data"]["text"], "old");
    let object = json!({"metadata": {"name": "b"}}).to_string();
    assert_eq!(send_to(url, "POST", MAPS, &object).0, 201);
    assert_eq!(fixture.send("GET", &format!("{MAPS}/b"), "").0, 404);
    fixture.put("a", "new");
    assert_eq!(at(&format!("{MAPS}/a")).1["data"]["text"], "old");
    fixture.ok("StoreDrop", &json!({"id": fork["id"]}));
    let address = url.trim_start_matches("http://");
    while std::net::TcpStream::connect(address).is_ok() {}
}

/// Returns the number of config maps with the name `a` in a store, over etcd's API.
fn count_over_etcd(url: &str) -> String {
    let range = json!({"key": "L3JlZ2lzdHJ5L2NvbmZpZ21hcHMvZGVmYXVsdC9h", "count_only": true});
    let answer = value(&send_to(url, "POST", "/v3/kv/range", &range.to_string()));
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1["count"].as_str().unwrap_or("0").to_owned()
}

#[test]
fn a_fork_serves_its_own_store_over_the_api_of_etcd() {
    let fixture = Fixture::with(ClockMode::Manual, |builder| {
        builder.etcd_listen([ListenUrl::localhost(0)])
    });
    fixture.put("a", "");
    let fork = fixture.ok("StoreFork", &json!({}));
    assert_eq!(
        fixture.ok("StoreForks", &json!({}))["forks"][0]["etcd_endpoints"],
        fork["etcd_endpoints"]
    );
    let [url] = &fork["etcd_endpoints"].as_array().expect("a list")[..] else {
        panic!("one port: {fork}");
    };
    let url = url.as_str().expect("a URL");
    assert_ne!(url, fixture.server.etcd_endpoints()[0]);
    assert_eq!(
        send_to(
            fork["endpoint"].as_str().expect("a URL"),
            "DELETE",
            &format!("{MAPS}/a"),
            ""
        )
        .0,
        200
    );
    assert_eq!(count_over_etcd(url), "0");
    assert_eq!(count_over_etcd(&fixture.server.etcd_endpoints()[0]), "1");
    // The fork of a server without this port has none either.
    let fork = Fixture::new(ClockMode::Manual).ok("StoreFork", &json!({}));
    assert_eq!(fork["etcd_endpoints"], json!([]));
}

#[test]
fn the_reset_of_a_fork_loads_the_manifests() {
    let directory = tempfile::tempdir().expect("a directory");
    let manifest =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: loaded, namespace: default}\n";
    std::fs::write(directory.path().join("a.yaml"), manifest).expect("a file");
    let fixture = Fixture::with(ClockMode::Manual, |builder| builder.load(directory.path()));
    let loaded = format!("{MAPS}/loaded");
    assert_eq!(fixture.send("DELETE", &loaded, "").0, 200);
    let fork = fixture
        .server
        .control()
        .expect("control")
        .fork()
        .expect("a fork");
    // The store of a fork does not begin empty.
    assert_eq!(send_to(&fork.endpoint, "GET", &loaded, "").0, 404);
    let address = fork.control.trim_start_matches("http://");
    let reset = exchange_with_host(
        address,
        "POST",
        "/control/v1/StoreReset",
        "Content-Type: application/json\r\n",
        "{}",
    );
    assert_eq!(reset.0, 200, "{}", reset.1);
    assert_eq!(send_to(&fork.endpoint, "GET", &loaded, "").0, 200);
    assert_eq!(fixture.send("GET", &loaded, "").0, 404);
}

#[test]
fn the_port_of_the_api_of_etcd_stays_open_while_the_store_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("etcd.sock");
    let url = EndpointUrl::parse(&format!("unix://{}", path.display())).expect("a URL");
    let url = ListenUrl::try_from(url).expect("a URL to listen on");
    let fixture = Fixture::with(ClockMode::System, |builder| builder.etcd_listen([url]));
    let number = || path.metadata().expect("a socket").ino();
    let before = number();
    // Another name of the file keeps its number from being used again.
    std::fs::hard_link(&path, directory.path().join("kept")).expect("a link");
    for _ in 0..3 {
        fixture.ok("StoreReset", &json!({}));
        assert_eq!(number(), before);
        UnixStream::connect(&path).expect("a port that is served");
    }
    fixture.server.stop();
    assert!(!path.exists());
}

#[test]
fn the_store_over_the_api_of_etcd_follows_a_replacement() {
    let fixture = Fixture::with(ClockMode::System, |builder| {
        builder.etcd_listen([ListenUrl::localhost(0)])
    });
    let count = || count_over_etcd(&fixture.server.etcd_endpoints()[0]);
    fixture.put("a", "");
    assert_eq!(count(), "1");
    fixture.ok("StoreReset", &json!({}));
    assert_eq!(count(), "0");
}

#[test]
fn no_watch_has_events_of_two_histories_while_the_store_is_restored() {
    const RESTORES: usize = 8;
    let fixture = Fixture::new(ClockMode::System);
    fixture.put("base", "");
    fixture.ok("StoreCheckpoint", &json!({"name": "base"}));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..10 {
            let (fixture, is_over) = (&fixture, &is_over);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("w{writer}-{number}");
                    let object = json!({"metadata": {"name": name}}).to_string();
                    fixture.send("POST", MAPS, &object);
                }
            });
        }
        for _ in 0..10 {
            let (fixture, is_over) = (&fixture, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let path = format!("{MAPS}?watch=true&timeoutSeconds=1");
                    let mut watch = Watch::open(&fixture.server, &path);
                    let mut last = 0;
                    // A connection without a request breaks off when the store is replaced.
                    let (events, _) = watch.rest();
                    for event in events.into_iter().skip_while(|event| {
                        // Those of the initial objects are in the order of their names.
                        event["object"]["metadata"]["name"] == "base"
                    }) {
                        if event["code"] == 429 {
                            // The request has met a front that ends.
                            break;
                        }
                        let revision = version(&event["object"]);
                        if event["type"] != "ADDED" {
                            assert!(revision > last, "{revision} after {last}");
                        }
                        last = last.max(revision);
                    }
                }
            });
        }
        for _ in 0..RESTORES {
            fixture.ok("StoreRestore", &json!({"name": "base"}));
            fixture.put("base", "changed");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    fixture.ok("StoreRestore", &json!({"name": "base"}));
    assert!(names(&fixture.send("GET", MAPS, "").1).contains(&"base"));
}

#[test]
fn a_dump_is_loaded_again() {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.put("a", "kept");
    let control = fixture.server.control().expect("control");
    let mut dump = Vec::new();
    control
        .dump(DumpForm::Text, &mut dump)
        .expect("the store is dumped");
    fixture.ok("StoreReset", &json!({}));
    assert_eq!(fixture.send("GET", &format!("{MAPS}/a"), "").0, 404);
    control.load(&dump).expect("the dump is valid");
    let read = fixture.send("GET", &format!("{MAPS}/a"), "").1;
    assert_eq!(read["data"]["text"], "kept");
    control
        .load(&dump[..dump.len() / 2])
        .expect_err("the dump is cut");
    assert_eq!(fixture.send("GET", &format!("{MAPS}/a"), "").0, 200);
}

#[test]
fn writes_while_the_store_is_replaced_succeed_or_can_be_tried_again() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let fixture = Fixture::new(ClockMode::System);
    let is_done = AtomicBool::new(false);
    let (sender, began) = std::sync::mpsc::channel();
    let body = |index: usize| json!({"metadata": {"name": format!("m{index}")}}).to_string();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (fixture, is_done, sender) = (&fixture, &is_done, sender.clone());
                scope.spawn(move || {
                    for index in (writer..).step_by(2) {
                        if is_done.load(Ordering::Relaxed) {
                            break;
                        }
                        // A connection can end without an answer.
                        let answer = answer_of(fixture.server.endpoint(), &body(index));
                        let Some((status, text)) = answer else {
                            continue;
                        };
                        assert!([201, 429].contains(&status), "{text}");
                        assert!(status == 201 || text.contains("retry-after: 1"), "{text}");
                        if status == 201 {
                            // Nobody may listen any more.
                            let _ = sender.send(());
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        for _ in 0..20 {
            began.recv().expect("the writers write");
            fixture.ok("StoreReset", &json!({"keep_revision": true}));
        }
        is_done.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("writes have these answers");
        }
    });
}

/// Sends a create, and returns the status and the answer, or `None` if the connection ends.
fn answer_of(endpoint: &str, body: &str) -> Option<(u16, String)> {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    let address = endpoint.split("://").last()?;
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text))
}
