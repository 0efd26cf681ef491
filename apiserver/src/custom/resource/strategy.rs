//! The rules of a custom resource.

use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};
use serde_json::{Value, json};

use crate::custom::definition::{Definition, Version};
use crate::custom::resource::Column;
use crate::custom::resource::coercion::{adopt, adopt_stored, api_version, complete, version_of};
use crate::custom::schema::{Causes, Path};

/// The rules of one version of a custom resource. The store of the rules contains objects of this version: objects of
/// other versions are converted where the store reads and writes them.
#[derive(Clone, Debug)]
pub struct CustomResource {
    definition: Arc<Definition>,
    version: Arc<Version>,
    api_version: String,
    is_storage_version: bool,
}

impl CustomResource {
    /// Returns the rules of a version.
    pub fn new(definition: Arc<Definition>, version: Arc<Version>) -> Self {
        let stored = definition.storage_version().unwrap_or(&version);
        Self {
            is_storage_version: stored.name == version.name,
            api_version: api_version(&definition, &version),
            definition,
            version,
        }
    }

    /// Returns the definition.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Returns the version.
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Completes an object of a request: sets defaults, and removes unknown fields. Returns the paths of
    /// these, such as `spec.nope`, in the order in which a server warns about them.
    ///
    /// # Errors
    /// 400 if the metadata has fields of a wrong type, or if the defaults are too large.
    pub fn admit(&self, object: &mut JsonObject) -> Result<Vec<String>, RequestError> {
        complete(&self.definition, &self.version, object, false)
    }

    /// Makes the current version of a stored object one of this version: sets defaults that were added to
    /// the schema of the version in which it is stored, and removes fields that one of the two schemas does not have.
    ///
    /// # Errors
    /// 400 if the defaults are too large.
    pub fn present(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        let source = version_of(&self.definition, object).unwrap_or(&self.version);
        complete(&self.definition, source, object, true)?;
        if source.name != self.version.name {
            return adopt(&self.definition, &self.version, object);
        }
        object.insert("apiVersion".into(), self.api_version.as_str().into());
        Ok(())
    }

    /// Makes an object of this version one of the storage version, without a webhook: removes fields that its schema does
    /// not have, and sets its defaults.
    ///
    /// # Errors
    /// 500 if the metadata of an embedded object has a wrong type, or if the defaults are too large.
    pub fn to_stored(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        match self.definition.storage_version() {
            Some(stored) if !self.is_storage_version => {
                adopt_stored(&self.definition, stored, object)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether this is the version in which objects are stored.
    pub fn is_storage_version(&self) -> bool {
        self.is_storage_version
    }

    /// Returns whether objects that were stored under this definition are presented as they are stored.
    pub fn is_presented_verbatim(&self) -> bool {
        self.definition.generation == 1 && self.is_storage_version
    }

    /// Returns the `columnDefinitions` of tables.
    pub fn columns(&self) -> Value {
        let name = json!({
            "name": "Name",
            "type": "string",
            "format": "name",
            "description": "The name of the object, which is unique in its namespace.",
            "priority": 0,
        });
        let columns = self.version.columns.iter().map(Column::definition);
        std::iter::once(name).chain(columns).collect()
    }

    /// Returns the cells of an object's row. `now` is the time of day in seconds since 1970, for ages.
    pub fn cells(&self, object: &JsonObject, now: i64) -> Vec<Value> {
        let metadata = object.get("metadata");
        let name = metadata.and_then(|metadata| metadata.get("name")).cloned();
        let cells = self
            .version
            .columns
            .iter()
            .map(|column| column.cell(object, now));
        std::iter::once(name.unwrap_or_default())
            .chain(cells)
            .collect()
    }

    fn validate(&self, new: &JsonObject, old: Option<&JsonObject>) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        let object = Value::Object(new.clone());
        let old_object = old.map(|old| Value::Object(old.clone()));
        if let Some(schema) = &self.version.schema {
            causes.extend(schema.validate_at("", &object, old_object.as_ref()));
        }
        if let Some(scale) = &self.version.scale {
            causes.extend(scale.spec_errors(new));
            causes.extend(scale.status_errors(new));
        }
        if let Some(schema) = &self.version.schema {
            schema.embedded_errors(&object, false, &Path::root(""), &mut causes);
        }
        self.validate_lists(&object, old_object.as_ref(), &mut causes);
        if let Some(rules) = &self.version.rules {
            rules.validate(&object, old_object.as_ref(), &mut causes);
        }
        causes.into_unique()
    }

    /// Checks that items of sets and maps are unique, unless those of the old version are not either.
    fn validate_lists(&self, new: &Value, old: Option<&Value>, causes: &mut Causes) {
        let Some(schema) = &self.version.schema else {
            return;
        };
        let mut found = Causes::default();
        schema.list_errors(new, &mut found);
        if found.is_empty() {
            return;
        }
        let mut before = Causes::default();
        if let Some(old) = old {
            schema.list_errors(old, &mut before);
        }
        if before.is_empty() {
            causes.append(found);
        }
    }
}

fn metadata(object: &mut JsonObject) -> &mut JsonObject {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("it is an object")
}

/// Copies a field from one object to another, or removes it.
fn restore(to: &mut JsonObject, from: &JsonObject, name: &str) {
    match from.get(name) {
        Some(value) => to.insert(name.to_owned(), value.clone()),
        None => to.remove(name),
    };
}

/// Returns whether two objects differ in anything but their metadata and the API version.
fn differ(one: &JsonObject, other: &JsonObject) -> bool {
    let is_content = |name: &&String| !["metadata", "apiVersion"].contains(&name.as_str());
    let count = |object: &JsonObject| object.keys().filter(is_content).count();
    count(one) != count(other)
        || one
            .iter()
            .filter(|(name, _)| is_content(name))
            .any(|(name, value)| other.get(name) != Some(value))
}

impl Strategy for CustomResource {
    fn api_version(&self) -> &str {
        &self.api_version
    }

    fn kind(&self) -> &str {
        &self.definition.names.kind
    }

    /// The generation is kept here, because changes of a status without a resource of its own raise it,
    /// and new defaults do not.
    fn has_generation(&self) -> bool {
        false
    }

    fn repeats_metadata_rules(&self) -> bool {
        true
    }

    fn prepare_create(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        if self.definition.terminating {
            let resource = ResourceName::new(&self.definition.group, &self.definition.names.plural);
            let name = metadata(object)
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let detail = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource, &name, detail).into());
        }
        self.admit(object)?;
        if self.version.has_status {
            object.remove("status");
        }
        metadata(object).insert("generation".into(), 1.into());
        Ok(())
    }

    fn prepare_update(&self, new: &mut JsonObject, old: &JsonObject) -> Result<(), RequestError> {
        self.admit(new)?;
        if self.version.has_status {
            restore(new, old, "status");
        }
        if differ(new, old) {
            let generation = old
                .get("metadata")
                .and_then(|metadata| metadata["generation"].as_i64());
            metadata(new).insert(
                "generation".into(),
                (generation.unwrap_or_default() + 1).into(),
            );
        }
        Ok(())
    }

    fn validate_create(&self, object: &JsonObject) -> Vec<StatusCause> {
        self.validate(object, None)
    }

    fn validate_update(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        self.validate(new, Some(old))
    }
}

/// The rules of the status of a custom resource: writes change nothing else.
#[derive(Clone, Debug)]
pub struct CustomStatus(pub CustomResource);

impl Strategy for CustomStatus {
    fn api_version(&self) -> &str {
        self.0.api_version()
    }

    fn kind(&self) -> &str {
        self.0.kind()
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn prepare_update(&self, new: &mut JsonObject, old: &JsonObject) -> Result<(), RequestError> {
        self.0.admit(new)?;
        let mut kept = old.clone();
        restore(&mut kept, new, "status");
        let managed = metadata(new).remove("managedFields");
        let metadata = metadata(&mut kept);
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        metadata.extend(managed.map(|fields| ("managedFields".to_owned(), fields)));
        *new = kept;
        Ok(())
    }

    fn validate_update(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        let version = &self.0.version;
        let schema = version
            .schema
            .as_ref()
            .and_then(|schema| schema.properties.get("status"));
        if let Some(status) = new.get("status")
            && let Some(schema) = schema
        {
            causes.extend(schema.validate_at("status", status, old.get("status")));
        }
        if let Some(scale) = &version.scale {
            causes.extend(scale.status_errors(new));
        }
        let (new, old) = (Value::Object(new.clone()), Value::Object(old.clone()));
        self.0.validate_lists(&new, Some(&old), &mut causes);
        if let Some(rules) = &version.rules {
            rules.validate(&new, Some(&old), &mut causes);
        }
        causes.into_unique()
    }
}
