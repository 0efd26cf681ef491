//! Requests in the name of another user.

use http::HeaderMap;

use crate::auth::{Attributes, User};

/// The header that names the user in whose name a request is made, and the beginning of the headers with
/// further attributes of that user.
const IMPERSONATE_USER: &str = "impersonate-user";
const IMPERSONATE_GROUP: &str = "impersonate-group";
const IMPERSONATE_UID: &str = "impersonate-uid";
const IMPERSONATE_EXTRA: &str = "impersonate-extra-";

/// The group of the resources that stand for uids and further attributes.
const GROUP: &str = "authentication.k8s.io";
/// The beginning of the names of service accounts as users, and the groups of all of them.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The user in whose name a request is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Impersonation {
    /// The user as the headers name it.
    user: User,
}

/// What a user must be allowed to impersonate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked<'a> {
    group: &'static str,
    namespace: &'a str,
    resource: &'static str,
    /// The key of a further attribute.
    subresource: &'a str,
    name: &'a str,
}

impl Asked<'_> {
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes::Resource {
            verb: "impersonate",
            group: self.group,
            namespace: self.namespace,
            resource: self.resource,
            subresource: self.subresource,
            name: self.name,
        }
    }
}

impl Impersonation {
    /// Returns the user in whose name a request is made, if its headers name one.
    ///
    /// # Errors
    /// The message of a bad request if there are attributes of a user but no name.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Result<Option<Self>, String> {
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
                    "requested groups, a uid or extra attributes without impersonating a user name";
                Err(message.to_owned())
            } else {
                Ok(None)
            };
        }
        let user = User {
            uid,
            extra,
            ..User::new(name, groups)
        };
        Ok(Some(Self { user }))
    }

    /// Returns what must be allowed: the user, each group, the uid and each further attribute.
    pub(crate) fn asked(&self) -> Vec<Asked<'_>> {
        let User {
            name,
            uid,
            groups,
            extra,
        } = &self.user;
        let asked = |group, resource, name| Asked {
            group,
            namespace: "",
            resource,
            subresource: "",
            name,
        };
        let mut all = vec![match self.service_account() {
            Some((namespace, name)) => Asked {
                namespace,
                ..asked("", "serviceaccounts", name)
            },
            None => asked("", "users", name),
        }];
        all.extend(groups.iter().map(|name| asked("", "groups", name)));
        if !uid.is_empty() {
            all.push(asked(GROUP, "uids", uid));
        }
        for (key, values) in extra {
            all.extend(values.iter().map(|value| Asked {
                subresource: key,
                ..asked(GROUP, "userextras", value)
            }));
        }
        all
    }

    /// Returns the user with the groups that follow from the name.
    pub(crate) fn into_user(mut self) -> User {
        if self.user.name == User::anonymous().name {
            if self.user.groups.is_empty() {
                self.user.groups = User::anonymous().groups;
            }
            return self.user;
        }
        if self.user.groups.is_empty()
            && let Some((namespace, _)) = self.service_account()
        {
            let own = format!("{SERVICE_ACCOUNTS}:{namespace}");
            self.user.groups = vec![SERVICE_ACCOUNTS.to_owned(), own];
        }
        self.user.authenticated()
    }

    /// Returns the namespace and the name of the service account that the user is.
    fn service_account(&self) -> Option<(&str, &str)> {
        let rest = self.user.name.strip_prefix(SERVICE_ACCOUNT)?;
        let (namespace, name) = rest.split_once(':')?;
        let is_name = |text: &str| !text.is_empty() && !text.contains(':');
        (is_name(namespace) && is_name(name)).then_some((namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn impersonation(list: &[(&'static str, &str)]) -> Result<Option<Impersonation>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        Impersonation::of_headers(&headers)
    }

    #[test]
    fn users_have_their_groups_and_attributes() {
        let found = impersonation(&[
            ("impersonate-user", "ann"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-scopes%2fx", "view"),
        ]);
        let found = found.unwrap().unwrap();
        let asked: Vec<_> = found.asked().iter().map(summary).collect();
        let expected = [
            "/users/ ann",
            "/groups/ a",
            "/groups/ b",
            "authentication.k8s.io/uids/ 7",
            "authentication.k8s.io/userextras/scopes/x view",
        ];
        assert_eq!(asked, expected);
        let user = found.into_user();
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        let extra = ("scopes/x".to_owned(), vec!["view".to_owned()]);
        assert_eq!(user.extra, [extra]);
        assert!(impersonation(&[("impersonate-group", "a")]).is_err());
        assert_eq!(impersonation(&[]), Ok(None));
    }

    #[test]
    fn service_accounts_are_asked_for_in_their_namespace() {
        let account = "system:serviceaccount:n:a";
        let found = impersonation(&[("impersonate-user", account)])
            .unwrap()
            .unwrap();
        let asked = found.asked();
        assert_eq!(
            (asked[0].resource, asked[0].namespace, asked[0].name),
            ("serviceaccounts", "n", "a")
        );
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            "system:authenticated",
        ];
        assert_eq!(found.into_user().groups, groups);
        let anonymous = impersonation(&[("impersonate-user", "system:anonymous")]);
        assert_eq!(anonymous.unwrap().unwrap().into_user(), User::anonymous());
    }

    fn summary(asked: &Asked<'_>) -> String {
        let Asked {
            group,
            resource,
            subresource,
            name,
            ..
        } = asked;
        format!("{group}/{resource}/{subresource} {name}")
    }
}
