//! The store of one resource: creates and updates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use revstore_engine::Revision;
use serde::Serializer as _;
use serde_json::{Value, json};

use crate::api::keys::ObjectRef;
use crate::api::options::GetOptions;
use crate::api::status::{Conflict, RequestError};
use crate::api::storage::{Storage, Update, UpdateOptions};
use crate::clock::Clock;
use crate::encode::object::Object;
use crate::registry::allocator::ATTEMPTS_MAX;
use crate::registry::origin::Origin;
use crate::registry::{Admit, AdmitAll, Allocator, JsonObject, Strategy};
use crate::registry::{managed_fields, metadata};
use crate::source::{ConditionalWrite, TOO_LARGE};
use crate::status::{ResourceName, Status, StatusCause};

/// The number of names that a create generates before it fails because all of them exist.
const GENERATED_NAMES_MAX: usize = 8;

/// How a create or an update is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteRequest {
    /// Whether to check everything and to write nothing.
    pub dry_run: bool,
    /// Whether a version that is too large for the store is written without `metadata.managedFields`.
    pub drops_managed_fields: bool,
}

impl WriteRequest {
    /// Sets whether to check everything and to write nothing.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets whether a version that is too large for the store is written without `metadata.managedFields`, as
    /// kube-apiserver does unless the write is an apply.
    #[must_use]
    pub fn drops_managed_fields(mut self, drops: bool) -> Self {
        self.drops_managed_fields = drops;
        self
    }

    /// Returns whether a write that failed is tried again without `metadata.managedFields`.
    pub(super) fn can_drop(&self, error: &RequestError) -> bool {
        let is_too_large = matches!(error, RequestError::Unclassified(text) if text == TOO_LARGE);
        self.drops_managed_fields && is_too_large
    }
}

/// The result of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The new version of the object, with its resource version. An update that removes the last
    /// finalizer of an object that is being deleted removes the object; this is its last version then.
    pub object: JsonObject,
    /// Whether the object did not exist.
    pub created: bool,
}

impl Written {
    /// Returns the result of an update that has created its object.
    pub fn created(object: JsonObject) -> Self {
        Self {
            object,
            created: true,
        }
    }
}

/// Creates, updates and deletes the objects of one resource by the rules of Kubernetes: names, uids,
/// generations, timestamps, preconditions, finalizers. A [`Strategy`] has the rules of the resource.
/// Corresponds to `registry.Store`.
///
/// An update costs one read of the cache and one conditional write, and is repeated if another write was
/// faster.
///
/// ```
/// use std::sync::Arc;
/// use pollster::block_on;
/// use revstore_engine::Engine;
/// use revstore_watch_cache::registry::{ObjectStore, TypedStrategy, WriteRequest};
/// use revstore_watch_cache::status::ResourceName;
/// use revstore_watch_cache::{EngineSource, JsonKind, ResourceConfig, WatchCache};
/// use serde::{Deserialize, Serialize};
/// use serde_json::json;
///
/// #[derive(Serialize, Deserialize)]
/// struct Widget {
///     #[serde(default)]
///     size: u32,
/// }
///
/// let source = Arc::new(EngineSource::new(Engine::builder().build()));
/// let (cache, feeder) = WatchCache::builder(source).build();
/// let kind = JsonKind::new("example.org/v1", "Widget");
/// let config = ResourceConfig::namespaced(kind, "widgets", "/widgets");
/// let widgets = cache.add(config)?;
/// let _feeder = feeder.spawn();
/// block_on(widgets.wait_until_ready())?;
///
/// let store = ObjectStore::new(
///     widgets,
///     ResourceName::new("example.org", "widgets"),
///     true,
///     TypedStrategy::<Widget>::new("example.org/v1", "Widget"),
/// );
/// let widget = json!({"metadata": {"generateName": "w-"}, "size": 3});
/// let widget = widget.as_object().cloned().unwrap_or_default();
/// let created = block_on(store.create("default", widget, &WriteRequest::default()))?;
/// assert_eq!(created["kind"], "Widget");
/// assert_eq!(created["metadata"]["generation"], 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ObjectStore {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) resource: ResourceName,
    /// The group and the kind, which errors about fields name.
    pub(super) kind: ResourceName,
    namespaced: bool,
    pub(super) strategy: Arc<dyn Strategy>,
    pub(super) allocator: Option<Arc<dyn Allocator>>,
    pub(super) origin: Origin,
    /// The largest size of an object, in bytes.
    value_bytes_max: usize,
}

impl ObjectStore {
    /// Returns a store of the objects in `storage`, with the system clock and random uids.
    ///
    /// `resource` is the name of the resource in errors, and `namespaced` whether its objects are in
    /// namespaces; both must be those with which the resource of `storage` was configured.
    pub fn new(
        storage: impl Storage + 'static,
        resource: ResourceName,
        namespaced: bool,
        strategy: impl Strategy,
    ) -> Self {
        Self::with_strategy(storage, resource, namespaced, Arc::new(strategy))
    }

    /// Returns a store as [`new`](Self::new) does, with a strategy that others may use, too.
    pub fn with_strategy(
        storage: impl Storage + 'static,
        resource: ResourceName,
        namespaced: bool,
        strategy: Arc<dyn Strategy>,
    ) -> Self {
        let group = strategy.api_version().rsplit_once('/');
        let kind = ResourceName::new(group.map_or("", |(group, _)| group), strategy.kind());
        Self {
            storage: Arc::new(storage),
            resource,
            kind,
            namespaced,
            strategy,
            allocator: None,
            origin: Origin::default(),
            value_bytes_max: usize::MAX,
        }
    }

    /// Returns a name that begins with `prefix` and ends with five random characters, as those of objects with a
    /// `generateName`.
    pub fn generated_name(&self, prefix: &str) -> String {
        self.origin.new_name(prefix)
    }

    /// Sets the clock of the timestamps, and the time of day at its origin.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>, epoch: SystemTime) -> Self {
        self.origin.set_clock(clock, epoch);
        self
    }

    /// Sets what writes other keys with the objects.
    #[must_use]
    pub fn allocator(mut self, allocator: impl Allocator) -> Self {
        self.allocator = Some(Arc::new(allocator));
        self
    }

    /// Sets the largest size of an object as it is stored, in bytes. Without it the storage decides.
    ///
    /// A larger one fails with the error that kube-apiserver has from an etcd whose requests are limited, 1.5 MiB by
    /// default: [`RequestError::Unclassified`] with `etcdserver: request is too large`.
    #[must_use]
    pub fn value_bytes_max(mut self, bytes: usize) -> Self {
        self.value_bytes_max = bytes;
        self
    }

    /// Encodes a version to be stored.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn encode(&self, object: &JsonObject) -> Result<Bytes, RequestError> {
        let value = encode(object);
        if value.len() > self.value_bytes_max {
            return Err(RequestError::Unclassified(TOO_LARGE.to_owned()));
        }
        Ok(value)
    }

    /// Makes the uids and the generated names depend on a seed, for tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.origin.set_seed(seed);
        self
    }

    /// Creates an object in a namespace, which is empty for a resource without namespaces. Without a name
    /// the object gets one that begins with its `generateName`.
    ///
    /// Returns the object as it was written. A dry run returns it with the resource version of the request, if there is
    /// one, which is an error otherwise.
    ///
    /// # Errors
    /// - [`RequestError::BadRequest`] if the kind, the API version or the namespace are not those of the
    ///   request.
    /// - 422, as [`RequestError::Reported`], if the object is invalid.
    /// - [`RequestError::AlreadyExists`].
    /// - Errors of the strategy and of the storage.
    // WC-413, WC-440, WC-443.
    pub async fn create(
        &self,
        namespace: &str,
        object: JsonObject,
        request: &WriteRequest,
    ) -> Result<JsonObject, RequestError> {
        self.create_admitted(namespace, object, request, &mut AdmitAll)
            .await
    }

    /// Creates an object as [`create`](Self::create) does, if it is admitted.
    ///
    /// # Errors
    /// As [`create`](Self::create), and those of `admission`.
    pub async fn create_admitted(
        &self,
        namespace: &str,
        object: JsonObject,
        request: &WriteRequest,
        admission: &mut dyn Admit,
    ) -> Result<JsonObject, RequestError> {
        let (mut generated, mut attempts) = (0, 0);
        let mut new = object;
        let version = metadata::text(&new, "resourceVersion").to_owned();
        loop {
            // The object for the next attempt, if its name is generated or other keys are written with it.
            let is_generated = metadata::text(&new, "name").is_empty();
            let original = (is_generated || self.allocator.is_some()).then(|| new.clone());
            let (reference, has_version) = self.begin_create(namespace, &mut new)?;
            let others = match &self.allocator {
                Some(allocator) => allocator.allocate(&mut new, None, request.dry_run).await?,
                None => Vec::new(),
            };
            // A dry run does not write what must not have a version.
            self.complete_create(&mut new, has_version && !request.dry_run)?;
            admission.admit(Some(&new), None).await?;
            let again = others.clone();
            let mut written = self.write_new(&reference, &mut new, request, others).await;
            if let Err(error) = &written
                && request.can_drop(error)
                && managed_fields::remove(&mut new)
            {
                written = self.write_new(&reference, &mut new, request, again).await;
            }
            attempts += 1;
            if !matches!(&written, Err(RequestError::Conflict { .. })) {
                generated += 1;
            }
            match (written, original) {
                (Err(RequestError::AlreadyExists { .. }), Some(original))
                    if is_generated && generated < GENERATED_NAMES_MAX =>
                {
                    new = original;
                }
                (Err(RequestError::Conflict { .. }), Some(original)) if attempts < ATTEMPTS_MAX => {
                    new = original;
                }
                (Err(error), _) => return Err(error),
                (Ok(()), _) => {
                    if request.dry_run && has_version {
                        metadata::set(&mut new, "resourceVersion", Some(version.into()));
                    }
                    return Ok(new);
                }
            }
        }
    }

    async fn write_new(
        &self,
        reference: &ObjectRef,
        new: &mut JsonObject,
        request: &WriteRequest,
        others: Vec<ConditionalWrite>,
    ) -> Result<(), RequestError> {
        if request.dry_run {
            let existing = self.storage.get(reference, &GetOptions::default()).await?;
            return match existing {
                Some(_) => Err(self.already_exists(reference)),
                None => self.read_back(new).await,
            };
        }
        if !others.is_empty() {
            let options = UpdateOptions::default()
                .create_if_missing(true)
                .others(others);
            let value = self.encode(new)?;
            let time_to_live = self.strategy.time_to_live(new);
            let written = value.clone();
            let update = |found: Option<&Object>| match found {
                Some(_) => Err(self.already_exists(reference)),
                None => Ok(Update::new(value.clone()).time_to_live(time_to_live)),
            };
            let update = Box::new(update);
            let stored = self.storage.guaranteed_update(reference, &options, update);
            return show_stored(new, &written, &stored.await?);
        }
        let time_to_live = self.strategy.time_to_live(new);
        let value = self.encode(new)?;
        let created = self.storage.create(reference, value.clone(), time_to_live);
        show_stored(new, &value, &created.await?)
    }

    /// Makes an object that a dry run does not write what a read would return after the write.
    pub(super) async fn read_back(&self, new: &mut JsonObject) -> Result<(), RequestError> {
        let value = encode(new);
        let read = self.storage.read_back(value.clone()).await?;
        if read != value {
            *new = serde_json::from_slice(&read)
                .map_err(|error| RequestError::Internal(error.to_string()))?;
        }
        Ok(())
    }

    /// Checks the type of a new object, and sets its metadata. Returns its name, and whether it has a resource
    /// version.
    fn begin_create(
        &self,
        namespace: &str,
        new: &mut JsonObject,
    ) -> Result<(ObjectRef, bool), RequestError> {
        self.check_type(new)?;
        self.check_namespace(namespace, new)?;
        let version = metadata::text(new, "resourceVersion").parse::<u64>();
        metadata::clear_server_fields(new);
        metadata::set(new, "uid", Some(self.origin.new_uid().into()));
        metadata::set(
            new,
            "creationTimestamp",
            Some(self.origin.timestamp(Duration::ZERO).into()),
        );
        if self.strategy.has_generation() {
            metadata::set(new, "generation", Some(json!(1)));
        }
        let prefix = metadata::text(new, "generateName");
        if metadata::text(new, "name").is_empty() && !prefix.is_empty() {
            let name = self.origin.new_name(prefix);
            metadata::set(new, "name", Some(name.into()));
        }
        let reference = ObjectRef {
            namespace: self.namespaced.then(|| namespace.to_owned()),
            name: metadata::text(new, "name").to_owned(),
        };
        Ok((reference, version.is_ok_and(|version| version != 0)))
    }

    /// Completes and checks a new object.
    fn complete_create(&self, new: &mut JsonObject, has_version: bool) -> Result<(), RequestError> {
        self.strategy.prepare_create(new)?;
        let mut causes = metadata::validate(new, self.namespaced, &*self.strategy);
        causes.extend(self.strategy.validate_create(new));
        self.check_causes(new, causes)?;
        if has_version {
            return Err(RequestError::version_on_create());
        }
        Ok(())
    }

    /// Checks what a new version of an object is about, or a new object if there is no old version, and sets its
    /// metadata. Returns whether a new object has a resource version.
    pub(super) fn begin_update(
        &self,
        object: &ObjectRef,
        old: Option<&JsonObject>,
        new: &mut JsonObject,
    ) -> Result<bool, RequestError> {
        self.check_target(object, new)?;
        let Some(old) = old else {
            let namespace = object.namespace.as_deref().unwrap_or_default();
            return self
                .begin_create(namespace, new)
                .map(|(_, has_version)| has_version);
        };
        self.check_version(object, old, new)?;
        metadata::inherit(new, old);
        Ok(false)
    }

    /// Completes and checks a new version of an object, or a new object if there is no old version.
    pub(super) fn complete_update(
        &self,
        old: Option<&JsonObject>,
        new: &mut JsonObject,
        has_version: bool,
    ) -> Result<(), RequestError> {
        let Some(old) = old else {
            return self.complete_create(new, has_version);
        };
        self.strategy.prepare_update(new, old)?;
        if self.strategy.has_generation() && differ_outside_of_metadata(new, old) {
            raise_generation(new);
        }
        let mut causes = metadata::validate(new, self.namespaced, &*self.strategy);
        let changes = metadata::validate_update(new, old);
        if self.strategy.repeats_metadata_rules() {
            causes.extend_from_slice(&changes);
        }
        causes.extend(changes);
        causes.extend(self.strategy.validate_update(new, old));
        self.check_causes(new, causes)
    }

    /// Checks the resource version of an update.
    fn check_version(
        &self,
        object: &ObjectRef,
        old: &JsonObject,
        new: &JsonObject,
    ) -> Result<(), RequestError> {
        let requested = metadata::text(new, "resourceVersion");
        let path = "metadata.resourceVersion";
        match requested.parse::<u64>() {
            Ok(version) if version != 0 => {
                if requested == metadata::text(old, "resourceVersion") {
                    Ok(())
                } else {
                    Err(self.conflict(object, Conflict::Modified))
                }
            }
            Err(_) if !requested.is_empty() => {
                let cause = StatusCause::invalid(path, requested, "must be a number");
                Err(RequestError::Unclassified(cause.to_string()))
            }
            _ if self.strategy.allows_unconditional_update() => Ok(()),
            _ => {
                let cause = StatusCause::invalid(path, 0, "must be specified for an update");
                Err(Status::invalid(&self.resource, &object.name, vec![cause]).into())
            }
        }
    }

    /// Checks that a new version is one of an object, and completes its kind and namespace.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if the kind, the name or the namespace are others.
    pub fn check_target(
        &self,
        object: &ObjectRef,
        new: &mut JsonObject,
    ) -> Result<(), RequestError> {
        self.check_type(new)?;
        check_name(&object.name, new)?;
        self.check_namespace(object.namespace.as_deref().unwrap_or_default(), new)
    }

    fn check_type(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        let (api_version, kind) = (self.strategy.api_version(), self.strategy.kind());
        let of = |name: &str, expected: &str| match object.get(name) {
            None => expected.to_owned(),
            Some(value) => match value.as_str() {
                Some("") | None => expected.to_owned(),
                Some(text) => text.to_owned(),
            },
        };
        let (found_version, found_kind) = (of("apiVersion", api_version), of("kind", kind));
        if found_version != api_version || found_kind != kind {
            let version = found_version.rsplit('/').next().unwrap_or_default();
            return Err(RequestError::BadRequest(format!(
                "{found_kind} in version \"{version}\" cannot be handled as a {kind}: expected kind \
                 {kind} in version {api_version}"
            )));
        }
        object.insert("apiVersion".into(), found_version.into());
        object.insert("kind".into(), found_kind.into());
        Ok(())
    }

    fn check_namespace(
        &self,
        namespace: &str,
        object: &mut JsonObject,
    ) -> Result<(), RequestError> {
        if !self.namespaced {
            metadata::set(object, "namespace", None);
            return Ok(());
        }
        let found = metadata::text(object, "namespace");
        if !found.is_empty() && found != namespace {
            return Err(RequestError::BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request"
                    .into(),
            ));
        }
        metadata::set(object, "namespace", Some(namespace.into()));
        Ok(())
    }

    fn check_causes(
        &self,
        object: &JsonObject,
        mut causes: Vec<StatusCause>,
    ) -> Result<(), RequestError> {
        if causes.is_empty() {
            return Ok(());
        }
        let mut bytes = 0;
        let shown = causes
            .iter()
            .take(metadata::CAUSES_MAX)
            .take_while(|cause| {
                bytes += cause.field.len() + cause.message.len();
                bytes <= metadata::CAUSE_BYTES_MAX
            });
        let shown = shown.count().max(1);
        causes.truncate(shown);
        let name = metadata::text(object, "name");
        Err(Status::invalid(&self.kind, name, causes).into())
    }

    pub(super) fn conflict(&self, object: &ObjectRef, reason: Conflict) -> RequestError {
        RequestError::Conflict {
            resource: self.resource.clone(),
            name: object.name.clone(),
            reason: Box::new(reason),
        }
    }

    pub(super) fn already_exists(&self, object: &ObjectRef) -> RequestError {
        RequestError::AlreadyExists {
            resource: self.resource.clone(),
            name: object.name.clone(),
        }
    }

    pub(super) fn not_found(&self, object: &ObjectRef) -> RequestError {
        RequestError::NotFound {
            resource: self.resource.clone(),
            name: object.name.clone(),
        }
    }
}

fn check_name(name: &str, object: &JsonObject) -> Result<(), RequestError> {
    match metadata::text(object, "name") {
        "" => Err(RequestError::BadRequest(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        found if found != name => Err(RequestError::BadRequest(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// Returns the JSON of an object to store. The API version and the kind come first, so that all objects of a
/// resource begin with the same bytes, which lists leave out without reading the rest.
///
/// # Panics
/// Never: JSON values can be serialized.
pub fn encode(object: &JsonObject) -> Bytes {
    const FIRST: [&str; 2] = ["apiVersion", "kind"];
    let first = FIRST
        .iter()
        .filter_map(|field| object.get_key_value(*field));
    let rest = object
        .iter()
        .filter(|(field, _)| !FIRST.contains(&field.as_str()));
    let mut bytes = Vec::new();
    serde_json::Serializer::new(&mut bytes)
        .collect_map(first.chain(rest))
        .expect("the serialization of JSON values does not fail");
    bytes.into()
}

/// Parses a stored object, and sets its resource version.
pub(super) fn decode(object: &Object) -> Result<JsonObject, RequestError> {
    let mut decoded = serde_json::from_slice(object.value())
        .map_err(|error| RequestError::Internal(error.to_string()))?;
    show_revision(&mut decoded, object.revision());
    Ok(decoded)
}

pub(super) fn show_revision(object: &mut JsonObject, revision: Revision) {
    metadata::set(object, "resourceVersion", Some(revision.to_string().into()));
}

/// Sets the resource version of an object that was written with a value. A storage that converts objects returns another
/// one, which replaces the object.
pub(super) fn show_stored(
    object: &mut JsonObject,
    written: &[u8],
    stored: &Object,
) -> Result<(), RequestError> {
    if stored.value() == written {
        show_revision(object, stored.revision());
    } else {
        *object = decode(stored)?;
    }
    Ok(())
}

/// Returns whether the deletion of an object has begun and nothing holds it any more.
pub(super) fn is_finalized(object: &JsonObject) -> bool {
    metadata::is_terminating(object)
        && metadata::finalizers(object).is_empty()
        && metadata::field(object, "deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .is_none_or(|seconds| seconds == 0)
}

/// Adds 1 to the generation of an object that has one.
pub(super) fn raise_generation(object: &mut JsonObject) {
    if let Some(generation) = metadata::field(object, "generation").and_then(Value::as_i64) {
        metadata::set(object, "generation", Some((generation + 1).into()));
    }
}

/// Returns whether two versions differ in anything but their metadata and status.
fn differ_outside_of_metadata(new: &JsonObject, old: &JsonObject) -> bool {
    fn contents(object: &JsonObject) -> impl Iterator<Item = (&String, &Value)> {
        object
            .iter()
            .filter(|(field, _)| !["metadata", "status"].contains(&field.as_str()))
    }
    contents(new).count() != contents(old).count()
        || contents(new).any(|(field, value)| old.get(field) != Some(value))
}
