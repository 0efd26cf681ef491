//! OpenAPI documents, over connections.

use std::thread;

use revstore_apiserver::ApiServer;

use crate::client::{TestResult, send, value};

/// Returns the header of the answer to a GET, without the status line, and the body.
fn whole(server: &ApiServer, path: &str, fields: &str) -> (u16, String, Vec<u8>) {
    let address = server.endpoint().trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).expect("the server listens");
    let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n");
    std::io::Write::write_all(&mut stream, head.as_bytes()).expect("the server reads");
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).expect("the server answers");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = answer.split_off(end.expect("a header") + 4);
    let head = String::from_utf8_lossy(&answer).to_lowercase();
    let (status, fields) = head.split_once("\r\n").expect("a status");
    let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.unwrap_or_default(), fields.to_owned(), body)
}

#[test]
fn documents_of_openapi_are_kept_by_their_hash() -> TestResult {
    let server = ApiServer::builder().start()?;
    let index = value(&send(&server, "GET", "/openapi/v3", "")).1;
    for path in ["api/v1", "apis/apps/v1", "version"] {
        let address = index["paths"][path]["serverRelativeURL"].as_str();
        let address = address.ok_or(path)?;
        let (code, fields, body) = whole(&server, address, "");
        assert_eq!(code, 200);
        assert!(
            fields.contains("cache-control: public, immutable\r\n"),
            "{fields}"
        );
        assert!(
            fields.contains(" utc\r\n") && fields.contains("expires: "),
            "{fields}"
        );
        let (code, fields, without) = whole(&server, &format!("/openapi/v3/{path}"), "");
        assert_eq!((code, &without), (200, &body));
        assert!(!fields.contains("expires"), "{fields}");
        let old = format!("/openapi/v3/{path}?hash=OLD");
        let (code, fields, body) = whole(&server, &old, "");
        assert_eq!((code, body.len()), (301, 0));
        let location = format!("location: {}\r\n", address.to_lowercase());
        assert!(fields.contains(&location), "{fields}");
    }
    Ok(())
}

#[test]
fn documents_of_openapi_have_the_encodings_of_kube_apiserver() -> TestResult {
    let server = ApiServer::builder().start()?;
    thread::scope(|scope| {
        for (path, version) in [("/openapi/v2", "v2"), ("/openapi/v3/apis/apps/v1", "v3")] {
            let server = &server;
            scope.spawn(move || {
                for accept in ["text/plain", "application/yaml", "application/xml;q=1"] {
                    let (code, fields, body) = whole(server, path, &format!("Accept: {accept}\r\n"));
                    assert_eq!((code, body.len()), (406, 0), "{path} {accept}");
                    assert!(fields.contains("vary: accept"), "{fields}");
                }
                for accept in [
                    format!("application/com.github.proto-openapi.spec.{version}@v1.0+protobuf"),
                    format!("application/com.github.proto-openapi.spec.{version}.v1.0+protobuf, */*;q=0.1"),
                ] {
                    let (code, fields, body) = whole(server, path, &format!("Accept: {accept}\r\n"));
                    let answered =
                        format!("content-type: application/com.github.proto-openapi.spec.{version}.v1.0+protobuf\r\n");
                    assert_eq!(code, 200);
                    assert!(fields.contains(&answered), "{fields}");
                    // The first field is the version of OpenAPI.
                    assert_eq!(body.first(), Some(&0x0a));
                }
                let (code, fields, body) = whole(server, path, "Accept: text/html, */*;q=0.1\r\n");
                assert_eq!(code, 200);
                assert!(fields.contains("content-type: application/json\r\n"), "{fields}");
                assert_eq!(body.first(), Some(&b'{'));
            });
        }
    });
    Ok(())
}
