//! Forms: objects, lists and events as tables, metadata and JSON, encoded once for all clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pollster::block_on;
use revstore_watch_cache::encode::{
    ControlEvent, Encoder, Form, FormId, IncludeObject, JsonForm, ListHead, MetaVersion,
    MetadataForm, TableColumn, TableForm,
};
use revstore_watch_cache::{
    CacheWatcher, EventType, GetOptions, ListOptions, Object, ResourceCache, Scope, WatchOptions,
};
use serde_json::{Value, json};

use crate::support::{Fixture, PODS, at, config, from, object, on_both, pod};

const METADATA: FormId = FormId(1);
const TABLE: FormId = FormId(2);
const SECOND: Duration = Duration::from_secs(1);

fn whole() -> Arc<dyn Form> {
    Arc::new(JsonForm::new("v1", "Pod").typed().untyped_items())
}

fn table(column: &str) -> TableForm {
    let columns = [
        TableColumn::new("Name", "string").format("name"),
        TableColumn::new(column, "string")
            .description("the \"node\"")
            .priority(1),
    ];
    TableForm::new(whole(), &columns, |pod| {
        let json: Value = serde_json::from_slice(&pod.to_json()).unwrap();
        vec![pod.name().into(), json["spec"]["nodeName"].clone()]
    })
}

/// A form that counts what it writes.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Form>,
    events: AtomicU64,
    items: AtomicU64,
}

impl Counting {
    fn of(inner: impl Form) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(inner),
            events: AtomicU64::new(0),
            items: AtomicU64::new(0),
        })
    }

    fn take_events(&self) -> u64 {
        self.events.swap(0, Ordering::Relaxed)
    }

    fn take_items(&self) -> u64 {
        self.items.swap(0, Ordering::Relaxed)
    }
}

impl Form for Counting {
    fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        self.inner.write_object(object, out);
    }
    fn write_event(&self, event: EventType, object: &Object, is_first: bool, out: &mut Vec<u8>) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.inner.write_event(event, object, is_first, out);
    }
    fn write_control_event(&self, event: ControlEvent<'_>, is_first: bool, out: &mut Vec<u8>) {
        self.inner.write_control_event(event, is_first, out);
    }
    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>) {
        self.inner.write_list_head(list, out);
    }
    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        self.items.fetch_add(1, Ordering::Relaxed);
        self.inner.write_item(object, out);
    }
    fn separator(&self) -> &[u8] {
        self.inner.separator()
    }
    fn write_list_tail(&self, list: &ListHead, out: &mut Vec<u8>) {
        self.inner.write_list_tail(list, out);
    }
    fn differs_in_first_event(&self) -> bool {
        self.inner.differs_in_first_event()
    }
    fn shares_items(&self) -> bool {
        self.inner.shares_items()
    }
    fn shared_for(&self) -> Option<Duration> {
        self.inner.shared_for()
    }
}

/// A fixture with the forms, each counted, and the forms.
fn fixture() -> (Fixture, [Arc<Counting>; 3]) {
    let forms = [
        Counting::of(JsonForm::new("v1", "Pod")),
        Counting::of(MetadataForm::of(whole())),
        Counting::of(table("Node")),
    ];
    let mut with_forms = config();
    for (id, form) in [FormId::DEFAULT, METADATA, TABLE].into_iter().zip(&forms) {
        with_forms = with_forms.form(id, form.clone());
    }
    (Fixture::with(with_forms, |builder| builder), forms)
}

fn encoder(pods: &ResourceCache, form: FormId) -> Encoder {
    pods.encoder(form).expect("the resource has the form")
}

fn open(pods: &ResourceCache, options: &WatchOptions) -> CacheWatcher {
    block_on(pods.watch(&Scope::All, options)).unwrap()
}

/// Returns the encoded events that are ready.
fn frames(watch: &mut CacheWatcher, encoder: &mut Encoder) -> Vec<Bytes> {
    std::iter::from_fn(|| watch.try_next())
        .map(|event| encoder.event(&event))
        .collect()
}

fn values(frames: &[Bytes]) -> Vec<Value> {
    let value = |frame: &Bytes| {
        assert_eq!(frame.last(), Some(&b'\n'));
        serde_json::from_slice(frame).unwrap()
    };
    frames.iter().map(value).collect()
}

fn list_of(pods: &ResourceCache, form: FormId, options: &ListOptions) -> Value {
    let list = block_on(pods.list(&Scope::All, options)).unwrap();
    let chunks: Vec<_> = encoder(pods, form)
        .list(list)
        .collect::<Result<_, _>>()
        .unwrap();
    serde_json::from_slice(&chunks.concat()).unwrap()
}

#[test]
fn wc_142_an_event_is_encoded_once_for_each_form_and_type() {
    let (fixture, forms) = fixture();
    let pods = &fixture.pods;
    let start = fixture.current();
    let ids = [FormId::DEFAULT, METADATA, TABLE];
    let mut watches: Vec<_> = ids
        .iter()
        .flat_map(|id| (0..20).map(|_| (open(pods, &from(start)), encoder(pods, *id))))
        .collect();
    fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.put("ns/a", pod("ns/a", "web", "n2"));
    fixture.delete("ns/a");
    fixture.wait_until_fresh();
    let all: Vec<_> = watches
        .iter_mut()
        .map(|(watch, encoder)| frames(watch, encoder))
        .collect();
    for (number, form) in forms.iter().enumerate() {
        let same = &all[20 * number..20 * (number + 1)];
        for frames in same {
            assert_eq!(frames.len(), 3);
            for (frame, first) in frames.iter().zip(&same[0]) {
                assert_eq!(frame.as_ptr(), first.as_ptr(), "the same memory");
            }
        }
        assert_eq!(form.take_events(), 3, "{number}");
    }
    assert_eq!(pods.metrics().events_encoded, 9);
    // A watch that starts later is not the first one of its form, but its first event has columns.
    let mut later = (open(pods, &from(start + 1)), encoder(pods, TABLE));
    let frames = frames(&mut later.0, &mut later.1);
    assert_eq!(forms[2].take_events(), 1);
    let has_columns = |frame: &Value| !frame["object"]["columnDefinitions"].is_null();
    let columns: Vec<_> = values(&frames).iter().map(has_columns).collect();
    assert_eq!(columns, [true, false]);
}

#[test]
fn wc_333_events_of_tables_have_columns_first_and_one_row() {
    let (fixture, _) = fixture();
    let pods = &fixture.pods;
    let start = fixture.current();
    let mut watch = open(pods, &from(start).allow_bookmarks(true));
    let mut table = encoder(pods, TABLE);
    fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.delete("ns/a");
    fixture.wait_until_fresh();
    let row = |version: i64| {
        let object = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {
                "name": "a", "uid": "uid-a", "labels": {"app": "web"},
                "resourceVersion": version.to_string(),
            },
        });
        json!({"cells": ["a", "n1"], "object": object})
    };
    let event = |name: &str, version: i64, columns: Value, row: Value| {
        let object = json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": version.to_string()},
            "columnDefinitions": columns, "rows": [row],
        });
        json!({"type": name, "object": object})
    };
    let columns = json!([
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "Node", "type": "string", "format": "", "description": "the \"node\"",
         "priority": 1},
    ]);
    let expected = [
        event("ADDED", start + 1, columns.clone(), row(start + 1)),
        event("DELETED", start + 2, Value::Null, row(start + 2)),
    ];
    assert_eq!(values(&frames(&mut watch, &mut table)), expected);

    // A bookmark is a table too, an error is not.
    fixture.clock.advance(60 * SECOND);
    let bookmark = &values(&frames(&mut watch, &mut table))[0];
    let object = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": (start + 2).to_string()},
    });
    let row = json!({"cells": ["", null], "object": object});
    assert_eq!(
        *bookmark,
        event("BOOKMARK", start + 2, Value::Null, row.clone())
    );
    let mut empty = open(pods, &from("0").allow_bookmarks(true));
    let first = &values(&frames(&mut empty, &mut encoder(pods, TABLE)))[0];
    assert_eq!(first["object"]["columnDefinitions"], columns);
    let annotations = &first["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(*annotations, json!({"k8s.io/initial-events-end": "true"}));
    fixture.compact(start + 2);
    for form in [TABLE, METADATA] {
        let raw = fixture.watch(&fixture.raw, &Scope::All, &from("1")).next();
        let error = encoder(pods, form).event(&raw.unwrap());
        let error: Value = serde_json::from_slice(&error).unwrap();
        assert_eq!(
            (&error["type"], &error["object"]["kind"]),
            (&json!("ERROR"), &json!("Status"))
        );
    }
}

#[test]
fn wc_422_metadata_has_all_metadata_and_nothing_else() {
    on_both(|fixture, store, _| {
        let pods = &fixture.pods;
        pods.set_form(METADATA, Arc::new(MetadataForm::of(whole())));
        let put = fixture.put("ns/a", pod("ns/a", "web", "n1"));
        fixture.wait_until_fresh();
        let metadata = json!({
            "name": "a", "uid": "uid-a", "labels": {"app": "web"}, "resourceVersion": put.to_string(),
        });
        let partial = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        });
        let key = object("ns/a");
        let get = GetOptions::default();
        let found = fixture.wait(store.get(&key, &get)).unwrap().unwrap();
        let bytes = encoder(pods, METADATA).object(&found);
        let found: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(found, partial);

        let options = ListOptions::default();
        let list = fixture.wait(store.list(&Scope::All, &options)).unwrap();
        let chunks = encoder(pods, METADATA).list(list);
        let bytes = chunks.collect::<Result<Vec<_>, _>>().unwrap().concat();
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": list["metadata"]["resourceVersion"]},
            "items": [partial],
        });
        assert_eq!(list, expected);

        let mut watch = fixture.watch(store, &Scope::All, &from("0").allow_bookmarks(true));
        let mut encoder = encoder(pods, METADATA);
        let mut next =
            || -> Value { serde_json::from_slice(&encoder.event(&watch.next().unwrap())).unwrap() };
        assert_eq!(next(), json!({"type": "ADDED", "object": partial}));
        let end = next();
        assert_eq!(end["object"]["kind"], "PartialObjectMetadata");
        let annotations = &end["object"]["metadata"]["annotations"];
        assert_eq!(*annotations, json!({"k8s.io/initial-events-end": "true"}));
    });
}

#[test]
fn wc_142_watches_that_start_with_the_same_objects_share_their_encodings() {
    let (fixture, forms) = fixture();
    let pods = &fixture.pods;
    for number in 0..100 {
        let key = format!("ns/p{number:02}");
        fixture.put(&key, pod(&key, "web", "n1"));
    }
    fixture.wait_until_fresh();
    for (id, form) in [FormId::DEFAULT, METADATA].into_iter().zip(&forms) {
        let all: Vec<_> = (0..20)
            .map(|_| frames(&mut open(pods, &from("0")), &mut encoder(pods, id)))
            .collect();
        for frames in &all {
            assert_eq!(frames.len(), 100);
            let same = |(a, b): (&Bytes, &Bytes)| a.as_ptr() == b.as_ptr();
            assert!(frames.iter().zip(&all[0]).all(same));
        }
        assert_eq!(form.take_events(), 100);
    }
    // The rows of tables depend on the time.
    let table = &forms[2];
    for (time, expected) in [(0, 100), (0, 0), (1000, 0), (1, 100), (0, 0)] {
        fixture.clock.advance(Duration::from_millis(time));
        let frames = frames(&mut open(pods, &from("0")), &mut encoder(pods, TABLE));
        assert_eq!((frames.len(), table.take_events()), (100, expected));
    }
    // An object that changes is encoded again.
    fixture.put("ns/p00", pod("ns/p00", "db", "n2"));
    fixture.wait_until_fresh();
    let frames = frames(&mut open(pods, &from("0")), &mut encoder(pods, METADATA));
    assert_eq!(forms[1].take_events(), 1);
    let first = &values(&frames)[0];
    assert_eq!(first["object"]["metadata"]["labels"], json!({"app": "db"}));
}

#[test]
fn wc_142_lists_and_their_pages_share_the_items_that_are_expensive() {
    let (fixture, forms) = fixture();
    let pods = &fixture.pods;
    for number in 0..500 {
        let key = format!("ns/p{number:03}");
        fixture.put(&key, pod(&key, "web", "n1"));
    }
    fixture.wait_until_fresh();
    for (id, form, items, once) in [
        (FormId::DEFAULT, &forms[0], "items", false),
        (METADATA, &forms[1], "items", true),
        (TABLE, &forms[2], "rows", true),
    ] {
        let all = list_of(pods, id, &at("0"));
        assert_eq!(all[items].as_array().unwrap().len(), 500);
        assert_eq!(form.take_items(), 500);
        assert_eq!(list_of(pods, id, &ListOptions::default()), all);
        assert_eq!(form.take_items(), if once { 0 } else { 500 });
        // The pages together are the list.
        let mut found = Vec::new();
        let mut options = ListOptions::default().limit(150);
        loop {
            let page = list_of(pods, id, &options);
            assert_eq!(
                page["metadata"]["resourceVersion"],
                all["metadata"]["resourceVersion"]
            );
            let left = page["metadata"]["remainingItemCount"].as_u64();
            found.extend(page[items].as_array().unwrap().clone());
            assert_eq!(left.unwrap_or(0), 500 - found.len() as u64);
            let Some(token) = page["metadata"]["continue"].as_str() else {
                break;
            };
            options = options.continue_token(token);
        }
        assert_eq!(all[items], Value::Array(found));
        assert_eq!(form.take_items(), if once { 0 } else { 500 });
    }
    let table = list_of(pods, TABLE, &at("0"));
    assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 2);
    // An empty list.
    let none = at("0").selector(crate::support::selector("app=none", ""));
    for (form, items) in [
        (FormId::DEFAULT, "items"),
        (METADATA, "items"),
        (TABLE, "rows"),
    ] {
        assert_eq!(list_of(pods, form, &none)[items], json!([]));
    }
}

#[test]
fn lists_are_streamed_in_chunks_and_end_with_an_error_at_a_corrupt_object() {
    let fixture = Fixture::new();
    let pods = &fixture.pods;
    let big = "x".repeat(100_000);
    for (name, size) in [("a", 10), ("b", 100_000), ("c", 10)] {
        let value = format!(
            r#"{{"kind":"Pod","metadata":{{"name":"{name}"}},"x":"{}"}}"#,
            &big[..size]
        );
        fixture.put(&format!("ns/{name}"), value);
    }
    for number in 0..2_000 {
        fixture.put_pod(&format!("ns/p{number:04}"));
    }
    fixture.wait_until_fresh();
    let chunks = || {
        let list = block_on(pods.list(&Scope::All, &at("0"))).unwrap();
        encoder(pods, FormId::DEFAULT).list(list)
    };
    let sizes: Vec<_> = chunks().map(|chunk| chunk.unwrap().len()).collect();
    assert!(sizes.len() > 3);
    assert!(
        sizes[..sizes.len() - 1]
            .iter()
            .all(|size| *size >= 32 << 10)
    );
    assert!(sizes[1..].iter().all(|size| *size < 34 << 10), "{sizes:?}");
    let engine = fixture.engine();
    engine.put(format!("{PODS}/ns/q"), "not JSON").unwrap();
    fixture.wait_until_fresh();
    let mut chunks = chunks();
    let last = chunks.by_ref().last().unwrap();
    assert_eq!(last.unwrap_err().code(), 500);
    assert!(chunks.next().is_none());
}

#[test]
fn wc_421_a_form_can_be_replaced_while_watches_use_it() {
    let (fixture, _) = fixture();
    let pods = &fixture.pods;
    let start = fixture.current();
    let (mut before, mut old) = (open(pods, &from(start)), encoder(pods, TABLE));
    fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.wait_until_fresh();
    let names = |frame: &Value| {
        let columns = frame["object"]["columnDefinitions"].as_array();
        columns.map(|columns| columns[1]["name"].clone())
    };
    let first = &values(&frames(&mut before, &mut old))[0];
    assert_eq!(names(first), Some(json!("Node")));
    pods.set_form(
        TABLE,
        Arc::new(table("Host").include(IncludeObject::Object)),
    );
    // The same event in the new form.
    let mut after = (open(pods, &from(start)), encoder(pods, TABLE));
    let first = &values(&frames(&mut after.0, &mut after.1))[0];
    assert_eq!(names(first), Some(json!("Host")));
    let row = &first["object"]["rows"][0]["object"];
    assert_eq!(
        (&row["kind"], &row["apiVersion"]),
        (&json!("Pod"), &json!("v1"))
    );
    assert_eq!(row["spec"]["nodeName"], "n1");
    let mut replay = open(pods, &from(start));
    assert_eq!(
        values(&frames(&mut replay, &mut old))[0]["object"]["rows"][0]["object"]["kind"],
        "PartialObjectMetadata",
        "an encoder keeps its form"
    );
    assert!(pods.remove_form(TABLE) && !pods.remove_form(TABLE));
    assert!(pods.encoder(TABLE).is_none());
    assert!(!pods.remove_form(FormId::DEFAULT));
    assert!(pods.encoder(FormId::DEFAULT).is_some());
}

#[test]
fn wc_402_each_version_of_a_resource_has_a_form() {
    let fixture = Fixture::new();
    let pods = &fixture.pods;
    for (id, version) in [(3, "e/v1"), (4, "e/v2")] {
        let form = JsonForm::new(version, "Widget").typed();
        pods.set_form(FormId(id), Arc::new(form));
    }
    let value = r#"{"apiVersion":"e/v1","kind":"Widget","metadata":{"name":"a"}}"#;
    let put = fixture.put("ns/a", value.into());
    fixture.wait_until_fresh();
    for (id, version) in [(3, "e/v1"), (4, "e/v2")] {
        let widget = json!({
            "kind": "Widget", "apiVersion": version,
            "metadata": {"name": "a", "resourceVersion": put.to_string()},
        });
        let list = list_of(pods, FormId(id), &at("0"));
        let expected = json!({
            "kind": "WidgetList", "apiVersion": version,
            "metadata": {"resourceVersion": put.to_string()}, "items": [widget],
        });
        assert_eq!(list, expected);
        let mut watch = open(pods, &from("0").allow_bookmarks(true));
        let frames = values(&frames(&mut watch, &mut encoder(pods, FormId(id))));
        assert_eq!(frames[0]["object"], widget);
        assert_eq!(frames[1]["object"]["apiVersion"], version);
    }
}

#[test]
fn metadata_and_tables_have_the_version_that_they_are_asked_for() {
    let (fixture, _) = fixture();
    fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.wait_until_fresh();
    let (beta, version) = (MetaVersion::V1Beta1, "meta.k8s.io/v1beta1");
    let metadata = MetadataForm::of(whole()).version(beta);
    fixture.pods.set_form(METADATA, Arc::new(metadata));
    let table = Arc::new(table("Node").version(beta));
    fixture.pods.set_form(TABLE, table);
    let options = ListOptions::default();
    let list = list_of(&fixture.pods, METADATA, &options);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["apiVersion"], version);
    assert_eq!(list["items"][0]["apiVersion"], version);
    let table = list_of(&fixture.pods, TABLE, &options);
    assert_eq!(table["apiVersion"], version);
    assert_eq!(table["rows"][0]["object"]["apiVersion"], version);
}
