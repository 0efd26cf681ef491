//! What the tasks of one run of the server share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tonic::Code;

use crate::BoxError;
use crate::history::judge::Judge;
use crate::history::{Tick, Ticks, WriteId};
use crate::server::authority::{Authority, Pair};

/// The time limit of each request.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(15);

/// The time limit of a connection, with its handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A store with everything that its clients saw, from its first revision to its loss.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Arc<Authority>,
    pub(crate) ticks: Arc<Ticks>,
    judge: Mutex<Judge>,
    next_write: AtomicU64,
    /// Whether workers end.
    stopping: AtomicBool,
    /// The revision that watches deliver before they end; 0 before the end.
    last_revision: AtomicI64,
    /// Whether the server is down or about to be, so that requests may fail.
    is_down: AtomicBool,
    /// Odd while auth is enabled for certain, even while it is not or may not be.
    pub(crate) auth_changes: AtomicU64,
}

/// What a failed request means for its effect.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was not executed.
    Refused(tonic::Status),
    /// It may have been executed.
    Unknown,
}

impl Failed {
    /// Classifies an error of the client.
    pub(crate) fn of(error: etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => match status.code() {
                Code::InvalidArgument
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::OutOfRange
                | Code::ResourceExhausted
                | Code::FailedPrecondition
                | Code::NotFound => Self::Refused(status),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }
}

impl Session {
    pub(crate) fn new(
        address: SocketAddr,
        authority: &Arc<Authority>,
        ticks: &Arc<Ticks>,
        first_write: WriteId,
        judge: Judge,
    ) -> Self {
        Self {
            address,
            authority: authority.clone(),
            ticks: ticks.clone(),
            judge: Mutex::new(judge),
            next_write: AtomicU64::new(first_write),
            stopping: AtomicBool::new(false),
            last_revision: AtomicI64::new(0),
            is_down: AtomicBool::new(false),
            auth_changes: AtomicU64::new(0),
        }
    }

    /// Locks the judge; never across an await.
    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session.
    pub(crate) fn into_judge(self) -> Judge {
        let judge = self.judge.into_inner();
        judge.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tick(&self) -> Tick {
        self.ticks.next()
    }

    pub(crate) fn new_write(&self) -> WriteId {
        self.next_write.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn violation(&self, violation: String) {
        self.judge().violations.add(violation);
    }

    /// Asks the workers to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Asks the watches to end when they have delivered everything up to `revision`, the last one.
    pub(crate) fn finish(&self, revision: i64) {
        self.last_revision.store(revision, Ordering::Release);
    }

    /// Returns the last revision, once no more are written.
    pub(crate) fn last_revision(&self) -> Option<i64> {
        Some(self.last_revision.load(Ordering::Acquire)).filter(|&it| it > 0)
    }

    /// From here on, failures of connections are expected.
    pub(crate) fn go_down(&self) {
        self.is_down.store(true, Ordering::Release);
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Acquire)
    }

    /// Connects a stock client with a certificate.
    pub(crate) async fn client(&self, pair: &Pair) -> Result<Client, BoxError> {
        let options = ConnectOptions::new()
            .with_tls(self.authority.options(pair))
            .with_connect_timeout(CONNECT_MAX);
        let url = format!("https://{}", self.address);
        let connecting = Client::connect([url], Some(options));
        Ok(tokio::time::timeout(CONNECT_MAX, connecting).await??)
    }
}
