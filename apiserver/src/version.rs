//! The versions that the server reports.

use serde_json::{Value, json};

/// The version of this program.
pub(crate) const REVSTORE_VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of Kubernetes whose API the server has.
pub(crate) const KUBERNETES_VERSION: &str = "v1.36.2";

/// Returns the answer at `/version`.
pub(crate) fn info() -> Value {
    let platform = match std::env::consts::ARCH {
        "x86_64" => "linux/amd64".to_owned(),
        "aarch64" => "linux/arm64".to_owned(),
        other => format!("linux/{other}"),
    };
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": format!("{KUBERNETES_VERSION}+revstore-{REVSTORE_VERSION}"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": platform,
    })
}
