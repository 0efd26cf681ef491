//! Validation of the resources of containers and of pods, and of the claims of resources.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use revstore_watch_cache::status::{CauseReason, StatusCause};

use crate::builtin::causes::{Causes, is_extended, is_native, is_standard};
use crate::builtin::families::pod::restart;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::quantity::{Quantity, compare};

/// Where resources are requested, which decides about their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Container,
    Pod,
}

/// The resources of containers without a domain.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// The resources of pods; the last one is a prefix.
const POD_RESOURCES: [&str; 3] = ["cpu", "hugepages-", "memory"];

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Checks the requests, the limits and the claims of a container. `claims` are those of the pod.
pub(super) fn check_container(resources: &Field<'_>, claims: &BTreeSet<&str>, causes: &mut Causes) {
    let (limits, requests) = (resources.child("limits"), resources.child("requests"));
    check_amounts(resources, &limits, &requests, Level::Container, causes);
    check_claim_names(&resources.child("claims"), claims, causes);
}

/// Checks what a pod needs besides its containers. `place` has the path of causes about all of it.
pub(in crate::builtin) fn check_overhead(
    amounts: &Field<'_>,
    place: &Field<'_>,
    causes: &mut Causes,
) {
    if amounts.is_set() {
        // The paths are those of limits.
        let limits = amounts.placed(&place.child("limits"));
        let requests = amounts.child("requests").child("requests");
        check_amounts(place, &limits, &requests, Level::Container, causes);
    }
}

/// Checks the resources of a pod as a whole.
pub(super) fn check_pod(spec: &Field<'_>, causes: &mut Causes) {
    let resources = spec.child("resources");
    if !resources.is_set() {
        return;
    }
    if spec.at(&["os", "name"]).text() == "windows" {
        causes.forbidden(&resources, "may not be set for a windows pod");
        return;
    }
    let claims = resources.child("claims");
    if claims.is_set() {
        let detail = "claims may not be set for Resources at pod-level";
        causes.forbidden(&claims, detail);
    }
    let (limits, requests) = (resources.child("limits"), resources.child("requests"));
    check_amounts(&resources, &limits, &requests, Level::Pod, causes);
    let names = spec.child("resourceClaims").items();
    let names: BTreeSet<&str> = names.map(|claim| claim.child("name").text()).collect();
    check_claim_names(&claims, &names, causes);
    check_sums(spec, &resources, causes);
}

/// Checks that the containers of a pod do not need more than the pod as a whole.
fn check_sums(spec: &Field<'_>, resources: &Field<'_>, causes: &mut Causes) {
    let (limits, requests) = (resources.child("limits"), resources.child("requests"));
    for (name, sum) in sums(spec, "requests") {
        let request = requests.key(name);
        if request.is_set() && sum.quantity > Quantity::of(&request.value()).unwrap_or_default() {
            let shown = sum.text();
            let detail =
                format!("must be greater than or equal to aggregate container requests of {shown}");
            causes.invalid(&request, &detail);
        }
    }
    for (name, sum) in sums(spec, "limits") {
        let limit = limits.key(name);
        if is_huge(name)
            && limit.is_set()
            && sum.quantity > Quantity::of(&limit.value()).unwrap_or_default()
        {
            let shown = sum.text();
            let detail =
                format!("must be greater than or equal to aggregate container limits of {shown}");
            causes.invalid(&limit, &detail);
        }
    }
    let containers = resources.child("containers");
    for (index, container) in spec.child("containers").items().enumerate() {
        for (name, own) in container.at(&["resources", "limits"]).entries() {
            let limit = limits.key(name);
            if limit.is_set() && compare(&own.value(), &limit.value()).is_gt() {
                let path = containers.path().index(index).key(name).child("limits");
                let detail = format!(
                    "must be less than or equal to pod limits of {}",
                    shown(&limit)
                );
                causes.invalid_at(path, own.value(), &detail);
            }
        }
    }
}

/// A sum of quantities.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    quantity: Quantity,
    /// Whether the first quantity had a binary suffix, which the sum then has too.
    binary: bool,
}

impl Sum {
    fn of(field: &Field<'_>) -> Self {
        Self {
            quantity: Quantity::of(&field.value()).unwrap_or_default(),
            binary: field.text().ends_with('i'),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            quantity: self.quantity.plus(other.quantity),
            binary: self.binary || self.quantity.is_zero() && other.binary,
        }
    }

    fn max(self, other: Self) -> Self {
        if other.quantity > self.quantity {
            other
        } else {
            self
        }
    }

    fn text(self) -> String {
        let digits = self.quantity.decimal_text();
        let kibibytes = digits.parse::<i64>().ok().filter(|bytes| bytes % 1024 == 0);
        let text = match kibibytes {
            Some(bytes) if self.binary => format!("{}Ki", bytes / 1024),
            _ => digits.clone(),
        };
        let parsed = revstore_kinds::Quantity::parse(&text);
        parsed.map_or(digits, |quantity| quantity.to_string())
    }
}

type Sums<'a> = BTreeMap<&'a str, Sum>;

/// Returns what the containers of a pod request, or are limited to, at most at one time. Init containers
/// run one after another, next to the sidecars that were started before them.
fn sums<'a>(spec: &Field<'a>, list: &'a str) -> Sums<'a> {
    let amounts = |container: &Field<'a>| -> Sums<'a> {
        let entries = container.at(&["resources", list]).entries();
        entries
            .map(|(name, amount)| (name, Sum::of(&amount)))
            .collect()
    };
    let add = |sums: &mut Sums<'a>, other: &Sums<'a>| {
        for (name, sum) in other {
            let total = sums.entry(name).or_default();
            *total = total.plus(*sum);
        }
    };
    let raise = |sums: &mut Sums<'a>, other: Sums<'a>| {
        for (name, sum) in other {
            let most = sums.entry(name).or_default();
            *most = most.max(sum);
        }
    };
    let mut total = Sums::new();
    for container in spec.child("containers").items() {
        add(&mut total, &amounts(&container));
    }
    let (mut sidecars, mut init) = (Sums::new(), Sums::new());
    for container in spec.child("initContainers").items() {
        let own = amounts(&container);
        if restart::is_sidecar(&container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut init, sidecars.clone());
        } else {
            let mut with_sidecars = own;
            add(&mut with_sidecars, &sidecars);
            raise(&mut init, with_sidecars);
        }
    }
    raise(&mut total, init);
    total
}

/// Returns a quantity as text.
fn shown(quantity: &Field<'_>) -> String {
    match quantity.value() {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Checks requests and limits. Causes about both are about `place`.
fn check_amounts(
    place: &Field<'_>,
    limits: &Field<'_>,
    requests: &Field<'_>,
    level: Level,
    causes: &mut Causes,
) {
    for (name, limit) in limits.entries() {
        check_amount(name, &limit, level, causes);
        check_huge_pages(name, &limit, causes);
    }
    for (name, request) in requests.entries() {
        check_amount(name, &request, level, causes);
        check_request(name, &request, requests, limits, causes);
        check_huge_pages(name, &request, causes);
    }
    let has = |wanted: fn(&str) -> bool| {
        let mut names = limits.entries().chain(requests.entries());
        names.any(|(name, _)| wanted(name))
    };
    if has(is_huge) && !has(|name| ["cpu", "memory"].contains(&name)) {
        causes.forbidden(place, "HugePages require cpu or memory");
    }
}

fn check_amount(name: &str, amount: &Field<'_>, level: Level, causes: &mut Causes) {
    match level {
        Level::Container => check_container_resource(name, amount, causes),
        Level::Pod => check_pod_resource(name, amount, causes),
    }
    causes.check_resource_quantity(name, amount);
}

fn check_request(
    name: &str,
    request: &Field<'_>,
    requests: &Field<'_>,
    limits: &Field<'_>,
    causes: &mut Causes,
) {
    let overcommits = is_native(name) && !is_huge(name);
    let limit = limits.key(name);
    if !limit.is_set() {
        if !overcommits {
            let detail = "Limit must be set for non overcommitable resources";
            causes.required(limits, detail);
        }
        return;
    }
    let order = compare(&request.value(), &limit.value());
    let relation = if !overcommits && order.is_ne() {
        "equal to"
    } else if order.is_gt() {
        "less than or equal to"
    } else {
        return;
    };
    let detail = format!("must be {relation} {name} limit of {}", shown(&limit));
    causes.invalid_at(requests.path(), request.value(), &detail);
}

/// Checks that an amount of huge pages is a multiple of their size.
fn check_huge_pages(name: &str, amount: &Field<'_>, causes: &mut Causes) {
    let Some(size) = name.strip_prefix("hugepages-") else {
        return;
    };
    let size = Quantity::parse(size).filter(|size| size.is_whole() && !size.is_zero());
    let divides = size
        .filter(|size| !size.is_negative())
        .zip(Quantity::of(&amount.value()))
        .is_some_and(|(size, amount)| amount.rounded_up().is_multiple_of(size));
    if !divides {
        let shown = shown(amount);
        let detail = format!("{shown} is not positive integer multiple of {name}");
        causes.invalid_at(amount.path(), shown, &detail);
    }
}

/// Checks the name of a resource. Returns whether it is one.
pub(in crate::builtin) fn check_resource_name(
    name: &str,
    field: &Field<'_>,
    causes: &mut Causes,
) -> bool {
    let before = causes.len();
    causes.check_qualified_text(field, name);
    if causes.len() == before && !name.contains('/') && !is_standard(name) {
        let detail = "must be a standard resource type or fully qualified";
        causes.invalid_at(field.path(), name, detail);
    }
    causes.len() == before
}

/// Checks the name of a resource of containers.
pub(in crate::builtin) fn check_container_resource(
    name: &str,
    field: &Field<'_>,
    causes: &mut Causes,
) {
    check_resource_name(name, field, causes);
    if !name.contains('/') {
        if !STANDARD_RESOURCES.contains(&name) && !is_huge(name) {
            let detail = "must be a standard resource for containers";
            causes.invalid_at(field.path(), name, detail);
        }
    } else if !is_native(name) && !is_extended(name) {
        let detail = "doesn't follow extended resource name standard";
        causes.invalid_at(field.path(), name, detail);
    }
}

/// Returns whether a resource can be one of a pod as a whole.
pub(in crate::builtin::families::pod) fn is_of_pods(name: &str) -> bool {
    ["cpu", "memory"].contains(&name) || is_huge(name)
}

fn check_pod_resource(name: &str, field: &Field<'_>, causes: &mut Causes) {
    if check_resource_name(name, field, causes) && !is_of_pods(name) {
        let path = field.path();
        causes.push(StatusCause::not_supported(path, name, &POD_RESOURCES));
    }
}

/// Checks how containers get other resources: at once, or when they restart.
pub(super) fn check_resize_policies(
    container: &Field<'_>,
    restart_policy: &str,
    causes: &mut Causes,
) {
    let list = container.child("resizePolicy");
    let mut seen = HashSet::new();
    for item in list.items() {
        let resource = item.child("resourceName");
        if !seen.insert(resource.text()) {
            causes.push(StatusCause::duplicate(item.path(), resource.text()));
        }
        let policy = item.child("restartPolicy");
        // The paths have no index.
        causes.check_required_one_of(&resource.placed(&list), &["cpu", "memory"]);
        let placed = policy.placed(&list);
        causes.check_required_one_of(&placed, &["NotRequired", "RestartContainer"]);
        if restart_policy == "Never" && policy.text() != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            causes.invalid_at(list.path(), policy.text(), detail);
        }
    }
}

/// Checks the claims of the resources of a pod.
pub(super) fn check_claims(claims: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for claim in claims.items() {
        let name = claim.child("name");
        if causes.check_required(&name) {
            if seen.insert(name.text()) {
                causes.check_text(&name, names::dns_label_error);
            } else {
                causes.duplicate(&name);
            }
        }
        let sources = [
            claim.child("resourceClaimName"),
            claim.child("resourceClaimTemplateName"),
        ];
        match sources.map(|source| source.is_set()) {
            [true, true] => causes.invalid(
                &claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            [false, false] => causes.invalid(
                &claim,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for source in sources.iter().filter(|source| source.is_set()) {
            causes.check_present_text(source, names::subdomain_error);
        }
    }
}

/// Checks that the claims of a container are those of its pod, and that none is used twice.
fn check_claim_names(claims: &Field<'_>, of_pod: &BTreeSet<&str>, causes: &mut Causes) {
    // The requests that are used of each claim; an empty one stands for all.
    let mut used: HashMap<&str, HashSet<&str>> = HashMap::new();
    for claim in claims.items() {
        let (name, request) = (claim.child("name").text(), claim.child("request"));
        if name.is_empty() {
            causes.required(&claim, "");
            continue;
        }
        let requests = used.entry(name).or_default();
        if requests.contains("") {
            causes.push(StatusCause::duplicate(claim.path(), name));
        } else {
            causes.check_text(&request, names::dns_label_error);
            if !request.text().is_empty() && requests.contains(request.text()) {
                let key = format!("{name}/{}", request.text());
                causes.push(StatusCause::duplicate(claim.path(), key));
            } else if request.text().is_empty() {
                for _ in requests.iter() {
                    causes.push(StatusCause::duplicate(claim.path(), name));
                }
            }
            requests.insert(request.text());
        }
        if !of_pod.contains(name) {
            let names: Vec<&str> = of_pod.iter().copied().collect();
            let known = if names.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", names.join(", "))
            };
            let message = format!(
                "Not found: {}: must be one of the names in pod.spec.resourceClaims{known}",
                revstore_watch_cache::status::quoted(name)
            );
            causes.push(StatusCause {
                field: claim.path().into(),
                ..StatusCause::new(CauseReason::NOT_FOUND, message)
            });
        }
    }
}
