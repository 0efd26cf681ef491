//! T-24 to T-27: watches with selectors.

use pollster::block_on;
use revstore_watch_cache::{EventType, Scope, WatchEvent};

use super::select;
use crate::support::{Fixture, Side, from, namespace, object, on_both, pod};

#[test]
fn t_24_an_object_that_enters_a_selector_is_added_and_one_that_leaves_is_deleted() {
    on_both(|fixture, store, _| {
        fixture.put_elsewhere();
        for scope in [namespace("ns"), Scope::Object(object("ns/a"))] {
            fixture.wait_until_fresh();
            let start = fixture.current();
            let mut events = fixture.watch(store, &scope, &select(from(start), "app=web", ""));
            let write = |app: &str| fixture.put("ns/a", pod("ns/a", app, ""));
            write("db");
            let into = write("web");
            let change = fixture.put("ns/a", pod("ns/a", "web", "n1"));
            let out = write("db");
            write("other");
            let again = write("web");
            fixture.put("ns2/a", pod("ns2/a", "web", ""));
            let deleted = fixture.delete("ns/a");
            let created = write("web");
            assert_eq!(
                events.words(6),
                [
                    format!("ADDED ns/a@{into}"),
                    format!("MODIFIED ns/a@{change}"),
                    format!("DELETED ns/a@{out}"),
                    format!("ADDED ns/a@{again}"),
                    format!("DELETED ns/a@{deleted}"),
                    // WC-352
                    format!("ADDED ns/a@{created}"),
                ]
            );
            fixture.delete("ns/a");
            events.word();
        }
    });
}

// Shows WC-106.
#[test]
fn t_24_an_object_that_leaves_the_selector_is_sent_with_its_previous_content() {
    on_both(|fixture, store, _| {
        let start = fixture.put("ns/a", pod("ns/a", "web", "n1"));
        fixture.wait_until_fresh();
        let mut events = fixture.watch(store, &Scope::All, &select(from(start), "app=web", ""));
        let out = fixture.put("ns/a", pod("ns/a", "db", "n2"));
        let Some(WatchEvent::Object { event, object, .. }) = events.next() else {
            panic!("expected an event of an object")
        };
        assert_eq!((event, object.revision().0), (EventType::Deleted, out));
        assert_eq!(
            object.label("app"),
            Some("web"),
            "previous content (WC-350)"
        );
        let line = fixture.pods.encode(&WatchEvent::Object {
            event,
            object,
            shared: revstore_watch_cache::api::SharedEncoding::default(),
        });
        let line = std::str::from_utf8(&line).unwrap();
        assert!(
            line.contains(&format!("\"resourceVersion\":\"{out}\"")),
            "{line}"
        );
    });
}

#[test]
fn t_25_watches_of_cluster_scoped_resources_select_by_name() {
    use bytes::Bytes;
    use revstore_watch_cache::api::{Storage, Update, UpdateOptions};
    use revstore_watch_cache::source::RawStore;
    use revstore_watch_cache::{JsonKind, Object, ObjectRef, ResourceConfig, WatchCache};
    let fixture = Fixture::new();
    let nodes = ResourceConfig::cluster(JsonKind::new("v1", "Node"), "nodes", "/registry/nodes");
    let clock = std::sync::Arc::new(fixture.clock.clone());
    let raw = RawStore::new(fixture.source.clone(), nodes.clone(), clock);
    let (cache, feeder) = WatchCache::builder(fixture.source.clone()).build();
    let cached = cache.add(nodes).unwrap();
    let _running = feeder.spawn();
    block_on(cached.wait_until_ready()).unwrap();
    let write = |name: &str, value: &str| {
        let (object, value) = (ObjectRef::cluster(name), Bytes::from(value.to_owned()));
        let options = UpdateOptions::default().create_if_missing(true);
        let update = Box::new(move |_: Option<&Object>| Ok(Update::new(value.clone())));
        let written = raw.guaranteed_update(&object, &options, update);
        fixture.wait(written).unwrap().revision().0
    };
    let stores: [&dyn Storage; 2] = [&raw, &cached];
    let mut watches: Vec<_> = stores
        .iter()
        .flat_map(|store| {
            let named = select(from(1), "", "metadata.name=b");
            [
                fixture.watch(*store, &Scope::All, &named),
                fixture.watch(*store, &Scope::All, &from(1)),
            ]
        })
        .collect();
    let plain = "{\"metadata\":{}}";
    let (a, b) = (write("a", plain), write("b", plain));
    let changed = "{\"metadata\":{},\"spec\":{}}";
    let (a2, b2) = (write("a", changed), write("b", changed));
    for pair in watches.chunks_mut(2) {
        assert_eq!(
            pair[0].words(2),
            [format!("ADDED b@{b}"), format!("MODIFIED b@{b2}")]
        );
        assert_eq!(
            pair[1].words(4),
            [
                format!("ADDED a@{a}"),
                format!("ADDED b@{b}"),
                format!("MODIFIED a@{a2}"),
                format!("MODIFIED b@{b2}")
            ]
        );
    }
}

// Shows WC-102 and WC-122.
#[test]
fn t_26_every_combination_of_scope_and_selectors_gets_its_events() {
    on_both(|fixture, store, side| {
        let start = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        let scopes = [Scope::All, namespace("ns1"), Scope::Object(object("ns1/a"))];
        let fields = [
            "",
            "metadata.name=a",
            "metadata.namespace=ns1",
            "metadata.namespace=ns2",
            "metadata.namespace=ns1,metadata.name=a",
            "spec.nodeName=n1",
            "spec.nodeName!=n1",
            "spec.nodeName=n1,metadata.name=a",
            "spec.nodeName!=n1,metadata.namespace=ns1",
        ];
        let mut watches = Vec::new();
        for scope in &scopes {
            for fields in fields {
                let watch = fixture.watch(store, scope, &select(from(start), "", fields));
                watches.push((scope.clone(), fields, watch));
            }
        }
        let made: Vec<_> = [
            ("ns1/a", "n1"),
            ("ns1/b", "n1"),
            ("ns1/c", "n2"),
            ("ns2/a", "n1"),
            ("ns2/b", "n2"),
        ]
        .map(|(key, node)| (key, node, fixture.put(key, pod(key, "", node))))
        .into();
        for (scope, fields, watch) in &mut watches {
            let wanted = made.iter().filter(|(key, node, _)| {
                let in_scope = match scope {
                    Scope::All => true,
                    Scope::Namespace(namespace) => key.starts_with(&format!("{namespace}/")),
                    Scope::Object(_) => *key == "ns1/a",
                };
                in_scope
                    && fields.split(',').all(|term| match term {
                        "" => true,
                        "metadata.name=a" => key.ends_with("/a"),
                        "metadata.namespace=ns1" => key.starts_with("ns1/"),
                        "metadata.namespace=ns2" => key.starts_with("ns2/"),
                        "spec.nodeName=n1" => *node == "n1",
                        "spec.nodeName!=n1" => *node != "n1",
                        other => panic!("unknown term {other:?}"),
                    })
            });
            let expected: Vec<_> = wanted
                .map(|(key, _, revision)| format!("ADDED {key}@{revision}"))
                .collect();
            assert_eq!(watch.words(expected.len()), expected, "{scope:?} {fields}");
            fixture.wait_until_fresh();
            // Over a network, more events may still arrive after this poll.
            let is_complete = side == Side::Cached || fixture.is_in_process();
            assert!(!is_complete || watch.is_silent(), "{scope:?} {fields}");
        }
    });
}

// Shows WC-121.
#[test]
fn t_27_a_pod_that_moves_is_deleted_for_one_node_and_added_for_the_other() {
    on_both(|fixture, store, _| {
        let start = fixture.put("ns/a", pod("ns/a", "", "n1"));
        fixture.wait_until_fresh();
        let on = |node: &str| {
            let fields = format!("spec.nodeName={node}");
            fixture.watch(store, &Scope::All, &select(from(start), "", &fields))
        };
        let (mut one, mut two) = (on("n1"), on("n2"));
        let moved = fixture.put("ns/a", pod("ns/a", "", "n2"));
        assert_eq!(one.word(), format!("DELETED ns/a@{moved}"));
        assert_eq!(two.word(), format!("ADDED ns/a@{moved}"));
    });
}
