//! The store behind the resources: in this process, or an etcd cluster.

mod etcd;
mod transcoded;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use revstore_engine::{Clock, Engine};
use revstore_kinds as kinds;
use revstore_watch_cache::cache::{Feeder, ObjectIndex};
use revstore_watch_cache::registry::{ObjectStore, Strategy};
use revstore_watch_cache::source::{Compactor, Source};
use revstore_watch_cache::{EngineSource, JsonKind, RequestError, ResourceConfig, WatchCache};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::allocation::{ServiceAllocator, ServiceRanges};
use crate::builtin;
use crate::catalog::{Names, Position, Stored};
use crate::config::EtcdServers;
use transcoded::Transcoded;

pub use etcd::EtcdError;

/// The time limit of a check whether the store answers, as in kube-apiserver.
const CHECK_LIMIT: Duration = Duration::from_secs(2);

/// The largest size of a custom resource in a store in this process, in bytes: that of a request to an etcd. Built-in
/// kinds have none, because kube-apiserver stores them in protobuf, which is shorter.
const VALUE_BYTES_MAX: usize = 3 << 19;

/// The pause after an answer that was an error, while an answer is waited for.
const CHECK_PAUSE: Duration = Duration::from_millis(200);

/// The selectable field with an index: there are as many watches of the pods of one node as there are nodes.
const INDEXED_FIELD: &str = "spec.nodeName";

/// Returns the time of day in seconds since 1970.
pub(crate) type Seconds = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The strategies of the stores of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Strategies {
    pub(crate) main: Arc<dyn Strategy>,
    pub(crate) status: Option<Arc<dyn Strategy>>,
    /// Of versions that the server itself has computed and checked.
    pub(crate) prepared: Arc<dyn Strategy>,
    /// Of those whose changes count in the generation.
    pub(crate) prepared_counted: Arc<dyn Strategy>,
}

/// The store behind the resources, with the cache over it.
#[derive(Debug)]
pub(crate) struct Storage {
    /// The store, if it is in this process.
    pub(crate) engine: Option<Engine>,
    pub(crate) cache: WatchCache,
    source: Arc<dyn Source>,
    ranges: ServiceRanges,
    pub(crate) clock: Arc<dyn Clock>,
    /// The time of day at the origin of the clock.
    epoch: SystemTime,
    /// The beginning of all keys.
    prefix: String,
    /// How long new versions of events are kept; `None` for ever.
    pub(crate) event_ttl: Option<Duration>,
}

impl Storage {
    /// Returns a store in this process, a new one unless it is given, and the feeder of its cache, which must run.
    pub(crate) fn embedded(
        engine: Option<Engine>,
        clock: Arc<dyn Clock>,
        epoch: SystemTime,
        prefix: &str,
        ranges: ServiceRanges,
    ) -> (Self, Feeder) {
        let engine = engine.unwrap_or_else(|| Engine::builder().clock(clock.clone()).build());
        Self::over(engine, clock, epoch, prefix, ranges)
    }

    /// Returns the store of an engine, which others may use, too.
    pub(crate) fn over(
        engine: Engine,
        clock: Arc<dyn Clock>,
        epoch: SystemTime,
        prefix: &str,
        ranges: ServiceRanges,
    ) -> (Self, Feeder) {
        let source = Arc::new(EngineSource::new(engine.clone()));
        let (mut storage, feeder) = Self::with_source(source, clock, epoch, prefix, ranges);
        storage.engine = Some(engine);
        (storage, feeder)
    }

    /// Returns a store in an etcd cluster, and the feeder of its cache, which must run on a runtime.
    pub(crate) fn over_etcd(
        servers: &EtcdServers,
        clock: Arc<dyn Clock>,
        epoch: SystemTime,
        prefix: &str,
        ranges: ServiceRanges,
    ) -> Result<(Self, Feeder), EtcdError> {
        let source = Arc::new(etcd::source(servers)?);
        Ok(Self::with_source(source, clock, epoch, prefix, ranges))
    }

    fn with_source(
        source: Arc<dyn Source>,
        clock: Arc<dyn Clock>,
        epoch: SystemTime,
        prefix: &str,
        ranges: ServiceRanges,
    ) -> (Self, Feeder) {
        let source: Arc<dyn Source> = Arc::new(Transcoded::new(source));
        let builder = WatchCache::builder(source.clone()).clock(clock.clone());
        let (cache, feeder) = builder.build();
        let storage = Self {
            engine: None,
            cache,
            source,
            ranges,
            epoch,
            clock,
            prefix: prefix.to_owned(),
            event_ttl: None,
        };
        (storage, feeder)
    }

    /// Checks that the store answers. Needs the runtime.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let answer = tokio::time::timeout(CHECK_LIMIT, self.source.current_revision());
        match answer.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }

    /// Waits until the store answers, and returns whether it has within a time limit. Needs the runtime.
    pub(crate) async fn answers_within(&self, limit: Duration) -> bool {
        let answer = async {
            while self.source.current_revision().await.is_err() {
                tokio::time::sleep(CHECK_PAUSE).await;
            }
        };
        tokio::time::timeout(limit, answer).await.is_ok()
    }

    /// Sets how long new versions of events are kept; `None` for ever.
    pub(crate) fn event_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.event_ttl = ttl;
        self
    }

    /// Returns a compactor of the store.
    pub(crate) fn compactor(&self, interval: Duration) -> Compactor {
        Compactor::new(self.source.clone(), self.clock.clone(), interval)
    }

    /// Adds a resource to the cache, and returns it with its stores.
    pub(crate) fn add(
        &self,
        names: &Names,
        namespaced: bool,
        fields: &[String],
        strategies: &Strategies,
    ) -> Result<Stored, RequestError> {
        let cache = self.cache.add(self.config(names, namespaced, fields))?;
        let is_services = names.group.is_empty() && names.plural == "services";
        let allocating = |strategy: &Arc<dyn Strategy>, allocates: bool| {
            let store = self.store(cache.clone(), names, namespaced, strategy.clone());
            if is_services {
                store.allocator(self.service_allocator(allocates))
            } else {
                store
            }
        };
        let store = |strategy| allocating(strategy, false);
        Ok(Stored {
            store: allocating(&strategies.main, true),
            status: strategies.status.as_ref().map(store),
            prepared: store(&strategies.prepared),
            prepared_counted: store(&strategies.prepared_counted),
            cache,
            followed: Position::default(),
        })
    }

    /// Returns the store without the cache.
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Returns the ranges from which services get addresses and ports.
    pub(crate) fn ranges(&self) -> &ServiceRanges {
        &self.ranges
    }

    /// Returns what gives addresses and ports to services. Stores that do not change what services need only release
    /// it.
    pub(crate) fn service_allocator(&self, allocates: bool) -> ServiceAllocator {
        ServiceAllocator {
            source: self.source.clone(),
            prefix: self.prefix.clone(),
            ranges: self.ranges.clone(),
            now: self.now(),
            allocates,
        }
    }

    /// Returns the configuration of a resource in the cache.
    pub(crate) fn config(
        &self,
        names: &Names,
        namespaced: bool,
        fields: &[String],
    ) -> ResourceConfig {
        let kind = JsonKind::new(names.api_version(), &*names.kind);
        let mut kind = kind.with_fields(fields.iter().cloned());
        for field in fields {
            if let Some((paths, absent)) = builtin::field_source(field) {
                kind = kind.with_source(field, paths.iter().copied(), absent);
            }
        }
        let prefix = self.key_prefix(names);
        let config = if namespaced {
            ResourceConfig::namespaced(kind, &names.plural, &prefix)
        } else {
            ResourceConfig::cluster(kind, &names.plural, &prefix)
        };
        let indexed = fields.iter().filter(|field| *field == INDEXED_FIELD);
        indexed.fold(config, |config, field| {
            config.index(ObjectIndex::Field(field.clone()))
        })
    }

    /// Returns a store of the objects of a custom resource.
    pub(crate) fn custom_store(
        &self,
        storage: impl revstore_watch_cache::api::Storage + 'static,
        names: &Names,
        namespaced: bool,
        strategy: Arc<dyn Strategy>,
    ) -> ObjectStore {
        let store = self.store(storage, names, namespaced, strategy);
        match self.engine {
            Some(_) => store.value_bytes_max(VALUE_BYTES_MAX),
            None => store,
        }
    }

    /// Returns a store of the objects of a resource.
    pub(crate) fn store(
        &self,
        storage: impl revstore_watch_cache::api::Storage + 'static,
        names: &Names,
        namespaced: bool,
        strategy: Arc<dyn Strategy>,
    ) -> ObjectStore {
        ObjectStore::with_strategy(storage, names.resource_name(), namespaced, strategy)
            .clock(self.clock.clone(), self.epoch)
    }

    /// Returns the time of day, for defaults that have timestamps.
    pub(crate) fn now(&self) -> builtin::Now {
        let (clock, epoch) = (self.clock.clone(), self.epoch);
        Arc::new(move || moment(epoch, clock.now()).1)
    }

    /// Returns a function that returns the time of day in seconds since 1970.
    pub(crate) fn seconds(&self) -> Seconds {
        let (clock, epoch) = (self.clock.clone(), self.epoch);
        Arc::new(move || moment(epoch, clock.now()).0)
    }

    /// Returns the time of day after a duration from now, in seconds since 1970 and as a timestamp.
    pub(crate) fn moment(&self, after: Duration) -> (i64, String) {
        moment(self.epoch, self.clock.now().saturating_add(after))
    }

    /// Returns the beginning of the keys of a resource: those of kube-apiserver.
    fn key_prefix(&self, names: &Names) -> String {
        let prefix = &self.prefix;
        let (group, plural) = (names.group.as_str(), names.plural.as_str());
        match (group, plural) {
            // Resources with other names in the store than in the API, for historical reasons.
            ("", "nodes") => format!("{prefix}/minions"),
            ("", "services") => format!("{prefix}/services/specs"),
            ("", "endpoints") => format!("{prefix}/services/endpoints"),
            ("", "replicationcontrollers") => format!("{prefix}/controllers"),
            ("networking.k8s.io", "ingresses") => format!("{prefix}/ingress"),
            ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => {
                format!("{prefix}/{group}/{plural}")
            }
            _ if kinds::groups().iter().any(|known| known.name() == group) => {
                format!("{prefix}/{plural}")
            }
            _ => format!("{prefix}/{group}/{plural}"),
        }
    }
}

fn moment(epoch: SystemTime, since: Duration) -> (i64, String) {
    let time = OffsetDateTime::from(epoch.checked_add(since).unwrap_or(epoch));
    let time = time.replace_nanosecond(0).unwrap_or(time);
    (
        time.unix_timestamp(),
        time.format(&Rfc3339).unwrap_or_default(),
    )
}
