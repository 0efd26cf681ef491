//! The fields of built-in kinds that field selectors can name.

use revstore_watch_cache::registry::JsonObject;

use super::edit;

/// The fields of a kind besides the name and the namespace.
struct Selectable {
    group: &'static str,
    kind: &'static str,
    fields: &'static [&'static str],
}

const KINDS: [Selectable; 11] = [
    Selectable {
        group: "",
        kind: "Pod",
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    },
    Selectable {
        group: "",
        kind: "Node",
        fields: &["spec.unschedulable"],
    },
    Selectable {
        group: "",
        kind: "ReplicationController",
        fields: &["status.replicas"],
    },
    Selectable {
        group: "",
        kind: "Event",
        fields: &EVENT_FIELDS,
    },
    Selectable {
        group: "",
        kind: "Namespace",
        fields: &["status.phase"],
    },
    Selectable {
        group: "",
        kind: "Secret",
        fields: &["type"],
    },
    Selectable {
        group: "",
        kind: "Service",
        fields: &["spec.clusterIP", "spec.type"],
    },
    Selectable {
        group: "batch",
        kind: "Job",
        fields: &["status.successful"],
    },
    Selectable {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        fields: &["spec.signerName"],
    },
    Selectable {
        group: "certificates.k8s.io",
        kind: "ClusterTrustBundle",
        fields: &["spec.signerName"],
    },
    Selectable {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        fields: &["spec.nodeName", "spec.driver"],
    },
];

const EVENT_FIELDS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Returns the fields of a kind that selectors can name besides `metadata.name` and
/// `metadata.namespace`.
pub fn selectable_fields(group: &str, kind: &str) -> &'static [&'static str] {
    let found = KINDS
        .iter()
        .find(|known| known.group == group && known.kind == kind);
    found.map_or(&[], |known| known.fields)
}

/// Returns what is wrong with a field in a selector, or `None` if the kind has it. A selector that names it
/// is refused with 400.
pub fn field_error(group: &str, kind: &str, field: &str) -> Option<String> {
    let fields = selectable_fields(group, kind);
    let common = ["metadata.name", "metadata.namespace"];
    if common.contains(&field) || fields.contains(&field) {
        return None;
    }
    Some(match (group, kind) {
        _ if fields.is_empty() => format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
        ("batch", "Job") => format!("field label {field:?} not supported for Job"),
        ("resource.k8s.io", "ResourceSlice") => {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {field}")
        }
        _ => format!("field label not supported: {field}"),
    })
}

/// Returns the value of a field of an object, as selectors compare it. An absent field is an empty text.
pub fn field_value(object: &JsonObject, field: &str) -> String {
    match field {
        "source" => {
            let component = ["source", "deprecatedSource"]
                .iter()
                .map(|source| edit::text_at(object, &[source, "component"]))
                .find(|component| !component.is_empty());
            let own = ["reportingComponent", "reportingController"]
                .iter()
                .map(|name| edit::text(object, name))
                .find(|name| !name.is_empty());
            return component.or(own).unwrap_or_default().to_owned();
        }
        "status.podIPs" => {
            let ips = edit::at(object, &["status", "podIPs"]).and_then(|ips| ips.as_array());
            let ips = ips.into_iter().flatten().filter_map(|ip| ip["ip"].as_str());
            return ips.collect::<Vec<_>>().join(",");
        }
        _ => {}
    }
    let field = if field == "status.successful" {
        "status.succeeded"
    } else {
        field
    };
    let names: Vec<&str> = field.split('.').collect();
    match edit::at(object, &names) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None if ["spec.unschedulable", "spec.hostNetwork"].contains(&field) => "false".to_owned(),
        None if field.ends_with(".replicas") || field.ends_with(".succeeded") => "0".to_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{field_error, field_value};

    #[test]
    fn errors_are_those_of_kubernetes() {
        let error = |group, kind, field| field_error(group, kind, field).unwrap_or_default();
        assert_eq!(error("", "Pod", "spec.nodeName"), "");
        assert_eq!(
            error("", "Pod", "spec.image"),
            "field label not supported: spec.image"
        );
        assert_eq!(
            error("", "Event", "count"),
            "field label not supported: count"
        );
        assert_eq!(
            error("", "ConfigMap", "data.x"),
            "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
    }

    #[test]
    fn values_are_texts() {
        let pod = json!({
            "spec": {"nodeName": "n"},
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]},
        });
        let value = |field| field_value(pod.as_object().unwrap(), field);
        assert_eq!(value("spec.nodeName"), "n");
        assert_eq!(value("status.podIPs"), "10.0.0.1,::1");
        assert_eq!(value("spec.hostNetwork"), "false");
        assert_eq!(value("status.phase"), "");
    }
}
