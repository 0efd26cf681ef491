//! The flags of the tokens of service accounts.

use std::time::Duration;

use http::Uri;
use revstore_host::config::{ConfigError, Values};

use super::flags;
use crate::auth::ServiceAccountOptions;

/// The shortest and the longest time for `--service-account-max-token-expiration`.
const MAX_EXPIRATION: (Duration, Duration) =
    (Duration::from_secs(3600), Duration::from_secs(1 << 32));

pub(super) fn options(values: &mut Values) -> Result<ServiceAccountOptions, ConfigError> {
    let fail = |message: String| Err(ConfigError::new(message));
    let issuers = values.get(&flags::SERVICE_ACCOUNT_ISSUER).0;
    for (index, issuer) in issuers.iter().enumerate() {
        if issuer.is_empty() {
            return fail("--service-account-issuer must not be empty".to_owned());
        }
        if issuers[..index].contains(issuer) {
            return fail(format!(
                "--service-account-issuer={issuer} is already specified"
            ));
        }
        if issuer.contains(':')
            && let Err(error) = issuer.parse::<Uri>()
        {
            return fail(format!(
                "--service-account-issuer={issuer} has a ':' but is not a valid URL: {error}"
            ));
        }
    }
    let jwks_uri = values.get(&flags::SERVICE_ACCOUNT_JWKS_URI);
    let is_https = |url: &str| {
        url.parse::<Uri>()
            .is_ok_and(|url| url.scheme_str() == Some("https"))
    };
    if !jwks_uri.is_empty() && !is_https(&jwks_uri) {
        return fail(format!(
            "--service-account-jwks-uri={jwks_uri}: must be a URL with https"
        ));
    }
    let max = values.get(&flags::SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION);
    let max_expiration = max.positive();
    let (shortest, longest) = MAX_EXPIRATION;
    if max.0 != 0 && !max_expiration.is_some_and(|max| (shortest..=longest).contains(&max)) {
        let name = "--service-account-max-token-expiration";
        return fail(format!("{name} must be between 1 hour and 2^32 seconds"));
    }
    let extend_expiration = values.get(&flags::SERVICE_ACCOUNT_EXTEND_TOKEN_EXPIRATION);
    Ok(ServiceAccountOptions {
        issuers,
        jwks_uri: (!jwks_uri.is_empty()).then_some(jwks_uri),
        key_files: values
            .get(&flags::SERVICE_ACCOUNT_KEY_FILE)
            .0
            .into_iter()
            .map(Into::into)
            .collect(),
        signing_key_file: values.get(&flags::SERVICE_ACCOUNT_SIGNING_KEY_FILE),
        audiences: values.get(&flags::API_AUDIENCES),
        max_expiration,
        extend_expiration,
    })
}
