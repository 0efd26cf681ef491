//! Bodies and patches of the Kubernetes API: what is decoded can be encoded and decoded again. The function for patches is
//! that of `apiserver/tests/inputs`.
//!
//! Input: the format of the first part, then two parts that are separated by a zero byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use revstore_apiserver::decode::{
    Format, decode, from_json, from_yaml, integral_floats_to_integers, to_yaml,
};
use revstore_structured_merge::{FieldSet, Untyped, compare};

#[path = "../../apiserver/tests/inputs/patches.rs"]
mod patches;

fuzz_target!(|input: &[u8]| {
    let Some((format, parts)) = input.split_first() else {
        return;
    };
    let format = if format % 2 == 0 {
        Format::Json
    } else {
        Format::Yaml
    };
    let at = parts
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(parts.len());
    let (object, patch) = (&parts[..at], parts.get(at + 1..).unwrap_or_default());
    let Ok(decoded) = decode(object, format) else {
        return;
    };
    let object = decoded.value;

    let json = from_json(object.to_string().as_bytes()).expect("JSON of ours is well-formed");
    assert_eq!((&json.value, json.strict.len()), (&object, 0));
    let mut integral = object.clone();
    integral_floats_to_integers(&mut integral);
    let yaml = from_yaml(to_yaml(&object).as_bytes()).expect("YAML of ours is well-formed");
    assert_eq!((yaml.value, yaml.strict.len()), (integral, 0));

    for patched in patches::check(&object, patch) {
        if let Ok(found) = compare(&object, &patched, Untyped) {
            for set in [found.removed, found.modified, found.added] {
                assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()), Some(set));
            }
        }
    }
});
