//! The resources of this process, from `/proc`.
//!
//! Nine numbers are read from five files and a directory. The `procfs` crate would add four dependencies for
//! them. On systems other than Linux all values are `None`.

use std::{fs, time::Duration};

/// The resources of the process. A value is `None` if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    /// The start time, since 1970.
    pub(super) start_time_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    /// The limit of the virtual memory.
    pub(super) virtual_bytes_max: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) open_files_max: Option<u64>,
    /// The bytes that the network namespace of the process has received and sent.
    pub(super) network_bytes: Option<(u64, u64)>,
}

/// The number of clock ticks per second in `/proc`: 100 on every Linux that Rust supports, independent of the
/// timer frequency of the kernel.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    /// Reads the current values.
    pub(super) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let system = fs::read_to_string("/proc/stat").unwrap_or_default();
        let network = fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
        let boot = number_after(&system, "btime");
        let started = ticks(&stat, START_TIME);
        Self {
            cpu_seconds: ticks(&stat, USER_TIME)
                .zip(ticks(&stat, SYSTEM_TIME))
                .map(|(user, system)| (user + system).as_secs_f64()),
            start_time_seconds: started
                .zip(boot)
                .map(|(start, boot)| (start + Duration::from_secs(boot)).as_secs_f64()),
            resident_bytes: number_after(&status, "VmRSS:").map(|kib| kib * 1_024),
            virtual_bytes: number_after(&status, "VmSize:").map(|kib| kib * 1_024),
            virtual_bytes_max: number_after(&limits, "Max address space"),
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|entries| entries.count() as u64),
            open_files_max: number_after(&limits, "Max open files"),
            network_bytes: column(&network, "IpExt:", "InOctets").zip(column(
                &network,
                "IpExt:",
                "OutOctets",
            )),
        }
    }
}

// Indexes of fields of `/proc/self/stat`, counted from 0 after the name of the process. The name may contain
// any character and ends at the last parenthesis.
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const START_TIME: usize = 19;

/// Returns a field of `/proc/self/stat` that counts clock ticks.
fn ticks(stat: &str, field: usize) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(field)?.parse().ok()?;
    Duration::try_from_secs_f64(ticks / TICKS_PER_SECOND).ok()
}

/// Returns the number after a label at the start of a line; `unlimited` is the largest one.
fn number_after(text: &str, label: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Returns the number in a column of a table: one line has the names of the columns, the next one the numbers, and
/// both begin with the name of the table.
fn column(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let at = lines.next()?.split_whitespace().position(|it| it == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_after_any_process_name() {
        let stat = "1 (a) b) S 0 0 0 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 1000 0";
        assert_eq!(ticks(stat, USER_TIME), Some(Duration::from_millis(2_500)));
        assert_eq!(ticks(stat, SYSTEM_TIME), Some(Duration::from_millis(500)));
        assert_eq!(ticks(stat, START_TIME), Some(Duration::from_secs(10)));
        assert_eq!(ticks("", START_TIME), None);
        let limits = "Limit Soft Hard\nMax open files            1024   4096  files\n";
        assert_eq!(number_after(limits, "Max open files"), Some(1_024));
        assert_eq!(number_after(limits, "Max cpu time"), None);
        let limits = "Max address space         unlimited   unlimited   bytes\n";
        assert_eq!(number_after(limits, "Max address space"), Some(u64::MAX));
    }

    #[test]
    fn columns_are_found_by_name() {
        let netstat = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: X InOctets Y\nIpExt: 3 4 5\n";
        assert_eq!(column(netstat, "IpExt:", "InOctets"), Some(4));
        assert_eq!(column(netstat, "IpExt:", "Z"), None);
        assert_eq!(column("IpExt: X\n", "IpExt:", "X"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn values_of_this_process_are_read() {
        let process = Process::read();
        assert!(process.resident_bytes.unwrap() > 0);
        assert!(process.open_files.unwrap() > 2);
        assert!(process.start_time_seconds.unwrap() > 0.0);
        assert!(process.cpu_seconds.is_some());
        assert!(process.virtual_bytes_max.is_some());
    }
}
