//! Wrong types and values in every field of every built-in kind, in each encoding.

use fastrand::Rng;
use revstore_apiserver::ApiServer;
use serde_json::Value;

use crate::connection::{Answer, Connection};
use crate::encoding::{ALL, Encoding};
use crate::objects::{Example, examples};
use crate::positions::{Chosen, Position};
use crate::server;

const JSON: &str = "application/json";
/// Of the places of a field that other kinds have, too, one of this number is tested.
const OTHERS: usize = 24;
/// The number of damaged objects of each kind in protobuf.
const DAMAGED: usize = 24;

/// The seed of a run.
fn seed() -> u64 {
    std::env::var("REVSTORE_SEED").map_or(1, |seed| seed.parse().expect("a number"))
}

struct Client<'a> {
    server: &'a ApiServer,
    connection: Connection,
}

impl<'a> Client<'a> {
    fn new(server: &'a ApiServer) -> Self {
        let connection = Connection::new(server.endpoint());
        Self { server, connection }
    }

    fn revision(&self) -> i64 {
        self.server
            .engine()
            .expect("an embedded store")
            .current_revision()
            .0
    }

    /// Sends a write. What is refused, and what is not to be stored, leaves the store as it is.
    fn write(&mut self, path: &str, encoding: Encoding, body: &[u8]) -> Answer {
        let before = self.revision();
        let answer = self
            .connection
            .send(("POST", path), (encoding.media_type(), JSON), body);
        let stores = answer.code == 201 && !path.contains("dryRun");
        assert!(
            stores || self.revision() == before,
            "{path} wrote: {}",
            answer.text()
        );
        assert!(answer.code < 500, "{path}: {}", answer.text());
        answer
    }

    /// Returns the answers to dry runs of a create in those of some encodings that can express the object.
    fn dry_run(
        &mut self,
        example: &Example,
        object: &Value,
        encodings: &[Encoding],
    ) -> Vec<(Encoding, Answer)> {
        let path = format!("{}?dryRun=All", example.path);
        let encoded = encodings
            .iter()
            .copied()
            .filter_map(|encoding| Some((encoding, encoding.encode(object)?)));
        encoded
            .map(|(encoding, body)| (encoding, self.write(&path, encoding, &body)))
            .collect()
    }

    /// Creates an object, and deletes it if it was accepted.
    fn create(&mut self, example: &Example, object: &Value) {
        let answer = self.write(&example.path, Encoding::Json, object.to_string().as_bytes());
        if answer.code == 201 {
            let created = Encoding::Json.decode(&answer.body);
            let path = format!("{}?gracePeriodSeconds=0", example.path_of(&created));
            let deleted = self.connection.send(("DELETE", &path), (JSON, JSON), b"");
            assert!(deleted.code < 300, "{path}: {}", deleted.text());
        }
    }
}

/// Returns whether accepted objects of a kind are stored: the status of definitions is written later by the server, and
/// namespaces stay.
fn is_stored(example: &Example, position: &Position) -> bool {
    !["CustomResourceDefinition", "Namespace"].contains(&example.resource.kind())
        && !position.is_metadata()
}

/// Gives every field a value, and checks that the answers are the same in some encodings. Returns the number of fields,
/// and of those whose values were answered with a code.
fn check(
    value: fn(&Position, &mut Rng) -> Value,
    encodings: &[Encoding],
    counted: u16,
) -> (usize, usize) {
    let server = server();
    let mut client = Client::new(&server);
    let mut rng = Rng::with_seed(seed());
    let mut chosen = Chosen::default();
    let (mut sent, mut count) = (0, 0);
    for example in examples() {
        for position in chosen.of(example.resource.object(), OTHERS, &mut rng) {
            let value = value(&position, &mut rng);
            let mut object = example.numbered(1);
            position.set(&mut object, value.clone());
            // Protobuf has no empty maps.
            let mut encodings = encodings.to_vec();
            if position.is_pod_overhead()
                && value.as_object().is_some_and(serde_json::Map::is_empty)
            {
                encodings.retain(|encoding| *encoding != Encoding::Protobuf);
            }
            let answers = client.dry_run(&example, &object, &encodings);
            let code = answers[0].1.code;
            for (encoding, answer) in answers {
                let place = format!("{} {position:?}: {value} in {encoding:?}", example.name());
                assert_eq!(answer.code, code, "{place}: {}", answer.text());
            }
            if is_stored(&example, &position) {
                client.create(&example, &object);
            }
            sent += 1;
            count += usize::from(code == counted);
        }
    }
    (sent, count)
}

#[test]
fn values_of_wrong_types_are_refused_alike_in_json_and_yaml() {
    // Protobuf has no values of other types, but for those of `damaged_protobuf_is_answered`.
    let (sent, refused) = check(Position::wrong_type, &[Encoding::Json, Encoding::Yaml], 400);
    // Some are of types that take any JSON.
    assert!(
        sent > 1000 && refused * 10 > sent * 9,
        "{refused} of {sent} are refused"
    );
}

#[test]
fn unusual_values_are_answered_alike_in_each_encoding() {
    let (sent, refused) = check(Position::wrong_value, &ALL, 422);
    assert!(
        sent > 1000 && refused * 10 > sent,
        "{refused} of {sent} are refused"
    );
}

#[test]
fn damaged_protobuf_is_answered() {
    let server = server();
    let mut client = Client::new(&server);
    let mut rng = Rng::with_seed(seed());
    for example in examples() {
        let body = Encoding::Protobuf
            .encode(&example.numbered(1))
            .expect("a valid object");
        let path = format!("{}?dryRun=All", example.path);
        for case in 0..DAMAGED {
            let mut damaged = body.clone();
            // Behind the four bytes by which protobuf is recognized.
            let at = rng.usize(4..damaged.len());
            match case % 4 {
                0 => damaged.truncate(at),
                1 => damaged[at] ^= 1 << rng.u8(..8),
                2 => damaged[at] = rng.u8(..),
                _ => {
                    let end = rng.usize(at..=damaged.len());
                    damaged.drain(at..end);
                }
            }
            client.write(&path, Encoding::Protobuf, &damaged);
        }
        // What was read before does not remain.
        assert_eq!(
            client.write(&path, Encoding::Protobuf, &body).code,
            201,
            "{}",
            example.name()
        );
    }
}

#[test]
fn bodies_of_other_encodings_are_refused() {
    let server = server();
    let mut client = Client::new(&server);
    for example in examples() {
        let object = example.numbered(1);
        let path = format!("{}?dryRun=All", example.path);
        for encoding in ALL {
            let body = encoding.encode(&object).expect("a valid object");
            for other in ALL.into_iter().filter(|other| *other != encoding) {
                let answer = client.write(&path, other, &body);
                // JSON is YAML.
                let expected = if (encoding, other) == (Encoding::Json, Encoding::Yaml) {
                    201
                } else {
                    400
                };
                assert_eq!(
                    answer.code,
                    expected,
                    "{} {encoding:?} as {other:?}: {}",
                    example.name(),
                    answer.text()
                );
            }
        }
    }
}
