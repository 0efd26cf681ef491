//! Authentication and authorization: users, roles, passwords and tokens.
//!
//! | file | contents |
//! |---|---|
//! | `authorize.rs` | the authorization rules of requests |
//! | `store.rs` | users and roles |
//! | `permission.rs` | the union of the permissions of a user |
//! | `credentials.rs` | the token and the certificate name of a client |
//! | `token.rs` | simple tokens |
//! | `jwt/` | JWT tokens |
//! | `password.rs` | password hashes |
//! | `hashing.rs` | the order in which passwords are hashed |
//! | `options.rs` | the options of authentication |
//! | `log.rs` | the log lines about users and roles |
//!
//! [`Auth`] corresponds to etcd's `authStore`. While auth is disabled, a request costs one atomic
//! load.

pub(crate) mod authorize;
pub(crate) mod credentials;
mod hashing;
mod jwt;
pub(crate) mod log;
mod options;
mod password;
mod permission;
mod store;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use revstore_engine::Clock;

use self::authorize::{Access, AuthAge};
use self::credentials::ClaimedIdentity;
use self::hashing::{Hasher, Hashing};
pub use self::jwt::{JwtKeyError, JwtMethod, JwtTokens, UnknownJwtMethod};
pub use self::options::{AuthOptions, AuthTokens};
pub(crate) use self::password::PasswordHash;
pub(crate) use self::store::AuthStore;
use self::token::TokenSet;
use crate::status::EtcdError;

/// Users, roles and valid tokens.
#[derive(Debug)]
pub(crate) struct Auth {
    enabled: EnabledFlag,
    /// Held for one read or change, never while a password is hashed. `tokens` may be locked while
    /// this lock is held.
    store: RwLock<AuthStore>,
    tokens: TokenProvider,
    bcrypt_cost: u32,
    /// Limits concurrent hashing.
    hashing: Arc<Hashing>,
}

/// The tokens of one kind; etcd's `TokenProvider`.
#[derive(Debug)]
enum TokenProvider {
    Simple(Arc<TokenSet>),
    Jwt(JwtTokens),
    Disabled,
}

/// A copy of [`AuthStore::is_enabled`] that is read without a lock.
#[derive(Debug, Default)]
struct EnabledFlag(AtomicBool);

impl EnabledFlag {
    fn get(&self) -> bool {
        // Acquire: pairs with the Release in `set`, so that a thread that reads `true` also reads
        // the users.
        self.0.load(Ordering::Acquire)
    }

    /// Must be called while the store is locked, so that the flag matches the last change.
    fn set(&self, enabled: bool) {
        // Release: pairs with the Acquire in `get`.
        self.0.store(enabled, Ordering::Release);
    }
}

impl Auth {
    pub(crate) fn new(options: AuthOptions, store: AuthStore, clock: Arc<dyn Clock>) -> Self {
        let enabled = EnabledFlag::default();
        enabled.set(store.is_enabled());
        let bcrypt_cost = options.effective_bcrypt_cost();
        Self {
            enabled,
            store: RwLock::new(store),
            tokens: match options.tokens {
                AuthTokens::Simple { ttl } => TokenProvider::Simple(TokenSet::new(ttl, clock)),
                AuthTokens::Jwt(tokens) => TokenProvider::Jwt(tokens),
                AuthTokens::Disabled => TokenProvider::Disabled,
            },
            bcrypt_cost,
            hashing: Hashing::new(),
        }
    }

    /// Returns whether auth is enabled. Costs one atomic load.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    /// Authenticates a client, and returns its permissions and the age of its token (AU-5).
    fn access(
        &self,
        identity: Option<ClaimedIdentity<'_>>,
        now: Duration,
    ) -> Result<(Access, AuthAge), EtcdError> {
        if !self.is_enabled() {
            return Ok((Access::Unrestricted, AuthAge::Current));
        }
        let token = match identity {
            Some(ClaimedIdentity::Token(token)) => token,
            None => return Ok((Access::Anonymous, AuthAge::Current)),
            Some(ClaimedIdentity::Certificate(name)) => {
                let access = self.store.read().access(name.into());
                return Ok((access, AuthAge::Current));
            }
        };
        let user = match &self.tokens {
            TokenProvider::Simple(tokens) => tokens.user_of(token, now),
            TokenProvider::Jwt(tokens) => {
                let user = tokens.user_of(token).ok_or_else(log::invalid_token)?;
                let store = self.store.read();
                let age = AuthAge::of(user.revision, store.revision());
                return Ok((store.access(user.name.into()), age));
            }
            TokenProvider::Disabled => None,
        };
        let user = user.ok_or_else(log::invalid_token)?;
        let grants = self.store.read().grants(&user);
        // The user may have been deleted after the lookup of the token.
        let grants = grants.ok_or_else(log::invalid_token)?;
        Ok((Access::User { name: user, grants }, AuthAge::Current))
    }

    /// Returns the user that a client claims to be: the name in its certificate, or while auth is enabled the user of its
    /// token. Checks no permission.
    pub(crate) fn claimed_user(
        &self,
        identity: Option<ClaimedIdentity<'_>>,
        now: Duration,
    ) -> Option<Arc<str>> {
        match identity? {
            ClaimedIdentity::Certificate(name) => Some(name.into()),
            ClaimedIdentity::Token(_) if !self.is_enabled() => None,
            ClaimedIdentity::Token(token) => match &self.tokens {
                TokenProvider::Simple(tokens) => tokens.user_of(token, now),
                TokenProvider::Jwt(tokens) => Some(tokens.user_of(token)?.name.into()),
                TokenProvider::Disabled => None,
            },
        }
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
            // Simple tokens do not become valid again when auth is enabled later.
            self.with_simple_tokens(TokenSet::invalidate_all);
        }
        changed
    }

    /// Changes a user as [`change`](Self::change) does, and invalidates its simple tokens (AU-9). Returns the roles
    /// that the user had.
    pub(crate) fn change_and_invalidate_tokens(
        &self,
        user: &str,
        change: impl FnOnce(&mut AuthStore) -> Result<(), EtcdError>,
    ) -> Result<Vec<String>, EtcdError> {
        self.change(|store| {
            let roles = store.roles_of(user).unwrap_or_default();
            change(store)?;
            // This holds the lock of the store, which `authenticate` also holds while it assigns a
            // token. So a token that is assigned concurrently is either invalidated here or
            // assigned after the change.
            self.with_simple_tokens(|tokens| tokens.invalidate_user(user));
            Ok(roles)
        })
    }

    /// Hashes a password that an administrator sets, on a thread that may block.
    pub(crate) async fn hash_password(&self, password: String) -> Result<PasswordHash, EtcdError> {
        let cost = self.bcrypt_cost;
        let hash = move || PasswordHash::of(&password, cost);
        self.run_blocking(Hasher::Administrator, hash).await?
    }

    /// Checks a name and a password, and assigns a token (AU-3).
    ///
    /// After a successful check, `admit` admits the request and returns the raft index that the
    /// token contains and the current time.
    pub(crate) async fn authenticate(
        &self,
        name: &str,
        password: String,
        admit: impl Fn() -> Result<(u64, Duration), EtcdError>,
    ) -> Result<String, EtcdError> {
        let password: Arc<str> = password.into();
        loop {
            let checked = self.read(|store| store.stored_password(name))?;
            let (hash, given) = (checked.hash.clone(), password.clone());
            let hasher = Hasher::User(checked.user.clone());
            if !(self.run_blocking(hasher, move || hash.matches(&given))).await? {
                log::invalid_password(name);
                return Err(EtcdError::AuthFailed);
            }
            if matches!(self.tokens, TokenProvider::Disabled) {
                return Err(EtcdError::AuthFailed);
            }
            {
                let store = self.store.read();
                // If the password has changed since it was checked, it is checked again.
                if Arc::ptr_eq(&store.stored_password(name)?.hash, &checked.hash) {
                    let (index, now) = admit()?;
                    return match &self.tokens {
                        TokenProvider::Simple(tokens) => {
                            let token = tokens.assign(checked.user, index, now)?;
                            Ok(token.to_string())
                        }
                        TokenProvider::Jwt(tokens) => {
                            let revision = store.revision();
                            // Signing with RSA takes a millisecond or more.
                            drop(store);
                            tokens.assign(&checked.user, revision)
                        }
                        TokenProvider::Disabled => Err(EtcdError::AuthFailed),
                    };
                }
            }
            log::password_changed();
        }
    }

    /// Runs CPU-intensive work on a thread that may block, limited by `hashing`.
    async fn run_blocking<T: Send + 'static>(
        &self,
        hasher: Hasher,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EtcdError> {
        let permit = self.hashing.acquire(hasher).await?;
        let work = move || {
            // The work goes on if the client ends its call meanwhile.
            let _permit = permit;
            work()
        };
        let result = tokio::task::spawn_blocking(work).await;
        result.map_err(|_panicked| EtcdError::Internal)
    }

    fn with_simple_tokens(&self, change: impl FnOnce(&TokenSet)) {
        if let TokenProvider::Simple(tokens) = &self.tokens {
            change(tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use parking_lot::Mutex;
    use revstore_engine::ManualClock;

    use super::*;

    /// Clients could otherwise start any number of hashes by calls that they end at once.
    #[tokio::test]
    async fn a_hash_counts_until_its_end_although_its_call_has_ended() {
        const CALLS: usize = 20;
        let auth = Arc::new(Auth::new(
            AuthOptions::default(),
            AuthStore::default(),
            Arc::new(ManualClock::new()),
        ));
        let (started, starts) = mpsc::channel();
        let (gate, gates) = mpsc::channel::<()>();
        let gates = Arc::new(Mutex::new(gates));
        for call in 0..CALLS {
            let (auth, started, gates) = (auth.clone(), started.clone(), gates.clone());
            let hash = move || {
                started.send(call).unwrap();
                gates.lock().recv().unwrap();
            };
            let task =
                tokio::spawn(async move { auth.run_blocking(Hasher::Administrator, hash).await });
            tokio::task::yield_now().await;
            task.abort();
            let _ended = task.await;
        }
        drop(started);
        for _ in 0..CALLS {
            // There may be fewer hashes than calls.
            let _open = gate.send(());
        }
        let hashes = tokio::task::spawn_blocking(move || starts.iter().count());
        assert!(hashes.await.unwrap() <= 4);
    }
}
