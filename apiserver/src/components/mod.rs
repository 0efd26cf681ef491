//! The components of a cluster beside this server, which `componentstatuses` lists: each is asked for its health when a
//! client wants to know it. `probe.rs` asks one over HTTPS, `health.rs` is what it has answered.

mod health;
mod probe;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use revstore_watch_cache::api::ObjectRef;
use revstore_watch_cache::{JsonKind, Object, RequestError, Revision};
use serde::Serialize;

use crate::catalog::Resource;
use crate::storage::Storage;
use health::Health;

/// The kind of the statuses, and the name of their collection.
const KIND: &str = "ComponentStatus";
const PLURAL: &str = "componentstatuses";
/// The ports of kube-scheduler and kube-controller-manager.
const SCHEDULER_PORT: u16 = 10259;
const CONTROLLER_MANAGER_PORT: u16 = 10257;
/// The time limit of a probe, as in kube-apiserver.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Where the components are whose health `componentstatuses` tells, by default those of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Components {
    /// The address of the scheduler, which answers `/healthz` over HTTPS with any certificate.
    pub scheduler: SocketAddr,
    /// The address of the controller manager, likewise.
    pub controller_manager: SocketAddr,
    /// The time after which a component that has not answered is not healthy. The store is a component, too.
    pub timeout: Duration,
}

/// A component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Component {
    Scheduler,
    ControllerManager,
    /// The store. An etcd cluster is one component, as for kube-apiserver.
    Etcd,
}

/// A status as its JSON, with the members in the order of kube-apiserver.
#[derive(Serialize)]
struct Status<'a> {
    metadata: Metadata<'a>,
    conditions: [Health; 1],
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

impl Components {
    /// Returns whether a resource is that of the statuses.
    pub(crate) fn are(resource: &Resource) -> bool {
        resource.names.group.is_empty() && resource.names.plural == PLURAL
    }

    /// Asks a component, and returns its status, or `None` if there is no such component.
    pub(crate) async fn status(
        &self,
        storage: &Storage,
        name: &str,
    ) -> Result<Option<Object>, RequestError> {
        let mut components = Component::ALL.into_iter();
        match components.find(|component| component.name() == name) {
            Some(component) => self.ask(component, storage).await.map(Some),
            None => Ok(None),
        }
    }

    /// Asks all components at the same time, and returns their statuses.
    pub(crate) async fn statuses(&self, storage: &Storage) -> Result<Vec<Object>, RequestError> {
        let asked = Component::ALL.map(|component| self.ask(component, storage));
        join_all(asked).await.into_iter().collect()
    }

    async fn ask(&self, component: Component, storage: &Storage) -> Result<Object, RequestError> {
        let health = match component {
            Component::Scheduler => probe::ask(self.scheduler, self.timeout).await,
            Component::ControllerManager => probe::ask(self.controller_manager, self.timeout).await,
            Component::Etcd if storage.answers_within(self.timeout).await => {
                Health::healthy("ok".to_owned())
            }
            Component::Etcd => Health::failed("context deadline exceeded".to_owned()),
        };
        component.object(health)
    }
}

impl Default for Components {
    fn default() -> Self {
        let local = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        Self {
            scheduler: local(SCHEDULER_PORT),
            controller_manager: local(CONTROLLER_MANAGER_PORT),
            timeout: TIMEOUT,
        }
    }
}

impl Component {
    const ALL: [Self; 3] = [Self::ControllerManager, Self::Scheduler, Self::Etcd];

    fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::ControllerManager => "controller-manager",
            Self::Etcd => "etcd-0",
        }
    }

    /// Returns the status, which is in no store and has no version.
    fn object(self, health: Health) -> Result<Object, RequestError> {
        let name = self.name();
        let status = Status {
            metadata: Metadata { name },
            conditions: [health],
        };
        let value = serde_json::to_vec(&status);
        let value = value.map_err(|error| RequestError::Internal(error.to_string()))?;
        let (reference, kind) = (ObjectRef::cluster(name), JsonKind::new("v1", KIND));
        Ok(Object::from_parts(&reference, Revision(0), value, &kind))
    }
}
