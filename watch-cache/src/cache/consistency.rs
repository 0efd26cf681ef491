//! Whether the cache is what its source is (WC-135).

use std::sync::Arc;

use futures_util::future::pending;
use revstore_engine::Revision;

use crate::api::keys;
use crate::blocking;
use crate::cache::readiness::Readiness;
use crate::cache::resource::Resource;
use crate::cache::shared::Core;
use crate::cache::watch_cache::Registry;
use crate::random::Random;
use crate::source::{ListRequest, SourceError};

/// Keys that are compared between two moments in which others run.
const STEP: usize = 1000;

/// What a comparison of the cache with its source found (WC-135).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsistencyReport {
    /// The revision at which both were read.
    pub revision: Revision,
    /// The digest of the cache's keys and revisions.
    pub cache: u64,
    /// The digest of the source's.
    pub source: u64,
}

impl ConsistencyReport {
    /// Whether both are the same.
    pub fn is_consistent(&self) -> bool {
        self.cache == self.source
    }
}

/// FNV-1a over keys and revisions, as kube-apiserver's check has it.
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

/// Compares every resource that is ready, after each interval times 1 to 1.5; never ends.
pub(crate) async fn check_now_and_then(core: &Core, registry: &Registry, mut random: Random) {
    let Some(interval) = core.settings.consistency_interval else {
        return pending().await;
    };
    loop {
        // So that many caches of one source do not check at the same time.
        let wait = interval.saturating_add(interval.mul_f64(random.unit() / 2.0));
        let due = core.timers.now().saturating_add(wait);
        core.timers.until(due).await;
        for resource in registry.all() {
            if resource.ready.state() == Readiness::Ready {
                // What it found is counted, and acted upon.
                let _ = check(&resource).await;
            }
        }
    }
}

/// Compares a resource with its source. If they differ, the resource answers from its source until
/// the feeder has loaded it anew.
pub(crate) async fn check(resource: &Arc<Resource>) -> Result<ConsistencyReport, SourceError> {
    let counters = &resource.counters;
    let report = compare(resource).await;
    match &report {
        Ok(report) if report.is_consistent() => counters.consistency_checks_passed.add(1),
        Ok(_) => {
            counters.consistency_checks_failed.add(1);
            resource.ready.set(Readiness::Inconsistent);
            resource.core.ask_to_load();
        }
        Err(_) => counters.consistency_checks_aborted.add(1),
    }
    report
}

async fn compare(resource: &Resource) -> Result<ConsistencyReport, SourceError> {
    let span = resource.config.layout.span();
    let snapshot = resource.snapshot();
    let (mut cache, mut source) = (Digest::new(), Digest::new());
    for (at, entry) in snapshot.objects.walk(&span.start).enumerate() {
        cache.add(entry.key(), entry.mod_revision());
        if at % STEP == STEP - 1 {
            blocking::let_others_run().await;
        }
    }
    let mut start = span.start.clone();
    loop {
        let request = ListRequest {
            range: span.from(start).range(),
            at: Some(snapshot.revision),
            limit: Some(STEP),
        };
        let page = resource.core.source.list(request).await?;
        for stored in &page.items {
            source.add(&stored.key, stored.mod_revision);
        }
        match page.items.last() {
            Some(last) if page.more => start = keys::after(&last.key),
            _ => break,
        }
        blocking::let_others_run().await;
    }
    Ok(ConsistencyReport {
        revision: snapshot.revision,
        cache: cache.0,
        source: source.0,
    })
}
