//! The users who make the requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use crate::setup::Vault;

/// The users with tokens of the same name.
pub(crate) const NAMES: &[&str] = &[
    "nothing",
    "elsewhere",
    "one-name",
    "reader",
    "wrong-rules",
    "impersonator",
    "grantor",
];

/// A user, or credentials of none.
pub(crate) struct Client {
    pub(crate) name: &'static str,
    /// The header fields with the credentials.
    pub(crate) fields: String,
    /// Whether the credentials are those of no user.
    pub(crate) is_unknown: bool,
}

impl Client {
    pub(crate) fn with_token(name: &'static str, token: &str) -> Self {
        Self {
            name,
            fields: format!("Authorization: Bearer {token}\r\n"),
            is_unknown: false,
        }
    }
}

impl Client {
    /// Returns whether the user is one of impersonation, which has one place in a request.
    pub(crate) fn is_in_the_name_of_another(&self) -> bool {
        self.fields.contains("Impersonate")
    }
}

/// Returns all users who may make none of the requests.
pub(crate) fn all(vault: &Vault) -> Vec<Client> {
    let mut users = vec![Client {
        name: "anonymous",
        fields: "Authorization: Bearer admin\r\nImpersonate-User: system:anonymous\r\n".to_owned(),
        is_unknown: false,
    }];
    let few = NAMES.iter().filter(|name| **name != "grantor");
    users.extend(few.map(|name| Client::with_token(name, name)));
    let parts: Vec<&str> = vault.expired.split('.').collect();
    let part = |text: &str| BASE64.encode(text);
    let none = format!("{}.{}.", part(r#"{"alg":"none","typ":"JWT"}"#), parts[1]);
    let symmetric = format!("{}.{}.{}", part(r#"{"alg":"HS256"}"#), parts[1], parts[2]);
    let no_signature = format!("{}.{}.", parts[0], parts[1]);
    let claims = r#"{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:vault:expired","exp":99999999999}"#;
    let other_claims = format!("{}.{}.{}", parts[0], part(claims), parts[2]);
    for (name, token) in [
        ("expired", vault.expired.as_str()),
        ("deleted account", &vault.deleted),
        ("wrong key", &vault.foreign),
        ("algorithm none", &none),
        ("symmetric algorithm", &symmetric),
        ("no signature", &no_signature),
        ("other claims", &other_claims),
        ("garbage", "no-token"),
    ] {
        users.push(Client {
            is_unknown: true,
            ..Client::with_token(name, token)
        });
    }
    users
}
