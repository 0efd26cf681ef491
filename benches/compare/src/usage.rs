//! The CPU time that a process took, as Linux counts it.

use std::time::Duration;

/// User and system time of a process with all its threads, those that ended included: to the
/// nanosecond, where `/proc/PID/stat` has steps of 10 ms.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    use nix::{time::clock_getcpuclockid, unistd::Pid};

    let pid = Pid::from_raw(pid.try_into().ok()?);
    let clock = clock_getcpuclockid(pid).ok()?;
    Some(clock.now().ok()?.into())
}

/// Other systems do not tell of another process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_time(_: u32) -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process;

    use super::cpu_time;

    #[test]
    fn work_takes_time() {
        let before = cpu_time(process::id()).unwrap();
        while cpu_time(process::id()).unwrap() == before {
            std::hint::spin_loop();
        }
        // The first number that Linux gives no process.
        assert!(cpu_time(1 << 22).is_none());
        assert!(cpu_time(u32::MAX).is_none());
    }
}
