//! Dumps as text, and binary ones.

use revstore_engine::{Engine, Revision};
use revstore_grpc::{Damage, Image, ImageError, NodeState};

use super::{Random, assert_equal, builder, image, save, with_gaps};

fn written(image: &Image) -> Vec<u8> {
    let mut text = Vec::new();
    image.write_text(&mut text).unwrap();
    text
}

fn load(text: &[u8]) -> Result<Image, ImageError> {
    let dir = tempfile::tempdir().unwrap();
    Image::load(&save(dir.path(), text), builder())
}

#[tokio::test]
async fn a_dump_loads_as_it_was_as_text_and_binary() {
    let first = image().await;
    for image in [with_gaps(&first), first] {
        let text = written(&image);
        let loaded = load(&text).unwrap();
        assert_equal(&loaded, &image);
        // The dump of the copy is the same, byte by byte.
        assert_eq!(written(&loaded), text);
        let mut binary = Vec::new();
        image.write_binary(&mut binary).unwrap();
        assert_equal(&load(&binary).unwrap(), &image);
        // Both continue in the same way.
        for engine in [&loaded.engine, &image.engine] {
            engine.put("key/07", "next").unwrap();
        }
        assert_equal(&loaded, &image);
    }
    let engine = builder().build();
    let state = NodeState::default();
    let empty = Image { engine, state };
    assert_equal(&load(&written(&empty)).unwrap(), &empty);
}

/// The lines are stable: a dump in a repository can be read by later versions.
#[test]
fn the_lines_are_those_of_the_documentation() {
    let document = include_str!("../../../docs/dump-format.md");
    let example = document.split("```json\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let loaded = load(example.as_bytes()).unwrap();
    let text = String::from_utf8(written(&loaded)).unwrap();
    assert_eq!(text, example);
    let engine = &loaded.engine;
    assert_eq!(engine.get("color").unwrap().value(), b"green");
    assert_eq!(engine.current_revision(), Revision(100));
    assert!(loaded.state.is_auth_enabled());
}

#[test]
fn a_dump_can_be_edited() {
    let text = r#"
        {"dump":{"version":1,"revision":3}}
        {"put":{"key":"a","value":"1","rev":2}}

        {"put":{"key":"b","value":{"base64":"AAH/"},"rev":3}}
        {"end":{}}"#;
    let engine = load(text.as_bytes()).unwrap().engine;
    assert_eq!(engine.get("b").unwrap().value(), b"\x00\x01\xff");
    assert_eq!(engine.current_revision(), Revision(3));
}

fn check(text: &str, line: u64, expected: &str) {
    let error = load(text.as_bytes()).unwrap_err();
    let shown = error.to_string();
    let ImageError::Line { line: found, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(found, line, "{shown}");
    assert!(shown.contains(expected), "{shown}");
}

const FIRST: &str = "{\"dump\":{\"version\":1,\"revision\":2}}\n";
const PUT: &str = "{\"put\":{\"key\":\"a\",\"value\":\"1\",\"rev\":2}}\n";

fn after(line: &str) -> String {
    format!("{FIRST}{line}\n")
}

#[test]
fn errors_name_the_line_and_what_is_wrong() {
    check("", 1, "this is no dump of revstore");
    check("{}", 1, "at column");
    check("hello\n", 1, "expected value at column 1");
    check("{\"end\":{}}", 1, "this is no dump of revstore");
    check(
        "{\"dump\":{\"version\":2,\"revision\":1}}",
        1,
        "version 2 of the format is not supported",
    );
    check(
        &after("{\"put\":{\"key\":\"a\",\"rev\":2}}"),
        2,
        "missing field `value`",
    );
    check(
        &after("{\"put\":{\"key\":7,\"value\":\"\",\"rev\":2}}"),
        2,
        "a string or an object with base64",
    );
    check(
        &after("{\"put\":{\"key\":\"a\",\"value\":\"\",\"rev\":2,\"x\":1}}"),
        2,
        "unknown field `x`",
    );
    check(&after("{\"what\":{}}"), 2, "unknown variant `what`");
}

#[test]
fn errors_of_lines_in_their_place_name_the_line() {
    check(FIRST, 1, "the last line is missing");
    check(&format!("{FIRST}{PUT}"), 2, "the last line is missing");
    check(
        &after("{\"end\":{}}"),
        2,
        "it does not end at the revision in its first line",
    );
    let whole = format!("{FIRST}{PUT}");
    check(
        &format!("{whole}{{\"end\":{{\"lines\":3}}}}"),
        3,
        "the number of lines",
    );
    check(
        &format!("{whole}{{\"end\":{{\"crc32c\":\"0\"}}}}"),
        3,
        "the checksum",
    );
    check(
        &format!("{whole}{{\"end\":{{}}}}\n{PUT}"),
        4,
        "there is a line after the last one",
    );
    check(
        &format!("{whole}{FIRST}"),
        3,
        "there is a first line among the others",
    );
    check(
        &after("{\"delete\":{\"key\":\"a\",\"rev\":2}}\n{\"end\":{}}"),
        2,
        "numbers that do not follow",
    );
    check(
        &after("{\"put\":{\"key\":\"a\",\"value\":\"\",\"rev\":9}}\n{\"end\":{}}"),
        2,
        "revision 9 follows revision 1",
    );
    // The second change of a revision, with others behind it.
    let second = "{\"delete\":{\"key\":\"b\",\"rev\":2,\"sub\":1}}";
    check(
        &format!("{whole}{second}\n{{\"jump\":{{\"to\":9}}}}\n{{\"end\":{{}}}}"),
        3,
        "change 2.1 has numbers that do not follow",
    );
    check(
        &after("{\"put\":{\"key\":\"a\",\"value\":\"\",\"rev\":2,\"lease\":7}}\n{\"end\":{}}"),
        3,
        "key \"a\" is attached to lease 7, which does not exist",
    );
    let lease = "{\"lease\":{\"id\":7,\"ttl\":\"60s\"}}\n";
    check(
        &after(&format!("{lease}{lease}")),
        3,
        "there is such a line already",
    );
    check(&after("{\"lease\":{\"id\":0,\"ttl\":\"5s\"}}"), 2, "id 0");
    check(
        &after("{\"lease\":{\"id\":1,\"ttl\":\"5\"}}"),
        2,
        "\"5\" is no time",
    );
    check(
        &after("{\"lease\":{\"id\":1,\"ttl\":\"5s\",\"left\":\"6s\"}}"),
        2,
        "lease 1",
    );
    check(
        &after("{\"alarm\":{\"name\":\"FIRE\",\"member\":1}}"),
        2,
        "there is no alarm \"FIRE\"",
    );
    let role = "{\"role\":{\"name\":\"r\",\"permissions\":[{\"type\":\"ALL\",\"key\":\"\"}]}}";
    check(&after(role), 2, "\"ALL\" is none of READ");
    let user = "{\"user\":{\"name\":\"u\",\"roles\":[]}}\n";
    check(
        &after(&format!("{user}{user}")),
        3,
        "there is such a line already",
    );
    check(
        &after("{\"user\":{\"name\":\"\",\"roles\":[]}}"),
        2,
        "a name is empty",
    );
    // As deep as a stack could take it.
    check(&after(&"[".repeat(100_000)), 2, "at column");
    let missing = Image::load(std::path::Path::new("/nowhere/dump"), builder()).unwrap_err();
    assert!(matches!(&missing, ImageError::Io { .. }), "{missing}");
    assert!(missing.to_string().starts_with("/nowhere/dump: "));
}

#[tokio::test]
async fn ten_thousand_damaged_dumps_are_refused() {
    let image = image().await;
    let small = Image {
        engine: builder().build(),
        state: image.state.clone(),
    };
    for number in 0..30 {
        small
            .engine
            .put(format!("k{}", number % 7), number.to_string())
            .unwrap();
    }
    small.engine.compact(Revision(11)).unwrap().run();
    let text = written(&small);
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(1);
    for _ in 0..10_000 {
        let mut damaged = text.clone();
        random.damage(&mut damaged);
        let is_same = |loaded: &Image| written(loaded) == text;
        match Image::load(&save(dir.path(), &damaged), builder()) {
            // Damage to the checksum's own line, or to blanks, may leave the dump as it was.
            Ok(loaded) => assert!(is_same(&loaded), "{}", String::from_utf8_lossy(&damaged)),
            Err(ImageError::Line { .. } | ImageError::Offset { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    // A truncated one is never accepted.
    for len in 0..text.len() - 1 {
        if len % 7 == 0 {
            Image::load(&save(dir.path(), &text[..len]), builder()).unwrap_err();
        }
    }
    // Without the checksum, each change that makes a store is one that could have been written.
    let start = text.windows(9).position(|it| it == b"\"crc32c\":").unwrap() - 1;
    let mut random = Random(2);
    for _ in 0..3_000 {
        let mut damaged = text[..start].to_vec();
        damaged.extend(b"}}\n");
        random.damage(&mut damaged);
        if let Ok(loaded) = Image::load(&save(dir.path(), &damaged), builder()) {
            let again = load(&written(&loaded)).unwrap();
            assert_equal(&again, &loaded);
        }
    }
}

#[test]
fn a_dump_while_the_store_is_written_is_of_one_revision() {
    let engine = builder().build();
    engine.put("k", "0").unwrap();
    let state = NodeState::default();
    let image = Image { engine, state };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..2_000 {
                image.engine.put("k", number.to_string()).unwrap();
                if number % 100 == 0 {
                    let at = image.engine.current_revision();
                    image.engine.compact(at).unwrap().run();
                }
            }
        });
        while !writer.is_finished() {
            let loaded: Engine = load(&written(&image)).unwrap().engine;
            let kv = loaded.get("k").unwrap();
            assert_eq!(kv.mod_revision(), loaded.current_revision());
        }
    });
}

#[test]
fn a_binary_dump_that_is_damaged_names_the_offset() {
    let engine = builder().build();
    engine.put("k", "v").unwrap();
    let state = NodeState::default();
    let mut binary = Vec::new();
    Image { engine, state }.write_binary(&mut binary).unwrap();
    let last = binary.len() - 1;
    binary[last] ^= 1;
    match load(&binary).unwrap_err() {
        ImageError::Offset {
            offset,
            damage: Damage::Dump(_),
            ..
        } => assert!(offset > 8),
        error => panic!("{error:?}"),
    }
}

#[test]
fn no_position_occurs_twice_at_the_compacted_revision() {
    let first = "{\"dump\":{\"version\":1,\"revision\":5,\"compacted\":5}}\n";
    let put = |key: &str, sub: u32| {
        format!(
            "{{\"put\":{{\"key\":\"{key}\",\"value\":\"\",\"rev\":5,\"sub\":{sub},\"created\":3,\
             \"version\":9}}}}\n"
        )
    };
    let end = "{\"end\":{}}\n";
    let last = put("a", u32::MAX);
    check(
        &format!("{first}{last}{last}{last}{end}"),
        2,
        "change 5.4294967295 is not the next one",
    );
    let twice = put("a", 7);
    check(
        &format!("{first}{twice}{twice}{end}"),
        3,
        "change 5.7 is not the next one of its revision, which has number 8",
    );
    load(format!("{first}{twice}{}{end}", put("b", 9)).as_bytes()).unwrap();
    // The compacted revision has not written a key with a base version.
    let base = "{\"base\":{\"key\":\"a\",\"value\":\"\",\"rev\":3}}\n";
    check(
        &format!("{first}{base}{twice}{end}"),
        3,
        "change 5.7 of the compacted revision is of a key with a base version",
    );
}
