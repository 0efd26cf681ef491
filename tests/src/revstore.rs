//! Our own server behind the seam: in this process, with its threads, port and store to itself.

use std::io;
use std::net::SocketAddr;

use revstore::{Invocation, Server, parse};

use crate::server::{Endpoint, Options};

/// A running revstore.
#[derive(Debug)]
pub struct Revstore {
    server: Server,
    address: SocketAddr,
}

impl Revstore {
    /// Starts a server with an empty store. It is configured by the flags that a real etcd gets too.
    ///
    /// # Errors
    /// When the flags are refused or the port cannot be had.
    pub fn start(options: &Options) -> io::Result<Self> {
        let flags = options.flags(0).into_iter().map(Into::into);
        let invocation = parse(flags, []).map_err(io::Error::other)?;
        let Invocation::Serve { config, .. } = invocation else {
            return Err(io::Error::other(
                "the flags ask for something to be printed",
            ));
        };
        let server = Server::builder()
            .config(*config)
            .start()
            .map_err(io::Error::other)?;
        let address = server
            .address()
            .ok_or_else(|| io::Error::other("no TCP address"))?;
        Ok(Self { server, address })
    }

    /// The server, for tests that look at its store.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Endpoint for Revstore {
    fn address(&self) -> SocketAddr {
        self.address
    }

    /// A server in this process logs nothing; what goes wrong in it shows in the test itself.
    fn logs(&self) -> String {
        String::new()
    }
}
