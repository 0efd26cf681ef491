//! The flags of TLS.

use revstore::{Certificate, ClientAuth, TlsVersion};

use super::{check, check_error, check_warning};

const SECURE: &str =
    "--listen-client-urls https://127.0.0.1:0 --advertise-client-urls https://127.0.0.1:1";

#[test]
fn tl_1_certificates() {
    check(
        &format!("{SECURE} --cert-file a.crt --key-file a.key"),
        |config| {
            config
                .tls
                .clone()
                .map(|tls| (tls.certificate, tls.client_auth, tls.min_version))
        },
        Some((
            Certificate::Files {
                cert_file: "a.crt".into(),
                key_file: "a.key".into(),
            },
            None,
            TlsVersion::V1_2,
        )),
    );
    check(
        &format!("{SECURE} --auto-tls"),
        |config| {
            (
                config.tls.clone().map(|tls| tls.certificate),
                config.client_hosts(),
            )
        },
        (
            Some(Certificate::SelfSigned { validity_years: 1 }),
            vec!["127.0.0.1".to_owned()],
        ),
    );
    check_error(
        SECURE,
        1,
        "TLS key/cert (--cert-file, --key-file) must be provided for client url \
         https://127.0.0.1:0 with HTTPS scheme",
    );
    check_error(
        &format!("{SECURE} --cert-file a.crt"),
        1,
        "KeyFile and CertFile must both be present[key: , cert: a.crt]",
    );
    check_warning(
        "--cert-file a.crt --key-file a.key",
        "ignoring key and cert files for http://",
    );
    check_warning(
        &format!("{SECURE} --cert-file a --key-file b --auto-tls"),
        "ignoring --auto-tls",
    );
}

#[test]
fn tl_1_a_ca_alone_demands_client_certificates() {
    for (line, trusted_ca_file, names_users) in [
        ("--client-cert-auth", None, true),
        ("--trusted-ca-file ca.crt", Some("ca.crt".into()), false),
        (
            "--client-cert-auth --trusted-ca-file ca.crt",
            Some("ca.crt".into()),
            true,
        ),
    ] {
        let mut expected = ClientAuth::default();
        expected.trusted_ca_file = trusted_ca_file;
        expected.names_users = names_users;
        check(
            &format!("{SECURE} --auto-tls {line}"),
            |config| config.tls.clone().and_then(|tls| tls.client_auth),
            Some(expected),
        );
    }
}

#[test]
fn tl_1_versions() {
    check_error(
        "--tls-min-version=TLS1.1",
        1,
        "unexpected TLS version \"TLS1.1\" (must be one of: TLS1.2, TLS1.3)",
    );
    check_error(
        "--tls-min-version=TLS1.3 --tls-max-version=TLS1.2",
        1,
        "min version (TLS1.3) is greater than max version (TLS1.2)",
    );
    check_error(
        "--tls-min-version=TLS1.3 --cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        1,
        "cipher suites cannot be configured when only TLS1.3 is enabled",
    );
}

#[test]
fn tl_4_peer_urls_need_a_certificate_of_their_own() {
    let secure = "--listen-peer-urls https://127.0.0.1:0";
    check_error(
        &format!("{secure} --cert-file a --key-file b"),
        1,
        "cannot listen on TLS for https://127.0.0.1:0: KeyFile and CertFile are not presented \
         (--peer-cert-file, --peer-key-file)",
    );
    check(
        &format!("{secure} --peer-auto-tls --self-signed-cert-validity 2"),
        |config| {
            let tls = config.peer_tls.clone();
            (tls.map(|tls| tls.certificate), config.peer_hosts())
        },
        (
            Some(Certificate::SelfSigned { validity_years: 2 }),
            vec!["127.0.0.1".to_owned()],
        ),
    );
    let mut expected = ClientAuth::new("ca.crt");
    expected.crl_file = Some("ca.crl".into());
    expected.allowed_common_names = vec!["a".to_owned(), "b".to_owned()];
    expected.verify_address = true;
    check(
        &format!(
            "{secure} --peer-auto-tls --peer-client-cert-auth --peer-trusted-ca-file ca.crt \
             --peer-crl-file ca.crl --peer-cert-allowed-cn a,b"
        ),
        |config| config.peer_tls.clone().and_then(|tls| tls.client_auth),
        Some(expected),
    );
    check_warning(
        "--peer-client-cert-auth",
        "ignoring client cert auth for http://localhost:2380",
    );
}

#[test]
fn tl_4_restrictions_that_cannot_apply_are_refused_or_cause_a_warning() {
    check_error(
        &format!("{SECURE} --auto-tls --client-cert-allowed-cn a --client-cert-allowed-hostname b"),
        1,
        "AllowedCNs and AllowedHostnames are mutually exclusive (cns=[\"a\"], hostnames=[\"b\"])",
    );
    for flag in [
        "client-crl-file",
        "client-cert-allowed-hostname",
        "client-cert-allowed-cn",
    ] {
        check_warning(
            &format!("{SECURE} --auto-tls --{flag} x"),
            &format!("--{flag} has no effect, because no certificate is required of clients"),
        );
    }
    check_warning(
        "--client-cert-auth",
        "ignoring client cert auth for http://localhost:2379",
    );
}
