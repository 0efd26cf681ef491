//! Forks of a server without ports.

use revstore_control::ControlError;

use super::{InProcess, Served, Staged};
use crate::{control::state_of, server::ServerBuilder};

impl InProcess {
    /// Starts an independent server with the same history, in the runtime of the caller. Its clock starts with the mode and
    /// the time of this one, and follows the same runtime; it has no rules, no journal and no connections yet. It stops with
    /// this server, or with its last clone.
    ///
    /// Costs a copy of the index of the keys. The values are shared.
    ///
    /// ```
    /// use revstore::{ClockMode, Server};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let server = Server::builder().control(ClockMode::Manual).start_in_process()?;
    /// server.engine().put("fruit", "apple")?;
    /// let fork = server.fork()?;
    /// fork.engine().put("fruit", "pear")?;
    /// assert_eq!(&server.engine().get("fruit").expect("a key").value()[..], b"apple");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the server was built without [`ServerBuilder::control`], or if the thread is not in a
    /// tokio runtime.
    pub fn fork(&self) -> Result<Self, ControlError> {
        let Served::Stage(staged) = &self.inner.served else {
            let message = "a server without control has no forks";
            return Err(ControlError::Refused(message.to_owned()));
        };
        let Staged {
            config, control, ..
        } = &**staged;
        let mut config = config.clone();
        // The file of `import` is part of the history.
        config.import = None;
        let fork = control.fork_with(|frozen, clock| {
            let state = state_of(&frozen);
            let builder = ServerBuilder::of_fork(config, frozen.engine, clock, state);
            builder.start_in_process().map_err(|error| {
                ControlError::Refused(format!("the fork cannot be started: {error}"))
            })
        })?;
        let (parent, own) = (self.inner.shutdown.clone(), fork.inner.shutdown.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = parent.begun() => own.begin(),
                () = own.begun() => {}
            }
        });
        Ok(fork)
    }
}
