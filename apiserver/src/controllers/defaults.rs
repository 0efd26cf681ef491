//! What each namespace has: the service account `default`, and the certificate of the authority that clients trust.

use std::sync::Arc;

use revstore_reflector::{Action, WorkQueue};
use serde_json::json;

use super::client::{Client, Failure};
use super::metadata::{text, value, versioned};
use super::monitor::{Change, Monitored, Monitors, Observer};

/// The number of namespaces that are treated at the same time.
pub(super) const WORKERS: usize = 1;
/// The service account of pods that name none.
const ACCOUNT: &str = "default";
/// The name of the object with the authority, and the key in it.
const ROOT_CA: &str = "kube-root-ca.crt";
const CA_KEY: &str = "ca.crt";
/// The maximum number of authorities in it: servers over one store may have different ones. The oldest is left out.
const AUTHORITIES_MAX: usize = 16;
/// The lines around a certificate in PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// What a [`DefaultsController`] gives to namespaces.
#[derive(Debug)]
enum Default {
    ServiceAccount,
    /// The authority in PEM.
    RootCa(String),
}

/// Gives each namespace an object, again when it is deleted or changed.
pub(super) struct DefaultsController {
    client: Client,
    monitors: Arc<Monitors>,
    queue: WorkQueue<String>,
    what: Default,
}

impl DefaultsController {
    /// Returns the controller of service accounts.
    pub(super) fn of_accounts(
        client: Client,
        monitors: Arc<Monitors>,
        queue: WorkQueue<String>,
    ) -> Self {
        Self {
            client,
            monitors,
            queue,
            what: Default::ServiceAccount,
        }
    }

    /// Returns the controller of an authority in PEM.
    pub(super) fn of_authority(
        client: Client,
        monitors: Arc<Monitors>,
        queue: WorkQueue<String>,
        authority: &str,
    ) -> Self {
        Self {
            client,
            monitors,
            queue,
            what: Default::RootCa(authority.to_owned()),
        }
    }

    /// Returns the group, the plural and the name of the object.
    fn target(&self) -> (&'static str, &'static str, &'static str) {
        match self.what {
            Default::ServiceAccount => ("", "serviceaccounts", ACCOUNT),
            Default::RootCa(_) => ("", "configmaps", ROOT_CA),
        }
    }

    /// Gives a namespace what it should have.
    pub(super) async fn reconcile(self: Arc<Self>, namespace: String) -> Result<Action, Failure> {
        let (group, plural, name) = self.target();
        let (Some(namespaces), Some(resource)) = (
            self.monitors.find("", "namespaces"),
            self.monitors.find(group, plural),
        ) else {
            return Ok(Action::Done);
        };
        let found = self.client.get(&namespaces, "", &namespace).await?;
        let is_active = found.is_some_and(|found| {
            text(&value(&found), &["metadata", "deletionTimestamp"]).is_empty()
        });
        if !is_active {
            return Ok(Action::Done);
        }
        let existing = self.client.get(&resource, &namespace, name).await?;
        match (&self.what, existing) {
            (Default::ServiceAccount, None) => {
                let object = json!({"metadata": {"name": name}});
                self.create(&resource, &namespace, &object).await?;
            }
            (Default::RootCa(authority), None) => {
                let object = json!({
                    "metadata": {"name": name},
                    "data": {CA_KEY: authority},
                });
                self.create(&resource, &namespace, &object).await?;
            }
            (Default::RootCa(authority), Some(object)) => {
                let mut object = versioned(&object);
                let bundle = text(&object, &["data", CA_KEY]);
                if let Some(bundle) = with_authority(bundle, authority) {
                    object["data"][CA_KEY] = bundle.into();
                    let target = (namespace.as_str(), name);
                    self.client.update(&resource, target, "", &object).await?;
                }
            }
            (Default::ServiceAccount, Some(_)) => {}
        }
        Ok(Action::Done)
    }

    async fn create(
        &self,
        resource: &Monitored,
        namespace: &str,
        object: &serde_json::Value,
    ) -> Result<(), Failure> {
        match self.client.create(resource, namespace, object).await {
            // The namespace is being deleted, or gone.
            Err(failure) if failure.is_not_found() || failure.code == 403 => {
                let namespaces = self.monitors.find("", "namespaces");
                let found = match &namespaces {
                    Some(namespaces) => self.client.get(namespaces, "", namespace).await?,
                    None => None,
                };
                let is_active = found.is_some_and(|found| {
                    text(&value(&found), &["metadata", "deletionTimestamp"]).is_empty()
                });
                if is_active { Err(failure) } else { Ok(()) }
            }
            created => created,
        }
    }
}

/// Returns a bundle of authorities to which one is added; `None` if it is there.
fn with_authority(bundle: &str, authority: &str) -> Option<String> {
    let own = certificates(authority);
    let mut all = certificates(bundle);
    if own.iter().all(|certificate| all.contains(certificate)) {
        return None;
    }
    all.retain(|certificate| !own.contains(certificate));
    all.extend(own);
    let first = all.len().saturating_sub(AUTHORITIES_MAX);
    Some(all[first..].concat())
}

/// Returns the certificates in a text, each in PEM.
fn certificates(text: &str) -> Vec<String> {
    let parts = text.split(BEGIN).skip(1);
    let parts = parts.filter_map(|part| part.split_once(END));
    parts
        .map(|(body, _)| format!("{BEGIN}{body}{END}\n"))
        .collect()
}

impl Observer for DefaultsController {
    fn wants(&self, resource: &Monitored) -> bool {
        let (group, plural, _) = self.target();
        resource.is("", "namespaces") || resource.is(group, plural)
    }

    fn observe(&self, resource: &Arc<Monitored>, change: Change<'_>) {
        let object = change.object();
        if resource.is("", "namespaces") {
            if matches!(change, Change::Set(_)) {
                self.queue.add(object.name().to_owned());
            }
        } else if object.name() == self.target().2 {
            self.queue.add(object.namespace().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> String {
        format!("{BEGIN}\n{name}\n{END}\n")
    }

    #[test]
    fn servers_with_different_authorities_agree_on_a_bundle() {
        let (one, two) = (pem("one"), pem("two"));
        assert_eq!(with_authority("", &one), Some(one.clone()));
        assert_eq!(with_authority(&one, &one), None);
        assert_eq!(with_authority("garbage", &one), Some(one.clone()));
        let both = with_authority(&one, &two).unwrap();
        assert_eq!(both, format!("{one}{two}"));
        assert_eq!(with_authority(&both, &one), None);
        let many: String = (0..20).map(|number| pem(&number.to_string())).collect();
        let bounded = with_authority(&many, &one).unwrap();
        assert_eq!(certificates(&bounded).len(), AUTHORITIES_MAX);
        assert!(bounded.ends_with(&one));
    }
}
