use serde_json::Value;

use crate::auth::User;

/// The time by which the clocks of servers may differ, in seconds: a token is valid this much earlier and longer.
pub(super) const LEEWAY_SECONDS: i64 = 60;
/// The beginning of the keys of further attributes of users.
const EXTRA_PREFIX: &str = "authentication.kubernetes.io/";

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(super) issuer: String,
    /// Who the token is for.
    pub(crate) audiences: Vec<String>,
    id: String,
    times: Times,
    pub(super) namespace: String,
    pub(super) account: Reference,
    pub(super) pod: Option<Reference>,
    pub(super) secret: Option<Reference>,
    pub(super) node: Option<Reference>,
}

/// The times of a token in seconds since 1970, each of which may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Times {
    expires: Option<i64>,
    not_before: Option<i64>,
    issued: Option<i64>,
}

/// An object that a token names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(super) name: String,
    pub(super) uid: String,
}

impl Claims {
    /// Reads the payload of a token; `None` if a claim has another type.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(payload).ok()?;
        let claims = value.as_object()?;
        let time = |name: &str| match claims.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(value) => seconds(value).map(Some),
        };
        let audiences = match claims.get("aud") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(audience)) => vec![audience.clone()],
            Some(Value::Array(list)) => list
                .iter()
                .map(|audience| audience.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            Some(_) => return None,
        };
        let empty = Value::Null;
        let private = claims.get("kubernetes.io").unwrap_or(&empty);
        let reference = |name: &str| match &private[name] {
            Value::Null => Some(None),
            value => Some(Some(Reference {
                name: text(&value["name"])?,
                uid: text(&value["uid"])?,
            })),
        };
        Some(Self {
            issuer: text(claims.get("iss").unwrap_or(&empty))?,
            audiences,
            id: text(claims.get("jti").unwrap_or(&empty))?,
            times: Times {
                expires: time("exp")?,
                not_before: time("nbf")?,
                issued: time("iat")?,
            },
            namespace: text(&private["namespace"])?,
            account: reference("serviceaccount")?.unwrap_or_default(),
            pod: reference("pod")?,
            secret: reference("secret")?,
            node: reference("node")?,
        })
    }

    /// Checks that the token is for one of the audiences that are asked for. One that names none is for the server.
    pub(super) fn check_audiences(&self, own: &[String], asked: &[String]) -> Result<(), String> {
        let audiences = match self.audiences.as_slice() {
            [] => own,
            audiences => audiences,
        };
        if audiences.iter().any(|audience| asked.contains(audience)) {
            return Ok(());
        }
        Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted(audiences),
            quoted(asked)
        ))
    }

    /// Checks that the token is valid at a time.
    pub(super) fn check_time(&self, now: i64) -> Result<(), String> {
        let Times {
            expires,
            not_before,
            issued,
        } = self.times;
        // In the order of kube-apiserver, which decides about the message only.
        let fails = [
            (
                not_before.is_some_and(|time| now.saturating_add(LEEWAY_SECONDS) < time),
                "service account token is not valid yet",
            ),
            (
                expires.is_some_and(|time| now.saturating_sub(LEEWAY_SECONDS) > time),
                "service account token has expired",
            ),
            (
                issued.is_some_and(|time| now.saturating_add(LEEWAY_SECONDS) < time),
                "service account token is issued in the future",
            ),
        ];
        match fails.into_iter().find(|(fails, _)| *fails) {
            Some((_, message)) => Err(message.to_owned()),
            None => Ok(()),
        }
    }

    /// Returns the user of the token.
    pub(crate) fn user(&self) -> User {
        let (namespace, account) = (&self.namespace, &self.account);
        let mut extra = Vec::new();
        let mut add = |key: &str, value: &str| {
            extra.push((format!("{EXTRA_PREFIX}{key}"), vec![value.to_owned()]));
        };
        if !self.id.is_empty() {
            add("credential-id", &format!("JTI={}", self.id));
        }
        if let Some(node) = self.node.as_ref().filter(|node| !node.name.is_empty()) {
            add("node-name", &node.name);
            if !node.uid.is_empty() {
                add("node-uid", &node.uid);
            }
        }
        if let Some(pod) = &self.pod
            && !pod.name.is_empty()
            && !pod.uid.is_empty()
        {
            add("pod-name", &pod.name);
            add("pod-uid", &pod.uid);
        }
        User {
            uid: account.uid.clone(),
            extra,
            ..User::service_account(namespace, &account.name)
        }
    }
}

/// Returns a text, which may be absent.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        value => value.as_str().map(str::to_owned),
    }
}

/// Returns a time in whole seconds, of which a token may have fractions.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a time beyond the range is its end"
    )]
    value
        .as_i64()
        .or_else(|| value.as_f64().map(|seconds| seconds as i64))
}

/// Lists texts as Go's format `%q` does.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}
