//! The search for the programs `etcd` and `etcdctl`.
//!
//! A tool is searched in this order: the path in the environment variable [`ETCD`](Tool::Etcd) or
//! [`ETCDCTL`](Tool::Etcdctl); `tests/.tools/bin`, where `scripts/install-etcd.sh` installs it; `PATH`. Only
//! releases of [`SERIES`] are accepted, because the expectations were recorded with that series.
//! Distributions package much older releases.
//!
//! If a tool is missing, a test reports on stderr that it did not run, and passes. If [`REQUIRE`] is `1` in
//! the environment, as in CI, the test fails.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fmt};

/// The environment variable that makes tests fail if a tool is missing. It takes effect with the value `1`.
pub const REQUIRE: &str = "REVSTORE_REQUIRE_ETCD";

/// The series of etcd releases that the expectations were recorded with.
pub const SERIES: &str = "3.5";

/// A program of the real etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The server; the variable `ETCD` can name its path.
    Etcd,
    /// The command line client; the variable `ETCDCTL` can name its path.
    Etcdctl,
}

/// The error of a tool that is missing or has the wrong version. Its text is shown to the user.
#[derive(Debug, Clone)]
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Tool {
    /// Returns the path of the program. The search runs once per process.
    ///
    /// # Errors
    /// [`Missing`], if no program of the right version was found.
    pub fn locate(self) -> Result<&'static Path, &'static Missing> {
        static ETCD: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
        static ETCDCTL: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
        let found = match self {
            Self::Etcd => &ETCD,
            Self::Etcdctl => &ETCDCTL,
        };
        found.get_or_init(|| self.search()).as_deref()
    }

    fn search(self) -> Result<PathBuf, Missing> {
        let named = env::var_os(self.variable()).filter(|path| !path.is_empty());
        if let Some(path) = named.map(PathBuf::from) {
            // The user named a program, so no other program is tried.
            return self
                .check(&path)
                .map_err(|error| Missing(format!("{}: {error}", self.variable())));
        }
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin");
        let on_path = env::var_os("PATH").unwrap_or_default();
        let mut rejected = String::new();
        for directory in std::iter::once(installed).chain(env::split_paths(&on_path)) {
            let path = directory.join(self.name());
            if path.is_file() {
                match self.check(&path) {
                    Ok(path) => return Ok(path),
                    Err(error) => rejected = format!(" ({error})"),
                }
            }
        }
        Err(Missing(format!(
            "no {} {SERIES} in tests/.tools/bin or on PATH{rejected}; \
             run scripts/install-etcd.sh or set {}",
            self.name(),
            self.variable(),
        )))
    }

    /// Returns the path if the program runs and is of the right version.
    fn check(self, path: &Path) -> Result<PathBuf, String> {
        let (argument, prefix) = match self {
            Self::Etcd => ("--version", "etcd Version: "),
            Self::Etcdctl => ("version", "etcdctl version: "),
        };
        let output = Command::new(path)
            .arg(argument)
            .env_clear()
            .output()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix(prefix))
            .unwrap_or("of unknown version");
        if is_of_series(version) {
            Ok(path.to_owned())
        } else {
            Err(format!("{} is {version}, not {SERIES}.x", path.display()))
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Etcdctl => "etcdctl",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Etcd => "ETCD",
            Self::Etcdctl => "ETCDCTL",
        }
    }
}

fn is_of_series(version: &str) -> bool {
    version
        .strip_prefix(SERIES)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Returns whether all of `tools` are available; otherwise reports on stderr that `test` did not run.
///
/// # Panics
/// If a tool is missing and the environment has [`REQUIRE`]`=1`.
#[must_use]
pub fn available(test: &str, tools: &[Tool]) -> bool {
    for tool in tools {
        if let Err(missing) = tool.locate() {
            let required = env::var_os(REQUIRE).is_some_and(|value| value == "1");
            assert!(!required, "{test} cannot run: {missing}");
            // Not `eprintln!`: the test harness captures that and drops it for tests that pass.
            let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: {missing}");
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_releases_of_the_series_are_accepted() {
        assert!(is_of_series("3.5.16"));
        assert!(!is_of_series("3.50.1"));
        assert!(!is_of_series("3.4.23"));
        assert!(!is_of_series("of unknown version"));
    }

    #[test]
    fn errors_name_the_path_and_the_version() {
        let error = Tool::Etcd.check(Path::new("/bin/true")).unwrap_err();
        assert_eq!(error, "/bin/true is of unknown version, not 3.5.x");
        let error = Tool::Etcd.check(Path::new("/nowhere/etcd")).unwrap_err();
        assert!(error.starts_with("/nowhere/etcd: "), "{error}");
    }
}
