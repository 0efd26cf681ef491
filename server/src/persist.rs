//! The store of a server: in memory only, or with a journal in the data directory.

use std::{collections::BTreeMap, path::Path};

use revstore_engine::{Engine, EngineBuilder};
use revstore_grpc::{Identity, Image, NodeState, Services};
use revstore_persist::{Change, Metadata, Persist};
use tracing::{Dispatch, dispatcher, error, info, warn};

use crate::{config::Config, start_error::StartError};

/// The bucket of the ids, which a server keeps when its flags change, as etcd does.
const IDENTITY: &str = "identity";
const CLUSTER_ID: &[u8] = b"clusterId";
const MEMBER_ID: &[u8] = b"memberId";

/// An engine, with its journal and the metadata in it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) engine: Engine,
    pub(crate) journal: Option<(Persist, Metadata)>,
    /// The state of the node, if there is no journal that has it.
    pub(crate) state: NodeState,
}

impl Store {
    /// Returns a store without a journal.
    pub(crate) fn of(engine: Engine) -> Self {
        Self::of_image(Image {
            engine,
            state: NodeState::default(),
        })
    }

    fn of_image(image: Image) -> Self {
        Self {
            engine: image.engine,
            journal: None,
            state: image.state,
        }
    }

    /// Reads a snapshot of etcd.
    fn import(path: &Path, builder: EngineBuilder) -> Result<Self, StartError> {
        let image = Image::import(path, builder)?;
        let stats = image.engine.stats();
        info!(
            path = %path.display(),
            "current-revision" = stats.current_revision.0,
            keys = stats.live_keys,
            leases = stats.leases,
            "imported the snapshot"
        );
        Ok(Self::of_image(image))
    }

    /// Creates an empty store, imports one, or continues the one in the data directory.
    pub(crate) fn open(config: &Config, builder: EngineBuilder) -> Result<Self, StartError> {
        let Some(options) = config.persist else {
            if let Some(path) = &config.import {
                return Self::import(path, builder);
            }
            return Ok(Self::of(builder.build()));
        };
        // `Config` guarantees that it is set.
        let data_dir = config.data_dir.as_deref().unwrap_or(Path::new("."));
        let opened = revstore_persist::open(data_dir, builder, options)?;
        let stats = opened.engine.stats();
        if let Some((path, bytes)) = &opened.recovered.cut {
            warn!(
                path = %path.display(),
                bytes,
                "cut off the end of the journal, which a crash had left incomplete"
            );
        }
        if opened.recovered.is_found && config.start_revision > 1 {
            warn!("--start-revision has no effect: the data directory contains a store");
        }
        info!(
            "data-dir" = %data_dir.display(),
            "current-revision" = stats.current_revision.0,
            keys = stats.live_keys,
            leases = stats.leases,
            "opened the store in the data directory"
        );
        // The thread of the journal has no log of its own.
        let log = dispatcher::get_default(Dispatch::clone);
        let observer = move |change: &Change| dispatcher::with_default(&log, || report(change));
        opened.persist.observe(observer);
        Ok(Self {
            engine: opened.engine,
            journal: Some((opened.persist, opened.metadata)),
            state: NodeState::default(),
        })
    }

    /// Returns the identity with the ids of the first start, which are stored.
    pub(crate) fn keep_ids(&self, identity: Identity) -> Identity {
        let Some((persist, metadata)) = &self.journal else {
            return identity;
        };
        let stored = metadata.get(IDENTITY);
        let id = |name| {
            let id: &[u8] = stored?.get(name)?;
            Some(u64::from_be_bytes(id.try_into().ok()?))
        };
        let mut kept = identity;
        kept.cluster_id = id(CLUSTER_ID).unwrap_or(kept.cluster_id);
        kept.member_id = id(MEMBER_ID).unwrap_or(kept.member_id);
        let ids = BTreeMap::from([
            (CLUSTER_ID.to_vec(), kept.cluster_id.to_be_bytes().to_vec()),
            (MEMBER_ID.to_vec(), kept.member_id.to_be_bytes().to_vec()),
        ]);
        persist.replace_metadata(Metadata::from([(IDENTITY.to_owned(), ids)]));
        kept
    }
}

fn report(change: &Change) {
    match change {
        Change::Failed(error) => {
            error!(%error, "writes fail until the data directory can be written again");
        }
        Change::Recovered => info!("the data directory can be written again"),
        Change::SnapshotFailed(error) => {
            warn!(%error, "cannot replace the journal by a snapshot; trying again");
        }
    }
}

/// The journal of a server, with the services whose state it has at the end.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub(crate) persist: Persist,
    pub(crate) services: Services,
}

impl Journal {
    /// Syncs the journal and closes it at the end of a server.
    pub(crate) fn close(self) {
        self.services.store_raft_index();
        if let Err(error) = self.persist.close() {
            error!(%error, "the last changes are not in the data directory");
        }
    }
}
