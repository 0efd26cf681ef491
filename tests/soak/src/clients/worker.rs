//! Workers: stock clients that write and read keys, and report what they saw to the judge.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::BoxError;
use crate::clients::session::{Failed, REQUEST_MAX, Session};
use crate::history::{self, Answer, KEYS, Key, Keys, Operation, Seen, WriteId};
use crate::server::authority::Pair;

/// The number of requests that are sent at once in a burst.
const BURST: usize = 64;

/// The pause between two requests of a worker, at most.
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// How far behind the current revision reads of the past go.
const PAST_MAX: i64 = 3_000;

/// The errors that a correct server may respond to a worker with.
const EXPECTED: [&str; 3] = [
    // Between the check of a request and its execution, auth was changed.
    "etcdserver: revision of auth store is old",
    "etcdserver: mvcc: required revision has been compacted",
    "etcdserver: too many requests",
];

/// Sends requests until the session stops.
pub(crate) async fn run(session: Arc<Session>, pair: Pair, mut rng: Rng) -> Result<(), BoxError> {
    let client = match session.client(&pair).await {
        Ok(client) => client,
        Err(_) if session.is_down() => return Ok(()),
        Err(error) => return Err(format!("a worker cannot connect: {error}").into()),
    };
    while !session.is_stopping() {
        if rng.u32(..200) == 0 {
            let mut burst = JoinSet::new();
            for _ in 0..BURST {
                burst.spawn(request(session.clone(), client.clone(), rng.fork()));
            }
            burst.join_all().await;
        } else {
            request(session.clone(), client.clone(), rng.fork()).await;
        }
        let pause = PAUSE_MAX.mul_f32(rng.f32());
        sleep(pause).await;
    }
    Ok(())
}

/// A request to send.
#[derive(Debug)]
enum Request {
    Put(Key, WriteId, usize),
    Delete(Key),
    Read(Keys, Option<i64>),
    Swap {
        expected: i64,
        writes: Vec<(Key, WriteId)>,
    },
}

async fn request(session: Arc<Session>, mut client: Client, mut rng: Rng) {
    let key = Key(rng.u16(..KEYS));
    let request = match rng.u32(..100) {
        0..35 => Request::Put(key, session.new_write(), size(&mut rng)),
        35..43 => Request::Delete(key),
        43..70 => {
            let end = Key(rng.u16(key.0 + 1..=KEYS));
            let revision = session.judge().revision();
            let past = (rng.u32(..4) == 0).then(|| revision - rng.i64(0..PAST_MAX));
            Request::Read(Keys { first: key, end }, past.filter(|&it| it > 0))
        }
        _ => {
            let mut writes = vec![(key, session.new_write())];
            if rng.bool() && key.0 + 1 < KEYS {
                writes.push((Key(key.0 + 1), session.new_write()));
            }
            Request::Swap {
                expected: expected(&session, &mut client, key, &mut rng).await,
                writes,
            }
        }
    };
    let writes: &[(Key, WriteId)] = match &request {
        &Request::Put(key, id, _) => &[(key, id)],
        Request::Swap { writes, .. } => writes,
        _ => &[],
    };
    let start = session.tick();
    {
        let mut judge = session.judge();
        for &(key, id) in writes {
            judge.send(id, key, start);
        }
    }
    let sent = timeout(REQUEST_MAX, send(&mut client, &request, &mut rng)).await;
    let failed = match sent {
        Ok(Ok((revision, answer))) => {
            let end = session.tick();
            session.judge().answer(Operation {
                start,
                end,
                revision,
                answer,
            });
            return;
        }
        Ok(Err(error)) => Failed::of(error),
        Err(_) => {
            if !session.is_down() {
                session.violation(format!("no response within {REQUEST_MAX:?}: {request:?}"));
            }
            Failed::Unknown
        }
    };
    let mut judge = session.judge();
    match failed {
        Failed::Refused(status) => {
            for &(_, id) in writes {
                judge.refuse(id);
            }
            let compacted = match request {
                Request::Read(_, Some(revision)) => judge.may_be_compacted(revision),
                _ => false,
            };
            let is_expected = EXPECTED.contains(&status.message());
            let claims_compacted = status.message() == EXPECTED[1];
            if !is_expected || claims_compacted && !compacted {
                let violation = format!("{request:?} was refused: {status}");
                judge.violations.add(violation);
            }
        }
        Failed::Unknown => {
            if let Request::Delete(key) = request {
                judge.doubt_deletion(key);
            }
        }
    }
}

/// Returns the modification revision to expect: usually the right one.
async fn expected(session: &Session, client: &mut Client, key: Key, rng: &mut Rng) -> i64 {
    if rng.u32(..8) == 0 {
        return rng.i64(0..session.judge().revision().max(1));
    }
    let options = GetOptions::new().with_serializable().with_keys_only();
    let read = timeout(REQUEST_MAX, client.get(key.name(), Some(options))).await;
    match read {
        Ok(Ok(read)) => read
            .kvs()
            .first()
            .map_or(0, etcd_client::KeyValue::mod_revision),
        _ => 0,
    }
}

/// Returns the size of a value: mostly small, sometimes large.
fn size(rng: &mut Rng) -> usize {
    match rng.u32(..500) {
        0 => rng.usize(..1_000_000),
        1..20 => rng.usize(..40_000),
        _ => rng.usize(..300),
    }
}

async fn send(
    client: &mut Client,
    request: &Request,
    rng: &mut Rng,
) -> Result<(i64, Answer), etcd_client::Error> {
    let missing = || etcd_client::Error::Internal("a response without a header".to_owned());
    Ok(match *request {
        Request::Put(key, id, size) => {
            let options = PutOptions::new();
            let response = client
                .put(key.name(), history::value(id, size), Some(options))
                .await?;
            let header = response.header().ok_or_else(missing)?;
            (header.revision(), Answer::Put(key, id))
        }
        Request::Delete(key) => {
            let response = client.delete(key.name(), None).await?;
            let header = response.header().ok_or_else(missing)?;
            let existed = response.deleted() > 0;
            (header.revision(), Answer::Delete(key, existed))
        }
        Request::Read(keys, past) => {
            let mut options = GetOptions::new().with_range(keys.end.name());
            if let Some(revision) = past {
                options = options.with_revision(revision);
            } else if rng.bool() {
                options = options.with_serializable();
            }
            let response = client.get(keys.first.name(), Some(options)).await?;
            let header = response.header().ok_or_else(missing)?;
            let seen = response.kvs().iter().filter_map(Seen::of).collect();
            (header.revision(), Answer::Read(keys, past, seen))
        }
        Request::Swap {
            expected,
            ref writes,
        } => {
            let key = writes[0].0;
            // Together they are not larger than a request may be.
            let mut value = |id| history::value(id, size(rng) / writes.len());
            let puts = writes
                .iter()
                .map(|&(key, id)| TxnOp::put(key.name(), value(id), None));
            let txn = Txn::new()
                .when([Compare::mod_revision(
                    key.name(),
                    CompareOp::Equal,
                    expected,
                )])
                .and_then(puts.collect::<Vec<_>>())
                .or_else([TxnOp::get(key.name(), None)]);
            let response = client.txn(txn).await?;
            let header = response.header().ok_or_else(missing)?;
            let answer = if response.succeeded() {
                Answer::Swapped(writes.clone(), expected)
            } else {
                let read = response.op_responses().into_iter().next();
                let seen = match read {
                    Some(TxnOpResponse::Get(read)) => {
                        read.kvs().iter().filter_map(Seen::of).collect()
                    }
                    _ => Vec::new(),
                };
                Answer::NotSwapped(key, expected, seen)
            };
            (header.revision(), answer)
        }
    })
}
