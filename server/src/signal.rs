//! The signals that stop a server, and dying by them (FL-14).

use std::{io, process};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    low_level::emulate_default_handler,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signal that stopped a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever started this process wants to see what ended it"]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
}

impl StopSignal {
    /// Ends the process by this signal, so that its parent sees what happened: a shell shows status
    /// 143 or 130. As process 1 of a container, which cannot kill itself, it exits with 0.
    pub fn die(self) -> ! {
        if process::id() != 1 {
            let number = match self {
                Self::Terminate => SIGTERM,
                Self::Interrupt => SIGINT,
            };
            // It returns only if it could do nothing, and then there is nothing else to do.
            let _ = emulate_default_handler(number);
        }
        process::exit(0)
    }
}

/// Waits for the first of them. Other signals keep their default action.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the signals no longer end the process. Must run inside a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}
