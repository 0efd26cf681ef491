//! The gRPC service.

use futures_util::stream::StreamExt;
use tonic::{Code, Request, Response, Status, Streaming};

use super::files::Chunks;
use super::journal::Records;
use super::{answers, files, journal};
use crate::control::Control;
use crate::error::ControlError;
use crate::proto;
use crate::store::StoreFile;

/// The gRPC service over a control.
#[derive(Clone, Debug)]
pub(super) struct Grpc {
    control: Control,
}

impl Grpc {
    pub(super) fn new(control: Control) -> Self {
        Self { control }
    }

    /// Replaces the store by a file.
    async fn load(
        &self,
        request: Request<Streaming<proto::StoreFileChunk>>,
        file: StoreFile,
    ) -> Result<Response<proto::StoreResponse>, Status> {
        let chunks = request.into_inner().map(|chunk| match chunk {
            Ok(chunk) => Ok(chunk.data),
            // The code of tonic for a message that is too large.
            Err(status) if status.code() == Code::OutOfRange => {
                Err(Status::resource_exhausted(status.message()))
            }
            Err(status) => Err(status),
        });
        let answer = files::load(&self.control, file, 0, chunks).await?;
        Ok(Response::new(answer))
    }

    /// Answers a request on a thread that may block.
    async fn answer<Q, A>(
        &self,
        request: Request<Q>,
        answer: fn(&Control, &Q) -> Result<A, ControlError>,
    ) -> Result<Response<A>, Status>
    where
        Q: Send + 'static,
        A: Send + 'static,
    {
        let (control, request) = (self.control.clone(), request.into_inner());
        let answered = tokio::task::spawn_blocking(move || answer(&control, &request)).await;
        let answered = answered.map_err(|_panicked| Status::internal("control has failed"))?;
        Ok(Response::new(answered?))
    }
}

/// Implements the methods whose answers may block.
macro_rules! methods {
    ($($method:ident: $request:ident -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl proto::control_server::Control for Grpc {
            $(async fn $method(
                &self,
                request: Request<proto::$request>,
            ) -> Result<Response<proto::$response>, Status> {
                self.answer(request, answers::$method).await
            })*

            type JournalReadStream = Records;

            async fn journal_read(
                &self,
                request: Request<proto::JournalReadRequest>,
            ) -> Result<Response<Records>, Status> {
                let records = journal::read(&self.control, request.into_inner())?;
                Ok(Response::new(records))
            }

            type StoreDumpStream = Chunks;

            async fn store_dump(
                &self,
                request: Request<proto::StoreDumpRequest>,
            ) -> Result<Response<Chunks>, Status> {
                let chunks = files::dump(&self.control, request.into_inner()).await?;
                Ok(Response::new(chunks))
            }

            async fn store_load(
                &self,
                request: Request<Streaming<proto::StoreFileChunk>>,
            ) -> Result<Response<proto::StoreResponse>, Status> {
                self.load(request, StoreFile::Dump).await
            }

            async fn store_import(
                &self,
                request: Request<Streaming<proto::StoreFileChunk>>,
            ) -> Result<Response<proto::StoreResponse>, Status> {
                self.load(request, StoreFile::EtcdSnapshot).await
            }

            async fn wait(
                &self,
                request: Request<proto::WaitRequest>,
            ) -> Result<Response<proto::WaitResponse>, Status> {
                let answer = answers::wait(&self.control, request.into_inner()).await?;
                Ok(Response::new(answer))
            }
        }
    };
}

methods! {
    clock_set: ClockSetRequest -> ClockResponse;
    clock_advance: ClockAdvanceRequest -> ClockResponse;
    clock_pending: ClockPendingRequest -> ClockPendingResponse;
    fault_add: FaultAddRequest -> FaultAddResponse;
    fault_list: FaultListRequest -> FaultListResponse;
    fault_clear: FaultClearRequest -> FaultClearResponse;
    watch_hold: WatchRequest -> WatchResponse;
    watch_release: WatchRequest -> WatchResponse;
    watch_cut: WatchRequest -> WatchResponse;
    watch_cancel_compacted: WatchRequest -> WatchResponse;
    watch_bookmark: WatchRequest -> WatchResponse;
    watches: WatchesRequest -> WatchesResponse;
    connections: ConnectionsRequest -> ConnectionsResponse;
    store_checkpoint: StoreCheckpointRequest -> StoreCheckpointResponse;
    store_restore: StoreRestoreRequest -> StoreResponse;
    store_reset: StoreResetRequest -> StoreResponse;
    store_jump: StoreJumpRequest -> StoreResponse;
    store_fork: StoreForkRequest -> StoreForkResponse;
    store_forks: StoreForksRequest -> StoreForksResponse;
    store_drop: StoreDropRequest -> StoreResponse;
    store_compact: StoreCompactRequest -> StoreCompactResponse;
    leases: LeasesRequest -> LeasesResponse;
    expire: ExpireRequest -> ExpireResponse;
    alarm: AlarmRequest -> AlarmResponse;
    term_new: TermNewRequest -> TermNewResponse;
}
