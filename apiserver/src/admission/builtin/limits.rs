//! The rules of limit ranges for requests and limits.

use std::collections::BTreeMap;

use revstore_kinds::Quantity;
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::builtin::edit;

/// Quantities by the names of the resources.
pub(super) type Quantities = BTreeMap<String, Quantity>;

/// What a container, a pod or a claim requests, and its limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources {
    pub(super) requests: Quantities,
    pub(super) limits: Quantities,
}

impl Resources {
    /// Returns the resources of a container, or of the spec of a claim.
    pub(super) fn of_container(container: &Value) -> Self {
        let resources = &container["resources"];
        Self {
            requests: quantities(&resources["requests"]),
            limits: quantities(&resources["limits"]),
        }
    }

    /// Returns the resources of a pod: those of its containers, which run together, or the largest of its init
    /// containers, if that is more.
    pub(super) fn of_pod(pod: &JsonObject) -> Self {
        let items = |list| {
            let list = edit::at(pod, &["spec", list]).and_then(Value::as_array);
            list.into_iter().flatten()
        };
        let mut all = Self::default();
        for container in items("containers") {
            all.add(&Self::of_container(container));
        }
        // Init containers that stay run beside those after them.
        let (mut staying, mut largest) = (Self::default(), Self::default());
        for container in items("initContainers") {
            let mut own = Self::of_container(container);
            if container["restartPolicy"] == "Always" {
                all.add(&own);
                staying.add(&own);
                own = staying.clone();
            } else {
                own.add(&staying);
            }
            largest.raise(&own);
        }
        all.raise(&largest);
        let of_pod = edit::at(pod, &["spec"]).map(Self::of_container);
        let of_pod = of_pod.unwrap_or_default();
        for (own, all) in [
            (of_pod.requests, &mut all.requests),
            (of_pod.limits, &mut all.limits),
        ] {
            all.extend(
                own.into_iter()
                    .filter(|(name, _)| name == "cpu" || name == "memory"),
            );
        }
        all
    }

    fn add(&mut self, other: &Self) {
        let plus = |one: &Quantity, two: &Quantity| one.plus(two);
        combine(&mut self.requests, &other.requests, plus);
        combine(&mut self.limits, &other.limits, plus);
    }

    fn raise(&mut self, other: &Self) {
        let max = |one: &Quantity, two: &Quantity| one.clone().max(two.clone());
        combine(&mut self.requests, &other.requests, max);
        combine(&mut self.limits, &other.limits, max);
    }
}

fn quantities(value: &Value) -> Quantities {
    let members = value.as_object().into_iter().flatten();
    let parsed = members.filter_map(|(name, value)| Some((name.clone(), quantity(value)?)));
    parsed.collect()
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

fn combine(
    target: &mut Quantities,
    other: &Quantities,
    function: impl Fn(&Quantity, &Quantity) -> Quantity,
) {
    for (name, value) in other {
        let combined = match target.get(name) {
            Some(found) => function(found, value),
            None => value.clone(),
        };
        target.insert(name.clone(), combined);
    }
}

/// What a limit range demands of a quantity.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    Min,
    Max,
    /// A maximum for requests only.
    MaxRequest,
    /// How many times the request the limit may be.
    Ratio,
}

impl Rule {
    /// Returns what is wrong with the resources of something of a kind, by a rule with a value for one resource.
    // Sentences of kube-apiserver, which clients may compare.
    pub(super) fn error(
        self,
        kind: &str,
        name: &str,
        enforced: &Value,
        resources: &Resources,
    ) -> Option<String> {
        let enforced = quantity(enforced)?;
        let (request, limit) = (resources.requests.get(name), resources.limits.get(name));
        let beginning = match self {
            Self::Min => format!("minimum {name} usage per {kind} is {enforced}"),
            Self::Max | Self::MaxRequest => {
                format!("maximum {name} usage per {kind} is {enforced}")
            }
            Self::Ratio => format!("{name} max limit to request ratio per {kind} is {enforced}"),
        };
        let rest = match self {
            Self::Min => match (request, limit) {
                (None, _) => ".  No request is specified".to_owned(),
                (Some(request), _) if *request < enforced => format!(", but request is {request}"),
                (_, Some(limit)) if *limit < enforced => format!(", but limit is {limit}"),
                _ => return None,
            },
            Self::Max => match (request, limit) {
                (_, None) => ".  No limit is specified".to_owned(),
                (_, Some(limit)) if *limit > enforced => format!(", but limit is {limit}"),
                (Some(request), _) if *request > enforced => format!(", but request is {request}"),
                _ => return None,
            },
            Self::MaxRequest => match request {
                None => ".  No request is specified".to_owned(),
                Some(request) if *request > enforced => format!(", but request is {request}"),
                Some(_) => return None,
            },
            Self::Ratio => ratio_error(&enforced, request, limit)?,
        };
        Some(format!("{beginning}{rest}"))
    }
}

fn ratio_error(
    enforced: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let is_absent = |quantity: Option<&Quantity>| quantity.is_none_or(Quantity::is_zero);
    if is_absent(request) {
        return Some(", but no request is specified or request is 0".to_owned());
    }
    if is_absent(limit) {
        return Some(", but no limit is specified or limit is 0".to_owned());
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "kube-apiserver computes with floats, too"
    )]
    let number = |quantity: &Quantity| match quantity.to_millis() {
        Some(millis) => millis as f64 / 1000.0,
        None => quantity.to_i64().unwrap_or(i64::MAX) as f64,
    };
    let ratio = number(limit?) / number(request?);
    (ratio > number(enforced)).then(|| format!(", but provided ratio is {ratio:.6}"))
}
