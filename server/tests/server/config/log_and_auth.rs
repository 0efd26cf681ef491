//! Logs and authentication.

use std::time::Duration;

use revstore::{AuthToken, JwtMethod, LogLevel, LogOutput, LogRotation};

use super::{check, check_error, check_warning, serve, try_serve};

#[test]
fn fl_12_log() {
    check(
        "--log-outputs=stdout,a.log --log-level=warn",
        |config| (config.log.level, config.log.outputs.clone()),
        (
            LogLevel::Warn,
            vec![LogOutput::File("a.log".into()), LogOutput::Stdout],
        ),
    );
    check(
        "--log-outputs=",
        |config| config.log.outputs.clone(),
        vec![LogOutput::Stderr],
    );
    check_error(
        "--log-outputs=default,stdout",
        1,
        "multi logoutput for \"default\" is not supported yet",
    );
    check_error("--log-level=loud", 1, "unrecognized level: \"loud\"");
    check_warning("--log-outputs=systemd/journal,stderr", "standard error");
}

#[test]
fn fl_20_the_rest() {
    check(
        "--data-dir d",
        |config| config.data_dir.clone(),
        Some("d".into()),
    );
    check(
        "--auth-token-ttl=0",
        |config| config.auth.token_ttl,
        Duration::from_secs(300),
    );
    check("--bcrypt-cost=4", |config| config.auth.bcrypt_cost, 4);
    check_warning("--bcrypt-cost=99", "--bcrypt-cost 99 is not from 4 to 31");
    check_error("--auth-token=paseto", 1, "auth: invalid auth options");
}

fn check_token(text: &str, expected: Result<AuthToken, &str>) {
    let actual = try_serve(&format!("--auth-token={text}"))
        .map(|(config, _)| config.auth.token)
        .map_err(|error| error.to_string());
    assert_eq!(actual, expected.map_err(str::to_owned), "{text:?}");
}

#[test]
fn fl_20_auth_token() {
    check_token("simple", Ok(AuthToken::Simple));
    check_token("", Ok(AuthToken::Disabled));
    let (config, _) =
        serve("--auth-token=jwt,pub-key=app.rsa.pub,priv-key=app.rsa,sign-method=RS512,ttl=10m");
    let AuthToken::Jwt(options) = config.auth.token else {
        panic!("{:?}", config.auth);
    };
    assert_eq!(options.sign_method, JwtMethod::Rs512);
    assert_eq!(options.public_key, Some("app.rsa.pub".into()));
    assert_eq!(options.private_key, Some("app.rsa".into()));
    assert_eq!(options.ttl, Duration::from_secs(600));
    check_token("jwt", Err("auth: invalid auth signature method"));
    check_token(
        "jwt,sign-method=none",
        Err("auth: invalid auth signature method"),
    );
    check_token("jwt,sign-method", Err("auth: invalid auth options"));
    check_token("jwt,ttl=1s,ttl=2s", Err("auth: invalid auth options"));
    for method in JwtMethod::ALL {
        let (config, _) = serve(&format!("--auth-token=jwt,sign-method={method},priv-key=a"));
        assert!(
            matches!(config.auth.token, AuthToken::Jwt(options) if options.sign_method == method)
        );
    }
    check_warning(
        "--auth-token=jwt,sign-method=RS256,priv-key=a,public-key=b",
        "--auth-token: the unknown JWT option \"public-key\" has no effect",
    );
    check_warning(
        "--auth-token=jwt,sign-method=HS256,priv-key=a,pub-key=b",
        "--auth-token: pub-key has no effect with sign-method=HS256",
    );
    check_token("paseto", Err("auth: invalid auth options"));
    check_token(
        "jwt,sign-method=HS256,ttl=5",
        Err("time: missing unit in duration \"5\""),
    );
}

#[test]
fn the_rotation_of_the_log_needs_one_file_and_a_valid_configuration() {
    let single =
        "--log-outputs requires a single file path when --log-rotate-config-json is defined";
    for outputs in ["", "--log-outputs=stderr", "--log-outputs=a,b"] {
        check_error(&format!("{outputs} --enable-log-rotation"), 1, single);
    }
    let config = |json: &str| {
        let flags = "--log-outputs=stderr,a --enable-log-rotation --log-rotation-config-json=";
        format!("{flags}{json}")
    };
    for (json, reason) in [
        ("{", "improperly formatted log rotation config: "),
        ("[]", "invalid log rotation config: "),
        (r#"{"maxsize":"1"}"#, "invalid log rotation config: "),
        (r#"{"compress":1}"#, "invalid log rotation config: "),
    ] {
        let error = super::try_serve(&config(json)).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
    }
    let log = serve(&config(
        r#"{"MaxSize":2,"maxage":-1,"maxbackups":3,"compress":true,"localtime":true,"x":1}"#,
    ))
    .0
    .log;
    let rotation = LogRotation::default()
        .bytes_max(2 << 20)
        .backups_max(Some(3))
        .compress(true)
        .local_time(true);
    let expected = [
        LogOutput::RotatedFile("a".into(), rotation),
        LogOutput::Stderr,
    ];
    assert_eq!(log.outputs, expected);
}
