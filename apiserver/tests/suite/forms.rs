//! Tables and metadata.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::client::{TestResult, send, value};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn tables_and_metadata_have_the_version_that_a_client_accepts() -> TestResult {
    let server = ApiServer::builder().start()?;
    let object = json!({"metadata": {"name": "p1"}}).to_string();
    assert_eq!(send(&server, "POST", MAPS, &object).0, 201);
    let get = |path: &str, accept: &str| -> Value {
        let field = format!("Accept: {accept}\r\n");
        let answer = exchange(server.endpoint(), "GET", path, &field, "");
        assert_eq!(answer.0, 200, "{}", answer.1);
        value(&answer).1
    };
    for version in ["v1", "v1beta1"] {
        let api_version = format!("meta.k8s.io/{version}");
        let accept = |form| format!("application/json;as={form};v={version};g=meta.k8s.io");
        for path in [MAPS.to_owned(), format!("{MAPS}/p1")] {
            let table = get(&path, &accept("Table"));
            assert_eq!(table["kind"], "Table", "{path}");
            assert_eq!(table["apiVersion"], api_version, "{path}");
            let row = &table["rows"][0]["object"];
            assert_eq!(row["apiVersion"], api_version, "{path}");
            assert_eq!(row["metadata"]["name"], "p1");
        }
        let list = get(MAPS, &accept("PartialObjectMetadataList"));
        assert_eq!(list["apiVersion"], api_version);
        assert_eq!(list["items"][0]["apiVersion"], api_version);
        let object = get(&format!("{MAPS}/p1"), &accept("PartialObjectMetadata"));
        assert_eq!(object["apiVersion"], api_version);
    }
    // kubectl prefers v1.
    let both = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    assert_eq!(get(MAPS, both)["apiVersion"], "meta.k8s.io/v1");
    Ok(())
}
