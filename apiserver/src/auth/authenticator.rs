//! From the credentials of a request to a user.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::auth::{Client, ServiceAccounts, TokenFile, User, check_objects};
use crate::catalog::Catalog;

/// The error of a token that is not one of this server.
const INVALID: &str = "invalid bearer token";

/// Finds the user of a request by its client certificate or its bearer token.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) tokens: TokenFile,
    /// Whether there is a user of requests without credentials.
    pub(crate) has_anonymous: bool,
    pub(crate) service_accounts: Arc<ServiceAccounts>,
}

/// What a request brings to say whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A user that is known by that.
    User(User),
    /// A bearer token.
    Token(String),
    /// None that are valid.
    Invalid,
}

/// The user of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    pub(crate) user: User,
    /// For which of the audiences that were asked for the token is.
    pub(crate) audiences: Vec<String>,
}

impl Authenticator {
    /// Returns the credentials of a request. `without` returns the user of requests without credentials, if there is one.
    pub(crate) fn credentials(
        headers: &HeaderMap,
        client: &Client,
        without: impl FnOnce() -> Option<User>,
    ) -> Credentials {
        if let Client::User(user) = client {
            return Credentials::User(user.clone());
        }
        match bearer_token(headers) {
            Some(token) => Credentials::Token(token),
            None if *client == Client::Invalid => Credentials::Invalid,
            None => without().map_or(Credentials::Invalid, Credentials::User),
        }
    }

    /// Returns the user of a bearer token that is for one of the audiences, at `now`, the time in seconds since 1970.
    /// The objects that a token of a service account names are looked up in the catalog.
    ///
    /// # Errors
    /// Why there is no user.
    pub(crate) async fn user_of_token(
        &self,
        token: &str,
        audiences: &[String],
        catalog: &Catalog,
        is_remote: bool,
        now: i64,
    ) -> Result<Authenticated, String> {
        let accounts = &self.service_accounts;
        let common = |of: &[String]| -> Vec<String> {
            let of = of.iter().filter(|audience| audiences.contains(audience));
            of.cloned().collect()
        };
        if let Some(user) = self.tokens.user(token) {
            // Tokens of the file are for this server.
            let audiences = common(&accounts.audiences);
            if !audiences.is_empty() {
                let user = user.clone().authenticated();
                return Ok(Authenticated { user, audiences });
            }
        }
        let claims = accounts.verify(token, audiences, now);
        let checked = match claims {
            Ok(claims) => match check_objects(catalog, is_remote, &claims, now).await {
                Ok(()) => Ok(claims),
                Err(reason) => Err(Some(reason)),
            },
            Err(reason) => Err(reason),
        };
        match checked {
            Ok(claims) => Ok(Authenticated {
                user: claims.user().authenticated(),
                audiences: common(match claims.audiences.as_slice() {
                    [] => &accounts.audiences,
                    audiences => audiences,
                }),
            }),
            Err(None) => Err(INVALID.to_owned()),
            Err(Some(reason)) => Err(format!("[{INVALID}, {reason}]")),
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
        let root = User::new("root", ["system:masters", "system:authenticated"]);
        let (certificate, none) = (Client::User(root.clone()), Client::Unknown);
        let token = |text: &str| Credentials::Token(text.to_owned());
        let user = Credentials::User;
        let (anonymous, administrator) = (User::anonymous(), User::administrator());
        for (header, client, without, expected) in [
            ("Bearer x", &certificate, None, user(root)),
            ("Bearer x", &none, Some(&administrator), token("x")),
            ("bearer t", &none, None, token("t")),
            ("Bearer", &none, Some(&anonymous), user(anonymous.clone())),
            (
                "Basic YTpi",
                &none,
                Some(&anonymous),
                user(anonymous.clone()),
            ),
            ("Basic YTpi", &none, None, Credentials::Invalid),
            ("Bearer x", &Client::Invalid, Some(&anonymous), token("x")),
            (
                "Bearer",
                &Client::Invalid,
                Some(&anonymous),
                Credentials::Invalid,
            ),
        ] {
            let headers = headers(&[("authorization", header)]);
            let found = Authenticator::credentials(&headers, client, || without.cloned());
            assert_eq!(found, expected, "{header}");
        }
    }
}
