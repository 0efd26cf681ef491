//! What must hold for any input of a decoder: it does not panic, and what it accepts can be encoded and decoded again.

use revstore_apiserver::custom::schema::Schema;
use revstore_apiserver::decode::{DeleteOptions, from_json};
use revstore_kinds::{from_protobuf, to_protobuf};
use revstore_structured_merge::FieldSet;
use revstore_watch_cache::Selector;
use revstore_watch_cache::api::{ContinueToken, Query};
use serde_json::Value;

/// The number of decoders.
pub(crate) const DECODERS: u8 = 6;

/// Gives an input to the decoder that its first byte names. Two parts are separated by a zero byte.
pub(crate) fn check(input: &[u8]) {
    let Some((decoder, input)) = input.split_first() else {
        return;
    };
    let at = input.iter().position(|byte| *byte == 0);
    let at = at.unwrap_or(input.len());
    let (first, second) = (&input[..at], input.get(at + 1..).unwrap_or_default());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match decoder % DECODERS {
        0 => protobuf(input),
        1 => {
            let _ = DeleteOptions::from_query(&Query::parse(&text(second)));
            if let Some(options) = json(first) {
                let _ = DeleteOptions::from_body(&options);
            }
        }
        2 => {
            let _ = Selector::parse(&text(first), &text(second));
        }
        3 => continue_token(&text(first)),
        4 => schema(first, second),
        _ => fields(first),
    }
}

fn json(input: &[u8]) -> Option<Value> {
    from_json(input).ok().map(|decoded| decoded.value)
}

fn protobuf(input: &[u8]) {
    let Ok(object) = from_protobuf(input) else {
        return;
    };
    let Ok(bytes) = to_protobuf(&object) else {
        return;
    };
    let again = from_protobuf(&bytes).expect("protobuf of ours is well-formed");
    assert!(again == object, "{object}\n{again}");
}

fn continue_token(text: &str) {
    if let Ok(token) = ContinueToken::decode(text) {
        let again = ContinueToken::decode(&token.encode()).expect("a token of ours is valid");
        assert_eq!(again, token);
    }
}

fn schema(schema: &[u8], object: &[u8]) {
    let (Some(source), Some(mut object)) = (json(schema), json(object)) else {
        return;
    };
    let Ok(schema) = Schema::parse(&source) else {
        return;
    };
    let _ = schema.structural_errors("schema");
    let _ = schema.unsupported_errors("schema");
    let _ = schema.default_errors(&source, "schema");
    schema.prune(&mut object);
    let pruned = object.clone();
    assert!(schema.prune(&mut object).is_empty() && object == pruned);
    if schema.set_defaults(&mut object).is_ok() {
        let complete = object.clone();
        assert!(schema.set_defaults(&mut object).is_ok());
        assert_eq!(object, complete);
    }
    let _ = schema.validate(&object);
    let _ = schema.validate_update(&object, &pruned);
}

fn fields(input: &[u8]) {
    let Some(set) = json(input).and_then(|fields| FieldSet::from_fields_v1(&fields)) else {
        return;
    };
    assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()), Some(set));
}
