//! Manifests that are loaded at the start.

use std::fs;
use std::path::Path;
use std::process::Command;

use revstore_apiserver::{ApiServer, LoadError, StartError};
use serde_json::Value;
use tempfile::TempDir;

use crate::TestResult;
use crate::client::{send, status};

const DEFINITION: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, minimum: 1, default: 3}
";
const WIDGET: &str =
    "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: team}\nspec: {}\n";
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";

/// Returns a directory with files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory can be created");
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("a file can be written");
    }
    directory
}

fn start(directory: &Path) -> Result<ApiServer, StartError> {
    ApiServer::builder().load(directory).start()
}

/// Returns the error of a directory whose only file is bad.
fn refused(name: &str, text: &str) -> String {
    let directory = directory(&[(name, text)]);
    let error = start(directory.path()).expect_err("the manifest is refused");
    assert!(matches!(error, StartError::Load(_)), "{error}");
    let path = directory.path().join(name).display().to_string();
    error.to_string().replace(&path, "FILE")
}

#[test]
fn objects_are_created_after_what_they_need() -> TestResult {
    // In the order of the files, each object would come too early.
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "team"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}]}
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}"#;
    let definitions = format!("# Two.\n---\n{NAMESPACE}---\n# None.\n---\n{DEFINITION}");
    let directory = directory(&[
        ("1.yml", WIDGET),
        ("2.json", list),
        ("3.yaml", &definitions),
        ("notes.txt", "no manifest"),
        (".hidden.yaml", "{"),
        ("empty.yaml", ""),
    ]);
    fs::create_dir(directory.path().join("more.yaml"))?;
    let server = start(directory.path())?;
    let (code, widget) = send(
        &server,
        "GET",
        "/apis/example.com/v1/namespaces/team/widgets/w",
        &Value::Null,
    );
    assert_eq!((code, &widget["spec"]["size"]), (200, &Value::from(3)));
    for path in [
        "/api/v1/namespaces/team/configmaps/a",
        "/api/v1/namespaces/default/configmaps/b",
        "/apis/apps/v1/namespaces/default/deployments/d",
    ] {
        assert_eq!(status(&server, path), 200, "{path}");
    }
    Ok(())
}

#[test]
fn objects_that_exist_get_the_fields_of_their_manifests() -> TestResult {
    let text = |value| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{x: {value}}}\n")
    };
    let directory = directory(&[
        ("a.yaml", &text("one")),
        (
            "b.yaml",
            &format!("{NAMESPACE}---\n{DEFINITION}---\n{WIDGET}"),
        ),
    ]);
    let first = start(directory.path())?;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let (_, mut object) = send(&first, "GET", path, &Value::Null);
    object["data"]["y"] = "kept".into();
    assert_eq!(send(&first, "PUT", path, &object).0, 200);
    let engine = first.engine().ok_or("embedded")?;
    let revision = engine.current_revision();
    // The same manifests change nothing.
    let second = ApiServer::builder()
        .engine(engine.clone())
        .load(directory.path())
        .start()?;
    assert_eq!(status(&second, path), 200);
    assert_eq!(engine.current_revision(), revision);

    fs::write(directory.path().join("a.yaml"), text("two"))?;
    // Another version of the definition is served before its objects are created.
    let definition = DEFINITION.replace("  versions:\n", "  versions:\n  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n");
    let widget = WIDGET.replace("v1", "v2").replace("name: w", "name: x");
    fs::write(
        directory.path().join("b.yaml"),
        format!("{widget}---\n{definition}"),
    )?;
    let third = ApiServer::builder()
        .engine(engine.clone())
        .load(directory.path())
        .start()?;
    let (_, object) = send(&third, "GET", path, &Value::Null);
    assert_eq!(object["data"], serde_json::json!({"x": "two", "y": "kept"}));
    assert_eq!(
        status(&third, "/apis/example.com/v1/namespaces/team/widgets/x"),
        200
    );
    Ok(())
}

#[test]
fn a_bad_manifest_is_named() {
    let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let place = "cannot load FILE, document 2 (from line 4)";
    for (second, expected) in [
        ("a: [", "did not find expected node content"),
        ("kind: ConfigMap", "apiVersion is missing"),
        ("apiVersion: v1", "kind is missing"),
        ("apiVersion: v1\nkind: 1", "kind is not a text"),
        ("- a", "it is not an object"),
        (
            "apiVersion: v1\nkind: Nothing",
            "no matches for kind \"Nothing\" in version \"v1\"",
        ),
        (
            "apiVersion: v9\nkind: Pod",
            "no matches for kind \"Pod\" in version \"v9\"",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A_B}",
            "a lowercase RFC 1123 subdomain",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndat: {}",
            "unknown field \"dat\"",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nkind: Secret",
            "key \"kind\" already set in map",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: none}",
            "namespaces \"none\" not found",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../../b}",
            "Invalid value: \"../../b\"",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: ../x}",
            "metadata.namespace: Invalid value: \"../x\"",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{kind: x}]",
            "apiVersion is missing",
        ),
        (
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}",
            "spec.group",
        ),
    ] {
        let error = refused("a.yaml", &format!("{good}---\n{second}\n"));
        assert!(
            error.starts_with(place) && error.contains(expected),
            "{second}: {error}"
        );
    }
    let error = refused("a.json", "{\"apiVersion\": \"v1\"");
    assert!(
        error.starts_with("cannot load FILE, document 1 (from line 1): "),
        "{error}"
    );
}

#[test]
fn names_of_definitions_that_conflict_are_refused() {
    let other = DEFINITION
        .replace("widgets", "gadgets")
        .replace("singular: widget", "singular: gadget");
    let error = refused("a.yaml", &format!("{DEFINITION}---\n{other}"));
    assert!(
        error.contains("document 2") && error.contains("is already in use"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_read_is_named() -> TestResult {
    let missing = start(Path::new("/nonexistent")).expect_err("there is no directory");
    assert!(
        missing
            .to_string()
            .starts_with("cannot load /nonexistent: "),
        "{missing}"
    );

    let directory = directory(&[]);
    std::os::unix::fs::symlink("gone", directory.path().join("a.yaml"))?;
    let error = start(directory.path()).expect_err("the link leads nowhere");
    assert!(
        matches!(error, StartError::Load(LoadError::Read { .. })),
        "{error}"
    );
    fs::remove_file(directory.path().join("a.yaml"))?;

    // Nobody writes into the pipe.
    let pipe = directory.path().join("pipe.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status()?.success());
    let error = start(directory.path()).expect_err("a pipe is no file");
    assert!(
        error
            .to_string()
            .ends_with("pipe.yaml: it is not a regular file"),
        "{error}"
    );
    Ok(())
}

#[test]
fn a_huge_manifest_is_refused_by_its_size() -> TestResult {
    let line = "# A comment of some length, which is repeated.\n";
    let text = format!("{}{NAMESPACE}", line.repeat((16 << 20) / line.len() + 1));
    let error = refused("a.yaml", &text);
    assert!(
        error.ends_with("the document has more than 16 MiB"),
        "{error}"
    );

    // A sparse file is larger than all files may be.
    let directory = directory(&[]);
    let file = fs::File::create(directory.path().join("a.json"))?;
    file.set_len(1 << 40)?;
    let error = start(directory.path()).expect_err("the file is too large");
    assert!(
        error
            .to_string()
            .ends_with("all files together have more than 256 MiB"),
        "{error}"
    );

    // One object is as large as a request may be.
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{x: {}}}",
        "x".repeat(3 << 20)
    );
    let error = refused("a.yaml", &object);
    assert!(error.contains("limit is 3145728"), "{error}");
    Ok(())
}
