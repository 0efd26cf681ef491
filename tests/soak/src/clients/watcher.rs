//! Watches: the witness, which sees all changes, and watches of a part that come and go.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchFilterType, WatchOptions};
use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::BoxError;
use crate::clients::session::Session;
use crate::history::judge::Selection;
use crate::history::{Event, KEYS, Key, Keys, PREFIX};
use crate::server::authority::Pair;

/// The time without a message after which a watch asks for its progress.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time until a watch has delivered all revisions at the end of a session.
const DELIVERY_MAX: Duration = Duration::from_secs(30);

/// The pause before a watch is created again.
const PAUSE: Duration = Duration::from_millis(50);

/// How far behind the current revision watches start.
const PAST_MAX: i64 = 5_000;

/// Watches all keys from the first revision on, until it has delivered the last one or the server is gone.
pub(crate) async fn witness(session: Arc<Session>, pair: Pair) -> Result<(), BoxError> {
    match watch_all(&session, &pair).await {
        Err(error) if !session.is_down() => Err(format!("the witness: {error}").into()),
        _ => Ok(()),
    }
}

async fn watch_all(session: &Session, pair: &Pair) -> Result<(), BoxError> {
    let mut client = session.client(pair).await?;
    let next = session.judge().revision() + 1;
    let options = WatchOptions::new().with_prefix().with_start_revision(next);
    let mut stream = client.watch(PREFIX, Some(options)).await?;
    let mut deadline = None;
    loop {
        if let Some(revision) = session.last_revision() {
            let reached = session.judge().revision();
            if reached >= revision {
                return Ok(());
            }
            if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + DELIVERY_MAX) {
                return Err(format!("{reached} of {revision} after {DELIVERY_MAX:?}").into());
            }
        }
        let Ok(message) = timeout(PATIENCE, stream.message()).await else {
            stream.request_progress().await?;
            continue;
        };
        let message = message?;
        let Some(response) = message else {
            return Err("the stream has ended".into());
        };
        if response.canceled() {
            return Err(format!("canceled: {}", response.cancel_reason()).into());
        }
        let events = response.events().iter().filter_map(Event::of);
        let events = events.collect::<Vec<_>>();
        let header = response
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision);
        let revision = match events.last() {
            Some(event) => event.kv.modified,
            // The header of a response of creation says nothing about earlier events.
            None if response.created() => continue,
            None => header,
        };
        let tick = session.tick();
        session.judge().witness(events, revision, tick);
    }
}

/// Creates watches of a part, one after the other, until the session stops; then waits until the last one
/// has delivered everything.
pub(crate) async fn run(session: Arc<Session>, pair: Pair, mut rng: Rng) -> Result<(), BoxError> {
    while session.last_revision().is_none() {
        match watch_some(&session, &pair, &mut rng).await {
            Err(error) if !session.is_down() => return Err(format!("a watch: {error}").into()),
            Err(_) => return Ok(()),
            Ok(()) => sleep(PAUSE).await,
        }
    }
    Ok(())
}

async fn watch_some(session: &Session, pair: &Pair, rng: &mut Rng) -> Result<(), BoxError> {
    let mut client = session.client(pair).await?;
    let first = Key(rng.u16(..KEYS));
    let selection = Selection {
        keys: Keys {
            first,
            end: Key(rng.u16(first.0 + 1..=KEYS)),
        },
        puts: rng.u32(..5) > 0,
        deletes: rng.u32(..5) > 0,
        replaced: rng.bool(),
    };
    let start = (session.judge().revision() - rng.i64(0..PAST_MAX)).max(1);
    let mut options = WatchOptions::new()
        .with_range(selection.keys.end.name())
        .with_start_revision(start);
    if selection.replaced {
        options = options.with_prev_key();
    }
    let mut filters = Vec::new();
    if !selection.puts {
        filters.push(WatchFilterType::NoPut);
    }
    if !selection.deletes {
        filters.push(WatchFilterType::NoDelete);
    }
    let options = options.with_filters(filters);
    let mut stream = client.watch(first.name(), Some(options)).await?;
    let number = session.judge().watch(selection, start);
    let end = Instant::now() + Duration::from_millis(rng.u64(100..15_000));
    // Some readers are slow.
    let pause = (rng.u32(..4) == 0).then(|| Duration::from_millis(rng.u64(1..300)));
    let mut deadline = None;
    let mut delivered = 0;
    loop {
        if session.is_down() {
            break;
        }
        if let Some(revision) = session.last_revision() {
            if delivered >= revision {
                break;
            }
            if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + DELIVERY_MAX) {
                return Err(format!(
                    "{selection:?} has delivered {delivered} of {revision} after {DELIVERY_MAX:?}"
                )
                .into());
            }
        } else if Instant::now() > end {
            break;
        }
        let limit = end
            .min(Instant::now() + PATIENCE)
            .max(Instant::now() + PAUSE);
        let Ok(message) = timeout_at(limit, stream.message()).await else {
            stream.request_progress().await?;
            continue;
        };
        let Some(response) = message? else {
            return Err("the stream has ended".into());
        };
        if response.canceled() {
            let compacted = response.compact_revision();
            if compacted == 0 || !session.judge().may_be_compacted(delivered.max(start)) {
                return Err(format!("canceled: {response:?}").into());
            }
            break;
        }
        if response.created() {
            continue;
        }
        let events = response.events().iter().filter_map(Event::of);
        let events = events.collect::<Vec<_>>();
        let header = response
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision);
        delivered = events.last().map_or(header, |event| event.kv.modified);
        session.judge().deliver(number, events, delivered);
        if let Some(pause) = pause.filter(|_| session.last_revision().is_none()) {
            sleep(pause).await;
        }
    }
    session.judge().unwatch(number);
    Ok(())
}
