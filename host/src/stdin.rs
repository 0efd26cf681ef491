//! Standard input as the sign that the process which started this one still runs.

use std::{
    future::Future,
    io::{self, ErrorKind, Read},
    thread,
};

use tokio::sync::oneshot;

/// Returns a future that is ready when standard input has ended. What arrives before is discarded.
///
/// The other end of a pipe is closed with the process that holds it, also when that is killed. Where standard input is
/// `/dev/null` or closed, the future is ready at once. Costs a thread, which waits until then or until the process ends.
///
/// # Errors
/// The thread could not be started.
pub fn ended() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (open, ended) = oneshot::channel::<()>();
    thread::Builder::new()
        .name("revstore-stdin".to_owned())
        .spawn(move || {
            read_to_end(io::stdin().lock());
            drop(open);
        })?;
    Ok(async {
        // The error of a dropped sender. No message is sent.
        let _ = ended.await;
    })
}

/// Discards everything until the end or an error.
fn read_to_end(mut input: impl Read) {
    let mut buffer = [0; 256];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::Interrupted => return,
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Returns each result once, then panics.
    struct Script(VecDeque<io::Result<usize>>);

    impl Read for Script {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.0.pop_front().expect("is not read after the end")
        }
    }

    fn check(results: impl IntoIterator<Item = io::Result<usize>>) {
        let mut script = Script(results.into_iter().collect());
        read_to_end(&mut script);
        assert!(script.0.is_empty(), "ended too early");
    }

    #[test]
    fn data_and_signals_are_passed_over_until_the_end_or_an_error() {
        check([Ok(3), Err(ErrorKind::Interrupted.into()), Ok(256), Ok(0)]);
        check([Ok(1), Err(ErrorKind::ConnectionReset.into())]);
    }
}
