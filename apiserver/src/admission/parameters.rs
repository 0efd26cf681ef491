//! Parameters of admission policies: who writes a policy or a binding that reads objects must be able to read them.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};

use crate::admission::Attributes;
use crate::admission::builtin::objects;
use crate::auth::{Attributes as Access, MASTERS, User};
use crate::builtin::field::Field;

/// The group of policies and bindings.
const GROUP: &str = "admissionregistration.k8s.io";
/// Stands for all groups, resources, namespaces or names.
const ALL: &str = "*";

/// Checks a valid version of a policy or a binding before it is stored.
///
/// # Errors
/// 422.
pub(super) async fn check(
    request: &Attributes<'_>,
    new: Option<&JsonObject>,
    old: Option<&JsonObject>,
) -> Result<(), RequestError> {
    let names = &request.resource.names;
    let Some(new) = new.filter(|_| names.group == GROUP && request.subresource.is_empty()) else {
        return Ok(());
    };
    if request.user().is_in(MASTERS) {
        return Ok(());
    }
    let refused = match names.kind.as_str() {
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => check_policy(request, new, old),
        "ValidatingAdmissionPolicyBinding" => {
            check_binding(request, new, "validatingadmissionpolicies").await?
        }
        "MutatingAdmissionPolicyBinding" => {
            check_binding(request, new, "mutatingadmissionpolicies").await?
        }
        _ => None,
    };
    let Some(cause) = refused else {
        return Ok(());
    };
    let kind = ResourceName::new(GROUP, request.kind.kind);
    Err(Status::invalid(&kind, request.shown_name(Some(new)), vec![cause]).into())
}

/// Returns the cause if the user may not read all objects of the kind of the parameters. A kind that has not changed is
/// not checked.
fn check_policy(
    request: &Attributes<'_>,
    new: &JsonObject,
    old: Option<&JsonObject>,
) -> Option<StatusCause> {
    let kind_of = |object| Field::root(object).at(&["spec", "paramKind"]);
    let kind = kind_of(new);
    if !kind.is_set() || old.is_some_and(|old| kind_of(old).equals(&kind)) {
        return None;
    }
    let found = ParameterKind::of(request, &kind);
    if found.allows(request, "get", ALL, ALL) {
        return None;
    }
    let (user, name) = (shown(request.user()), kind.child("kind").text());
    let version = kind.child("apiVersion").text();
    let detail = format!(
        "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={name}, \
         apiVersion={version})"
    );
    Some(StatusCause::forbidden(kind.path(), &detail))
}

/// Returns the cause if the user may not read the parameters that a binding names. kube-apiserver checks an update that
/// does not change them, too: it compares their addresses.
async fn check_binding(
    request: &Attributes<'_>,
    new: &JsonObject,
    policies: &str,
) -> Result<Option<StatusCause>, RequestError> {
    let spec = Field::root(new).child("spec");
    let (reference, policy_name) = (spec.child("paramRef"), spec.child("policyName").text());
    if !reference.is_set() {
        return Ok(None);
    }
    let policy = objects::get(request.front, (GROUP, policies), policy_name).await?;
    let kind = policy
        .as_ref()
        .map(|policy| Field::root(policy).at(&["spec", "paramKind"]))
        .filter(Field::is_set);
    let found = match &kind {
        Some(kind) => ParameterKind::of(request, kind),
        None => ParameterKind::any(),
    };
    let name = reference.child("name").text();
    let verb = if name.is_empty() { "list" } else { "get" };
    let namespace = reference.child("namespace").text();
    if found.allows(request, verb, namespace, name) {
        return Ok(None);
    }
    let user = shown(request.user());
    let without = |problem: &str| {
        format!(
            "{problem} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for \
             all groups, versions and resources"
        )
    };
    let detail = match &kind {
        _ if policy.is_none() => without(&format!("unable to get policy {policy_name}")),
        Some(kind) if found.plural == ALL => {
            let (version, name) = (kind.child("apiVersion").text(), kind.child("kind").text());
            without(&format!(
                "unable to resolve paramKind &{{{version} {name}}}"
            ))
        }
        _ => format!(
            "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
        ),
    };
    Ok(Some(StatusCause::forbidden(reference.path(), &detail)))
}

/// What parameters are, as far as it is known.
struct ParameterKind {
    group: String,
    plural: String,
}

impl ParameterKind {
    fn any() -> Self {
        Self {
            group: ALL.to_owned(),
            plural: ALL.to_owned(),
        }
    }

    /// Returns the resource that a policy names by its kind and version.
    fn of(request: &Attributes<'_>, kind: &Field<'_>) -> Self {
        let version = kind.child("apiVersion").text();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let groups = request.front.catalog.groups();
        let versions = groups.get(group).into_iter().flat_map(|it| &it.versions);
        let mut resources = versions
            .filter(|known| known.name == version)
            .flat_map(|version| version.resources.values());
        let found = resources.find(|known| known.names.kind == kind.child("kind").text());
        Self {
            group: group.to_owned(),
            plural: found.map_or(ALL, |found| &found.names.plural).to_owned(),
        }
    }

    /// Returns whether the user may read objects of the kind.
    fn allows(&self, request: &Attributes<'_>, verb: &str, namespace: &str, name: &str) -> bool {
        let access = Access::Resource {
            verb,
            group: &self.group,
            namespace,
            resource: &self.plural,
            subresource: "",
            name,
        };
        request.front.authorizer.allows(request.user(), access)
    }
}

/// Returns a user as Go shows one.
fn shown(user: &User) -> String {
    let groups = user.groups.join(" ");
    let mut extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    extra.sort();
    let (name, uid, extra) = (&user.name, &user.uid, extra.join(" "));
    format!("&{{{name} {uid} [{groups}] map[{extra}]}}")
}
