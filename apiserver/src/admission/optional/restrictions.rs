//! What pods and services may not ask for.

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

/// The label of nodes with their names.
const HOSTNAME: &str = "kubernetes.io/hostname";

fn writes(phase: Phase, request: &Attributes<'_>, plural: &str) -> bool {
    phase == Phase::Validate
        && matches!(request.operation, Operation::Create | Operation::Update)
        && request.is_for("", plural, "")
}

fn refuse<'a>(
    request: &'a Attributes<'a>,
    object: Option<&'a JsonObject>,
    detail: Option<String>,
) -> Decision<'a> {
    Box::pin(async move {
        match detail {
            Some(detail) => Err(request.forbidden(object, &detail).into()),
            None => Ok(()),
        }
    })
}

/// The plugin `DenyServiceExternalIPs`: services get no external addresses, and keep those that they have.
#[derive(Debug)]
pub(crate) struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        writes(phase, request, "services")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        let addresses = |service: &'a JsonObject| -> &'a [Value] {
            let addresses = edit::at(service, &["spec", "externalIPs"]).and_then(Value::as_array);
            addresses.map_or(&[], Vec::as_slice)
        };
        let known: std::collections::HashSet<_> = request
            .old
            .map_or(&[][..], addresses)
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let mut new = object.map_or(&[][..], addresses).iter();
        let is_new = new.any(|it| it.as_str().is_none_or(|it| !known.contains(it)));
        let detail =
            is_new.then(|| "Use of external IPs is denied by admission control".to_owned());
        refuse(request, object, detail)
    }
}

/// The plugin `LimitPodHardAntiAffinityTopology`: pods keep others away from their node, not from more.
#[derive(Debug)]
pub(crate) struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        writes(phase, request, "pods")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        let path = [
            "spec",
            "affinity",
            "podAntiAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ];
        let terms = object.and_then(|pod| edit::at(pod, &path)?.as_array());
        let keys = terms.into_iter().flatten();
        let mut keys = keys.map(|term| term["topologyKey"].as_str().unwrap_or_default());
        let detail = keys.find(|key| *key != HOSTNAME).map(|key| {
            format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is \
                 allowed"
            )
        });
        refuse(request, object, detail)
    }
}
