//! Who asks, and what they may.
//!
//! | file | noun |
//! |---|---|
//! | `authorize.rs` | the rule that each method is checked against |
//! | `client_name.rs` | the name in a client's certificate |
//! | `store.rs` | users and roles |
//! | `permission.rs` | what the permissions of a user cover together |
//! | `token.rs` | who is logged in |
//! | `password.rs` | hashes of passwords |
//!
//! While auth is off, a request pays one atomic load for it.

pub(crate) mod authorize;
pub(crate) mod client_name;
mod password;
mod permission;
mod store;
mod token;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use self::authorize::{Access, ClaimedIdentity, EnabledFlag};
pub(crate) use self::password::PasswordHash;
pub(crate) use self::store::AuthStore;
use self::store::Login;
use self::token::Tokens;
use crate::status::EtcdError;

/// Passwords that are hashed at a time. Each takes a processor for a while, and anybody may try to
/// log in; more wait in order.
const HASHES_AT_ONCE_MAX: usize = 4;

/// Options of authentication.
///
/// ```
/// use revstore_grpc::{AuthOptions, AuthTokens};
/// let options = AuthOptions::default().bcrypt_cost(4);
/// assert!(matches!(options.tokens, AuthTokens::Simple { .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthOptions {
    /// The kind of tokens. Default [`AuthTokens::Simple`] with a TTL of 300 s.
    pub tokens: AuthTokens,
    /// The cost of hashing a password with bcrypt, from 4 to 31; each step doubles it. Default 10,
    /// which also replaces a number out of range.
    pub bcrypt_cost: u32,
}

impl AuthOptions {
    /// Sets the kind of tokens.
    #[must_use]
    pub fn tokens(self, tokens: AuthTokens) -> Self {
        Self { tokens, ..self }
    }

    /// Sets the cost of hashing a password, from 4 to 31.
    #[must_use]
    pub fn bcrypt_cost(self, bcrypt_cost: u32) -> Self {
        Self {
            bcrypt_cost,
            ..self
        }
    }
}

/// The tokens that Authenticate returns.
// AU-13
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthTokens {
    /// Random words that the server keeps in memory.
    Simple {
        /// How long a token is valid after its last use.
        ttl: Duration,
    },
    /// None: every login fails.
    Disabled,
}

/// The default cost, which also replaces a cost out of range.
const BCRYPT_COST_DEFAULT: u32 = 10;

impl Default for AuthOptions {
    /// Returns etcd's defaults.
    fn default() -> Self {
        Self {
            tokens: AuthTokens::Simple {
                ttl: Duration::from_secs(300),
            },
            bcrypt_cost: BCRYPT_COST_DEFAULT,
        }
    }
}

/// Users, roles and who is logged in.
#[derive(Debug)]
pub(crate) struct Auth {
    enabled: EnabledFlag,
    /// Held for a look or a change, never while a password is hashed. `tokens` may be taken under
    /// it.
    store: RwLock<AuthStore>,
    /// A leaf lock, held for one look-up or change. Nothing if none are handed out.
    tokens: Option<Mutex<Tokens>>,
    bcrypt_cost: u32,
    hashing: Semaphore,
}

impl Auth {
    pub(crate) fn new(options: AuthOptions) -> Self {
        let bcrypt_cost = match options.bcrypt_cost {
            cost @ 4..=31 => cost,
            _ => BCRYPT_COST_DEFAULT,
        };
        Self {
            enabled: EnabledFlag::default(),
            store: RwLock::default(),
            tokens: match options.tokens {
                AuthTokens::Simple { ttl } => Some(Mutex::new(Tokens::new(ttl))),
                AuthTokens::Disabled => None,
            },
            bcrypt_cost,
            hashing: Semaphore::new(HASHES_AT_ONCE_MAX),
        }
    }

    /// Whether requests are authorized. Costs one atomic load.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    /// Returns the permissions of the client that identifies itself like this (AU-5).
    fn access(
        &self,
        identity: Option<ClaimedIdentity<'_>>,
        now: Duration,
    ) -> Result<Access, EtcdError> {
        if !self.is_enabled() {
            return Ok(Access::Unrestricted);
        }
        let token = match identity {
            Some(ClaimedIdentity::Token(token)) => token,
            None => return Ok(Access::Anonymous),
            Some(ClaimedIdentity::Certificate(name)) => {
                let name: Arc<str> = name.into();
                return Ok(match self.store.read().grants(&name) {
                    Some(grants) => Access::User { name, grants },
                    None => Access::UnknownUser { name },
                });
            }
        };
        let tokens = self.tokens.as_ref();
        let user = tokens.and_then(|tokens| tokens.lock().use_of(token, now));
        let user = user.ok_or(EtcdError::InvalidAuthToken)?;
        let grants = self.store.read().grants(&user);
        // A user who was deleted in this moment.
        let grants = grants.ok_or(EtcdError::InvalidAuthToken)?;
        Ok(Access::User { name: user, grants })
    }

    /// Reads users and roles.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&AuthStore) -> T) -> T {
        read(&self.store.read())
    }

    /// Changes users and roles.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut AuthStore) -> T) -> T {
        let mut store = self.store.write();
        let changed = change(&mut store);
        self.enabled.set(store.is_enabled());
        if !store.is_enabled() {
            // Who logs in again starts afresh.
            self.with_tokens(Tokens::forget_all);
        }
        changed
    }

    /// As [`change`](Self::change), of a user whose tokens are not good any more after it (AU-9).
    pub(crate) fn change_and_log_out(
        &self,
        user: &str,
        change: impl FnOnce(&mut AuthStore) -> Result<(), EtcdError>,
    ) -> Result<(), EtcdError> {
        self.change(|store| {
            change(store)?;
            // Under the lock of the store, where `log_in` hands tokens out: none slips through.
            self.with_tokens(|tokens| tokens.forget_user(user));
            Ok(())
        })
    }

    /// Hashes a password.
    pub(crate) async fn hash(&self, password: String) -> Result<PasswordHash, EtcdError> {
        let cost = self.bcrypt_cost;
        self.with_processor(move || PasswordHash::of(&password, cost))
            .await?
    }

    /// AU-3: trades a name and a password for a token. Once they are found right, `ticket` lets the
    /// login through, and says what is to stand in the token and what time it is.
    pub(crate) async fn log_in(
        &self,
        name: &str,
        password: String,
        ticket: impl Fn() -> Result<(u64, Duration), EtcdError>,
    ) -> Result<String, EtcdError> {
        let password: Arc<str> = password.into();
        loop {
            let login = self.read(|store| store.login(name))?;
            let (hash, tried) = (login.password.clone(), password.clone());
            if !self.with_processor(move || hash.matches(&tried)).await? {
                return Err(EtcdError::AuthFailed);
            }
            let Some(tokens) = &self.tokens else {
                return Err(EtcdError::AuthFailed);
            };
            let store = self.store.read();
            // The password may have been changed meanwhile; then it is compared again.
            if is_same(&store.login(name)?, &login) {
                let (index, now) = ticket()?;
                let token = tokens.lock().assign(login.user, index, now)?;
                return Ok(token.to_string());
            }
        }
    }

    /// Runs what takes a processor for a while.
    async fn with_processor<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EtcdError> {
        let _permit = self.hashing.acquire().await;
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_died| EtcdError::Internal)
    }

    fn with_tokens(&self, change: impl FnOnce(&mut Tokens)) {
        if let Some(tokens) = &self.tokens {
            change(&mut tokens.lock());
        }
    }
}

/// Whether nothing about a user has changed that a login depends on.
fn is_same(one: &Login, other: &Login) -> bool {
    Arc::ptr_eq(&one.password, &other.password)
}
