//! `KubeListWatch` against a small HTTP server with scripted answers, written in random pieces.

mod errors;
mod failures;
mod gzip;
mod http2;
mod server;
mod tls;

use std::sync::Arc;

use futures_util::StreamExt as _;
use pollster::block_on;
use revstore_reflector::kube::KubeListWatch;
use revstore_reflector::{Informer, ListWatch, Reflector, ReflectorEvent};
use revstore_watch_cache::{ListOptions, RequestError, Revision, WatchEvent, WatchOptions};

use crate::examples::controller;
use server::{After, Server, bookmark, event, list, pod, watch};

fn reflector(source: KubeListWatch) -> Reflector {
    Reflector::builder(Arc::new(source)).seed(1).build()
}

/// Returns the next events of a reflector as text.
fn next(reflector: &mut Reflector, events: usize) -> Vec<String> {
    let describe = |event| match event {
        ReflectorEvent::Init => "init".into(),
        ReflectorEvent::InitApply(object) => format!("init {}", object.store_key()),
        ReflectorEvent::InitDone(revision) => format!("done {revision}"),
        ReflectorEvent::Apply(object) => format!("apply {}@{}", object.name(), object.revision()),
        ReflectorEvent::Delete(object) => format!("delete {}@{}", object.name(), object.revision()),
        ReflectorEvent::Bookmark(revision) => format!("bookmark {revision}"),
        ReflectorEvent::Failed(error) => format!("failed {}: {error}", error.code()),
        other => unreachable!("unknown event {other:?}"),
    };
    (0..events)
        .map(|_| describe(block_on(reflector.next())))
        .collect()
}

fn fetch_list(source: &KubeListWatch) -> Result<Vec<String>, RequestError> {
    let list = block_on(source.list(ListOptions::default()))?;
    Ok(list
        .into_objects()?
        .iter()
        .map(|pod| pod.name().to_owned())
        .collect())
}

/// Returns the events of a watch until it ends, the error last.
fn fetch_watch(source: &KubeListWatch) -> Vec<WatchEvent> {
    let events = block_on(source.watch(WatchOptions::default())).unwrap();
    block_on(events.collect())
}

// Shows WC-503, WC-504 and WC-331.
#[test]
fn wc_331_lists_and_watches_are_read_wherever_the_bytes_are_cut() {
    for seed in 0..30 {
        let events = [
            event("ADDED", &pod("c", 7)),
            event("MODIFIED", &pod("a", 8)),
            bookmark(90, r#","creationTimestamp":null"#),
            event("DELETED", &pod("c", 91)),
        ];
        // Chunks contain parts of events, or several.
        let text = events.concat();
        let (one, two) = text.split_at(usize::try_from(seed * 17).unwrap() + 1);
        let server = Server::new(
            seed,
            [
                list(5, "next page/+", &[&pod("a", 3)]),
                list(5, "", &[&pod("b", 4)]),
                watch(&[one, two], After::Request),
                watch(&[], After::Hang),
            ],
        );
        let source = server
            .builder()
            .bearer_token("secret\n")
            .selector("app in (a,b)", "");
        let mut reflector = reflector(source.build().unwrap());
        assert_eq!(
            next(&mut reflector, 8),
            [
                "init",
                "init ns/a",
                "init ns/b",
                "done 5",
                "apply c@7",
                "apply a@8",
                "bookmark 90",
                "delete c@91"
            ],
            "seed {seed}"
        );
        let head = server.wait_for("GET ").to_lowercase();
        for header in [
            "authorization: bearer secret\r\n",
            "accept: application/json\r\n",
            "host: 127.0.0.1:",
        ] {
            assert!(head.contains(header), "{head}");
        }
        assert!(head.starts_with(
            "get /api/v1/pods?limit=500&resourceversion=0&labelselector=app%20in%20%28a%2cb%29 http/1.1\r\n"
        ));
        let targets = server.targets();
        assert_eq!(
            targets[0],
            "/api/v1/pods?limit=500&continue=next%20page%2F%2B&labelSelector=app%20in%20%28a%2Cb%29"
        );
        let watched =
            "/api/v1/pods?watch=true&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=";
        assert!(targets[1].starts_with(watched), "{}", targets[1]);
    }
}

// Shows WC-502 and WC-325.
#[test]
fn wc_502_a_watch_list_is_one_stream() {
    let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
    let text = event("ADDED", &pod("a", 3)) + &bookmark(9, end) + &event("ADDED", &pod("b", 10));
    let server = Server::new(4, [watch(&[&text], After::Hang)]);
    let source = Arc::new(server.builder().build().unwrap());
    let mut reflector = Reflector::builder(source)
        .mode(revstore_reflector::ReflectorMode::WatchList)
        .build();
    assert_eq!(
        next(&mut reflector, 4),
        ["init", "init ns/a", "done 9", "apply b@10"]
    );
    let targets = server.targets();
    assert!(targets[0].starts_with(
        "/api/v1/pods?watch=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&sendInitialEvents=true&timeoutSeconds="
    ));
}

#[test]
fn an_informer_on_a_thread_outside_of_the_runtime_follows_a_server() {
    let text = event("ADDED", &pod("b", 6)) + &event("DELETED", &pod("a", 7));
    let server = Server::new(
        1,
        [list(5, "", &[&pod("a", 3)]), watch(&[&text], After::Hang)],
    );
    let informer = Informer::builder(reflector(server.builder().build().unwrap())).build();
    let handle = informer.handle();
    let running = informer.spawn();
    block_on(handle.reached(Revision(7), None)).unwrap();
    assert_eq!(handle.store().keys(), ["ns/b"]);
    drop(running);
    // The end of the informer ends its requests.
    server.wait_for("closed");
}

/// The controller of the example, over this source instead of the embedded cache.
#[test]
fn a_controller_needs_no_other_change_than_its_source() {
    let with_node = |revision, node: &str| {
        let spec = format!("\"spec\":{{\"nodeName\":{node},");
        pod("a", revision).replace("\"spec\":{", &spec)
    };
    let bound = event("MODIFIED", &with_node(6, "\"n1\""));
    let server = Server::new(
        11,
        [
            list(5, "", &[&with_node(3, "null")]),
            watch(&[&bound], After::Hang),
        ],
    );
    // It is called if the controller sees the pod before another one has bound it.
    let bind = |key: &str, name: &str| {
        assert_eq!((key, name), ("ns/a", "a"));
        Ok(())
    };
    let source = server.builder().build().unwrap();
    controller::run(Arc::new(source), bind, |bound| bound == 1);
}

#[test]
fn pages_share_a_connection_and_a_closed_one_is_replaced() {
    let mut last = list(5, "", &[&pod("b", 4)]);
    last.after = After::Close;
    let server = Server::new(
        2,
        [
            list(5, "t", &[]),
            last,
            list(6, "", &[]),
            watch(&[], After::Request),
        ],
    );
    let source = server.builder().build().unwrap();
    for names in [vec![], vec!["b"], vec![]] {
        assert_eq!(fetch_list(&source).unwrap(), names);
    }
    assert!(fetch_watch(&source).is_empty());
    let accepted = server
        .log
        .try_iter()
        .filter(|line| line == "accepted")
        .count();
    assert_eq!(accepted, 3, "two for the lists, one for the watch");
}

// Shows WC-505.
#[test]
fn wc_505_a_watch_that_is_cut_continues_after_its_last_whole_event() {
    let (first, second) = (event("ADDED", &pod("a", 6)), event("ADDED", &pod("b", 7)));
    for cut in [1, 20, second.len() - 2] {
        let server = Server::new(
            3,
            [
                list(5, "", &[]),
                watch(&[&first, &second[..cut]], After::Close),
                watch(&[&second], After::Hang),
            ],
        );
        let mut reflector = reflector(server.builder().build().unwrap());
        assert_eq!(
            next(&mut reflector, 4),
            ["init", "done 5", "apply a@6", "apply b@7"]
        );
        let targets = server.targets();
        assert!(
            targets[2].contains("watch=true&resourceVersion=6&"),
            "{}",
            targets[2]
        );
    }
}
