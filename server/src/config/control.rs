//! The flags of control.

use std::path::PathBuf;
use std::time::Duration;

use revstore_control::clock::{ClockMode, ControlClock, IDLE_DEFAULT};
use revstore_control::service::{Access, TokenFile};
use revstore_control::store::MEMORY_LIMIT_DEFAULT;
use revstore_host::config::{ConfigError, GoDuration, Values};
use revstore_host::net::{ListenAddress, ListenUrl};

use super::flags;
use crate::start_error::StartError;

/// The longest `--auto-advance-idle`.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The options of control.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlConfig {
    /// The URL to listen on for clients of control; `None` for a program that uses
    /// [`Server::control`](crate::Server::control) only.
    pub listen_url: Option<ListenUrl>,
    /// Whether the URL may be an address beyond the loopback interface. Then `token_file` is required.
    pub allow_remote: bool,
    /// A file with the token that requests must have.
    pub token_file: Option<PathBuf>,
    /// The bytes that checkpoints may hold.
    pub memory_limit: u64,
    /// The mode of the clock at the start.
    pub clock: ClockMode,
    /// The time without any activity after which a clock in the mode [`ClockMode::Auto`] jumps to the next due time.
    pub auto_advance_idle: Duration,
}

impl Default for ControlConfig {
    /// Control without a port, of a clock that runs.
    fn default() -> Self {
        Self {
            listen_url: None,
            allow_remote: false,
            token_file: None,
            memory_limit: MEMORY_LIMIT_DEFAULT,
            clock: ClockMode::System,
            auto_advance_idle: IDLE_DEFAULT,
        }
    }
}

impl From<ClockMode> for ControlConfig {
    /// Control without a port, of a clock in a mode.
    fn from(clock: ClockMode) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }
}

impl ControlConfig {
    /// Returns the options in the values of the flags of control, or `None` if control is off. A program that declares
    /// them under the same names has their defaults.
    ///
    /// # Errors
    /// A value has no sense, or another flag is given without a URL.
    pub fn of_flags(values: &Values) -> Result<Option<Self>, ConfigError> {
        let Some(url) = values.get(&flags::CONTROL_LISTEN_URL).0 else {
            let others = [
                &flags::CONTROL_ALLOW_REMOTE.declaration,
                &flags::CONTROL_TOKEN_FILE.declaration,
                &flags::CONTROL_MEMORY_LIMIT.declaration,
                &flags::CONTROL_CLOCK.declaration,
                &flags::AUTO_ADVANCE_IDLE.declaration,
            ];
            return match others.iter().find(|flag| values.is_given(flag)) {
                Some(other) => Err(ConfigError::new(format!(
                    "--{} requires --control-listen-url",
                    other.name
                ))),
                None => Ok(None),
            };
        };
        let clock = values.get(&flags::CONTROL_CLOCK).parse();
        let clock = clock.map_err(|error| ConfigError::new(format!("--control-clock: {error}")))?;
        let GoDuration(idle) = values.get(&flags::AUTO_ADVANCE_IDLE);
        let idle = u64::try_from(idle).ok().map(Duration::from_nanos);
        let Some(auto_advance_idle) = idle.filter(|idle| *idle <= IDLE_MAX) else {
            return Err(ConfigError::new(
                "--auto-advance-idle must be from 0s to 1m0s",
            ));
        };
        let control = Self {
            listen_url: Some(ListenUrl::try_from(url)?),
            allow_remote: values.get(&flags::CONTROL_ALLOW_REMOTE),
            token_file: values.get(&flags::CONTROL_TOKEN_FILE),
            memory_limit: values.get(&flags::CONTROL_MEMORY_LIMIT),
            clock,
            auto_advance_idle,
        };
        control.check().map_err(ConfigError::new)?;
        Ok(Some(control))
    }

    /// Creates the clock of a server with these options.
    pub fn new_clock(&self) -> ControlClock {
        let clock = ControlClock::new(self.clock);
        clock.set_idle(self.auto_advance_idle);
        clock
    }

    /// Creates the clock of a server without ports, which follows the time of the runtime.
    pub(crate) fn new_clock_in_runtime(&self) -> ControlClock {
        let clock = ControlClock::in_runtime(self.clock);
        clock.set_idle(self.auto_advance_idle);
        clock
    }

    /// Returns the rules of access to the port of control.
    ///
    /// # Errors
    /// The options do not protect the port, or the token file cannot be used.
    pub fn access(&self) -> Result<Access, StartError> {
        self.check().map_err(StartError::Control)?;
        let token = self.token_file.as_ref().map(TokenFile::open);
        let token = token.transpose()?;
        Ok(Access {
            // Without a token there is only the host to tell a client from a web site. Socket files have no host.
            any_host: self.is_socket_file() || (self.allow_remote && token.is_some()),
            token,
        })
    }

    /// Returns whether the port is a socket file.
    pub(crate) fn is_socket_file(&self) -> bool {
        let address = self.listen_url.as_ref().map(ListenUrl::address);
        matches!(address, Some(ListenAddress::Unix(_)))
    }

    /// Returns whether the port is an address of the loopback interface, or a socket file.
    pub(crate) fn is_local(&self) -> bool {
        let address = self.listen_url.as_ref().map(ListenUrl::address);
        match address {
            Some(ListenAddress::Tcp(address)) => address.ip().is_loopback(),
            Some(ListenAddress::Unix(_)) | None => true,
        }
    }

    /// Checks that the port is protected.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(url) = &self.listen_url else {
            return Ok(());
        };
        if url.is_tls() {
            return Err(format!(
                "--control-listen-url {url} must have the scheme http or unix"
            ));
        }
        if !self.is_local() && !self.allow_remote {
            return Err(format!(
                "--control-listen-url {url} is not an address of the loopback interface: \
                 --control-allow-remote and --control-token-file are required"
            ));
        }
        if self.allow_remote && self.token_file.is_none() {
            return Err("--control-allow-remote requires --control-token-file".to_owned());
        }
        Ok(())
    }
}
