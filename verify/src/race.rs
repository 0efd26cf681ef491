//! Closures that run at the same time.

use std::panic::resume_unwind;

#[cfg(not(any(loom, shuttle)))]
use crate::backend::Start;
use crate::backend::spawn;
use crate::thread::JoinHandle;

/// Runs closures at the same time, each on its own thread, and returns their results when all have
/// ended.
///
/// The closures are an array, if they have one type, or a tuple of two to four. The thread that
/// calls `race` only waits, because loom does not explore all preemptions of a thread right after
/// it has started another one. The closures own what they use: clone the engine, which is a handle.
///
/// # Panics
/// If a closure panics, with its panic. Under loom, if the execution has started more than four
/// threads in total: loom does not explore more.
///
/// ```
/// use revstore_verify::{Options, explore, race};
///
/// explore(&Options::new(), || {
///     assert_eq!(race([1, 2].map(|number| move || number * 10)), [10, 20]);
///     assert_eq!(race((|| "one", || 2)), ("one", 2));
/// });
/// ```
pub fn race<R: Racers>(closures: R) -> R::Output {
    closures.run()
}

/// The closures of a [`race`]: an array, or a tuple of two to four.
pub trait Racers: sealed::Run {}

impl<R: sealed::Run> Racers for R {}

mod sealed {
    pub trait Run {
        /// The results of the closures, in their order.
        type Output;
        fn run(self) -> Self::Output;
    }
}

impl<F, T, const N: usize> sealed::Run for [F; N]
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    type Output = [T; N];

    fn run(self) -> [T; N] {
        let start = Start::new(N);
        let threads = self.map(|closure| run_from(&start, closure));
        threads.map(JoinHandle::join).map(unwrap)
    }
}

macro_rules! tuple {
    ($count:literal: $($closure:ident $result:ident $name:ident),+) => {
        impl<$($closure, $result),+> sealed::Run for ($($closure,)+)
        where
            $($closure: FnOnce() -> $result + Send + 'static, $result: Send + 'static),+
        {
            type Output = ($($result,)+);

            fn run(self) -> Self::Output {
                let start = Start::new($count);
                let ($($name,)+) = self;
                $(let $name = run_from(&start, $name);)+
                // All threads end before a panic of one continues.
                $(let $name = $name.join();)+
                ($(unwrap($name),)+)
            }
        }
    };
}

tuple!(2: A T a, B U b);
tuple!(3: A T a, B U b, C V c);
tuple!(4: A T a, B U b, C V c, D W d);

/// The start of a race: a model checker chooses when each thread continues.
#[cfg(any(loom, shuttle))]
#[derive(Clone)]
struct Start;

#[cfg(any(loom, shuttle))]
impl Start {
    fn new(_threads: usize) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the same call in each backend")]
    fn wait(&self) {}
}

fn run_from<T: Send + 'static>(
    start: &Start,
    closure: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let start = start.clone();
    spawn(move || {
        start.wait();
        closure()
    })
}

fn unwrap<T>(ended: std::thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}
