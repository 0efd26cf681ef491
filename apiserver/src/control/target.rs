//! What control does with a server: its store and its forks.

use std::any::Any;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use revstore::control::{read_store, write_dump};
use revstore_control::clock::{Activity, ControlClock};
use revstore_control::store::{DumpForm, Fork, Frozen, StoreFile};
use revstore_control::{AlarmName, ControlError, ServedNode, Target};
use revstore_engine::{Engine, EngineBuilder, Revision};
use revstore_host::net::ListenUrl;
use tokio::sync::watch;

use super::Stage;
use crate::server::{ApiServer, ApiServerBuilder};

/// The server that has a stage.
#[derive(Debug)]
pub(super) struct FrontTarget {
    stage: Stage,
    /// The clock does not keep it alive.
    _activity: Arc<dyn Activity>,
}

/// Marks a store that a server has prepared, unlike an empty one after a reset.
#[derive(Debug)]
struct Prepared;

/// A node has no state besides its engine.
#[derive(Debug)]
struct FrontNode(Engine);

impl ServedNode for FrontNode {
    fn engine(&self) -> Engine {
        self.0.clone()
    }

    fn state(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(Prepared))
    }
}

impl FrontTarget {
    pub(super) fn new(stage: Stage, activity: Arc<dyn Activity>) -> Self {
        Self {
            stage,
            _activity: activity,
        }
    }
}

impl Target for FrontTarget {
    fn node(&self) -> Arc<dyn ServedNode> {
        Arc::new(FrontNode(self.stage.engine()))
    }

    fn engine(&self) -> Engine {
        self.stage.engine()
    }

    fn revision(&self) -> Revision {
        self.stage.revision()
    }

    fn check_store(&self) -> Result<(), ControlError> {
        if self.stage.has_store() {
            return Ok(());
        }
        let message = "the store of this server is an etcd cluster, which control does not reach";
        Err(ControlError::Refused(message.to_owned()))
    }

    fn replacements(&self) -> watch::Receiver<u64> {
        self.stage.replacements()
    }

    fn check_replaceable(&self) -> Result<(), ControlError> {
        self.check_store()
    }

    fn replace(&self, frozen: Frozen) -> Result<(), ControlError> {
        self.check_store()?;
        self.stage.replace(&frozen.engine, frozen.node.is_none())
    }

    fn write_dump(
        &self,
        frozen: &Frozen,
        form: DumpForm,
        to: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        write_dump(frozen, form, to)
    }

    fn read_store(
        &self,
        bytes: &[u8],
        file: StoreFile,
        builder: EngineBuilder,
    ) -> Result<Frozen, ControlError> {
        read_store(bytes, file, builder)
    }

    fn fork(&self, frozen: Frozen, clock: ControlClock) -> Result<Box<dyn Fork>, ControlError> {
        let mut blueprint = self.stage.blueprint().clone();
        let config = &mut blueprint.config;
        let free = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        config.http = config.http.map(|_| free);
        config.https = config.https.map(|_| free);
        config.kubeconfig_out = None;
        config.load = None;
        for url in &mut config.etcd_listen_urls {
            *url = ListenUrl::localhost(0);
        }
        if let Some(control) = &mut config.control {
            control.listen_url = Some(ListenUrl::localhost(0));
            control.allow_remote = false;
        }
        let manifests = self.stage.manifests();
        let builder = ApiServerBuilder::of_fork(&blueprint, frozen.engine, clock, manifests);
        let server = builder.start();
        let server = server.map_err(|error| {
            ControlError::Refused(format!("the fork cannot be started: {error}"))
        })?;
        Ok(Box::new(ForkedServer(server)))
    }

    fn alarm(&self, _: AlarmName, _: bool) -> Result<Vec<AlarmName>, ControlError> {
        let message = "a Kubernetes API has no alarms";
        Err(ControlError::Refused(message.to_owned()))
    }

    fn new_term(&self) -> Result<u64, ControlError> {
        let message = "a Kubernetes API has no terms";
        Err(ControlError::Refused(message.to_owned()))
    }
}

/// A fork of a server, which stops when it is dropped.
#[derive(Debug)]
struct ForkedServer(ApiServer);

impl Fork for ForkedServer {
    fn endpoint(&self) -> String {
        self.0.endpoint().to_owned()
    }

    fn control(&self) -> String {
        self.0.control_endpoint().unwrap_or_default().to_owned()
    }

    fn kubeconfig(&self) -> Option<String> {
        Some(self.0.kubeconfig().to_owned())
    }

    fn etcd_endpoints(&self) -> Vec<String> {
        self.0.etcd_endpoints().to_vec()
    }
}
