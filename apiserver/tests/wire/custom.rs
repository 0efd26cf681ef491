//! Wrong types and values in a custom resource whose schema has every construct, for creates, updates, patches and applies.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::connection::{Answer, Connection};
use crate::constructs::{constructs, thing, values};
use crate::encoding::Encoding;
use crate::server;

const JSON: &str = "application/json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/wire.example.com/v1/namespaces/wire/things";

fn define(server: &ApiServer, connection: &mut Connection) {
    let properties = constructs()
        .into_iter()
        .map(|(name, schema, _)| (name.to_owned(), schema));
    let properties: serde_json::Map<String, Value> = properties.collect();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.wire.example.com"}, "spec": {"group": "wire.example.com", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
        "properties": properties}}}}}]}});
    let created = connection.send(
        ("POST", DEFINITIONS),
        (JSON, JSON),
        definition.to_string().as_bytes(),
    );
    assert_eq!(created.code, 201, "{}", created.text());
    // The events of the definition end with the one that makes it known.
    let path =
        format!("{DEFINITIONS}?watch=true&fieldSelector=metadata.name=things.wire.example.com");
    let mut watch = Connection::new(server.endpoint()).watch(&path, JSON);
    loop {
        let event: Value = serde_json::from_slice(&watch.line_of_watch()).expect("an event");
        let conditions = event["object"]["status"]["conditions"].as_array().cloned();
        let is_established = |it: &Value| it["type"] == "Established" && it["status"] == "True";
        if conditions.unwrap_or_default().iter().any(is_established) {
            break;
        }
    }
    // The resource appears right after it.
    while connection.send(("GET", THINGS), (JSON, JSON), b"").code != 200 {
        std::thread::yield_now();
    }
}

struct Client<'a> {
    server: &'a ApiServer,
    connection: Connection,
}

impl Client<'_> {
    /// Sends a write. A refused one, and a dry run, leave the store as it is.
    fn write(&mut self, target: (&str, &str), content_type: &str, body: &[u8]) -> Answer {
        let revision = || {
            self.server
                .engine()
                .expect("an embedded store")
                .current_revision()
        };
        let before = revision();
        let answer = self.connection.send(target, (content_type, JSON), body);
        // kube-apiserver answers so, too, where an apply does not fit the types.
        let is_untyped = answer.code == 500
            && answer
                .text()
                .contains("failed to create typed patch object");
        assert!(
            answer.code < 500 || is_untyped,
            "{target:?}: {}",
            answer.text()
        );
        let stores = answer.code < 300 && !target.1.contains("dryRun");
        assert!(
            stores || revision() == before,
            "{target:?} wrote: {}",
            answer.text()
        );
        answer
    }

    /// Sends a value for a property in all ways, and returns whether a create is refused because of it. `version` is that of
    /// the existing object `a`.
    fn check(&mut self, name: &str, value: &Value, version: &Value) -> bool {
        let existing = format!("{THINGS}/a");
        let place = format!("{name}: {value}");
        let mut object = thing("b");
        object["spec"][name] = value.clone();
        let (json, yaml) = (
            object.to_string(),
            Encoding::Yaml.encode(&object).expect("YAML of any value"),
        );
        let dry = format!("{THINGS}?dryRun=All");
        let answer = self.write(("POST", &dry), JSON, json.as_bytes());
        let other = self.write(("POST", &dry), "application/yaml", &yaml);
        assert_eq!(
            answer.code,
            other.code,
            "{place}: {}\n{}",
            answer.text(),
            other.text()
        );
        // What updates and creates refuse is sent again without a dry run.
        object["metadata"] = json!({"name": "a", "resourceVersion": version});
        let dry = format!("{existing}?dryRun=All");
        let updated = self.write(("PUT", &dry), JSON, object.to_string().as_bytes());
        let other = self.write(
            ("PUT", &dry),
            "application/yaml",
            &Encoding::Yaml.encode(&object).expect("YAML of any value"),
        );
        assert_eq!(
            updated.code,
            other.code,
            "{place}: {}\n{}",
            updated.text(),
            other.text()
        );
        if updated.code != 200 {
            self.write(("PUT", &existing), JSON, object.to_string().as_bytes());
        }
        if answer.code != 201 {
            self.write(("POST", THINGS), JSON, json.as_bytes());
        }
        // What cannot be decoded is the fault of the body, or of the patch.
        let patchable = if updated.code == 400 {
            422
        } else {
            updated.code
        };
        // A merge patch removes what is null, and merges objects.
        if !value.is_null() && !value.is_object() {
            let patch = json!({"spec": {name: value}}).to_string();
            let patched = self.write(
                ("PATCH", &dry),
                "application/merge-patch+json",
                patch.as_bytes(),
            );
            assert_eq!(
                patched.code,
                patchable,
                "{place}: {}\n{}",
                patched.text(),
                updated.text()
            );
        }
        let operation =
            json!([{"op": "add", "path": format!("/spec/{name}"), "value": value}]).to_string();
        let patched = self.write(
            ("PATCH", &dry),
            "application/json-patch+json",
            operation.as_bytes(),
        );
        assert_eq!(
            patched.code,
            patchable,
            "{place}: {}\n{}",
            patched.text(),
            updated.text()
        );
        let config = json!({"apiVersion": "wire.example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
                "spec": {name: value}});
        let path = format!("{dry}&fieldManager=m&force=true");
        self.write(
            ("PATCH", &path),
            "application/apply-patch+yaml",
            config.to_string().as_bytes(),
        );
        answer.code == 422
    }
}

#[test]
fn every_construct_of_a_schema_survives_json_and_yaml() {
    let server = server();
    let mut connection = Connection::new(server.endpoint());
    define(&server, &mut connection);
    for (name, encoding) in [("j", Encoding::Json), ("y", Encoding::Yaml)] {
        let body = encoding.encode(&thing(name)).expect("a valid object");
        let created = connection.send(("POST", THINGS), (encoding.media_type(), JSON), &body);
        assert_eq!(created.code, 201, "{}", created.text());
        let path = format!("{THINGS}/{name}");
        let read = connection.send(("GET", &path), (JSON, JSON), b"");
        let object = Encoding::Json.decode(&read.body);
        // All values are there, and the defaults.
        let mut expected = thing(name)["spec"].clone();
        expected["byName"][1]["port"] = json!(80);
        assert_eq!(object["spec"], expected);
        let yaml = connection.send(("GET", &path), (JSON, "application/yaml"), b"");
        assert_eq!(Encoding::Yaml.decode(&yaml.body), object);
        let list = connection.send(("GET", THINGS), (JSON, JSON), b"");
        let list = Encoding::Json.decode(&list.body);
        assert!(
            list["items"]
                .as_array()
                .is_some_and(|items| items.contains(&object))
        );
        for (media_type, body) in [(JSON, &read.body), ("application/yaml", &yaml.body)] {
            let written = connection.send(("PUT", &path), (media_type, JSON), body);
            assert_eq!(written.code, 200, "{}", written.text());
            assert_eq!(
                Encoding::Json.decode(&written.body),
                object,
                "written back as {media_type}"
            );
        }
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(
            connection.send(("GET", &path), (JSON, protobuf), b"").code,
            406
        );
        assert_eq!(
            connection
                .send(("POST", THINGS), (protobuf, JSON), b"k8s\0")
                .code,
            415
        );
    }
}

#[test]
fn every_value_is_answered_alike_by_creates_updates_patches_and_applies() {
    let server = server();
    let mut connection = Connection::new(server.endpoint());
    define(&server, &mut connection);
    let mut client = Client {
        server: &server,
        connection,
    };
    let created = client.write(("POST", THINGS), JSON, thing("a").to_string().as_bytes());
    assert_eq!(created.code, 201, "{}", created.text());
    let version = Encoding::Json.decode(&created.body)["metadata"]["resourceVersion"].clone();
    let (mut sent, mut refused) = (0, 0);
    for (name, ..) in constructs() {
        for value in values() {
            sent += 1;
            refused += usize::from(client.check(name, &value, &version));
        }
    }
    assert!(refused * 2 > sent, "{refused} of {sent} are refused");
    // Nothing of it was stored.
    let list = client.connection.send(("GET", THINGS), (JSON, JSON), b"");
    let list = Encoding::Json.decode(&list.body);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}
