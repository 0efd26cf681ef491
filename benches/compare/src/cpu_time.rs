//! The CPU time of a process on Linux.

use std::time::Duration;

/// Returns the user and system time of a process, including its threads that have ended.
///
/// The clock has a resolution of 1 ns; `/proc/PID/stat` has a resolution of 10 ms. Returns `None`
/// if the process does not exist.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    use nix::{time::clock_getcpuclockid, unistd::Pid};

    let pid = Pid::from_raw(pid.try_into().ok()?);
    let clock = clock_getcpuclockid(pid).ok()?;
    Some(clock.now().ok()?.into())
}

/// Returns `None`: other systems have no clock for the CPU time of another process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_time(_: u32) -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process;

    use super::cpu_time;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_time(process::id()).unwrap();
        while cpu_time(process::id()).unwrap() == before {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_process_that_does_not_exist_has_no_cpu_time() {
        // The smallest number that Linux does not use as a process id.
        assert!(cpu_time(1 << 22).is_none());
        assert!(cpu_time(u32::MAX).is_none());
    }
}
