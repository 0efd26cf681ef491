//! The processes that are compared: their figures, CPU time and memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::BoxError;

/// The figures of a run, by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Builds the programs over client-go, and returns their path.
pub(crate) fn client_go() -> Result<PathBuf, BoxError> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/client-go");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-go");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(sources)
        .status()
        .map_err(|error| format!("go cannot be run: {error}"))?;
    if built.success() {
        Ok(binary)
    } else {
        Err("client-go cannot be built".into())
    }
}

/// Runs a program, and reads its figures: a name and a number on each line.
pub(crate) fn figures(command: &mut Command) -> Result<Figures, BoxError> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let figure = |line: &str| {
        let (name, value) = line.split_once(' ').ok_or("a line without a figure")?;
        Ok::<_, BoxError>((name.to_owned(), value.parse()?))
    };
    text.lines().map(figure).collect()
}

/// Returns the median of the figures of several runs.
pub(crate) fn medians(runs: &[Figures]) -> Figures {
    let names = runs.first().into_iter().flatten().map(|(name, _)| name);
    let median = |name: &String| {
        let mut values: Vec<f64> = runs
            .iter()
            .filter_map(|run| run.get(name).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        (name.clone(), values[values.len() / 2])
    };
    names.map(median).collect()
}

/// Returns the user and system time of a process with all its threads, in seconds.
pub(crate) fn cpu_time(process: u32) -> Result<f64, BoxError> {
    let clock = clock_getcpuclockid(Pid::from_raw(process.try_into()?))?;
    Ok(Duration::from(clock.now()?).as_secs_f64())
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_bytes(process: u32) -> Result<u64, BoxError> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap_or_default().trim().trim_end_matches(" kB");
    Ok(kilobytes.parse::<u64>()? * 1024)
}

/// A process that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self, BoxError> {
        Ok(Self(command.stdin(Stdio::piped()).spawn()?))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Fails if the process has ended.
    pub(crate) fn check(&mut self) -> Result<(), BoxError> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("a client has ended: {status}").into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended when neither call succeeds.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
