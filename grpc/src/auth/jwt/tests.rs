use std::time::UNIX_EPOCH;

use super::*;

const TTL: Duration = Duration::from_secs(300);
const NOW: u64 = 1_800_000_000;
const SECRET: &[u8] = b"secret\n";

macro_rules! key {
    ($name:literal) => {
        Some(include_bytes!(concat!("../../../tests/keys/", $name, ".pem")).as_slice())
    };
}

type Keys = (Option<&'static [u8]>, Option<&'static [u8]>);

/// Returns the public and the private key file for a method.
fn keys(method: JwtMethod) -> Keys {
    use JwtMethod as M;
    match method {
        M::Hs256 | M::Hs384 | M::Hs512 => (None, Some(SECRET)),
        M::Rs256 | M::Rs384 | M::Rs512 | M::Ps256 | M::Ps384 | M::Ps512 => {
            (key!("rsa.pub"), key!("rsa"))
        }
        M::Es256 => (key!("p256.pub"), key!("p256")),
        M::Es384 => (key!("p384.pub"), key!("p384.sec1")),
        M::Es512 => (key!("p521.pub"), key!("p521")),
        M::EdDsa => (key!("ed25519.pub"), key!("ed25519")),
    }
}

fn tokens_with(method: JwtMethod, (public, private): Keys) -> Result<JwtTokens, JwtKeyError> {
    Ok(JwtTokens::new(method, public, private, TTL)?.wall_clock(|| at(NOW)))
}

fn tokens(method: JwtMethod) -> JwtTokens {
    tokens_with(method, keys(method)).unwrap()
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it is compared with an optional user"
)]
fn user(name: &str, revision: u64) -> Option<JwtUser> {
    Some(JwtUser {
        name: name.to_owned(),
        revision,
    })
}

/// Signs any header and claims with the key of `tokens`.
fn forge(tokens: &JwtTokens, header: &str, claims: &str) -> String {
    let message = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
    let signature = tokens.key.sign(message.as_bytes()).unwrap();
    format!("{message}.{}", BASE64.encode(signature))
}

fn hs256(claims: &str) -> (JwtTokens, String) {
    let tokens = tokens(JwtMethod::Hs256);
    let token = forge(&tokens, r#"{"alg":"HS256"}"#, claims);
    (tokens, token)
}

#[test]
fn au_15_every_method_verifies_what_it_signs() {
    for method in JwtMethod::ALL {
        let tokens = tokens(method);
        let token = tokens.assign("u\u{e4}\"", 7).unwrap();
        assert_eq!(tokens.user_of(&token), user("u\u{e4}\"", 7), "{method}");
        let (public, _) = keys(method);
        if public.is_some() {
            let verifier = tokens_with(method, (public, None)).unwrap();
            assert_eq!(verifier.user_of(&token), user("u\u{e4}\"", 7), "{method}");
            assert!(!verifier.can_sign());
            assert_eq!(verifier.assign("u", 7), Err(EtcdError::VerifyOnly));
        }
    }
}

#[test]
fn au_15_a_changed_token_is_invalid() {
    for method in JwtMethod::ALL {
        let tokens = tokens(method);
        let token = tokens.assign("u", 7).unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        let (header, claims) = message.split_once('.').unwrap();
        let raw = BASE64.decode(signature).unwrap();
        let mut flipped = raw.clone();
        flipped[0] ^= 1;
        let other = BASE64.encode(r#"{"username":"root","revision":7}"#);
        for changed in [
            message.to_owned(),
            format!("{message}."),
            format!("{message}.{}", BASE64.encode(&flipped)),
            format!("{message}.{}", BASE64.encode(&raw[1..])),
            format!("{message}.{}", BASE64.encode(vec![0; raw.len()])),
            format!("{header}.{other}.{signature}"),
            format!("{header}.{claims}.x.{signature}"),
            format!("{token}.{signature}"),
            format!("Bearer {token}"),
            format!("{token}="),
            String::new(),
            "..".to_owned(),
        ] {
            assert_eq!(tokens.user_of(&changed), None, "{method}: {changed}");
        }
    }
}

/// Tokens with a method other than the configured one are invalid, whatever their signature.
#[test]
fn au_15_the_method_of_a_token_must_be_that_of_the_server() {
    let claims = r#"{"username":"root","revision":7}"#;
    let rsa = tokens(JwtMethod::Rs256);
    // The public key, which anybody may know, as the secret of HMAC.
    let secret = (None, key!("rsa.pub"));
    let hmac = tokens_with(JwtMethod::Hs256, secret).unwrap();
    for alg in ["HS256", "RS256", "none", "None", "rs256", "PS256", ""] {
        let header = format!(r#"{{"alg":"{alg}"}}"#);
        let token = forge(&hmac, &header, claims);
        assert_eq!(rsa.user_of(&token), None, "{alg}");
        let unsigned = token.rsplit_once('.').unwrap().0;
        assert_eq!(rsa.user_of(&format!("{unsigned}.")), None, "{alg}");
    }
    // The same key with another method.
    let token = tokens(JwtMethod::Ps256).assign("root", 7).unwrap();
    assert_eq!(rsa.user_of(&token), None);
    for header in [
        r#"{"alg":"RS512"}"#,
        r#"{"typ":"JWT"}"#,
        r#"{"alg":5}"#,
        "[]",
        "x",
        "",
    ] {
        assert_eq!(rsa.user_of(&forge(&rsa, header, claims)), None, "{header}");
    }
    let header = r#"{"alg":"RS256","kid":"x","other":[1]}"#;
    assert_eq!(rsa.user_of(&forge(&rsa, header, claims)), user("root", 7));
}

#[test]
fn au_15_a_token_expires_in_the_second_of_its_expiry() {
    for (exp, nanos, valid) in [
        (NOW + 1, 0, true),
        (NOW + 1, 999_999_999, true),
        (NOW, 0, false),
    ] {
        let claims = format!(r#"{{"username":"u","revision":7,"exp":{exp}}}"#);
        let (tokens, token) = hs256(&claims);
        let tokens = tokens.wall_clock(move || at(NOW) + Duration::from_nanos(nanos));
        assert_eq!(tokens.user_of(&token).is_some(), valid, "{exp} {nanos}");
    }
    let tokens = tokens(JwtMethod::Hs256);
    let token = tokens.assign("u", 7).unwrap();
    for (now, valid) in [(NOW + 299, true), (NOW + 300, false)] {
        let tokens = tokens.clone().wall_clock(move || at(now));
        assert_eq!(tokens.user_of(&token).is_some(), valid);
    }
}

/// As in etcd 3.5.16.
#[test]
fn au_15_claims() {
    let check = |more: &str, valid: bool| {
        let claims = format!(r#"{{"username":"u","revision":7{more}}}"#);
        let (tokens, token) = hs256(&claims);
        assert_eq!(tokens.user_of(&token).is_some(), valid, "{claims}");
    };
    check("", true);
    for (name, past, future) in [
        ("exp", false, true),
        ("iat", true, false),
        ("nbf", true, false),
    ] {
        check(&format!(r#","{name}":{}"#, NOW - 1), past);
        check(&format!(r#","{name}":{}"#, NOW + 1), future);
        check(&format!(r#","{name}":{NOW}"#), past);
        check(&format!(r#","{name}":{NOW}.9"#), past);
        check(&format!(r#","{name}":1e300"#), future);
        check(&format!(r#","{name}":-1"#), past);
        check(&format!(r#","{name}":0"#), true);
        check(&format!(r#","{name}":null"#), false);
        check(&format!(r#","{name}":"{}""#, NOW - 1), false);
    }
    check(r#","aud":"other","iss":5"#, true);
    let depth = 100_000;
    let nested = format!(r#","x":{}{}"#, "[".repeat(depth / 8), "]".repeat(depth / 8));
    check(&nested, false);
    for claims in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"revision":7}"#,
        r#"{"username":"u"}"#,
        r#"{"username":5,"revision":7}"#,
        r#"{"username":"u","revision":"7"}"#,
    ] {
        let (tokens, token) = hs256(claims);
        assert_eq!(tokens.user_of(&token), None, "{claims}");
    }
    let (tokens, token) = hs256(r#"{"username":"","revision":7.9}"#);
    assert_eq!(tokens.user_of(&token), user("", 7));
}

#[test]
fn the_size_of_a_token_is_bounded() {
    let token = |name: usize| {
        hs256(&format!(
            r#"{{"username":"{}","revision":7}}"#,
            "u".repeat(name)
        ))
    };
    let (tokens, valid) = token(40_000);
    assert!(valid.len() < TOKEN_BYTES_MAX && tokens.user_of(&valid).is_some());
    let (tokens, long) = token(60_000);
    assert!(long.len() > TOKEN_BYTES_MAX && tokens.user_of(&long).is_none());
}

#[test]
fn au_15_extreme_times_to_live() {
    let with = |ttl| {
        let tokens = JwtTokens::new(JwtMethod::Hs256, None, Some(SECRET), ttl).unwrap();
        let token = tokens.assign("u", 7).unwrap();
        tokens.user_of(&token).is_some()
    };
    assert!(with(Duration::MAX));
    assert!(!with(Duration::ZERO));
}

#[test]
fn au_14_forms_of_keys() {
    for (method, public, private) in [
        (JwtMethod::Rs256, None, key!("rsa")),
        (JwtMethod::Rs256, None, key!("rsa-other")),
        (JwtMethod::Es256, None, key!("p256.sec1")),
        (JwtMethod::Es256, key!("p256.cert"), key!("p256")),
        (JwtMethod::Es256, key!("p256.pub"), key!("p256-no-public")),
        (JwtMethod::Es256, key!("p256.cert"), None),
        (JwtMethod::Es512, None, key!("p521")),
    ] {
        let tokens = tokens_with(method, (public, private)).unwrap();
        if tokens.can_sign() {
            let token = tokens.assign("u", 7).unwrap();
            assert_eq!(tokens.user_of(&token), user("u", 7));
        }
    }
}

#[test]
fn au_14_unsuitable_keys_are_errors() {
    let check = |method: JwtMethod, public, private, expected: &str| {
        let error = tokens_with(method, (public, private)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(expected), "{method}: {error}");
    };
    let (rsa, es, ed) = (JwtMethod::Rs256, JwtMethod::Es256, JwtMethod::EdDsa);
    for method in JwtMethod::ALL {
        check(method, None, None, "auth: missing key data");
        check(method, Some(b""), Some(b""), "auth: missing key data");
        if !method.is_symmetric() {
            check(method, Some(b"x"), None, "invalid pub-key");
            check(
                method,
                None,
                Some(b"x"),
                "contains no private key in PEM format",
            );
        }
    }
    check(
        JwtMethod::Hs256,
        key!("rsa.pub"),
        None,
        "auth: missing key data",
    );
    let mismatch = "auth: public and private keys don't match";
    check(rsa, key!("rsa.pub"), key!("rsa-other"), mismatch);
    check(
        es,
        key!("p256.pub"),
        key!("p384.sec1"),
        "invalid priv-key for ES256",
    );
    check(
        es,
        key!("p384.pub"),
        None,
        "the public key is of another type",
    );
    check(
        es,
        key!("k256.pub"),
        None,
        "the public key is of another type",
    );
    check(
        es,
        key!("rsa.pub"),
        None,
        "the public key is of another type",
    );
    check(
        rsa,
        key!("p256.cert"),
        None,
        "the public key is of another type",
    );
    check(rsa, key!("rsa-1024.pub"), None, "from 2048 to 8192 bits");
    check(rsa, key!("rsa"), None, "contains no public key");
    check(rsa, None, key!("rsa.pub"), "contains no private key");
    check(rsa, None, key!("p256"), "invalid priv-key for RS256");
    check(es, None, key!("rsa"), "invalid priv-key for ES256");
    check(es, None, key!("p256-no-public"), "pub-key is not set");
    check(JwtMethod::Es512, None, key!("p256"), "not one of P-521");
    check(ed, None, key!("p256"), "invalid priv-key for EdDSA");
    check(
        ed,
        key!("p256.pub"),
        None,
        "the public key is of another type",
    );
}

#[test]
fn keys_are_not_printed() {
    let text = format!("{:?}", tokens(JwtMethod::Hs256));
    assert!(!text.contains("secret") && text.contains("Hs256"), "{text}");
}
