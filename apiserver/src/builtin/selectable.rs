//! The fields of built-in kinds that field selectors can name.

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

/// Returns the paths of the value of a field and its value when it is absent, if the value is not just at the path that is
/// the name of the field. The first path with a value counts; see [`JsonKind::with_source`].
///
/// [`JsonKind::with_source`]: revstore_watch_cache::JsonKind::with_source
pub(crate) fn field_source(field: &str) -> Option<(&'static [&'static str], &'static str)> {
    Some(match field {
        "spec.unschedulable" => (&["spec.unschedulable"], "false"),
        "spec.hostNetwork" => (&["spec.hostNetwork"], "false"),
        "status.replicas" => (&["status.replicas"], "0"),
        "status.successful" => (&["status.succeeded"], "0"),
        // Known, and empty for all pods.
        "status.podIPs" => (&[], ""),
        "source" => (&["source.component", "reportingComponent"], ""),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::field_error;

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
}
