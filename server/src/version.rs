//! The versions in the responses of the server.

/// The etcd release whose behavior this server has.
///
/// Clients parse it as a semantic version and enable features depending on it. It must be at least 3.5.13,
/// because kube-apiserver requests progress notifications from that version on.
pub const ETCD_VERSION: &str = "3.5.30";

/// The cluster version in `/version` and the metrics: the minor release of [`ETCD_VERSION`].
pub const ETCD_CLUSTER_VERSION: &str = "3.5.0";

/// The version of revstore itself.
pub const REVSTORE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the text of `--version`. The first line is the same as etcd's, because scripts parse it
/// (FL-6).
pub(crate) fn text() -> String {
    format!("etcd Version: {ETCD_VERSION}\nrevstore Version: {REVSTORE_VERSION}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(version: &str) -> Vec<u32> {
        version
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect()
    }

    #[test]
    fn fl_6_the_first_line_is_that_of_etcd() {
        let text = text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("etcd Version: 3.5.30"));
        assert!(lines.next().unwrap().ends_with(REVSTORE_VERSION));
    }

    #[test]
    fn mt_2_the_version_is_at_least_3_5_13() {
        assert!(numbers(ETCD_VERSION) >= vec![3, 5, 13]);
        assert_eq!(
            numbers(ETCD_VERSION)[..2],
            numbers(ETCD_CLUSTER_VERSION)[..2]
        );
    }
}
