//! What clients see of random writes by several of them: the events of a watch, replayed, are the list at each resource
//! version, with and without selectors; pages are the list, and so are the initial events of a watch.
//!
//! `REVSTORE_HISTORY_SEED` changes the fixed seed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

use fastrand::Rng;
use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

const CLIENTS: u64 = 4;
/// The number of writes of each client.
const WRITES: usize = 40;
/// Few names, so that objects come and go.
const NAMES: u32 = 5;
/// The name of the object that is created last, and that all selectors match.
const LAST: &str = "z-last";
const SEED: u64 = 7;

/// Selectors, and the objects that they match.
type Selects = fn(&Value) -> bool;
const SELECTORS: [(&str, Selects); 3] = [
    ("", |_| true),
    ("labelSelector=side%3Dleft", is_left),
    ("fieldSelector=metadata.name!%3Dn0", |object| {
        object["metadata"]["name"] != "n0"
    }),
];

fn is_left(object: &Value) -> bool {
    object["metadata"]["labels"]["side"] == "left"
}

/// The objects of a collection by their names.
type State = BTreeMap<String, Value>;

/// A collection, and the types of its objects.
#[derive(Clone)]
struct Collection<'a> {
    server: &'a ApiServer,
    path: &'static str,
    api_version: &'static str,
    kind: &'static str,
}

impl Collection<'_> {
    /// Sends a request on a connection of its own, and returns a reader at the body of the answer.
    fn open(&self, method: &str, path: &str, body: &str) -> (u16, BufReader<TcpStream>) {
        let address = self.server.endpoint().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        // Without chunks.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let written = stream.write_all(head.as_bytes());
        written.expect("the server reads");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).expect("the server answers") > 2 {}
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        (status.expect("the answer has a status"), reader)
    }

    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, mut reader) = self.open(method, path, body);
        let mut body = String::new();
        reader.read_to_string(&mut body).expect("the answer ends");
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// Returns a list: its resource version, its token, and its objects.
    fn list(&self, query: &str) -> (String, String, State) {
        let (status, list) = self.send("GET", &format!("{}?{query}", self.path), "");
        assert_eq!(status, 200, "{query}: {list}");
        let text = |name: &str| {
            let text = list["metadata"][name].as_str();
            text.unwrap_or_default().to_owned()
        };
        let items = list["items"].as_array().into_iter().flatten();
        let state = items.map(|item| keyed(item.clone())).collect();
        (text("resourceVersion"), text("continue"), state)
    }

    fn watch(&self, query: &str) -> BufReader<TcpStream> {
        let path = format!("{}?watch=true&{query}", self.path);
        let (status, reader) = self.open("GET", &path, "");
        assert_eq!(status, 200, "{query}");
        reader
    }

    fn object(&self, name: &str, random: &mut Rng) -> String {
        let side = if random.bool() { "left" } else { "right" };
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name, "labels": {"side": side}},
            "data": {"n": random.u32(..3).to_string()},
        })
        .to_string()
    }

    /// Makes a random write, which may fail.
    fn write(&self, random: &mut Rng) {
        let name = format!("n{}", random.u32(..NAMES));
        let path = format!("{}/{name}", self.path);
        let body = self.object(&name, random);
        let (status, answer) = match random.u32(..4) {
            0 => self.send("POST", self.path, &body),
            1 => self.send("PATCH", &path, &body),
            2 => self.send("DELETE", &path, ""),
            _ => {
                let (_, current) = self.send("GET", &path, "");
                let mut new: Value = serde_json::from_str(&body).expect("the body is JSON");
                new["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
                self.send("PUT", &path, &new.to_string())
            }
        };
        // Custom resources need the current version; without one there is none.
        let expected = [200, 201, 404, 409, 422].contains(&status);
        assert!(expected, "{status} {answer}");
    }
}

/// Returns an object by its name, without the type that items of lists do not have.
fn keyed(mut object: Value) -> (String, Value) {
    for name in ["apiVersion", "kind"] {
        object.as_object_mut().map(|object| object.remove(name));
    }
    let name = object["metadata"]["name"].as_str();
    (name.unwrap_or_default().to_owned(), object)
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    let version = version.and_then(|version| version.parse().ok());
    version.expect("an object has a resource version")
}

/// Returns the next event.
fn next(watch: &mut BufReader<TcpStream>) -> (String, Value) {
    let mut line = String::new();
    watch.read_line(&mut line).expect("the watch goes on");
    let event: Value = serde_json::from_str(&line).expect("an event is a line of JSON");
    let kind = event["type"].as_str().unwrap_or_default().to_owned();
    (kind, event["object"].clone())
}

/// Replays a watch until the last object, and returns the states after the events.
fn replay(watch: &mut BufReader<TcpStream>, mut state: State) -> BTreeMap<u64, State> {
    let mut states = BTreeMap::new();
    let mut newest = 0;
    while !state.contains_key(LAST) {
        let (kind, object) = next(watch);
        let revision = version(&object);
        assert!(revision > newest, "{kind} at {revision} after {newest}");
        newest = revision;
        let (name, object) = keyed(object);
        let before = match kind.as_str() {
            "DELETED" => state.remove(&name),
            _ => state.insert(name.clone(), object),
        };
        assert_eq!(before.is_none(), kind == "ADDED", "{kind} of {name}");
        states.insert(revision, state.clone());
    }
    states
}

fn selected(state: &State, selects: Selects) -> State {
    let items = state.iter().filter(|(_, object)| selects(object));
    items
        .map(|(name, object)| (name.clone(), object.clone()))
        .collect()
}

fn check(collection: &Collection<'_>, seed: u64) {
    for number in 0..2 {
        collection.write(&mut Rng::with_seed(seed + number));
    }
    let (start, _, initial) = collection.list("");
    let open = |query: &str| collection.watch(&format!("resourceVersion={start}&{query}"));
    let mut watches: Vec<_> = SELECTORS.iter().map(|(query, _)| open(query)).collect();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut random = Rng::with_seed(seed * 1000 + client);
            scope.spawn(move || (0..WRITES).for_each(|_| collection.write(&mut random)));
        }
    });
    let last = json!({
        "apiVersion": collection.api_version,
        "kind": collection.kind,
        "metadata": {"name": LAST, "labels": {"side": "left"}},
    });
    let created = collection.send("POST", collection.path, &last.to_string());
    assert_eq!(created.0, 201, "{}", created.1);

    let mut replayed = Vec::new();
    for ((_, selects), watch) in SELECTORS.iter().zip(&mut watches) {
        replayed.push(replay(watch, selected(&initial, *selects)));
    }
    let all = replayed[0].clone();
    for (revision, state) in &all {
        let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
        for ((query, selects), states) in SELECTORS.iter().zip(&replayed) {
            let expected = selected(state, *selects);
            let found = collection.list(&format!("{exact}&{query}")).2;
            assert_eq!(found, expected, "the list at {revision}, {query}");
            let newest = states.range(..=revision).next_back();
            let view =
                newest.map_or_else(|| selected(&initial, *selects), |(_, view)| view.clone());
            assert_eq!(view, expected, "the watch at {revision}, {query}");
        }
    }
    check_pages(
        collection,
        all.values().next_back().expect("there are events"),
    );
}

/// Checks the pages of the current list and the initial events of watches.
fn check_pages(collection: &Collection<'_>, state: &State) {
    for (query, selects) in SELECTORS {
        let expected = selected(state, selects);
        let (mut found, mut token) = (State::new(), String::new());
        loop {
            let (_, next, page) = collection.list(&format!("limit=2&continue={token}&{query}"));
            assert!(page.len() <= 2);
            found.extend(page);
            token = next;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(found, expected, "the pages, {query}");
        let mut watch = collection.watch(&format!(
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&{query}"
        ));
        let mut found = State::new();
        loop {
            let (kind, object) = next(&mut watch);
            if kind == "BOOKMARK" {
                break;
            }
            assert_eq!(kind, "ADDED");
            found.extend([keyed(object)]);
        }
        assert_eq!(found, expected, "the initial events, {query}");
    }
}

fn seed() -> u64 {
    let seed = std::env::var("REVSTORE_HISTORY_SEED").ok();
    seed.map_or(SEED, |seed| seed.parse().expect("the seed is a number"))
}

#[test]
fn clients_see_one_history_of_a_built_in_kind() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder().start()?;
    let collection = Collection {
        server: &server,
        path: "/api/v1/namespaces/default/configmaps",
        api_version: "v1",
        kind: "ConfigMap",
    };
    check(&collection, seed());
    Ok(())
}

#[test]
fn clients_see_one_history_of_a_custom_resource() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder().start()?;
    let collection = Collection {
        server: &server,
        path: "/apis/example.com/v1/namespaces/default/widgets",
        api_version: "example.com/v1",
        kind: "Widget",
    };
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let created = collection.send("POST", definitions, &definition.to_string());
    assert_eq!(created.0, 201, "{}", created.1);
    while collection.send("GET", collection.path, "").0 == 404 {
        thread::yield_now();
    }
    check(&collection, seed());
    Ok(())
}
