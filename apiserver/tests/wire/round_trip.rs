//! Every built-in kind, created, read, listed, watched and updated in each encoding.

use std::time::{Duration, Instant};

use revstore_apiserver::ApiServer;
use revstore_kinds::watch_event;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::encoding::{ALL, Encoding};
use crate::objects::{Example, beta_examples, examples, reviews};
use crate::{server, server_of};

const JSON: &str = "application/json";
/// The time in which a definition is established, which nothing announces but its status.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

fn read(connection: &mut Connection, path: &str, encoding: Encoding) -> Vec<u8> {
    let answer = connection.send(("GET", path), (JSON, encoding.media_type()), b"");
    assert_eq!(answer.code, 200, "{path}: {}", answer.text());
    answer.body
}

/// Returns what is the same for the objects of all encodings.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    for name in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(name);
    }
    for entry in metadata
        .get_mut("managedFields")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        entry["time"] = json!("");
    }
    match object["kind"].as_str() {
        Some("Service") => {
            for name in ["clusterIP", "clusterIPs"] {
                object["spec"][name] = Value::Null;
            }
            for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
                port["nodePort"] = Value::Null;
            }
        }
        Some("APIService") => object["spec"]["version"] = Value::Null,
        Some("PersistentVolume") => object["status"]["lastPhaseTransitionTime"] = Value::Null,
        Some("CustomResourceDefinition") => {
            object["spec"]["names"] = Value::Null;
            object["status"] = Value::Null;
        }
        Some("Namespace") => {
            // A label has the name.
            object["metadata"]["labels"] = Value::Null;
        }
        Some("Job") => {
            object["metadata"]["labels"] = Value::Null;
            object["spec"]["template"]["metadata"]["labels"] = Value::Null;
            object["spec"]["selector"] = Value::Null;
        }
        _ => {}
    }
    object
}

/// Waits until the status of a definition says that it is established, and does not change any more.
fn settle(connection: &mut Connection, example: &Example, path: &str) {
    if example.resource.kind() != "CustomResourceDefinition" {
        return;
    }
    let deadline = Instant::now() + ESTABLISHED_WITHIN;
    loop {
        let object = Encoding::Json.decode(&read(connection, path, Encoding::Json));
        let conditions = object["status"]["conditions"].as_array();
        let is_established =
            |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        if conditions.is_some_and(|conditions| conditions.iter().any(is_established)) {
            return;
        }
        assert!(Instant::now() < deadline, "{path} is not established");
    }
}

/// Checks that an object is the same in all encodings, alone and in lists, and that it does not change when it is written
/// back in any of them. Returns it.
fn check_reads(connection: &mut Connection, example: &Example, path: &str) -> Value {
    let name = example.name();
    let text = read(connection, path, Encoding::Json);
    let object = Encoding::Json.decode(&text);
    for encoding in ALL {
        let bytes = read(connection, path, encoding);
        let mut shown = object.clone();
        if encoding == Encoding::Protobuf {
            // The kinds of objects inside of others are not in protobuf.
            for claim in shown
                .pointer_mut("/spec/volumeClaimTemplates")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                claim
                    .as_object_mut()
                    .map(|claim| (claim.remove("apiVersion"), claim.remove("kind")));
            }
        }
        assert_same(
            &encoding.decode(&bytes),
            &shown,
            &format!("{name} in {encoding:?}"),
        );
        if encoding == Encoding::Protobuf {
            assert_eq!(encoding.encode(&object), Some(bytes.clone()), "{name}");
        }
        assert_eq!(
            read(connection, path, encoding),
            bytes,
            "{name} in {encoding:?}, read again"
        );
        let list = encoding.decode(&read(connection, &example.path, encoding));
        let items = list["items"].as_array().expect("items");
        let is_same = |found: &&Value| found["metadata"]["uid"] == object["metadata"]["uid"];
        let found = items.iter().find(is_same).expect("the object in the list");
        let mut found = found.clone();
        found
            .as_object_mut()
            .map(|item| (item.remove("apiVersion"), item.remove("kind")));
        shown
            .as_object_mut()
            .map(|item| (item.remove("apiVersion"), item.remove("kind")));
        assert_same(&found, &shown, &format!("{name} in a list in {encoding:?}"));
        let written = connection.send(("PUT", path), (encoding.media_type(), JSON), &bytes);
        assert_eq!(
            written.code,
            200,
            "{name} in {encoding:?}: {}",
            written.text()
        );
        let written = Encoding::Json.decode(&written.body);
        assert_same(
            &written,
            &object,
            &format!("{name}, written back in {encoding:?}"),
        );
    }
    object
}

/// Fails with the first place at which two objects differ.
fn assert_same(found: &Value, expected: &Value, what: &str) {
    let difference = difference(found, expected, "");
    assert!(
        difference.is_none(),
        "{what}: {}",
        difference.unwrap_or_default()
    );
}

fn difference(found: &Value, expected: &Value, path: &str) -> Option<String> {
    match (found, expected) {
        (found, expected) if found == expected => None,
        (Value::Object(one), Value::Object(two)) => {
            let mut names = one.keys().chain(two.keys());
            names.find_map(|name| {
                let of =
                    |map: &serde_json::Map<_, Value>| map.get(name).cloned().unwrap_or_default();
                difference(&of(one), &of(two), &format!("{path}/{name}"))
            })
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            let mut items = one.iter().zip(two).enumerate();
            items.find_map(|(index, (one, two))| difference(one, two, &format!("{path}/{index}")))
        }
        _ => Some(format!("{path}: {found} and not {expected}")),
    }
}

fn assert_text(found: &[u8], expected: &[u8], name: &str) {
    let text = String::from_utf8_lossy;
    assert_eq!(text(found), text(expected), "{name}");
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

#[test]
fn every_kind_is_the_same_in_each_encoding() {
    check_round_trips(&server(), &examples());
}

#[test]
fn every_kind_of_a_beta_version_is_the_same_in_each_encoding() {
    let config = "api/beta=true".parse().expect("a configuration");
    let server = server_of(ApiServer::builder().runtime_config(config));
    check_round_trips(&server, &beta_examples());
}

fn check_round_trips(server: &ApiServer, examples: &[Example]) {
    let mut connection = Connection::new(server.endpoint());
    for (index, example) in examples.iter().enumerate() {
        let name = example.name();
        let list = Encoding::Json.decode(&read(&mut connection, &example.path, Encoding::Json));
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version")
            .to_owned();
        let path = format!("{}?watch=true&resourceVersion={version}", example.path);
        let mut lines = Connection::new(server.endpoint()).watch(&path, JSON);
        let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
        let mut frames = Connection::new(server.endpoint()).watch(&path, protobuf);
        let mut created = Vec::new();
        for (number, encoding) in ALL.into_iter().enumerate() {
            // Versions of one kind share their names.
            let object = example.numbered(index * ALL.len() + number + 1);
            let body = encoding.encode(&object).expect("a valid object");
            let query = format!("{}?fieldValidation=Strict", example.path);
            let answer = connection.send(("POST", &query), (encoding.media_type(), JSON), &body);
            assert_eq!(
                answer.code,
                201,
                "{name} in {encoding:?}: {}",
                answer.text()
            );
            let path = example.path_of(&object);
            if example.resource.kind() != "CustomResourceDefinition" {
                // The same bytes in a read and in the event of a watch.
                let text = read(&mut connection, &path, Encoding::Json);
                assert_same(
                    &Encoding::Json.decode(&answer.body),
                    &Encoding::Json.decode(&text),
                    &name,
                );
                let event = [b"{\"type\":\"ADDED\",\"object\":", trimmed(&text), b"}\n"].concat();
                assert_text(&lines.line_of_watch(), &event, &name);
                let event = watch_event("ADDED", &read(&mut connection, &path, Encoding::Protobuf));
                let length = frames.bytes_of_watch(4);
                let length = u32::from_be_bytes(length.try_into().expect("4 bytes"));
                let found = frames.bytes_of_watch(length as usize);
                assert!(found == event, "{name}");
            }
            settle(&mut connection, example, &path);
            created.push(comparable(&check_reads(&mut connection, example, &path)));
        }
        for (other, encoding) in created.iter().zip(ALL) {
            assert_same(other, &created[0], &format!("{name} in {encoding:?}"));
        }
    }
}

#[test]
fn reviews_are_the_same_in_each_encoding() {
    let server = server();
    let mut connection = Connection::new(server.endpoint());
    for (path, review) in reviews() {
        let mut answers = Vec::new();
        for encoding in ALL {
            let body = encoding.encode(&review).expect("a valid review");
            for accept in ALL {
                let media_types = (encoding.media_type(), accept.media_type());
                let answer = connection.send(("POST", &path), media_types, &body);
                assert_eq!(answer.code, 201, "{path}: {}", answer.text());
                let mut answer = accept.decode(&answer.body);
                if let Some(metadata) = answer["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                    metadata.remove("creationTimestamp");
                }
                answers.push(answer);
            }
        }
        for answer in &answers {
            assert_eq!(answer, &answers[0], "{path}");
        }
    }
}
