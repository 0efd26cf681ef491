//! The Maintenance service.

use std::sync::Arc;

use revstore_engine::{Engine, Revision};
use revstore_proto::etcdserverpb::alarm_request::AlarmAction;
use revstore_proto::etcdserverpb::downgrade_request::DowngradeAction;
use revstore_proto::etcdserverpb::maintenance_server::Maintenance;
use revstore_proto::etcdserverpb::{
    AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse,
    DowngradeInfo, DowngradeRequest, DowngradeResponse, HashKvRequest, HashKvResponse, HashRequest,
    HashResponse, MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest, StatusRequest,
    StatusResponse,
};
use tonic::{Request, Response, Status};
use tracing::info;

use crate::methods;
use crate::node::Node;
use crate::node::admission::{Alarm, AlarmKind};
use crate::node::version;
use crate::snapshot::SnapshotStream;
use crate::snapshot::hash;
use crate::status::EtcdError;

/// HK-4: the compacted revision of a store that was never compacted.
const NEVER_COMPACTED: i64 = -1;

/// `etcdserverpb.Maintenance`; etcd's `maintenanceServer`.
#[derive(Debug)]
pub(crate) struct MaintenanceService {
    node: Arc<Node>,
}

impl MaintenanceService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    fn alarm(&self, request: AlarmRequest) -> Result<AlarmResponse, EtcdError> {
        let alarms = &self.node.alarms;
        if request.action != i32::from(AlarmAction::Get) {
            alarms.check_journal()?;
        }
        self.node.raft_index.advance();
        let kind = kind(request.alarm);
        let named = kind.map(|kind| Alarm {
            kind,
            member_id: request.member_id,
        });
        // MT-7: with the kind NONE or an unknown kind, Get lists all alarms, and the other actions
        // do nothing.
        let listed = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => alarms.list(kind),
            Ok(AlarmAction::Activate) => named
                .into_iter()
                .inspect(|alarm| alarms.raise(*alarm))
                .collect(),
            Ok(AlarmAction::Deactivate) => named
                .into_iter()
                .filter(|alarm| alarms.clear(*alarm))
                .collect(),
            Err(_unknown) => Vec::new(),
        };
        Ok(AlarmResponse {
            header: Some(self.node.current_header()),
            alarms: listed.into_iter().map(AlarmMember::from).collect(),
        })
    }

    fn status(&self) -> StatusResponse {
        let node = &*self.node;
        let db_size = i64::try_from(node.engine.stats().history_bytes).unwrap_or(i64::MAX);
        let raft_index = node.raft_index.get();
        let quota = node.limits.quota_bytes.unwrap_or(0);
        StatusResponse {
            header: Some(node.current_header()),
            version: node.version.clone(),
            db_size,
            db_size_in_use: db_size,
            leader: node.identity.member_id,
            raft_index,
            raft_applied_index: raft_index,
            raft_term: node.headers.raft_term(),
            // MT-3
            errors: node
                .alarms
                .list(None)
                .iter()
                .map(Alarm::to_string)
                .collect(),
            is_learner: false,
            storage_version: version::of_storage(&node.version),
            db_size_quota: i64::try_from(quota).unwrap_or(i64::MAX),
            downgrade_info: Some(DowngradeInfo::default()),
        }
    }

    /// MT-4: clients need a hash that changes only with the store. Returns the hash of HashKV.
    async fn hash(&self) -> Result<HashResponse, EtcdError> {
        let hashed = self.hash_at(None).await?;
        Ok(HashResponse {
            header: Some(self.node.current_header()),
            hash: hashed.hash,
        })
    }

    async fn hash_kv(&self, request: HashKvRequest) -> Result<HashKvResponse, EtcdError> {
        let hashed = match request.revision {
            // HK-3
            0 => self.hash_at(None).await?,
            revision if revision < 0 => Hashed {
                hash: hash::of_empty_store(),
                revision: Revision(revision),
                compacted: self.node.engine.compacted_revision(),
            },
            revision => self.hash_at(Some(Revision(revision))).await?,
        };
        Ok(HashKvResponse {
            header: Some(self.node.current_header()),
            hash: hashed.hash,
            compact_revision: hashed
                .compacted
                .map_or(NEVER_COMPACTED, |revision| revision.0),
            hash_revision: hashed.revision.0,
        })
    }

    /// Hashes on a worker, because it visits the whole store.
    async fn hash_at(&self, through: Option<Revision>) -> Result<Hashed, EtcdError> {
        let engine = self.node.engine.clone();
        let hashing = move || Hashed::of(&engine, through);
        self.node.heavy.workers.run(hashing).await?
    }

    fn move_leader(&self, target_id: u64) -> Result<MoveLeaderResponse, EtcdError> {
        if target_id != self.node.identity.member_id {
            return Err(EtcdError::BadLeaderTransferee);
        }
        // DM-28
        Ok(MoveLeaderResponse { header: None })
    }

    fn downgrade(&self, request: &DowngradeRequest) -> Result<DowngradeResponse, EtcdError> {
        let own = &self.node.version;
        match DowngradeAction::try_from(request.action) {
            Ok(DowngradeAction::Validate) => version::check_downgrade(own, &request.version)?,
            Ok(DowngradeAction::Enable) => {
                version::check_downgrade(own, &request.version)?;
                return Err(EtcdError::DowngradeUnsupported);
            }
            Ok(DowngradeAction::Cancel) => return Err(EtcdError::NoInflightDowngrade),
            Err(_unknown) => return Err(EtcdError::UnknownDowngradeAction),
        }
        Ok(DowngradeResponse {
            header: Some(self.node.current_header()),
            version: version::of_cluster(own),
        })
    }
}

/// A hash with the revisions that it covers.
#[derive(Clone, Copy, Debug)]
struct Hashed {
    hash: u32,
    revision: Revision,
    compacted: Option<Revision>,
}

impl Hashed {
    fn of(engine: &Engine, through: Option<Revision>) -> Result<Self, EtcdError> {
        let history = engine.full_history(through)?;
        Ok(Self {
            hash: hash::of_history(&history),
            revision: history.revision,
            compacted: history.compacted,
        })
    }
}

fn kind(alarm: i32) -> Option<AlarmKind> {
    match AlarmType::try_from(alarm) {
        Ok(AlarmType::Nospace) => Some(AlarmKind::NoSpace),
        Ok(AlarmType::Corrupt) => Some(AlarmKind::Corrupt),
        Ok(AlarmType::None) | Err(_) => None,
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    async fn alarm(
        &self,
        request: Request<AlarmRequest>,
    ) -> Result<Response<AlarmResponse>, Status> {
        let request = self.node.accept::<methods::maintenance::Alarm>(request)?;
        Ok(Response::new(self.alarm(request)?))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        self.node.accept::<methods::maintenance::Status>(request)?;
        Ok(Response::new(self.status()))
    }

    async fn defragment(
        &self,
        request: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        self.node
            .accept::<methods::maintenance::Defragment>(request)?;
        info!("starting defragment");
        info!("finished defragment");
        // DM-28
        Ok(Response::new(DefragmentResponse { header: None }))
    }

    async fn hash(&self, request: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        self.node.accept::<methods::maintenance::Hash>(request)?;
        Ok(Response::new(self.hash().await?))
    }

    async fn hash_kv(
        &self,
        request: Request<HashKvRequest>,
    ) -> Result<Response<HashKvResponse>, Status> {
        let request = self.node.accept::<methods::maintenance::HashKV>(request)?;
        Ok(Response::new(self.hash_kv(request).await?))
    }

    type SnapshotStream = SnapshotStream;

    async fn snapshot(
        &self,
        request: Request<SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        self.node
            .accept::<methods::maintenance::Snapshot>(request)?;
        Ok(Response::new(SnapshotStream::start(&self.node).await?))
    }

    async fn move_leader(
        &self,
        request: Request<MoveLeaderRequest>,
    ) -> Result<Response<MoveLeaderResponse>, Status> {
        let request = self
            .node
            .accept::<methods::maintenance::MoveLeader>(request)?;
        Ok(Response::new(self.move_leader(request.target_id)?))
    }

    async fn downgrade(
        &self,
        request: Request<DowngradeRequest>,
    ) -> Result<Response<DowngradeResponse>, Status> {
        let request = self
            .node
            .accept::<methods::maintenance::Downgrade>(request)?;
        Ok(Response::new(self.downgrade(&request)?))
    }
}
