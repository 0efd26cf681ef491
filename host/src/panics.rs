//! Panics: a hook that logs and counts them, with the request that a thread handles.
//!
//! A panic ends only one request, so nobody but the log and the counter reports it.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use tracing::error;

use crate::logging::Logger;

/// The number of panics since the hook was installed. Relaxed: the count does not order other memory accesses.
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The name of the request that the thread handles.
    static REQUEST: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Installs a hook that writes each panic of this process to `log` and counts it, and then calls the previous
/// hook, which by default prints the panic to standard error.
///
/// The hook is a property of the whole process, so a library should not install it.
pub fn install_hook(log: &Logger) {
    let (log, previous) = (log.clone(), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        COUNT.fetch_add(1, Relaxed);
        log_panic(&log, info);
        previous(info);
    }));
}

/// Returns the number of panics since the hook was installed.
pub fn count() -> u64 {
    COUNT.load(Relaxed)
}

/// Runs a part of a request with this name, which the hook reports. Costs two accesses to a thread-local
/// variable.
pub fn within_request<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    let _outer = Outer(REQUEST.replace(Some(name)));
    run()
}

/// A request panicked. Its message was reported by the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Like [`within_request`], but catches a panic. What `run` has changed must not be used after a panic.
///
/// # Errors
/// `run` panicked.
pub fn catch_within_request<T>(name: &'static str, run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(|| within_request(name, run))).map_err(|_| Panicked)
}

/// The request around another one, which continues when this is dropped.
struct Outer(Option<&'static str>);

impl Drop for Outer {
    fn drop(&mut self) {
        REQUEST.set(self.0);
    }
}

fn log_panic(log: &Logger, info: &PanicHookInfo<'_>) {
    let _guard = log.install();
    let message = message(info.payload());
    let location = info.location().map(ToString::to_string);
    let thread = thread::current();
    error!(
        panic = message,
        location = location.as_deref().unwrap_or_default(),
        thread = thread.name().unwrap_or_default(),
        request = REQUEST.get().unwrap_or_default(),
        "panic"
    );
}

fn message(payload: &dyn Any) -> &str {
    match payload.downcast_ref::<&str>() {
        Some(message) => message,
        None => payload.downcast_ref::<String>().map_or("", String::as_str),
    }
}
