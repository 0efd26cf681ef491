//! The thread, or the task of a runtime, that does due work while the time runs or jumps.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{ClockMode, Shared, TIME_MAX};

/// The number of instants that the thread passes before it looks at the mode again.
const INSTANTS_STEP: u64 = 64;

/// The shortest time after which a busy server is asked again.
const BUSY_MIN: Duration = Duration::from_micros(100);

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Wait for a change.
    Sleep,
    /// Wait for a change, at most for this time of the system.
    SleepFor(Duration),
    /// Look again.
    Look,
}

/// Starts the thread of a clock. It ends after the clock is closed.
pub(super) fn spawn(shared: Arc<Shared>) {
    thread::Builder::new()
        .name("revstore-clock".into())
        .spawn(move || run(&shared))
        .expect("a thread for the clock can be started");
}

fn run(shared: &Shared) {
    while let Some((next, changes)) = step(shared) {
        let mut state = shared.state.lock();
        if next == Next::Look || state.changes != changes || state.closed {
            continue;
        }
        match next {
            Next::SleepFor(time) => drop(shared.changed.wait_for(&mut state, time)),
            _ => shared.changed.wait(&mut state),
        }
    }
}

/// Does the same in a runtime. Ends after the clock is closed.
pub(super) async fn run_task(shared: Arc<Shared>) {
    while let Some((next, _)) = step(&shared) {
        // A notification since the look is not lost.
        let changed = shared.changed_task.notified();
        match next {
            // The tasks that the work has woken run.
            Next::Look => tokio::task::yield_now().await,
            Next::Sleep => changed.await,
            Next::SleepFor(time) => {
                // An error means that the time has passed.
                let _ = tokio::time::timeout(time, changed).await;
            }
        }
    }
}

/// Does what is due. Returns what to do next, with the number of changes before; `None` if the clock is closed.
fn step(shared: &Shared) -> Option<(Next, u64)> {
    let (mode, changes) = {
        let state = shared.state.lock();
        if state.closed {
            return None;
        }
        (state.time.mode(), state.changes)
    };
    let next = match mode {
        ClockMode::Manual => Next::Sleep,
        ClockMode::System => run_due(shared),
        ClockMode::Auto => jump(shared),
    };
    Some((next, changes))
}

/// Does what is due by now.
fn run_due(shared: &Shared) -> Next {
    let Ok(drive) = shared.drive() else {
        return Next::Look;
    };
    // Read with the right to do due work: an advance may have ended, or the mode may have changed.
    let now = {
        let state = shared.state.lock();
        if state.time.mode() != ClockMode::System {
            return Next::Look;
        }
        state.time.now(shared.source.now())
    };
    if drive.run_until(now, INSTANTS_STEP).is_err() {
        return Next::Look;
    }
    drop(drive);
    match shared.next_due() {
        Some((due, _)) if due <= TIME_MAX => Next::SleepFor(due.saturating_sub(now)),
        _ => Next::Sleep,
    }
}

/// Jumps to the next due time, if nothing happens.
fn jump(shared: &Shared) -> Next {
    if let Some(wait) = wait_of_jump(shared) {
        return Next::SleepFor(wait);
    }
    let Ok(drive) = shared.drive() else {
        return Next::Look;
    };
    if shared.state.lock().time.mode() != ClockMode::Auto {
        return Next::Look;
    }
    // Again: an advance may have held the right to do due work, and requests have arrived meanwhile.
    if let Some(wait) = wait_of_jump(shared) {
        return Next::SleepFor(wait);
    }
    match shared.next_due() {
        Some((due, _)) if due <= TIME_MAX => {
            // Only this instant: what it does is waited for before the next one.
            let drive = drive.settling();
            let _ = drive.run_until(due, INSTANTS_STEP);
            Next::Look
        }
        _ => Next::Sleep,
    }
}

/// Returns the time after which to ask again whether anything happens; `None` if nothing does.
fn wait_of_jump(shared: &Shared) -> Option<Duration> {
    let (activity, idle) = {
        let state = shared.state.lock();
        (state.activity.clone(), state.idle)
    };
    let left = idle.checked_sub(shared.unused_for());
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        return Some(left);
    }
    let busy = activity?.upgrade()?.busy_for(idle)?;
    Some(busy.max(BUSY_MIN))
}
