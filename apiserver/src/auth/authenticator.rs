//! From the credentials of a request to a user.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use revstore_host::net::ClientIdentity;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::Status;

use crate::auth::{ServiceAccounts, TokenFile, User};

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
            Some(token) => match self.user_of_token(&token, now) {
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
fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let header = String::from_utf8_lossy(headers.get(AUTHORIZATION)?.as_bytes());
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
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
}
