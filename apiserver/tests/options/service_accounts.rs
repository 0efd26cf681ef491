//! Tokens of service accounts, and the documents about their issuer.

use std::path::PathBuf;
use std::time::Duration;

use revstore_apiserver::auth::{AuthorizationMode, ServiceAccountOptions};
use revstore_apiserver::{ApiServer, ApiServerBuilder};
use revstore_engine::ManualClock;
use serde_json::{Value, json};

use crate::TestResult;
use crate::client::{send, send_as, status};
use crate::exchange::exchange;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn key(name: &str) -> PathBuf {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/auth/service_accounts/testdata"
    );
    PathBuf::from(directory).join(name)
}

fn options() -> ServiceAccountOptions {
    let mut options = ServiceAccountOptions::default();
    options.issuers = vec!["https://issuer".to_owned()];
    options.signing_key_file = Some(key("rsa.pem"));
    options.key_files = vec![key("rsa-public.pem"), key("p256.pem")];
    options
}

fn builder() -> ApiServerBuilder {
    let builder = ApiServer::builder().authorization_mode(AuthorizationMode::Rbac);
    builder.service_accounts(options())
}

fn create(server: &ApiServer, path: &str, name: &str) {
    let body = json!({"metadata": {"name": name}});
    assert_eq!(send(server, "POST", path, &body).0, 201);
}

/// Asks for a token of the service account `robot`.
fn request(server: &ApiServer, spec: &Value) -> (u16, Value) {
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    send(server, "POST", &format!("{ACCOUNTS}/robot/token"), &body)
}

fn token(server: &ApiServer, spec: &Value) -> String {
    let (_, answer) = request(server, spec);
    let token = answer["status"]["token"].as_str();
    token.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn review(server: &ApiServer, spec: &Value) -> Value {
    let body = json!({"spec": spec});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    send(server, "POST", path, &body).1["status"].clone()
}

/// Returns the status of a request that every service account may make.
fn discovers(server: &ApiServer, token: &str) -> u16 {
    send_as(server, token, "GET", "/openid/v1/jwks", &Value::Null).0
}

#[test]
fn tokens_are_valid_at_all_servers_with_the_key_until_their_objects_are_gone() -> TestResult {
    let clock = ManualClock::new();
    let first = builder().clock(clock.clone()).start()?;
    let engine = first.engine().ok_or("embedded")?.clone();
    let second = builder()
        .clock(clock.clone())
        .engine(engine.clone())
        .start()?;
    let other = ApiServer::builder().engine(engine).start()?;
    create(&first, ACCOUNTS, "robot");
    create(&first, SECRETS, "s");
    let bound = json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}});
    let (plain, bound) = (token(&first, &json!({})), token(&first, &bound));
    for server in [&first, &second] {
        assert_eq!(
            (discovers(server, &plain), discovers(server, &bound)),
            (200, 200)
        );
    }
    assert_eq!(discovers(&other, &plain), 401);
    let found = review(&second, &json!({"token": bound}));
    assert_eq!(found["audiences"], json!(["https://issuer"]));

    send(&first, "DELETE", &format!("{SECRETS}/s"), &Value::Null);
    create(&first, SECRETS, "s");
    assert_eq!(
        (discovers(&second, &plain), discovers(&second, &bound)),
        (200, 401)
    );
    let error = review(&second, &json!({"token": bound}));
    let text = error["error"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("[invalid bearer token, secret UID ("),
        "{error}"
    );

    // A second account with the same name is another one.
    send(&first, "DELETE", &format!("{ACCOUNTS}/robot"), &Value::Null);
    assert_eq!(discovers(&second, &plain), 401);
    create(&first, ACCOUNTS, "robot");
    assert_eq!(discovers(&second, &plain), 401);

    let fresh = token(&first, &json!({"expirationSeconds": 600}));
    clock.advance(Duration::from_secs(600 + 60));
    assert_eq!(discovers(&first, &fresh), 200);
    clock.advance(Duration::from_secs(2));
    assert_eq!(discovers(&first, &fresh), 401);
    Ok(())
}

#[test]
fn tokens_of_pods() -> TestResult {
    let mut options = options();
    options.max_expiration = Some(Duration::from_secs(3600));
    let limited = ApiServer::builder().service_accounts(options).start()?;
    create(&limited, ACCOUNTS, "robot");
    let (code, answer) = request(&limited, &json!({"expirationSeconds": 7200}));
    assert_eq!(
        (code, &answer["spec"]["expirationSeconds"]),
        (201, &json!(3600))
    );

    let clock = ManualClock::new();
    let server = builder().clock(clock.clone()).start()?;
    create(&server, ACCOUNTS, "robot");
    let pod = |name: &str, account: &str| {
        let spec = json!({
            "serviceAccountName": account, "nodeName": "n", "containers": [{"name": "c", "image": "i"}],
        });
        let body = json!({"metadata": {"name": name}, "spec": spec});
        send(&server, "POST", "/api/v1/namespaces/default/pods", &body).0
    };
    assert_eq!((pod("p", "robot"), pod("q", "other")), (201, 201));
    let to = |kind: &str, name: &str, uid: &str| {
        json!({
            "expirationSeconds": 3607,
            "boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid},
        })
    };
    let (_, answer) = request(&server, &to("Pod", "p", ""));
    let token = answer["status"]["token"].as_str().unwrap_or_default();
    let user = review(&server, &json!({"token": token}));
    let extra = &user["user"]["extra"];
    assert_eq!(
        extra["authentication.kubernetes.io/pod-name"],
        json!(["p"]),
        "{user}"
    );
    assert_eq!(
        extra["authentication.kubernetes.io/node-name"],
        json!(["n"])
    );
    for (spec, code) in [
        (to("Pod", "q", ""), 400),
        (to("Pod", "none", ""), 404),
        (to("Secret", "none", ""), 404),
        (to("Node", "none", ""), 404),
        (to("Pod", "p", "other"), 409),
        (to("ConfigMap", "c", ""), 400),
        (to("Pod", "", ""), 404),
        (json!({"expirationSeconds": 599}), 422),
        (json!({"expirationSeconds": (1_i64 << 32) + 1}), 422),
    ] {
        assert_eq!(request(&server, &spec).0, code, "{spec}");
    }
    // What kubelets ask for lives longer than it says.
    clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(discovers(&server, token), 200);
    clock.advance(Duration::from_secs(365 * 24 * 3600));
    assert_eq!(discovers(&server, token), 401);
    Ok(())
}

#[test]
fn reviews_of_tokens_for_audiences() -> TestResult {
    let server = builder().start()?;
    create(&server, ACCOUNTS, "robot");
    let vault = token(&server, &json!({"audiences": ["vault"]}));
    assert_eq!(discovers(&server, &vault), 401);
    let asked = json!({"token": vault, "audiences": ["vault", "x"]});
    let found = review(&server, &asked);
    assert_eq!(
        (&found["authenticated"], &found["audiences"]),
        (&json!(true), &json!(["vault"]))
    );
    let message = "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences [\"https://issuer\"]]";
    let refused = json!({"user": {}, "error": message});
    assert_eq!(review(&server, &json!({"token": vault})), refused);
    let unknown = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(review(&server, &json!({"token": "a.b.c"})), unknown);
    Ok(())
}

#[test]
fn the_issuer_and_the_paths() -> TestResult {
    let server = builder().start()?;
    let get = |method: &str, path: &str, accept: &str| {
        let fields = format!("Accept: {accept}\r\n");
        exchange(server.endpoint(), method, path, &fields, "")
    };
    let path = "/.well-known/openid-configuration";
    let (_, text) = get("GET", path, "application/json");
    let document: Value = serde_json::from_str(&text)?;
    assert_eq!(document["issuer"], "https://issuer");
    let algorithms = &document["id_token_signing_alg_values_supported"];
    assert_eq!(algorithms, &json!(["ES256", "RS256"]));
    let uri = document["jwks_uri"].as_str().unwrap_or_default();
    assert!(
        uri.starts_with("https://") && uri.ends_with("/openid/v1/jwks"),
        "{uri}"
    );
    let (_, keys) = get("GET", "/openid/v1/jwks", "*/*");
    let keys: Value = serde_json::from_str(&keys)?;
    assert_eq!(
        (&keys["keys"][0]["kty"], &keys["keys"][1]["crv"]),
        (&json!("RSA"), &json!("P-256"))
    );

    for (method, path, accept, code) in [
        ("GET", "/openid/v1/jwks", "application/jwk-set+json", 200),
        ("GET", "/openid/v1/jwks/", "", 200),
        ("GET", "/openid/v1/jwks", "application/json", 406),
        ("GET", path, "text/html", 406),
        ("HEAD", path, "", 405),
        ("POST", "/openid/v1/jwks", "", 405),
        ("GET", "/openid/v1/jwks/x", "", 404),
        ("GET", "/openid/v1", "", 404),
        ("GET", "/openid", "", 404),
        ("GET", "/", "text/html", 200),
        ("POST", "/", "", 200),
        ("GET", "/index.html", "", 200),
        ("GET", "/index.html/", "", 404),
    ] {
        assert_eq!(
            get(method, path, accept).0,
            code,
            "{method} {path} {accept}"
        );
    }
    let paths: Value = serde_json::from_str(&get("GET", "/", "").1)?;
    let paths: Vec<_> = paths["paths"].as_array().ok_or("a list")?.iter().collect();
    assert!(paths.is_sorted_by_key(|path| path.as_str()));
    // All of them are served.
    for path in paths {
        let path = path.as_str().ok_or("a text")?;
        assert_eq!(get("GET", path, "").0, 200, "{path}");
    }
    assert_eq!(status(&server, "/openid/v1/jwks"), 200);
    let anonymous = exchange(
        server.endpoint(),
        "GET",
        "/",
        "Authorization: Bearer x\r\n",
        "",
    );
    assert_eq!(anonymous.0, 401);
    Ok(())
}
