//! What a request is about, by its method, its path and its query.

use http::Method;
use percent_encoding::percent_decode_str;
use revstore_watch_cache::api::Query;

use crate::auth::Attributes;

/// What a request is about. Corresponds to `RequestInfo` of kube-apiserver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// The path without escape sequences.
    pub(crate) path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`, empty for another
    /// method; for other paths than those of resources the method in lower case.
    pub(crate) verb: &'static str,
    /// The resource, if the path is that of one.
    pub(crate) target: Option<Target>,
}

/// The resource that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// The namespace of the path; empty for all namespaces and for resources without namespaces, to which namespaces
    /// themselves belong.
    pub(crate) namespace: String,
    /// The plural of the resource.
    pub(crate) resource: String,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// The name of the object; empty for a collection.
    pub(crate) name: String,
    /// The name that a field selector requires, of a list or watch.
    pub(crate) selected_name: String,
    /// The rest of the path, below the subresource.
    pub(crate) rest: String,
    /// Whether the path begins with the word `watch`, as those of old clients.
    pub(crate) is_watch_path: bool,
}

/// The subresources of namespaces. Other words after a namespace are resources in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    pub(crate) fn new(method: &Method, path: &str, query: &Query) -> Self {
        let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
        match Target::parse(&path) {
            Some(mut target) => {
                let verb = resource_verb(method, &mut target, query);
                Self {
                    path,
                    verb,
                    target: Some(target),
                }
            }
            None => Self {
                path,
                verb: path_verb(method),
                target: None,
            },
        }
    }

    /// Returns what the request asks for, for the authorization.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        match &self.target {
            None => Attributes::Path {
                verb: self.verb,
                path: &self.path,
            },
            Some(target) => Attributes::Resource {
                verb: self.verb,
                group: &target.group,
                namespace: target.shown_namespace(),
                resource: &target.resource,
                subresource: &target.subresource,
                name: match &*target.name {
                    "" => &target.selected_name,
                    name => name,
                },
            },
        }
    }
}

impl Target {
    /// Returns the target of a path below `/api/VERSION/` or `/apis/GROUP/VERSION/`.
    fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let mut parts: Vec<&str> = parts.collect();
        if parts.is_empty() {
            return None;
        }
        let mut target = Self {
            group: group.to_owned(),
            version: version.to_owned(),
            ..Self::default()
        };
        if parts[0] == "watch" && parts.len() > 1 {
            target.is_watch_path = true;
            parts.remove(0);
        }
        let is_in_namespace = parts[0] == "namespaces"
            && parts
                .get(2)
                .is_some_and(|part| !NAMESPACE_SUBRESOURCES.contains(part));
        if is_in_namespace {
            parts[1].clone_into(&mut target.namespace);
            parts.drain(..2);
        }
        let mut parts = parts.into_iter().map(str::to_owned);
        target.resource = parts.next().unwrap_or_default();
        target.name = parts.next().unwrap_or_default();
        target.subresource = parts.next().unwrap_or_default();
        target.rest = parts.collect::<Vec<_>>().join("/");
        Some(target)
    }

    /// Returns the namespace for authorization, admission and rules of control, in which a namespace is in itself.
    pub(crate) fn shown_namespace(&self) -> &str {
        if self.namespace.is_empty() && self.resource == "namespaces" {
            &self.name
        } else {
            &self.namespace
        }
    }
}

fn path_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::DELETE => "delete",
        Method::PATCH => "patch",
        Method::OPTIONS => "options",
        _ => "",
    }
}

fn resource_verb(method: &Method, target: &mut Target, query: &Query) -> &'static str {
    let is_collection = target.name.is_empty();
    if is_collection || target.is_watch_path {
        target.selected_name = selected_name(query.first("fieldSelector").unwrap_or_default());
    }
    match *method {
        Method::GET if target.is_watch_path => "watch",
        Method::GET | Method::HEAD if is_collection => {
            if query.flag("watch").unwrap_or_default() {
                "watch"
            } else {
                "list"
            }
        }
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// Returns the name that a field selector requires, or an empty text.
fn selected_name(selector: &str) -> String {
    let mut requirements = selector.split(',');
    let name = requirements.find_map(|requirement| {
        let value = requirement.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    });
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &Method, url: &str) -> RequestInfo {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        RequestInfo::new(method, path, &Query::parse(query))
    }

    fn summary(method: &Method, url: &str) -> String {
        let info = info(method, url);
        match info.target {
            None => format!("{} {}", info.verb, info.path),
            Some(it) => format!(
                "{} {}/{} ns={} {}/{}/{} {}",
                info.verb,
                it.group,
                it.version,
                it.namespace,
                it.resource,
                it.name,
                it.subresource,
                it.rest
            ),
        }
    }

    #[test]
    fn paths_name_resources() {
        for (method, url, expected) in [
            (Method::GET, "/api/v1/pods", "list /v1 ns= pods// "),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?watch=1",
                "watch /v1 ns=a pods// ",
            ),
            (
                Method::GET,
                "/api/v1/watch/namespaces/a/pods",
                "watch /v1 ns=a pods// ",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a",
                "get /v1 ns= namespaces/a/ ",
            ),
            (
                Method::GET,
                "/api/v1/watch/namespaces/a",
                "watch /v1 ns= namespaces/a/ ",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/namespaces/a",
                "get /v1 ns=a namespaces/a/ ",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update /v1 ns= namespaces/a/finalize ",
            ),
            (
                Method::GET,
                "/api/v1/namespaces",
                "list /v1 ns= namespaces// ",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection apps/v1 ns=a deployments// ",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/deployments/d",
                "delete apps/v1 ns=a deployments/d/ ",
            ),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch apps/v1 ns=a deployments/d/scale ",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods/p/proxy/x/y",
                "get /v1 ns=a pods/p/proxy x/y",
            ),
            (
                Method::HEAD,
                "/api/v1/namespaces/a/pods/p%61",
                "get /v1 ns=a pods/pa/ ",
            ),
            (Method::GET, "/api/v1/", "get /api/v1/"),
            (Method::GET, "/apis", "get /apis"),
            (Method::POST, "/version", "post /version"),
        ] {
            assert_eq!(summary(&method, url), expected, "{url}");
        }
    }

    #[test]
    fn a_namespace_is_authorized_in_itself() {
        for (url, expected) in [
            ("/api/v1/namespaces/a", "a"),
            ("/api/v1/namespaces/a/status", "a"),
            ("/api/v1/watch/namespaces/a", "a"),
            ("/api/v1/namespaces/a/pods/b", "a"),
            ("/api/v1/namespaces", ""),
            ("/api/v1/nodes/a", ""),
        ] {
            let info = info(&Method::GET, url);
            let Attributes::Resource { namespace, .. } = info.attributes() else {
                panic!("{url} is the path of a resource");
            };
            assert_eq!(namespace, expected, "{url}");
        }
    }

    #[test]
    fn a_field_selector_names_the_object() {
        let info = info(&Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Da");
        assert_eq!(info.target.unwrap().selected_name, "a");
    }
}
