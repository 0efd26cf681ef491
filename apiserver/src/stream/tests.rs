use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use revstore_kinds as kinds;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::ObjectList;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};
use serde_json::{Value, json};

use super::*;
use crate::decode::to_yaml;
use crate::http::Body;

/// Returns a list in JSON with its items at the end, as the cache writes it.
fn text(list: &Value) -> String {
    let mut head = list.as_object().unwrap().clone();
    let name = if head.contains_key("items") {
        "items"
    } else {
        "rows"
    };
    let items = head.remove(name).unwrap();
    let head = Value::Object(head).to_string();
    format!("{},\"{name}\":{items}}}", &head[..head.len() - 1])
}

/// Returns a list in JSON, in pieces of `size` bytes.
fn pieces(list: &Value, size: usize) -> Pieces {
    let text = text(list).into_bytes();
    let pieces: Vec<_> = text.chunks(size).map(Bytes::copy_from_slice).collect();
    Box::new(pieces.into_iter().map(Ok))
}

fn joined(pieces: impl Iterator<Item = Result<Bytes, RequestError>>) -> Vec<u8> {
    let pieces: Result<Vec<_>, _> = pieces.collect();
    pieces.unwrap().concat()
}

fn item(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "resourceVersion": "7", "annotations": {"a": "items\":[{\\ ]},", "b": ""}},
        "data": {"text": "two\nlines\n", "empty": "", "brackets": "[]{}\\\""},
    })
}

fn list(count: usize) -> Value {
    let items: Vec<_> = (0..count)
        .map(|number| item(&format!("n{number}")))
        .collect();
    json!({
        "kind": "ConfigMapList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "9", "continue": "items"},
        "items": items,
    })
}

fn table() -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9"},
        "columnDefinitions": [{"name": "rows", "type": "string"}],
        "rows": [{"cells": ["a", [], {}], "object": {"kind": "PartialObjectMetadata"}}, {"cells": [], "object": null}],
    })
}

#[test]
fn pieces_give_what_a_whole_list_gives() {
    for list in [list(0), list(1), list(3), table()] {
        for size in [1, 7, 64, 100_000] {
            let yaml = joined(YamlPieces::new(pieces(&list, size)));
            assert_eq!(String::from_utf8(yaml).unwrap(), to_yaml(&list));
            let sorted = list.to_string().into_bytes();
            let sorted: Vec<_> = sorted.chunks(size).map(Bytes::copy_from_slice).collect();
            let pretty = joined(PrettyPieces::new(Box::new(sorted.into_iter().map(Ok))));
            let expected = serde_json::to_string_pretty(&list).unwrap() + "\n";
            assert_eq!(String::from_utf8(pretty).unwrap(), expected);
        }
    }
}

#[test]
fn a_list_without_an_end_is_an_error() {
    let whole = text(&list(2));
    let cut = Bytes::from(whole[..whole.len() - 2].to_owned());
    let pieces: Pieces = Box::new([Ok(cut)].into_iter());
    assert!(YamlPieces::new(pieces).any(|piece| piece.is_err()));
}

/// Returns the list of these objects in protobuf, with the number of times that it was written as JSON.
fn protobuf(count: usize, text: usize) -> (Vec<u8>, Value, usize) {
    let kind = JsonKind::new("v1", "ConfigMap");
    let values: Vec<_> = (0..count)
        .map(|number| {
            let name = format!("n{number}");
            json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": "7"}, "data": {"k": "x".repeat(text)}})
        })
        .collect();
    let objects: Vec<_> = (values.iter().enumerate())
        .map(|(number, value)| {
            let reference = ObjectRef::namespaced("default", format!("n{number}"));
            Object::from_parts(
                &reference,
                Revision(7),
                value.to_string().into_bytes(),
                &kind,
            )
        })
        .collect();
    let whole = json!({
        "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": values,
    });
    let mut objects = ObjectList::from_objects(Revision(9), &objects);
    objects.continue_token = None;
    let times = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let to_json = {
        let times = times.clone();
        move |list: ObjectList| {
            times.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let items: Result<Vec<Value>, RequestError> = list
                .items
                .map(|object| {
                    object.map(|it| {
                        serde_json::from_slice::<JsonObject>(it.value())
                            .unwrap()
                            .into()
                    })
                })
                .collect();
            let list = json!({
                "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items?,
            });
            Ok(pieces(&list, 1_000))
        }
    };
    let ty = kinds::kind("", "v1", "ConfigMapList").unwrap();
    let bytes = joined(ProtobufPieces::new(objects, ty, to_json));
    let times = times.load(std::sync::atomic::Ordering::Relaxed);
    (bytes, whole, times)
}

#[test]
fn a_list_in_protobuf_is_that_of_the_whole_list() {
    for (count, text, written) in [(0, 0, 1), (3, 10, 1), (300, 5_000, 2)] {
        let (bytes, whole, times) = protobuf(count, text);
        assert!(bytes == kinds::to_protobuf(&whole).unwrap(), "{count}");
        // A large list is not kept, but written a second time.
        assert_eq!(times, written);
    }
}

#[tokio::test]
async fn a_list_is_made_while_it_is_read() {
    let piece = Bytes::from(vec![b'x'; PIECE_BYTES]);
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = made.clone();
    let endless: Pieces = Box::new(std::iter::repeat_with(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(piece.clone())
    }));
    let workers = Workers::new();
    let (mut body, is_compressed) = workers.body(endless, usize::MAX, false).await.unwrap();
    assert!(!is_compressed);
    for _ in 0..1_000 {
        assert!(body.frame().await.unwrap().is_ok());
    }
    // A reader that stops has a few pieces in memory, and no thread.
    let made = made.load(std::sync::atomic::Ordering::Relaxed);
    assert!(made <= 1_000 + 2 * SIZE_MIN / PIECE_BYTES, "{made}");
    let error: Pieces = Box::new([Err(RequestError::Stopped)].into_iter());
    assert!(workers.body(error, usize::MAX, true).await.is_err());
}

#[test]
fn a_page_is_made_without_another_thread() {
    // There is no runtime, and so no pool of threads.
    let read = |body: Body| pollster::block_on(read_async(body));
    let pieces = |count: usize| -> Pieces {
        let piece = Bytes::from(vec![b'x'; PIECE_BYTES]);
        Box::new(std::iter::repeat_n(Ok(piece), count))
    };
    let workers = Workers::new();
    for count in [1, 20, 31] {
        let body = pollster::block_on(workers.body(pieces(count), 500, false));
        assert_eq!(read(body.unwrap().0), count * PIECE_BYTES);
    }
    // The rest of a larger one needs a thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let body = runtime
        .block_on(workers.body(pieces(100), 500, false))
        .unwrap()
        .0;
    assert_eq!(runtime.block_on(read_async(body)), 100 * PIECE_BYTES);
}

async fn read_async(mut body: Body) -> usize {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.unwrap().into_data().unwrap().len();
    }
    bytes
}
