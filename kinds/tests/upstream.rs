//! Examples of kinds as JSON and protobuf, from the Go module `k8s.io/api`: a few are in `examples/`, those of every kind
//! in the folder `testdata/HEAD` of the module, which `REVSTORE_KINDS_EXAMPLES` names. `.ci/run kinds` sets it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::PathBuf;

use revstore_kinds::{Storage, Type, from_protobuf, kind, normalize, to_protobuf};
use serde_json::Value;

/// The files `GROUP.VERSION.KIND.json` of kinds in the table.
fn examples() -> Vec<(PathBuf, &'static Type)> {
    let all = std::env::var_os("REVSTORE_KINDS_EXAMPLES").map(PathBuf::from);
    let folder = all.clone().unwrap_or_else(|| {
        [env!("CARGO_MANIFEST_DIR"), "tests", "examples"]
            .iter()
            .collect()
    });
    let mut examples = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".json") else {
            continue;
        };
        let (rest, kind_name) = name.rsplit_once('.').unwrap();
        let (group, version) = rest.rsplit_once('.').unwrap();
        let group = if group == "core" { "" } else { group };
        if let Some(ty) = kind(group, version, kind_name) {
            examples.push((path, ty));
        }
    }
    assert!(
        examples.len() > if all.is_some() { 80 } else { 5 },
        "only {} examples",
        examples.len()
    );
    examples
}

#[test]
fn examples_are_normal() {
    for (path, ty) in examples() {
        let original: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let mut object = original.clone();
        let unknown = normalize(ty, &mut object, Storage::Protobuf).unwrap();
        assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
        assert_eq!(object, original, "{}", path.display());
    }
}

#[test]
fn examples_are_the_same_in_protobuf() {
    // A WatchEvent has no kind in its envelope.
    for (path, _) in examples()
        .into_iter()
        .filter(|(_, ty)| ty.name() != "WatchEvent")
    {
        let object: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let bytes = std::fs::read(path.with_extension("pb")).unwrap();
        assert_eq!(
            from_protobuf(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            object,
            "{}",
            path.display()
        );
        assert!(to_protobuf(&object).unwrap() == bytes, "{}", path.display());
    }
}
