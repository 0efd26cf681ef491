//! Disturbances that an administrator causes: compactions, hashes, snapshots, auth switches, new certificates.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd_client::{Client, CompactionOptions, Permission};
use fastrand::Rng;
use tokio::time::{sleep, timeout};

use crate::BoxError;
use crate::clients::raw;
use crate::clients::session::{REQUEST_MAX, Session};
use crate::server::authority::Pair;

/// The pause between two disturbances, at most.
const PAUSE_MAX: Duration = Duration::from_millis(1_500);

/// The time after which a server uses files that were exchanged; etcd reads them at each handshake.
const FILES_MAX: Duration = Duration::from_secs(5);

/// What an administrator did, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) compactions: u64,
    pub(crate) auth_switches: u64,
    pub(crate) rotations: u64,
    pub(crate) revocations: u64,
    pub(crate) snapshots: u64,
    pub(crate) hashes: u64,
}

impl Done {
    pub(crate) fn add(&mut self, other: Self) {
        self.compactions += other.compactions;
        self.auth_switches += other.auth_switches;
        self.rotations += other.rotations;
        self.revocations += other.revocations;
        self.snapshots += other.snapshots;
        self.hashes += other.hashes;
    }
}

/// Creates the users of a new store. The names of certificates are names of users.
pub(crate) async fn prepare(client: &mut Client) -> Result<(), BoxError> {
    client.user_add("root", "root", None).await?;
    client.role_add("root").await?;
    client.user_grant_role("root", "root").await?;
    client.role_add("soak").await?;
    let all = Permission::read_write("s").with_range_end("t");
    client.role_grant_permission("soak", all).await?;
    client.user_add("soak", "soak", None).await?;
    client.user_grant_role("soak", "soak").await?;
    client.user_add("stranger", "stranger", None).await?;
    Ok(())
}

/// Disturbs until the session stops. Auth is disabled at the end.
pub(crate) async fn run(session: Arc<Session>, root: Pair, mut rng: Rng) -> Result<Done, BoxError> {
    let mut done = Done::default();
    let mut client = session.client(&root).await?;
    while !session.is_stopping() {
        let disturbed = disturb(&session, &mut client, &mut rng, &mut done).await;
        match disturbed {
            Err(_) if session.is_down() => return Ok(done),
            Err(error) => return Err(format!("a disturbance: {error}").into()),
            Ok(()) => sleep(PAUSE_MAX.mul_f32(rng.f32())).await,
        }
    }
    if session.auth_changes.load(Ordering::SeqCst) % 2 == 1 {
        session.auth_changes.fetch_add(1, Ordering::SeqCst);
        let disabled = client.auth_disable().await;
        if disabled.is_err() && !session.is_down() {
            disabled?;
        }
    }
    Ok(done)
}

async fn disturb(
    session: &Session,
    client: &mut Client,
    rng: &mut Rng,
    done: &mut Done,
) -> Result<(), BoxError> {
    match rng.u32(..10) {
        0..3 => compact(session, client, rng, done).await,
        3..5 => {
            let is_enabled = session.auth_changes.load(Ordering::SeqCst) % 2 == 1;
            if is_enabled {
                session.auth_changes.fetch_add(1, Ordering::SeqCst);
                timeout(REQUEST_MAX, client.auth_disable()).await??;
            } else {
                timeout(REQUEST_MAX, client.auth_enable()).await??;
                session.auth_changes.fetch_add(1, Ordering::SeqCst);
            }
            done.auth_switches += 1;
            Ok(())
        }
        5 => rotate(session, done).await,
        6 => revoke(session, done).await,
        7 => {
            let mut snapshot = client.snapshot().await?;
            while timeout(REQUEST_MAX, snapshot.message()).await??.is_some() {}
            done.snapshots += 1;
            Ok(())
        }
        _ => {
            timeout(REQUEST_MAX, client.hash_kv(0)).await??;
            done.hashes += 1;
            Ok(())
        }
    }
}

async fn compact(
    session: &Session,
    client: &mut Client,
    rng: &mut Rng,
    done: &mut Done,
) -> Result<(), BoxError> {
    let revision = {
        let mut judge = session.judge();
        let revision = judge.revision() - rng.i64(50..4_000);
        if revision <= 1 || judge.may_be_compacted(revision) {
            return Ok(());
        }
        judge.compact(revision);
        revision
    };
    let mut options = CompactionOptions::new();
    if rng.bool() {
        options = options.with_physical();
    }
    timeout(REQUEST_MAX, client.compact(revision, Some(options))).await??;
    done.compactions += 1;
    Ok(())
}

/// Exchanges the certificate of the server: new handshakes must see the new one.
async fn rotate(session: &Session, done: &mut Done) -> Result<(), BoxError> {
    let new = session.authority.rotate()?;
    let pair = session.authority.issue("soak")?;
    let seen = timeout(FILES_MAX, async {
        while raw::handshake(session, &pair).await? != new {}
        Ok::<(), BoxError>(())
    });
    match seen.await {
        Ok(seen) => seen?,
        Err(_) => session.violation(format!("a new certificate is not used after {FILES_MAX:?}")),
    }
    done.rotations += 1;
    Ok(())
}

/// Revokes the certificate of a client: it works before, and not after.
async fn revoke(session: &Session, done: &mut Done) -> Result<(), BoxError> {
    let pair = session.authority.issue("soak")?;
    raw::handshake(session, &pair).await?;
    session.authority.revoke(pair.serial)?;
    if raw::handshake(session, &pair).await.is_ok() {
        session.violation(format!("the revoked certificate {} works", pair.serial));
    }
    done.revocations += 1;
    Ok(())
}
