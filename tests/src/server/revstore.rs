//! A revstore server in this process, with its own threads, port and store.

use std::env;
use std::io;
use std::net::SocketAddr;

use revstore::{ClockMode, Invocation, Server, parse};

use crate::server::{Endpoint, Options};

/// The variable that, when it is set, puts control without rules between clients and store: nothing may change.
const CONTROL: &str = "REVSTORE_TEST_CONTROL";

/// A running revstore.
#[derive(Debug)]
pub struct Revstore {
    server: Server,
    address: SocketAddr,
}

impl Revstore {
    /// Starts a server with an empty store and the same flags as a real etcd.
    ///
    /// # Errors
    /// If the flags are invalid or the port is unavailable.
    pub fn start(options: &Options) -> io::Result<Self> {
        Self::start_with(options, &[])
    }

    /// As [`start`](Self::start), with flags that etcd does not have.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(options: &Options, own: &[&str]) -> io::Result<Self> {
        let flags = options.flags(0).into_iter().map(Into::into);
        let flags = flags.chain(own.iter().map(Into::into));
        let invocation = parse(flags, []).map_err(io::Error::other)?;
        let Invocation::Serve { config, .. } = invocation else {
            return Err(io::Error::other(
                "the flags print information and do not start a server",
            ));
        };
        let mut server = Server::builder().config(*config);
        if env::var_os(CONTROL).is_some() {
            server = server.control(ClockMode::System);
        }
        let server = server.start().map_err(io::Error::other)?;
        let address = server
            .address()
            .ok_or_else(|| io::Error::other("no TCP address"))?;
        Ok(Self { server, address })
    }

    /// Returns the server, for tests that inspect its store.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Endpoint for Revstore {
    fn address(&self) -> SocketAddr {
        self.address
    }

    /// A server in this process logs nothing; its failures show in the test itself.
    fn logs(&self) -> String {
        String::new()
    }
}
