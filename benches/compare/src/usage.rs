//! The CPU time that a process took, as Linux tells it.

use std::{fs, time::Duration};

/// Clock ticks in a second: 100 on every Linux, whatever the kernel's own timer does.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time of a process with all its threads, those that ended included. Steps of 10 ms:
/// what is measured should take some hundred.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in brackets, may hold anything; behind it stand numbers.
    let (_, numbers) = stat.rsplit_once(") ")?;
    let mut numbers = numbers.split(' ').skip(11);
    let user: u64 = numbers.next()?.parse().ok()?;
    let system: u64 = numbers.next()?.parse().ok()?;
    Some(Duration::from_millis(
        (user + system) * 1_000 / TICKS_PER_SECOND,
    ))
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::cpu_time;

    #[test]
    fn work_takes_time() {
        let before = cpu_time(process::id()).unwrap();
        while cpu_time(process::id()).unwrap() == before {
            std::hint::spin_loop();
        }
        assert!(cpu_time(0).is_none());
    }
}
