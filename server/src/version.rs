//! The versions this server reports, in one place.

/// The etcd release this server behaves like (FL-6, HT-9).
///
/// Clients gate features on it and parse it as a semantic version; kube-apiserver, for one, asks
/// for progress notifications only from 3.5.13 on, so it must never fall below that.
pub const ETCD_VERSION: &str = "3.5.30";

/// The cluster version that `/version` and the metrics report: the minor release of
/// [`ETCD_VERSION`].
pub const ETCD_CLUSTER_VERSION: &str = "3.5.0";

/// The version of revstore itself.
pub const REVSTORE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `--version` prints. The first line is etcd's own, because scripts read it (FL-6).
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
    fn fl_6_first_line_is_etcds() {
        let text = text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("etcd Version: 3.5.30"));
        assert!(lines.next().unwrap().ends_with(REVSTORE_VERSION));
    }

    #[test]
    fn mt_2_the_version_enables_what_clients_gate_on_it() {
        assert!(numbers(ETCD_VERSION) >= vec![3, 5, 13]);
        assert_eq!(
            numbers(ETCD_VERSION)[..2],
            numbers(ETCD_CLUSTER_VERSION)[..2]
        );
    }
}
