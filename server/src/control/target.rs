//! What control does with a server: its store, its forks, its alarms; and the port for its clients.

use std::{
    any::Any,
    io::{self, Cursor, Write},
    path::Path,
    sync::Arc,
};

use axum::Router;
use revstore_control::{
    AlarmName, Control, ControlError, Hooks, ServedNode, Target,
    clock::{Activity, ControlClock},
    service::{Access, ControlService},
    store::{DumpForm, Fork, Frozen, StoreFile},
};
use revstore_engine::{Engine, EngineBuilder};
use revstore_grpc::{Alarm, AlarmKind, Image, NodeState};
use revstore_host::net::ListenUrl;
use tokio::sync::watch;

use super::{Stage, stage::StagedNode};
use crate::{
    config::{Config, ControlConfig},
    server::{Server, ServerBuilder},
};

/// Creates the control of a server, whose engine has this clock.
pub(crate) fn control(
    stage: &Stage,
    clock: ControlClock,
    config: &Config,
    options: &ControlConfig,
) -> Control {
    let activity: Arc<dyn Activity> = Arc::new(stage.interceptor().open.activity().clone());
    clock.set_activity(Arc::downgrade(&activity));
    let target = StageTarget {
        stage: stage.clone(),
        config: config.clone(),
        _activity: activity,
    };
    let interceptor = stage.interceptor();
    let hooks = Hooks {
        rules: interceptor.rules.clone(),
        journal: interceptor.journal.clone(),
        open: interceptor.open.clone(),
    };
    Control::new(clock, Arc::new(target), hooks, options.memory_limit)
}

/// Returns the routes of the port of control.
pub(crate) fn routes(control: Control, access: Access) -> Router {
    Router::new().fallback_service(ControlService::new(control, access))
}

/// The server that has a stage.
#[derive(Debug)]
struct StageTarget {
    stage: Stage,
    config: Config,
    /// The clock does not keep it alive.
    _activity: Arc<dyn Activity>,
}

impl ServedNode for StagedNode {
    fn engine(&self) -> Engine {
        self.engine.clone()
    }

    fn state(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(self.grpc.services.state()))
    }
}

impl Target for StageTarget {
    fn node(&self) -> Arc<dyn ServedNode> {
        self.stage.current()
    }

    fn engine(&self) -> Engine {
        self.stage.engine()
    }

    fn replacements(&self) -> watch::Receiver<u64> {
        self.stage.replacements()
    }

    fn check_replaceable(&self) -> Result<(), ControlError> {
        if self.config.persist.is_some() {
            let message =
                "the store of a server with --persist cannot be replaced: fork it instead";
            return Err(ControlError::Refused(message.to_owned()));
        }
        Ok(())
    }

    fn replace(&self, frozen: Frozen) -> Result<(), ControlError> {
        self.check_replaceable()?;
        let state = state_of(&frozen);
        self.stage
            .replace(frozen.engine, |services| services.state(state));
        Ok(())
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
        if self.config.listen_client_urls.is_empty() {
            let message = "a server without ports has no forks with ports: the program forks it with InProcess::fork";
            return Err(ControlError::Refused(message.to_owned()));
        }
        let mut config = self.config.clone();
        let has_tls = config.listen_client_urls.iter().any(ListenUrl::is_tls);
        let url = ListenUrl::localhost(0);
        config.listen_client_urls = vec![if has_tls { url.under_tls() } else { url }];
        config.listen_client_http_urls = Vec::new();
        config.listen_metrics_urls = Vec::new();
        config.listen_peer_urls = Vec::new();
        config.reuse_port = false;
        config.persist = None;
        config.data_dir = None;
        config.import = None;
        if let Some(control) = &mut config.control {
            control.listen_url = Some(ListenUrl::localhost(0));
            control.allow_remote = false;
        }
        let state = state_of(&frozen);
        let server = ServerBuilder::of_fork(config, frozen.engine, clock, state).start();
        let server = server.map_err(|error| {
            ControlError::Refused(format!("the fork cannot be started: {error}"))
        })?;
        Ok(Box::new(ForkedServer(server)))
    }

    fn alarm(&self, name: AlarmName, raise: bool) -> Result<Vec<AlarmName>, ControlError> {
        let node = self.stage.current();
        let alarms = node.grpc.services.alarms();
        let alarm = Alarm {
            kind: match name {
                AlarmName::NoSpace => AlarmKind::NoSpace,
                AlarmName::Corrupt => AlarmKind::Corrupt,
            },
            member_id: self.config.member_id(),
        };
        if raise {
            alarms.raise(alarm);
        } else {
            alarms.clear(alarm);
        }
        let raised = alarms.list(None).into_iter().map(|alarm| match alarm.kind {
            AlarmKind::NoSpace => AlarmName::NoSpace,
            AlarmKind::Corrupt => AlarmName::Corrupt,
        });
        Ok(raised.collect())
    }

    fn new_term(&self) -> Result<u64, ControlError> {
        let node = self.stage.current();
        let term = node.grpc.services.begin_raft_term();
        term.ok_or_else(|| ControlError::Refused("the Raft term is the highest one".to_owned()))
    }
}

/// Writes a store as a dump, for servers that implement [`Target`]. The state of the node is a [`NodeState`], or that of a
/// new node.
///
/// # Errors
/// Those of `to`.
pub fn write_dump(frozen: &Frozen, form: DumpForm, to: &mut (dyn Write + Send)) -> io::Result<()> {
    let image = Image {
        engine: frozen.engine.clone(),
        state: state_of(frozen),
    };
    match form {
        DumpForm::Text => image.write_text(to),
        DumpForm::Binary => image.write_binary(to),
    }
}

/// Reads a file into a new store, for servers that implement [`Target`]. The state of the node is a [`NodeState`].
///
/// # Errors
/// [`ControlError::Damaged`].
pub fn read_store(
    bytes: &[u8],
    file: StoreFile,
    builder: EngineBuilder,
) -> Result<Frozen, ControlError> {
    let (from, len) = (Cursor::new(bytes), bytes.len() as u64);
    let image = match file {
        StoreFile::Dump => Image::load_from(from, len, Path::new("the dump"), builder),
        StoreFile::EtcdSnapshot => {
            Image::import_from(from, len, Path::new("the snapshot"), builder)
        }
    };
    let Image { engine, state } =
        image.map_err(|error| ControlError::Damaged(error.to_string()))?;
    Ok(Frozen {
        engine,
        node: Some(Arc::new(state)),
    })
}

/// Returns the state of the node, or that of a new one.
pub(crate) fn state_of(frozen: &Frozen) -> NodeState {
    let state = frozen.node.as_ref();
    let state = state.and_then(|state| state.downcast_ref::<NodeState>());
    state.cloned().unwrap_or_default()
}

/// A fork of a server, which stops when it is dropped.
#[derive(Debug)]
struct ForkedServer(Server);

impl Fork for ForkedServer {
    fn endpoint(&self) -> String {
        self.0.endpoint().to_owned()
    }

    fn control(&self) -> String {
        self.0.control_endpoint().unwrap_or_default().to_owned()
    }
}
