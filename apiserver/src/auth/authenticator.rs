//! From the credentials of a request to a user.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use revstore_host::net::ClientIdentity;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::Status;

use crate::auth::{ServiceAccounts, TokenFile, User};

/// The header that names the user in whose name a request is made, and the beginning of the headers with
/// further attributes of that user.
const IMPERSONATE_USER: &str = "impersonate-user";
const IMPERSONATE_GROUP: &str = "impersonate-group";
const IMPERSONATE_UID: &str = "impersonate-uid";
const IMPERSONATE_EXTRA: &str = "impersonate-extra-";

/// Finds the user of a request by its client certificate or its bearer token.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) tokens: TokenFile,
    pub(crate) service_accounts: ServiceAccounts,
}

impl Authenticator {
    /// Returns the user of a bearer token at `now`, the time in seconds since 1970.
    pub(crate) fn user_of_token(&self, token: &str, now: i64) -> Option<User> {
        let user = self.tokens.user(token).cloned();
        let user = user.or_else(|| self.service_accounts.user(token, now));
        user.map(User::authenticated)
    }

    /// Returns the user of a request. `trusted` is whether the listener takes requests without credentials
    /// for those of an administrator, and `now` the time in seconds since 1970.
    ///
    /// # Errors
    /// 401 if the token is unknown.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        client: &ClientIdentity,
        trusted: bool,
        now: i64,
    ) -> Result<User, RequestError> {
        if let Some(name) = client
            .common_name
            .as_deref()
            .filter(|name| !name.is_empty())
        {
            let user = User::new(name, client.organizations.iter().map(String::as_str));
            return Ok(user.authenticated());
        }
        match bearer_token(headers) {
            Some(token) => match self.user_of_token(token, now) {
                Some(user) => Ok(user),
                None => Err(Status::unauthorized().into()),
            },
            None if trusted => Ok(User::administrator()),
            None => Ok(User::anonymous()),
        }
    }
}

/// Returns the token in the header `Authorization`. A header of another scheme, or without a token, is as good
/// as none.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = header.split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Returns the user in whose name a request is made, if its headers name one.
///
/// # Errors
/// The message of an internal error if there are attributes of a user but no name.
pub(crate) fn impersonated(headers: &HeaderMap) -> Result<Option<User>, String> {
    let values = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    let text = |name: &str| values(name).into_iter().next().unwrap_or_default();
    let mut extra: Vec<(String, Vec<String>)> = Vec::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(IMPERSONATE_EXTRA) {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy();
            extra.push((key.into_owned(), values(name.as_str())));
        }
    }
    let (name, uid, groups) = (
        text(IMPERSONATE_USER),
        text(IMPERSONATE_UID),
        values(IMPERSONATE_GROUP),
    );
    if name.is_empty() {
        let has_attributes = !groups.is_empty() || !uid.is_empty() || !extra.is_empty();
        return if has_attributes {
            let message =
                "requested impersonation of a group, a uid or extra attributes without a user";
            Err(message.to_owned())
        } else {
            Ok(None)
        };
    }
    let user = User {
        uid,
        extra,
        ..User::new(name.as_str(), groups)
    };
    Ok(Some(match name.as_str() {
        "system:anonymous" if user.groups.is_empty() => User::anonymous(),
        "system:anonymous" => user,
        _ => user.authenticated(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn credentials_are_certificates_then_tokens() {
        let tokens = TokenFile::parse("t,dev,1,devs").unwrap();
        let service_accounts = ServiceAccounts::generate();
        let authenticator = Authenticator {
            tokens,
            service_accounts,
        };
        let mut certificate = ClientIdentity::default();
        certificate.common_name = Some("admin".to_owned());
        certificate.organizations = vec!["system:masters".to_owned()];
        let (none, unknown) = (
            ClientIdentity::default(),
            headers(&[("authorization", "Bearer x")]),
        );
        let user = |headers: &HeaderMap, client: &ClientIdentity, trusted| {
            let user = authenticator.authenticate(headers, client, trusted, 0);
            user.map(|user| user.name).map_err(|error| error.code())
        };
        assert_eq!(user(&unknown, &certificate, false), Ok("admin".to_owned()));
        assert_eq!(user(&unknown, &none, true), Err(401));
        for (header, trusted, expected) in [
            ("bearer t", false, "dev"),
            ("Bearer", false, "system:anonymous"),
            ("Basic YTpi", false, "system:anonymous"),
            ("Basic YTpi", true, "admin"),
        ] {
            let found = user(&headers(&[("authorization", header)]), &none, trusted);
            assert_eq!(found, Ok(expected.to_owned()), "{header}");
        }
    }

    #[test]
    fn impersonated_users_have_their_groups_and_attributes() {
        let user = impersonated(&headers(&[
            ("impersonate-user", "ann"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-extra-scopes%2fx", "view"),
        ]));
        let user = user.unwrap().unwrap();
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(
            user.extra,
            [("scopes/x".to_owned(), vec!["view".to_owned()])]
        );
        assert!(impersonated(&headers(&[("impersonate-group", "a")])).is_err());
        assert_eq!(impersonated(&HeaderMap::new()), Ok(None));
    }
}
