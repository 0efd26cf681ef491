//! Small clients with one task each: a bystander whose latency counts, leases, and a stranger without rights.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::BoxError;
use crate::clients::session::{REQUEST_MAX, Session};
use crate::server::authority::Pair;

/// The pause between two requests of the bystander.
const PAUSE: Duration = Duration::from_millis(20);

/// The seconds of a lease.
const TTL: i64 = 2;

/// How much later than its time a key with a lease may be seen.
const EXPIRY_MAX: Duration = Duration::from_secs(8);

/// Puts and gets one key; returns the latencies of both together.
pub(crate) async fn bystander(
    session: Arc<Session>,
    pair: Pair,
) -> Result<Vec<Duration>, BoxError> {
    let mut latencies = Vec::new();
    let Ok(mut client) = connect(&session, &pair).await? else {
        return Ok(latencies);
    };
    for round in 0_u64.. {
        if session.is_stopping() {
            break;
        }
        let start = Instant::now();
        let value = round.to_string();
        let exchange = async {
            client.put("soak-bystander", value.clone(), None).await?;
            client.get("soak-bystander", None).await
        };
        match timeout(REQUEST_MAX, exchange).await {
            Ok(Ok(read)) => {
                let seen = read.kvs().first().map(|kv| kv.value().to_vec());
                if seen.as_deref() != Some(value.as_bytes()) {
                    session.violation(format!("the bystander wrote {value} and read {seen:?}"));
                }
                latencies.push(start.elapsed());
            }
            Ok(Err(_)) | Err(_) if session.is_down() => break,
            Ok(Err(error)) if error.to_string().contains("auth store is old") => {}
            other => session.violation(format!("the bystander: {other:?}")),
        }
        sleep(PAUSE).await;
    }
    Ok(latencies)
}

/// Grants leases, keeps them alive for a while, and checks that their keys live as long, and not much longer.
pub(crate) async fn leases(
    session: Arc<Session>,
    pair: Pair,
    mut rng: Rng,
) -> Result<u64, BoxError> {
    let mut count = 0;
    while !session.is_stopping() {
        match lease(&session, &pair, &mut rng).await {
            Ok(()) => count += 1,
            Err(_) if session.is_down() => break,
            Err(error) if error.to_string().contains("auth store is old") => {}
            Err(error) => return Err(format!("a lease: {error}").into()),
        }
    }
    Ok(count)
}

async fn lease(session: &Session, pair: &Pair, rng: &mut Rng) -> Result<(), BoxError> {
    let mut client = session.client(pair).await?;
    let granted = client.lease_grant(TTL, None).await?;
    let key = format!("soak-lease/{}", granted.id());
    let options = etcd_client::PutOptions::new().with_lease(granted.id());
    client.put(key.clone(), "", Some(options)).await?;
    let rounds = rng.u32(..6);
    if rounds > 0 {
        let (mut keeper, mut responses) = client.lease_keep_alive(granted.id()).await?;
        for _ in 0..rounds {
            let before = Instant::now();
            keeper.keep_alive().await?;
            let kept = responses.message().await?.ok_or("the keep-alives ended")?;
            if kept.ttl() <= 0 {
                // Time for which the machine did not run ends a lease, too.
                return Ok(());
            }
            let key_exists = client.get(key.clone(), None).await?.count() == 1;
            if !key_exists && before.elapsed() < Duration::from_secs(1) {
                session.violation(format!("{key} is gone while its lease is kept alive"));
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
    if rng.u32(..3) == 0 {
        client.lease_revoke(granted.id()).await?;
        if client.get(key.clone(), None).await?.count() != 0 {
            session.violation(format!("{key} is there after its lease was revoked"));
        }
        return Ok(());
    }
    let ttl = Duration::from_secs(u64::try_from(granted.ttl())?);
    let deadline = Instant::now() + ttl + EXPIRY_MAX;
    while client.get(key.clone(), None).await?.count() != 0 {
        if session.is_stopping() {
            return Ok(());
        }
        if Instant::now() > deadline {
            session.violation(format!("{key} is there {EXPIRY_MAX:?} after its time"));
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Reads and writes without any right: while auth is enabled, each request must be denied.
pub(crate) async fn stranger(session: Arc<Session>, pair: Pair) -> Result<u64, BoxError> {
    let mut denied = 0;
    let Ok(mut client) = connect(&session, &pair).await? else {
        return Ok(denied);
    };
    while !session.is_stopping() {
        let before = session.auth_changes.load(Ordering::SeqCst);
        let read = timeout(REQUEST_MAX, client.get("soak-bystander", None)).await;
        let write = timeout(REQUEST_MAX, client.put("soak-stranger", "", None)).await;
        let after = session.auth_changes.load(Ordering::SeqCst);
        if session.is_down() {
            break;
        }
        if before == after && before % 2 == 1 {
            for (what, error) in [
                ("read", read.map(Result::err)),
                ("write", write.map(Result::err)),
            ] {
                match error {
                    Ok(Some(etcd_client::Error::GRpcStatus(status)))
                        if status.code() == Code::PermissionDenied =>
                    {
                        denied += 1;
                    }
                    other => session.violation(format!(
                        "the {what} of a stranger ended with {other:?} while auth was enabled"
                    )),
                }
            }
        }
        sleep(PAUSE).await;
    }
    Ok(denied)
}

/// Connects; the inner error means that the server is going down.
async fn connect(
    session: &Session,
    pair: &Pair,
) -> Result<Result<etcd_client::Client, ()>, BoxError> {
    match session.client(pair).await {
        Ok(client) => Ok(Ok(client)),
        Err(_) if session.is_down() => Ok(Err(())),
        Err(error) => Err(error),
    }
}
