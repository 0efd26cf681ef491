use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::*;

/// Keys that were made with `openssl genpkey`, and the public half of the RSA key.
const RSA: &str = include_str!("testdata/rsa.pem");
const RSA_PUBLIC: &str = include_str!("testdata/rsa-public.pem");
const RSA_CERTIFICATE: &str = include_str!("testdata/rsa-certificate.pem");
const P256: &str = include_str!("testdata/p256.pem");
const P384: &str = include_str!("testdata/p384.pem");
const P521: &str = include_str!("testdata/p521.pem");

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns a server with a key that signs and keys that verify.
    fn open(&self, signing: Option<&str>, keys: &[&str]) -> Result<ServiceAccounts, KeyFileError> {
        let keys = keys.iter().enumerate();
        let options = ServiceAccountOptions {
            issuers: vec!["https://one".to_owned(), "two".to_owned()],
            audiences: vec!["api".to_owned()],
            signing_key_file: signing.map(|text| self.write("signing", text)),
            key_files: keys
                .map(|(index, text)| self.write(&index.to_string(), text))
                .collect(),
            ..ServiceAccountOptions::default()
        };
        ServiceAccounts::open(&options, "https://127.0.0.1:1")
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://one", "aud": ["api"], "exp": 1000, "nbf": 500, "iat": 500, "jti": "id",
        "kubernetes.io": {
            "namespace": "a",
            "serviceaccount": {"name": "b", "uid": "u"},
            "pod": {"name": "p", "uid": "v"},
            "node": {"name": "n"},
        },
    })
}

fn verify(accounts: &ServiceAccounts, token: &str, now: i64) -> Result<Claims, Option<String>> {
    accounts.verify(token, &accounts.audiences, now)
}

#[test]
fn servers_with_the_same_keys_accept_the_tokens_of_each_other() {
    let files = Files::new();
    for (name, key, verifying) in [
        ("RS256", RSA, RSA_PUBLIC),
        ("RS256", RSA, RSA_CERTIFICATE),
        ("RS256", RSA, RSA),
        ("ES256", P256, P256),
        ("ES384", P384, P384),
    ] {
        let token = files.open(Some(key), &[]).unwrap().sign(&claims());
        let other = files.open(None, &[P521, verifying]);
        // A key of another kind is skipped in a file, but not a file without any other.
        assert!(other.is_err());
        let both = format!("{P521}{verifying}");
        let other = files.open(None, &[&both]).unwrap();
        let found = verify(&other, &token, 500).unwrap();
        let user = found.user();
        assert_eq!(user.name, "system:serviceaccount:a:b");
        assert_eq!(user.groups[1], "system:serviceaccounts:a");
        let extra: Vec<_> = user.extra.iter().map(|(_, values)| &*values[0]).collect();
        assert_eq!(extra, ["JTI=id", "n", "p", "v"]);
        let header = URL_SAFE_NO_PAD
            .decode(token.split('.').next().unwrap())
            .unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        assert_eq!(header["alg"], name);
        let keys: Value = serde_json::from_str(&other.documents.unwrap().keys).unwrap();
        assert_eq!(keys["keys"][0]["kid"], header["kid"]);
    }
}

#[test]
fn tokens_are_refused() {
    let files = Files::new();
    let accounts = files.open(Some(RSA), &[]).unwrap();
    let with = |field: &str, value: Value| {
        let mut claims = claims();
        claims[field] = value;
        accounts.sign(&claims)
    };
    let good = accounts.sign(&claims());
    for (case, token, now, expected) in [
        ("good", good.clone(), 500, None),
        ("early by less than the leeway", good.clone(), 440, None),
        (
            "not valid yet",
            good.clone(),
            439,
            Some("service account token is not valid yet"),
        ),
        ("late by less than the leeway", good.clone(), 1060, None),
        (
            "expired",
            good.clone(),
            1061,
            Some("service account token has expired"),
        ),
        (
            "issued in the future",
            with("iat", 900.into()),
            500,
            Some("service account token is issued in the future"),
        ),
        (
            "another audience",
            with("aud", json!(["other"])),
            500,
            Some("token audiences [\"other\"] is invalid for the target audiences [\"api\"]"),
        ),
        (
            "no audience is that of the server",
            with("aud", Value::Null),
            500,
            None,
        ),
        ("one audience", with("aud", "api".into()), 500, None),
        ("a second issuer", with("iss", "two".into()), 500, None),
        ("another issuer", with("iss", "three".into()), 500, Some("")),
        ("wrong types", with("exp", "never".into()), 500, Some("")),
    ] {
        let found = verify(&accounts, &token, now)
            .err()
            .map(Option::unwrap_or_default);
        assert_eq!(found.as_deref(), expected, "{case}");
    }
}

#[test]
fn forged_tokens_are_refused() {
    let files = Files::new();
    let accounts = files.open(Some(RSA), &[]).unwrap();
    let good = accounts.sign(&claims());
    let parts: Vec<&str> = good.split('.').collect();
    let header = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let own_id = accounts.signing_key.public().id.clone();
    let spoof = |header_text: String| format!("{header_text}.{}.{}", parts[1], parts[2]);
    for (case, token, now, expected) in [
        (
            "another key",
            files.open(Some(P256), &[]).unwrap().sign(&claims()),
            500,
            Some("invalid signature, no keys found"),
        ),
        (
            "none",
            spoof(header(json!({"alg": "none"}))),
            500,
            Some("the signature is invalid"),
        ),
        (
            "none without a signature",
            format!("{}.{}.", header(json!({"alg": "none"})), parts[1]),
            500,
            Some("the signature is invalid"),
        ),
        (
            "another algorithm",
            spoof(header(json!({"alg": "HS256", "kid": own_id}))),
            500,
            Some("the signature is invalid"),
        ),
        (
            "extensions",
            spoof(header(json!({"alg": "RS256", "crit": ["exp"]}))),
            500,
            Some(""),
        ),
        (
            "a changed header",
            spoof(header(json!({"alg": "RS256", "kid": own_id, "typ": "JWT"}))),
            500,
            Some("the signature is invalid"),
        ),
        (
            "changed claims",
            format!(
                "{}.{}.{}",
                parts[0],
                header(claims()).to_uppercase(),
                parts[2]
            ),
            500,
            Some(""),
        ),
        ("another part", format!("{good}.x"), 500, Some("")),
        ("padding", format!("{good}="), 500, Some("")),
        ("empty", String::new(), 500, Some("")),
        ("dots", "..".to_owned(), 500, Some("")),
        (
            "huge",
            format!("{good}{}", "A".repeat(TOKEN_BYTES_MAX)),
            500,
            Some(""),
        ),
    ] {
        let found = verify(&accounts, &token, now)
            .err()
            .map(Option::unwrap_or_default);
        assert_eq!(found.as_deref(), expected, "{case}");
    }
}

#[test]
fn bad_files_are_refused() {
    let files = Files::new();
    for (text, reason) in [
        ("", "does not contain a valid RSA or ECDSA private key"),
        (
            "no PEM",
            "does not contain a valid RSA or ECDSA private key",
        ),
        (
            RSA_PUBLIC,
            "does not contain a valid RSA or ECDSA private key",
        ),
        (P521, "the curve must be P-256 or P-384"),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "the private key must be",
        ),
    ] {
        let error = files.open(Some(text), &[]).unwrap_err().to_string();
        assert!(
            error.contains(reason) && error.contains("signing"),
            "{error}"
        );
    }
    let error = files.open(None, &["x"]).unwrap_err().to_string();
    assert!(
        error.contains("any valid RSA or ECDSA public keys"),
        "{error}"
    );
    let options = ServiceAccountOptions {
        key_files: vec![files.0.path().join("absent")],
        ..ServiceAccountOptions::default()
    };
    assert!(ServiceAccounts::open(&options, "").is_err());
    let options = ServiceAccountOptions {
        key_files: vec![files.0.path().to_owned()],
        ..ServiceAccountOptions::default()
    };
    let error = ServiceAccounts::open(&options, "").unwrap_err().to_string();
    assert!(error.contains("no regular file"), "{error}");
}

#[test]
fn only_issuers_with_https_are_described() {
    for (issuer, is_described) in [
        ("https://one", true),
        ("http://one", false),
        ("one", false),
        ("https://one?a=b", false),
        ("https://one#a", false),
    ] {
        let options = ServiceAccountOptions {
            issuers: vec![issuer.to_owned()],
            ..ServiceAccountOptions::default()
        };
        let accounts = ServiceAccounts::open(&options, "https://two").unwrap();
        assert_eq!(accounts.documents.is_some(), is_described, "{issuer}");
    }
}
