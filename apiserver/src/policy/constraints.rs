//! Which requests a policy or a binding is for.

use std::borrow::Cow;
use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::admission::{Attributes, Operation};
use crate::builtin::field::Field;
use crate::builtin::selector;
use crate::catalog::{Origin, Resource};
use crate::verbs::decoded;

/// The requests that a policy or a binding is for: `matchConstraints` or `matchResources`.
#[derive(Debug, Default)]
pub(crate) struct Constraints {
    /// Whether rules for other versions of a resource match, too.
    is_equivalent: bool,
    namespaces: Selector,
    objects: Selector,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
}

/// A label selector.
#[derive(Debug, Default)]
struct Selector(JsonObject);

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// The resources and their subresources.
    resources: Vec<(String, String)>,
    scope: String,
    names: Vec<String>,
}

/// The resource of a request as constraints see it.
#[derive(Clone, Debug)]
pub(crate) enum Matched {
    /// That of the request.
    Own,
    /// Another version of it.
    Equivalent(Arc<Resource>),
}

/// A request with what constraints ask about it, which is found once.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) request: &'a Attributes<'a>,
    equivalents: OnceCell<Vec<Arc<Resource>>>,
    namespace: OnceCell<Option<JsonObject>>,
}

impl Constraints {
    /// Reads the constraints of an object that is valid.
    pub(crate) fn read(matched: &Value) -> Self {
        let rules = |name: &str| match matched[name].as_array() {
            Some(rules) => rules.iter().map(Rule::read).collect(),
            None => Vec::new(),
        };
        let selector =
            |name: &str| Selector(matched[name].as_object().cloned().unwrap_or_default());
        Self {
            is_equivalent: matched["matchPolicy"] == "Equivalent",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
        }
    }

    /// Returns whether a request is one of these, and as which resource.
    ///
    /// # Errors
    /// Its namespace cannot be read.
    pub(crate) async fn matched(
        &self,
        subject: &Subject<'_>,
        object: Option<&JsonObject>,
    ) -> Result<Option<Matched>, RequestError> {
        let in_namespace = self.is_in_namespace(subject, object).await;
        if matches!(in_namespace, Ok(false)) || !self.has_labels(subject, object) {
            return Ok(None);
        }
        if self.find(&self.excluded, subject).is_some() {
            return Ok(None);
        }
        let matched = if self.rules.is_empty() {
            Some(Matched::Own)
        } else {
            self.find(&self.rules, subject)
        };
        if matched.is_some() {
            // An error counts only for the requests that the rules are for.
            in_namespace?;
        }
        Ok(matched)
    }

    async fn is_in_namespace(
        &self,
        subject: &Subject<'_>,
        object: Option<&JsonObject>,
    ) -> Result<bool, RequestError> {
        let request = subject.request;
        let is_namespaces = request.resource.names.plural == "namespaces";
        let namespace = subject.namespace_name();
        if self.namespaces.is_empty() || (namespace.is_empty() && !is_namespaces) {
            return Ok(true);
        }
        let is_written = matches!(request.operation, Operation::Create | Operation::Update);
        if is_namespaces && request.subresource.is_empty() && is_written {
            return Ok(self.namespaces.matches(object));
        }
        match subject.namespace(&namespace).await? {
            Some(object) => Ok(self.namespaces.matches(Some(object))),
            None => Err(Status::not_found(&ResourceName::new("", "namespaces"), &namespace).into()),
        }
    }

    fn has_labels(&self, subject: &Subject<'_>, object: Option<&JsonObject>) -> bool {
        let selector = &self.objects;
        selector.is_empty()
            || object.is_some_and(|object| selector.matches(Some(object)))
            || subject
                .request
                .old
                .is_some_and(|old| selector.matches(Some(old)))
    }

    fn find(&self, rules: &[Rule], subject: &Subject<'_>) -> Option<Matched> {
        let request = subject.request;
        let own = |rule: &&Rule| rule.matches(request, request.resource);
        if rules.iter().any(|rule| own(&rule)) {
            return Some(Matched::Own);
        }
        if !self.is_equivalent || rules.is_empty() {
            return None;
        }
        rules.iter().find_map(|rule| {
            let mut others = subject.equivalents().iter();
            let found = others.find(|other| rule.matches(request, other))?;
            Some(Matched::Equivalent(found.clone()))
        })
    }
}

impl Selector {
    fn is_empty(&self) -> bool {
        let has = |name: &str| match self.0.get(name) {
            Some(Value::Object(entries)) => !entries.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            _ => false,
        };
        !has("matchLabels") && !has("matchExpressions")
    }

    fn matches(&self, object: Option<&JsonObject>) -> bool {
        let none = JsonObject::new();
        let labels = object
            .and_then(|object| object.get("metadata")?.get("labels")?.as_object())
            .unwrap_or(&none);
        selector::matches(&Field::root(&self.0), &Field::root(labels))
    }
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|own| own == "*" || own == text)
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let resources = texts(&rule["resources"]).into_iter();
        let resources = resources.map(|text| match text.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (text, String::new()),
        });
        Self {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: resources.collect(),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
            names: texts(&rule["resourceNames"]),
        }
    }

    /// Returns whether a request, taken as one for a version of its resource, is one of the rule.
    fn matches(&self, request: &Attributes<'_>, resource: &Resource) -> bool {
        let names = &resource.names;
        let is_namespace = (names.group.as_str(), names.plural.as_str()) == ("", "namespaces");
        let is_in_cluster = is_namespace || request.namespace.is_empty();
        let in_scope = match self.scope.as_str() {
            "Namespaced" => !is_in_cluster,
            "Cluster" => is_in_cluster,
            _ => true,
        };
        in_scope
            && has(&self.operations, request.operation.name())
            && has(&self.groups, &names.group)
            && has(&self.versions, &names.version)
            && self.resources.iter().any(|(resource, subresource)| {
                (resource == "*" || *resource == names.plural)
                    && (subresource == "*" || subresource == request.subresource)
            })
            && (self.names.is_empty() || self.names.iter().any(|name| *name == *request.name))
    }
}

impl<'a> Subject<'a> {
    pub(crate) fn new(request: &'a Attributes<'a>) -> Self {
        Self {
            request,
            equivalents: OnceCell::new(),
            namespace: OnceCell::new(),
        }
    }

    /// Returns whether the request is for a namespace itself.
    fn is_namespace(&self) -> bool {
        let names = &self.request.resource.names;
        names.group.is_empty() && names.plural == "namespaces"
    }

    /// Returns the namespace of the request: a namespace is in itself.
    pub(crate) fn namespace_name(&self) -> Cow<'a, str> {
        if self.is_namespace() && self.request.namespace.is_empty() {
            return Cow::Owned(self.request.name.to_string());
        }
        Cow::Borrowed(self.request.namespace)
    }

    /// Returns the namespace of the object; `None` for a namespace and for objects without one.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub(crate) async fn namespace_object(&self) -> Result<Option<&JsonObject>, RequestError> {
        let name = self.request.namespace;
        if self.is_namespace() || name.is_empty() {
            return Ok(None);
        }
        match self.namespace(name).await? {
            Some(object) => Ok(Some(object)),
            None => Err(Status::not_found(&ResourceName::new("", "namespaces"), name).into()),
        }
    }

    async fn namespace(&self, name: &str) -> Result<Option<&JsonObject>, RequestError> {
        let read = || async {
            let front = self.request.front;
            let Ok(resource) = front.catalog.find("", "v1", "namespaces") else {
                return Ok(None);
            };
            let Some(stored) = &resource.stored else {
                return Ok(None);
            };
            let (reference, options) = (ObjectRef::cluster(name), GetOptions::default());
            let found = stored.cache.get(&reference, &options).await?;
            found
                .map(|object| decoded(&resource, stored, &object))
                .transpose()
        };
        let found = self.namespace.get_or_try_init(read).await?;
        Ok(found.as_ref())
    }

    /// Returns the other versions of the resource, of this group and of others.
    fn equivalents(&self) -> &[Arc<Resource>] {
        if let Some(known) = self.equivalents.get() {
            return known;
        }
        let own = self.request.resource;
        let mut found = Vec::new();
        for group in self.request.front.catalog.groups().values() {
            for version in &group.versions {
                let Some(other) = version.resources.get(&own.names.plural) else {
                    continue;
                };
                let is_same = other.names.group == own.names.group
                    && other.names.version == own.names.version;
                let has_subresource = self.request.subresource.is_empty()
                    || other.subresource(self.request.subresource).is_some();
                if !is_same && has_subresource && is_equivalent(own, other) {
                    found.push(other.clone());
                }
            }
        }
        // Nobody else sets it: one task has the request.
        let _ = self.equivalents.set(found);
        self.equivalents.get().map_or(&[], Vec::as_slice)
    }
}

/// Returns whether two resources are versions of one.
fn is_equivalent(one: &Resource, other: &Resource) -> bool {
    match (&one.stored, &other.stored) {
        (Some(one), Some(other)) if Arc::ptr_eq(one, other) => true,
        _ => {
            one.origin == Origin::Custom
                && other.origin == Origin::Custom
                && one.names.group == other.names.group
        }
    }
}

impl Matched {
    /// Returns the resource as which a request matches.
    pub(crate) fn resource<'a>(&'a self, request: &'a Attributes<'_>) -> &'a Resource {
        match self {
            Self::Own => request.resource,
            Self::Equivalent(resource) => resource,
        }
    }

    /// Returns an object of a request in the version as which it matches.
    ///
    /// # Errors
    /// 500 if a webhook cannot convert it.
    pub(crate) async fn convert<'a>(
        &self,
        request: &Attributes<'_>,
        object: Option<&'a JsonObject>,
    ) -> Result<Option<Cow<'a, JsonObject>>, RequestError> {
        match (self, object) {
            (Self::Equivalent(resource), Some(object)) if has_own_kind(request) => {
                let converted = request.resource.convert_to(resource, object.clone());
                converted.await.map(|object| Some(Cow::Owned(object)))
            }
            _ => Ok(object.map(Cow::Borrowed)),
        }
    }

    /// Returns an object in the version as which a request matches in that of the request.
    ///
    /// # Errors
    /// 500 if a webhook cannot convert it.
    pub(crate) async fn convert_back(
        &self,
        request: &Attributes<'_>,
        object: JsonObject,
    ) -> Result<JsonObject, RequestError> {
        match self {
            Self::Equivalent(resource) if has_own_kind(request) => {
                resource.convert_to(request.resource, object).await
            }
            _ => Ok(object),
        }
    }
}

/// Returns whether the objects of a request have the kind of the resource.
pub(crate) fn has_own_kind(request: &Attributes<'_>) -> bool {
    request.kind.kind == request.resource.names.kind
        && request.kind.group == request.resource.names.group
}
