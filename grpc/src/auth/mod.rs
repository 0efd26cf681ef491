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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use revstore_engine::KeyRange;
use tokio::sync::Semaphore;

pub(crate) use self::password::PasswordHash;
use self::permission::Grants;
use self::store::Login;
pub(crate) use self::store::Store;
use self::token::Tokens;
use crate::request::convert::FROM_KEY_END;
use crate::status::EtcdError;

/// Passwords that are hashed at a time. Each takes a processor for a while, and anybody may try to
/// log in; more wait in order.
const HASHES_AT_ONCE_MAX: usize = 4;

/// How users log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthOptions {
    /// What Authenticate hands out. Default [`AuthTokens::Simple`] for 300 s.
    pub tokens: AuthTokens,
    /// The cost of hashing a password, 4 to 31; each step doubles it. Default 10, which is also what
    /// a number out of range counts as.
    pub bcrypt_cost: u32,
}

/// What Authenticate hands out (AU-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthTokens {
    /// Random words that the server remembers.
    Simple {
        /// How long one is good without being used.
        ttl: Duration,
    },
    /// Nothing: nobody can log in.
    Disabled,
}

/// What a cost out of range counts as.
const BCRYPT_COST_DEFAULT: u32 = 10;

impl Default for AuthOptions {
    /// etcd's.
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
    /// What the store says, for those who need to know nothing else.
    on: AtomicBool,
    /// Held for a look or a change, never while a password is hashed. `tokens` may be taken under
    /// it.
    store: RwLock<Store>,
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
            on: AtomicBool::new(false),
            store: RwLock::default(),
            tokens: match options.tokens {
                AuthTokens::Simple { ttl } => Some(Mutex::new(Tokens::new(ttl))),
                AuthTokens::Disabled => None,
            },
            bcrypt_cost,
            hashing: Semaphore::new(HASHES_AT_ONCE_MAX),
        }
    }

    /// Whether anybody is asked who they are.
    pub(crate) fn is_on(&self) -> bool {
        // Acquire: pairs with the Release in `change`: who learns that it is on finds the users.
        self.on.load(Ordering::Acquire)
    }

    /// What the sender of a request may, by what came with it (AU-5).
    pub(crate) fn access(
        &self,
        claim: Option<Claim<'_>>,
        now: Duration,
    ) -> Result<Access, EtcdError> {
        if !self.is_on() {
            return Ok(Access::Unchecked);
        }
        let token = match claim {
            Some(Claim::Token(token)) => token,
            None => return Ok(Access::Nobody),
            Some(Claim::Certified(name)) => {
                let name: Arc<str> = name.into();
                return Ok(match self.store.read().grants(&name) {
                    Some(grants) => Access::User { name, grants },
                    None => Access::Stranger { name },
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

    /// Looks at users and roles.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.store.read())
    }

    /// Changes users and roles.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.store.write();
        let changed = change(&mut store);
        // Release: pairs with the Acquire in `is_on`. Under the lock, so that the flag says what the
        // last change left.
        self.on.store(store.is_enabled(), Ordering::Release);
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
        change: impl FnOnce(&mut Store) -> Result<(), EtcdError>,
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
            let login = self.look(|store| store.login(name))?;
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

/// Who the sender of a request says it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim<'a> {
    /// Whoever has logged in for this.
    Token(&'a str),
    /// The user of this name, by its certificate (TL-2).
    Certified(&'a str),
}

/// What the sender of a request may.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Everything: nobody is asked.
    Unchecked,
    /// Nothing: no token came with the request.
    Nobody,
    /// Nothing but what any user may: the certificate of the sender names nobody that is known
    /// (TL-2).
    Stranger {
        /// Whom it names.
        name: Arc<str>,
    },
    /// What a user may.
    User {
        /// The user.
        name: Arc<str>,
        /// What it may.
        grants: Arc<Grants>,
    },
}

impl Access {
    /// Any user will do.
    pub(crate) fn check_user(&self) -> Result<(), EtcdError> {
        match self {
            Self::Stranger { .. } => Ok(()),
            _ => self.check(|_| true),
        }
    }

    /// Only an administrator will do (AU-8).
    pub(crate) fn check_admin(&self) -> Result<(), EtcdError> {
        match self {
            Self::Stranger { name } if name.is_empty() => Err(EtcdError::UserEmpty),
            Self::Stranger { .. } => Err(EtcdError::UserNotFound),
            _ => self.check(Grants::is_admin),
        }
    }

    /// A user who may read all of this range (AU-7); `range_end` as in requests.
    pub(crate) fn check_read(&self, key: &[u8], range_end: &[u8]) -> Result<(), EtcdError> {
        self.check(|grants| grants.may_read(key, range_end))
    }

    /// A user who may write all of this range.
    pub(crate) fn check_write(&self, key: &[u8], range_end: &[u8]) -> Result<(), EtcdError> {
        self.check(|grants| grants.may_write(key, range_end))
    }

    /// A user who may read all of these keys.
    pub(crate) fn check_read_of(&self, keys: &KeyRange) -> Result<(), EtcdError> {
        let (key, range_end) = bounds(keys);
        self.check_read(key, range_end)
    }

    /// A user who may write all of these keys.
    pub(crate) fn check_write_of(&self, keys: &KeyRange) -> Result<(), EtcdError> {
        let (key, range_end) = bounds(keys);
        self.check_write(key, range_end)
    }

    /// The user, if it is one.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::User { name, .. } => Some(name),
            Self::Unchecked | Self::Nobody | Self::Stranger { .. } => None,
        }
    }

    fn check(&self, may: impl FnOnce(&Grants) -> bool) -> Result<(), EtcdError> {
        match self {
            Self::Unchecked => Ok(()),
            Self::Nobody => Err(EtcdError::UserEmpty),
            Self::User { grants, .. } if may(grants) => Ok(()),
            Self::User { .. } | Self::Stranger { .. } => Err(EtcdError::PermissionDenied),
        }
    }
}

fn bounds(keys: &KeyRange) -> (&[u8], &[u8]) {
    match keys {
        KeyRange::One(key) => (key, &[]),
        KeyRange::Within { start, end } => (start, end),
        KeyRange::From(start) => (start, FROM_KEY_END),
    }
}
