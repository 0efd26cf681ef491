//! The rules for the field `clientConfig` of a webhook, those of configurations and of definitions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use revstore_cel::Url;
use revstore_watch_cache::names::subdomain_error;
use revstore_watch_cache::status::{FieldPath, StatusCause};
use rustls_pki_types::pem::{self, SectionKind};
use serde_json::{Value, json};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::webhook::endpoint::DEFAULT_PORT;

const FORM: &str = "; desired format: https://host[/path]";
/// The numbers of ports.
const PORTS: std::ops::RangeInclusive<i64> = 1..=65535;

/// Returns what is wrong with the place of a webhook: the fields `url` and `service` below `path`.
pub(crate) fn place_errors(path: &FieldPath, config: &Value) -> Vec<StatusCause> {
    let set = |name: &str| config.get(name).filter(|value| !value.is_null());
    match (set("url"), set("service")) {
        (Some(url), None) => {
            url_errors(&path.clone().child("url"), url.as_str().unwrap_or_default())
        }
        (None, Some(service)) => service_errors(&path.clone().child("service"), service),
        _ => {
            let detail = "exactly one of url or service is required";
            vec![StatusCause::required(path.clone(), detail)]
        }
    }
}

/// Corresponds to `ValidateWebhookURL`.
fn url_errors(path: &FieldPath, text: &str) -> Vec<StatusCause> {
    let url = match Url::parse_reference(text) {
        Ok(url) => url,
        Err(error) => {
            let detail = format!("url must be a valid URL: {error}{FORM}");
            return vec![StatusCause::required(path.clone(), &detail)];
        }
    };
    let mut causes = Vec::new();
    let mut invalid = |value: &str, detail: &str| {
        causes.push(StatusCause::invalid(path.clone(), value, detail));
    };
    if url.scheme() != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        invalid(url.scheme(), &detail);
    }
    if url.host().is_empty() {
        invalid("", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user() {
        invalid(user, "user information is not permitted in the URL");
    }
    if !url.fragment().is_empty() {
        invalid(url.fragment(), "fragments are not permitted in the URL");
    }
    if !url.raw_query().is_empty() {
        let detail = "query parameters are not permitted in the URL";
        invalid(url.raw_query(), detail);
    }
    causes
}

/// Corresponds to `ValidateWebhookService`. Its callers exchange the name and the namespace, and so do its causes.
fn service_errors(path: &FieldPath, service: &Value) -> Vec<StatusCause> {
    let text = |name: &str| {
        service
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let mut causes = Vec::new();
    for (field, value) in [("name", text("namespace")), ("namespace", text("name"))] {
        if value.is_empty() {
            causes.push(StatusCause::required(path.clone().child(field), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64);
    let port = port.unwrap_or(i64::from(DEFAULT_PORT));
    if !PORTS.contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(StatusCause::invalid(
            path.clone().child("port"),
            port,
            detail,
        ));
    }
    let url_path = text("path");
    if url_path.is_empty() || url_path == "/" {
        return causes;
    }
    let mut invalid = |detail: &str| {
        let field = path.clone().child("path");
        causes.push(StatusCause::invalid(field, url_path, detail));
    };
    if url_path == "//" {
        invalid("segment[0] may not be empty");
        return causes;
    }
    if !url_path.starts_with('/') {
        invalid("must start with a '/'");
    }
    // The first byte is left out, whatever it is.
    let first = url_path.chars().next().map_or(0, char::len_utf8);
    let rest = &url_path[first..];
    for (index, step) in rest
        .strip_suffix('/')
        .unwrap_or(rest)
        .split('/')
        .enumerate()
    {
        if step.is_empty() {
            invalid(&format!("segment[{index}] may not be empty"));
        } else if let Some(error) = subdomain_error(step) {
            invalid(&format!("segment[{index}]: {error}"));
        }
    }
    causes
}

/// Returns what is wrong with the certificates of a webhook, as base64. None at all are right. Corresponds to
/// `ValidateCABundle`.
pub(crate) fn bundle_error(path: FieldPath, bundle: &str) -> Option<StatusCause> {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    if bytes.is_empty() {
        return None;
    }
    let reason = unreadable(&bytes)?;
    let detail = format!("unable to load root certificates: {reason}");
    Some(StatusCause::invalid(path, json!(bundle), &detail))
}

/// Returns why a text in PEM has no certificate.
fn unreadable(text: &[u8]) -> Option<&'static str> {
    let mut rest = text;
    let mut reason = None;
    loop {
        match pem::from_buf(&mut rest) {
            Ok(Some((SectionKind::Certificate, bytes))) => {
                if Certificate::from_der(&bytes).is_ok() {
                    return None;
                }
                reason = Some("failed to parse certificate: x509: malformed certificate");
            }
            Ok(Some(_)) => {}
            Ok(None) if ends_with_section(text) => break,
            Ok(None) | Err(_) => {
                reason = reason.or(Some("unable to parse bytes as PEM block"));
                break;
            }
        }
    }
    reason.or(Some("no valid certificate authority data seen"))
}

/// Returns whether the last line of a text ends a section of PEM, of whatever kind.
fn ends_with_section(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let line = text.rsplit(|byte| *byte == b'\n').next().unwrap_or(text);
    line.trim_ascii_end().ends_with(b"-----") && line.starts_with(b"-----END ")
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use revstore_watch_cache::status::FieldPath;
    use serde_json::json;

    use super::{bundle_error, place_errors};

    fn errors(config: &serde_json::Value) -> Vec<String> {
        let causes = place_errors(&FieldPath::new("c"), config);
        causes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn urls_are_checked_with_the_texts_of_kubernetes() {
        let form = "; desired format: https://host[/path]";
        for (url, expected) in [
            ("https://a.b/c", vec![]),
            ("HTTPS://h/?", vec![]),
            (
                "http://u:p:q@/?q#f",
                vec![
                    format!(
                        "Invalid value: \"http\": 'https' is the only allowed URL scheme{form}"
                    ),
                    format!("Invalid value: \"\": host must be specified{form}"),
                    "Invalid value: \"u:p%3Aq\": user information is not permitted in the URL"
                        .into(),
                    "Invalid value: \"f\": fragments are not permitted in the URL".into(),
                    "Invalid value: \"q\": query parameters are not permitted in the URL".into(),
                ],
            ),
            (
                "https:opaque",
                vec![format!("Invalid value: \"\": host must be specified{form}")],
            ),
            (
                "1http://x",
                vec![format!(
                    "Required value: url must be a valid URL: parse \"1http://x\": first path segment in URL cannot \
                     contain colon{form}"
                )],
            ),
            (
                "https://h%41/",
                vec![format!(
                    "Required value: url must be a valid URL: parse \"https://h%41/\": invalid URL escape \"%41\"{form}"
                )],
            ),
            (
                "https://u s@h/",
                vec![format!(
                    "Required value: url must be a valid URL: parse \"https://u s@h/\": net/url: invalid userinfo{form}"
                )],
            ),
        ] {
            let expected: Vec<_> = expected.iter().map(|it| format!("c.url: {it}")).collect();
            assert_eq!(errors(&json!({ "url": url })), expected, "{url}");
        }
        let both = "c: Required value: exactly one of url or service is required";
        assert_eq!(errors(&json!({})), [both]);
        assert_eq!(errors(&json!({"url": "https://h", "service": {}})), [both]);
    }

    #[test]
    fn services_are_checked_with_the_texts_of_kubernetes() {
        for (service, expected) in [
            (
                json!({"name": "n", "namespace": "m", "path": "/a/b/"}),
                vec![],
            ),
            (json!({"name": "n"}), vec!["name: Required value"]),
            (
                json!({"name": "n", "namespace": "m", "port": 0}),
                vec![
                    "port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                json!({"name": "n", "namespace": "m", "path": "//"}),
                vec!["path: Invalid value: \"//\": segment[0] may not be empty"],
            ),
            (
                json!({"name": "n", "namespace": "m", "path": "ä//"}),
                vec![
                    "path: Invalid value: \"ä//\": must start with a '/'",
                    "path: Invalid value: \"ä//\": segment[0] may not be empty",
                    "path: Invalid value: \"ä//\": segment[1] may not be empty",
                ],
            ),
        ] {
            let expected: Vec<_> = expected
                .iter()
                .map(|it| format!("c.service.{it}"))
                .collect();
            assert_eq!(
                errors(&json!({ "service": service })),
                expected,
                "{service}"
            );
        }
    }

    #[test]
    fn bundles_without_a_certificate_are_refused() {
        let begin = |kind: &str, text: &str| {
            format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
        };
        let key = begin("KEY", "AAAA");
        let generated = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let good = generated.cert.pem();
        let unparsable = "unable to parse bytes as PEM block";
        let nothing = "no valid certificate authority data seen";
        let malformed = "failed to parse certificate: x509: malformed certificate";
        for (text, expected) in [
            (String::new(), None),
            (good.clone(), None),
            (begin("CERTIFICATE", "AAAA") + &good, None),
            (key.clone() + &good, None),
            ("x".to_owned(), Some(unparsable)),
            ("\n".to_owned(), Some(unparsable)),
            (begin("CERTIFICATE", "!!"), Some(unparsable)),
            (key.clone() + "\nx", Some(unparsable)),
            (key, Some(nothing)),
            (begin("CERTIFICATE", "AAAA"), Some(malformed)),
        ] {
            let error = bundle_error(FieldPath::new("c"), &STANDARD.encode(&text));
            let message = error.map(|cause| cause.message);
            let found = message
                .as_deref()
                .and_then(|it| it.rsplit_once("certificates: "));
            assert_eq!(found.map(|(_, reason)| reason), expected, "{text}");
        }
    }
}
