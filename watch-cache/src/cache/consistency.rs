//! Consistency checks: a comparison of the cached objects with those of the source (WC-135).

use std::sync::Arc;

use futures_util::future::pending;
use revstore_engine::Revision;

use crate::api::status::{Expired, RequestError};
use crate::cache::objects::snapshot::Snapshot;
use crate::cache::readiness::Readiness;
use crate::cache::resource::Resource;
use crate::cache::shared::CacheShared;
use crate::cache::watch_cache::ResourceRegistry;
use crate::source::{ListRequest, SourceError};
use crate::{api::keys, wake};

/// The maximum number of keys that are hashed before a check yields to other tasks, and the page size
/// of its reads from the source.
const PAGE_KEYS: usize = 1000;

/// The result of a comparison of the cache with its source.
// WC-135.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsistencyReport {
    /// The revision at which cache and source were read.
    pub revision: Revision,
    /// The digest of the keys and mod revisions in the cache.
    pub cache: u64,
    /// The digest of the keys and mod revisions in the source.
    pub source: u64,
}

impl ConsistencyReport {
    /// Returns whether both digests are equal.
    pub fn is_consistent(&self) -> bool {
        self.cache == self.source
    }
}

/// The 64-bit FNV-1a hash of keys and revisions, as in kube-apiserver's consistency checker.
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, key: &[u8], revision: Revision) {
        const PRIME: u64 = 0x0100_0000_01b3;
        let revision = revision.0.to_be_bytes();
        for byte in key.iter().chain(&revision) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

/// Checks every ready resource periodically. The pause between two rounds is the configured interval
/// times a random factor from 1 to 1.5. Never completes.
pub(crate) async fn check_periodically(
    shared: &CacheShared,
    registry: &ResourceRegistry,
    mut rng: fastrand::Rng,
) {
    let Some(interval) = shared.settings.consistency_interval else {
        return pending().await;
    };
    loop {
        // The random factor keeps the caches of one source from checking at the same time.
        let pause = interval.saturating_add(interval.mul_f64(rng.f64() / 2.0));
        let due = shared.timers.now().saturating_add(pause);
        let _due = shared.timers.sleep_until(due, "consistency").await;
        for resource in registry.all() {
            if resource.ready.state() == Readiness::Ready {
                // `check` counts the result, and requests a load if the digests differ.
                let _ = check(&resource).await;
            }
        }
    }
}

/// Compares a resource with its source. If they differ, marks the resource as inconsistent and
/// requests that the feeder load it again. Fails with [`RequestError::NotReady`] if it was loaded
/// again meanwhile, because the difference is one of the previous objects then.
pub(crate) async fn check(resource: &Arc<Resource>) -> Result<ConsistencyReport, RequestError> {
    let counters = &resource.counters;
    let loading = || RequestError::NotReady {
        cause: Some("the cache was loaded again during the check".into()),
        retry_after_seconds: 1,
    };
    let Some((snapshot, generation)) = resource.snapshot_and_generation() else {
        counters.consistency_checks_aborted.add(1);
        return Err(loading());
    };
    let report = match compare(resource, &snapshot).await {
        Ok(report) if report.is_consistent() => {
            counters.consistency_checks_passed.add(1);
            return Ok(report);
        }
        Ok(report) if resource.mark_inconsistent(generation) => {
            counters.consistency_checks_failed.add(1);
            resource.shared.request_load();
            return Ok(report);
        }
        Ok(_) => Err(loading()),
        Err(SourceError::Compacted) => Err(RequestError::Expired(Expired::List)),
        Err(other) => Err(RequestError::Internal(other.to_string())),
    };
    counters.consistency_checks_aborted.add(1);
    report
}

async fn compare(
    resource: &Resource,
    snapshot: &Snapshot,
) -> Result<ConsistencyReport, SourceError> {
    let span = resource.config.layout.span();
    let (mut cache, mut source) = (Digest::new(), Digest::new());
    for (index, object) in snapshot.objects.iter_from(&span.start).enumerate() {
        cache.add(object.key(), object.mod_revision());
        if index % PAGE_KEYS == PAGE_KEYS - 1 {
            wake::yield_now().await;
        }
    }
    let mut start = span.start.clone();
    loop {
        let request = ListRequest {
            range: span.from(start).range(),
            at: Some(snapshot.revision),
            limit: Some(PAGE_KEYS),
        };
        let page = resource.shared.source.list(request).await?;
        for stored in &page.items {
            source.add(&stored.key, stored.mod_revision);
        }
        match page.items.last() {
            Some(last) if page.more => start = keys::after(&last.key),
            _ => break,
        }
        wake::yield_now().await;
    }
    Ok(ConsistencyReport {
        revision: snapshot.revision,
        cache: cache.0,
        source: source.0,
    })
}
