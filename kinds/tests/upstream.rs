//! The examples of every kind in the Go module `k8s.io/api`, where its folder is known: `REVSTORE_KINDS_EXAMPLES` names
//! `testdata/HEAD`. `.ci/run kinds` sets it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::PathBuf;

use revstore_kinds::{Storage, Type, kind, normalize};
use serde_json::Value;

/// The files `GROUP.VERSION.KIND.json` of kinds in the table.
fn examples() -> Vec<(PathBuf, &'static Type)> {
    let Some(folder) = std::env::var_os("REVSTORE_KINDS_EXAMPLES") else {
        eprintln!("NOT RUN: REVSTORE_KINDS_EXAMPLES is not set");
        return Vec::new();
    };
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
    assert!(examples.len() > 80, "only {} examples", examples.len());
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
