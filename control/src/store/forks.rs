//! The forks of a server.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

use crate::control::Point;
use crate::error::ControlError;

/// The maximum number of forks of one server at the same time. Each has threads of its own.
pub const FORKS_MAX: usize = 256;

/// A running fork, which ends when it is dropped.
pub trait Fork: fmt::Debug + Send {
    /// Returns the URL for clients.
    fn endpoint(&self) -> String;
    /// Returns the URL of its port of control.
    fn control(&self) -> String;
    /// Returns the kubeconfig for clients of a Kubernetes API.
    fn kubeconfig(&self) -> Option<String> {
        None
    }
    /// Returns the URLs on which the store of a Kubernetes API is served over etcd's API.
    fn etcd_endpoints(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The number of a fork, which is never used twice. Its text is `fork-1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForkId(u64);

impl fmt::Display for ForkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fork-{}", self.0)
    }
}

/// A fork that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkInfo {
    /// The id.
    pub id: ForkId,
    /// The URL for clients.
    pub endpoint: String,
    /// The URL of its port of control.
    pub control: String,
    /// The kubeconfig for clients of a Kubernetes API; `None` for other servers.
    pub kubeconfig: Option<String>,
    /// The URLs on which the store of a Kubernetes API is served over etcd's API; none if it is not.
    pub etcd_endpoints: Vec<String>,
    /// The revision and the time at which the fork was taken.
    pub taken: Point,
}

#[derive(Debug, Default)]
pub(super) struct Forks {
    /// Held for a look, a change or a list, in which forks name their ports. Forks end without it.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_id: BTreeMap<ForkId, (Box<dyn Fork>, Point)>,
    /// The number of forks that are being started.
    starting: usize,
    last: u64,
}

impl Forks {
    /// Starts a fork.
    pub(super) fn insert(
        &self,
        start: impl FnOnce() -> Result<(Box<dyn Fork>, Point), ControlError>,
    ) -> Result<ForkInfo, ControlError> {
        {
            let mut state = self.state.lock();
            if state.by_id.len() + state.starting >= FORKS_MAX {
                return Err(ControlError::TooManyForks);
            }
            state.starting += 1;
        }
        let starting = Starting(self);
        let fork = start()?;
        drop(starting);
        let mut state = self.state.lock();
        state.last += 1;
        let info = info(ForkId(state.last), &fork);
        state.by_id.insert(info.id, fork);
        Ok(info)
    }

    pub(super) fn list(&self) -> Vec<ForkInfo> {
        let state = self.state.lock();
        let forks = state.by_id.iter();
        forks.map(|(id, fork)| info(*id, fork)).collect()
    }

    pub(super) fn clear(&self) {
        let removed = std::mem::take(&mut self.state.lock().by_id);
        drop(removed);
    }

    /// Ends a fork; returns whether there was one.
    pub(super) fn remove(&self, id: &str) -> bool {
        let removed = {
            let mut state = self.state.lock();
            let id = state
                .by_id
                .keys()
                .copied()
                .find(|fork| fork.to_string() == id);
            id.and_then(|id| state.by_id.remove(&id))
        };
        removed.is_some()
    }
}

fn info(id: ForkId, (fork, taken): &(Box<dyn Fork>, Point)) -> ForkInfo {
    ForkInfo {
        id,
        endpoint: fork.endpoint(),
        control: fork.control(),
        kubeconfig: fork.kubeconfig(),
        etcd_endpoints: fork.etcd_endpoints(),
        taken: *taken,
    }
}

struct Starting<'a>(&'a Forks);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().starting -= 1;
    }
}
