//! The fields of built-in kinds that field selectors can name.

use std::sync::LazyLock;

use revstore_watch_cache::status::quoted;

/// The labels of kinds, written by `scripts/generate-apiserver.sh`, which says what a line has.
const TABLE: &str = include_str!("../../data/selectable-fields.txt");

/// The labels of kinds that are not in the table.
const DEFAULT: [&str; 2] = ["metadata.name", "metadata.namespace"];
/// What is wrong with another label of these kinds.
const DEFAULT_ERROR: &str =
    r#"%q is not a known field selector: only "metadata.name", "metadata.namespace""#;

/// The labels of a kind in a version.
#[derive(Debug)]
struct Labels {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    /// Each label with the one that it stands for in the stored version.
    fields: Vec<(&'static str, &'static str)>,
    /// What is wrong with other labels: `%s` stands for the label, and `%q` for it in quotes.
    error: &'static str,
}

/// Reads a line of the table. Comments and sources have none.
fn parse(line: &'static str) -> Option<Labels> {
    let (words, error) = line.strip_suffix(']')?.split_once(" [")?;
    let mut words = words.split(' ');
    let (group, version, kind) = (words.next()?, words.next()?, words.next()?);
    let labels = words.map(|label| label.split_once('=').unwrap_or((label, label)));
    Some(Labels {
        group: if group == "-" { "" } else { group },
        version,
        kind,
        fields: labels.collect(),
        error,
    })
}

fn find(group: &str, version: &str, kind: &str) -> Option<&'static Labels> {
    static ALL: LazyLock<Vec<Labels>> = LazyLock::new(|| TABLE.lines().filter_map(parse).collect());
    ALL.iter()
        .find(|known| known.kind == kind && known.group == group && known.version == version)
}

/// Returns the fields of a kind in a version that selectors can name besides `metadata.name` and
/// `metadata.namespace`, under their names in the stored version, each once.
///
/// # Example
/// ```
/// use revstore_apiserver::builtin::selectable_fields;
///
/// assert_eq!(selectable_fields("", "v1", "Node"), ["spec.unschedulable"]);
/// assert!(selectable_fields("", "v1", "ConfigMap").is_empty());
/// ```
pub fn selectable_fields(group: &str, version: &str, kind: &str) -> Vec<&'static str> {
    let labels = find(group, version, kind).map_or(&[][..], |known| known.fields.as_slice());
    let mut fields: Vec<&str> = labels.iter().map(|(_, field)| *field).collect();
    fields.retain(|field| !DEFAULT.contains(field));
    fields.sort_unstable();
    fields.dedup();
    fields
}

/// Returns the field that a label in a selector stands for in the stored version of a kind.
///
/// # Errors
/// What is wrong with a label that selectors cannot have, with which they are refused with 400.
///
/// # Example
/// ```
/// use revstore_apiserver::builtin::selected_field;
///
/// assert_eq!(
///     selected_field("events.k8s.io", "v1", "Event", "regarding.name"),
///     Ok("involvedObject.name")
/// );
/// let error = "field label not supported: spec.image";
/// assert_eq!(selected_field("", "v1", "Pod", "spec.image"), Err(error.to_owned()));
/// ```
// WC-354.
pub fn selected_field(
    group: &str,
    version: &str,
    kind: &str,
    label: &str,
) -> Result<&'static str, String> {
    let (field, error) = match find(group, version, kind) {
        Some(known) => {
            let mut labels = known.fields.iter();
            let found = labels.find(|(name, _)| *name == label);
            (found.map(|(_, field)| *field), known.error)
        }
        None => (
            DEFAULT.into_iter().find(|name| *name == label),
            DEFAULT_ERROR,
        ),
    };
    field.ok_or_else(|| match error.split_once("%q") {
        Some((start, end)) => format!("{start}{}{end}", quoted(label)),
        None => error.replace("%s", label),
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
    use super::{DEFAULT, TABLE, find, parse, selectable_fields, selected_field};

    #[test]
    fn lines_of_the_table_are_kinds_or_comments() {
        let others = TABLE.lines().filter(|line| parse(line).is_none());
        assert!(others.clone().count() > 0);
        for line in others {
            assert!(
                line.starts_with('#') || line.starts_with("source "),
                "{line}"
            );
        }
    }

    #[test]
    fn kinds_of_the_table_are_served() {
        for labels in TABLE.lines().filter_map(parse) {
            let (group, version, kind) = (labels.group, labels.version, labels.kind);
            let served = revstore_kinds::resource_of_kind(group, version, kind);
            assert!(served.is_some(), "{group} {version} {kind}");
            assert!(find(group, version, kind).is_some());
        }
    }

    #[test]
    fn errors_are_those_of_kubernetes() {
        let error = |group, version, kind, label| {
            selected_field(group, version, kind, label).map_or_else(|error| error, str::to_owned)
        };
        for (group, version, kind, label, expected) in [
            ("", "v1", "Pod", "spec.nodeName", "spec.nodeName"),
            // The name that clients of early versions use.
            ("", "v1", "Pod", "spec.host", "spec.nodeName"),
            (
                "",
                "v1",
                "Pod",
                "spec.image",
                "field label not supported: spec.image",
            ),
            (
                "",
                "v1",
                "Node",
                "metadata.namespace",
                "field label not supported: metadata.namespace",
            ),
            (
                "",
                "v1",
                "Event",
                "count",
                "field label not supported: count",
            ),
            (
                "events.k8s.io",
                "v1",
                "Event",
                "involvedObject.name",
                "field label not supported: involvedObject.name",
            ),
            (
                "batch",
                "v1",
                "Job",
                "status.failed",
                "field label \"status.failed\" not supported for Job",
            ),
            (
                "resource.k8s.io",
                "v1beta1",
                "ResourceSlice",
                "spec.pool",
                "field label not supported for resource.k8s.io/v1beta1, Kind=ResourceSlice: spec.pool",
            ),
            (
                "",
                "v1",
                "ConfigMap",
                "data.x",
                "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ] {
            assert_eq!(error(group, version, kind, label), expected);
        }
    }

    #[test]
    fn fields_are_those_of_stored_objects() {
        let events = selectable_fields("", "v1", "Event");
        assert!(events.contains(&"involvedObject.name"));
        assert_eq!(
            selectable_fields("", "v1", "Pod")
                .iter()
                .filter(|field| **field == "spec.nodeName")
                .count(),
            1
        );
        for fields in [events, selectable_fields("", "v1", "Pod")] {
            assert!(fields.iter().all(|field| !DEFAULT.contains(field)));
        }
    }
}
