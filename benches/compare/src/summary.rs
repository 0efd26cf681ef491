//! The table of the README: start time, CPU time and memory, compared with the servers that
//! revstore replaces.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::request_op::Request;

use crate::BoxError;
use crate::client::{Clients, Load, key, put};
use crate::scenario::{self, SCENARIOS};
use crate::server::{ServerKind, TestedServer};

/// The lines between which the table is written.
const BEGIN: &str = "<!-- table: just readme-table -->";
const END: &str = "<!-- end of table -->";

/// The columns, whether or not the server was measured.
const COLUMNS: [&str; 5] = ["revstore", "etcd", "mem_etcd", "kine", "envtest"];

/// The scenarios whose CPU time is in the table, with the titles of their rows.
const SCENARIO_ROWS: [(&str, &str); 3] = [
    ("get", "CPU time of a get"),
    ("put, 64 in flight", "CPU time of a put"),
    (
        "event, 100 watches on 100 streams",
        "CPU time of a watch event",
    ),
];

/// The number of keys that are written to measure memory.
const MEMORY_KEYS: u64 = 100_000;

/// The time between two attempts to send the first request.
const START_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The measurements of one server in all runs.
#[derive(Debug, Default)]
struct Samples {
    start: Vec<f64>,
    memory_per_key: Vec<f64>,
    cpu: [Vec<f64>; SCENARIO_ROWS.len()],
}

/// Measures all servers `runs` times, in an order that changes with every run, and returns the
/// table as Markdown.
pub(crate) async fn table(
    mut kinds: Vec<ServerKind>,
    runs: usize,
    starts: usize,
) -> Result<String, BoxError> {
    let mut columns: Vec<(&'static str, Samples)> = kinds
        .iter()
        .map(|kind| (kind.name(), Samples::default()))
        .collect();
    for run in 1..=runs {
        kinds.rotate_left(1);
        for kind in &kinds {
            eprintln!("run {run} of {runs}: {}", kind.name());
            let samples = columns.iter_mut().find(|(name, _)| *name == kind.name());
            let (_, samples) = samples.ok_or("a server without a column")?;
            for _ in 0..starts {
                let server = TestedServer::start_polling(kind, START_POLL_INTERVAL).await?;
                samples.start.push(server.start_time().as_secs_f64() * 1e3);
            }
            let server = TestedServer::start(kind).await?;
            samples.memory_per_key.push(memory_per_key(&server).await?);
            drop(server);
            measure_cpu(kind, samples).await?;
        }
    }
    let mut table = String::new();
    // Writing to a `String` does not fail.
    let _ = write_table(&mut table, &columns);
    Ok(table)
}

/// Adds the CPU time of each scenario that the server supports.
async fn measure_cpu(kind: &ServerKind, samples: &mut Samples) -> Result<(), BoxError> {
    if matches!(kind, ServerKind::Kine(_)) {
        // kine rejects all writes except the transactions that kube-apiserver sends.
        return Ok(());
    }
    let server = TestedServer::start(kind).await?;
    scenario::fill(&server).await?;
    for ((name, _), values) in SCENARIO_ROWS.iter().zip(&mut samples.cpu) {
        let scenario = SCENARIOS.iter().find(|it| it.name == *name);
        let scenario = scenario.ok_or("a row without a scenario")?;
        values.push(scenario.run(&server).await?.value);
    }
    Ok(())
}

/// Creates [`MEMORY_KEYS`] keys and returns the growth of the resident memory in bytes per key.
async fn memory_per_key(server: &TestedServer) -> Result<f64, BoxError> {
    let clients = Clients::connect(server.endpoint(), 4).await?;
    let before = resident_bytes(server.pid())?;
    let load = Load::of(16, MEMORY_KEYS);
    load.run(&clients, async |mut kv, number| {
        kv.txn(create(number)).await.map(drop)
    })
    .await?;
    let grown = resident_bytes(server.pid())?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "some millions")]
    Ok(grown as f64 / MEMORY_KEYS as f64)
}

/// Returns the transaction with which kube-apiserver creates an object. All measured servers accept
/// it.
fn create(number: u64) -> pb::TxnRequest {
    pb::TxnRequest {
        compare: vec![pb::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: key("", number),
            target_union: Some(TargetUnion::ModRevision(0)),
            ..pb::Compare::default()
        }],
        success: vec![pb::RequestOp {
            request: Some(Request::RequestPut(put("", number))),
        }],
        failure: vec![],
    }
}

/// Returns the resident memory of a process.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64, BoxError> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    let kibibytes = field("VmRSS:").ok_or("no VmRSS")?;
    Ok(kibibytes * 1024)
}

fn write_table(text: &mut String, columns: &[(&str, Samples)]) -> std::fmt::Result {
    let row = |text: &mut String, title: &str, unit: &str, of: &dyn Fn(&Samples) -> &[f64]| {
        write!(text, "| {title} |")?;
        for name in COLUMNS {
            let samples = columns.iter().find(|(column, _)| *column == name);
            match samples.and_then(|(_, samples)| median(of(samples))) {
                Some(value) => write!(text, " {}{unit} |", number(value))?,
                None => write!(text, " - |")?,
            }
        }
        writeln!(text)
    };
    writeln!(text, "| | {} |", COLUMNS.join(" | "))?;
    writeln!(text, "|---|{}", "---|".repeat(COLUMNS.len()))?;
    row(text, "start, until the first response", " ms", &|it| {
        &it.start
    })?;
    for (index, (_, title)) in SCENARIO_ROWS.iter().enumerate() {
        row(text, title, " µs", &|it| &it.cpu[index])?;
    }
    row(text, "memory per key of 256 bytes", " B", &|it| {
        &it.memory_per_key
    })?;
    writeln!(
        text,
        "| time that a test controls | yes | no | no | no | no |"
    )?;
    writeln!(
        text,
        "| history until compacted | yes | yes | yes | yes | yes |"
    )?;
    writeln!(text, "| inside a Rust program | yes | no | no | no | no |")?;
    writeln!(
        text,
        "| data survive a restart | no | yes | optional | yes | no |"
    )
}

/// Returns the median; `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Returns a number as in tables.
pub(crate) fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// Replaces the table in a Markdown file.
pub(crate) fn write_into(path: &Path, table: &str) -> Result<(), BoxError> {
    let text = fs::read_to_string(path)?;
    let replaced = replaced(&text, table)
        .ok_or_else(|| format!("{} has no lines {BEGIN} and {END}", path.display()))?;
    fs::write(path, replaced)?;
    Ok(())
}

fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_were_not_measured_get_a_dash() {
        let samples = Samples {
            start: vec![9.0, 2.5, 1.0],
            ..Samples::default()
        };
        let mut text = String::new();
        write_table(&mut text, &[("revstore", samples)]).unwrap();
        let row = "| start, until the first response | 2.5 ms | - | - | - | - |\n";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn the_table_of_a_file_is_replaced_and_nothing_else() {
        let file = format!("above\n{BEGIN}\nold\n{END}\nbelow\n");
        let expected = format!("above\n{BEGIN}\nnew\n{END}\nbelow\n");
        assert_eq!(replaced(&file, "new\n"), Some(expected));
        assert_eq!(replaced("no table", "new\n"), None);
    }
}
