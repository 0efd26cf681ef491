//! Simple tokens: random words that the server keeps in memory; etcd's `tokenSimple`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, DueWork, PendingWork, Timed};

use crate::status::EtcdError;

/// The maximum number of valid tokens. If there are more, the token that would expire first is
/// invalidated, and its user must authenticate again. A token takes a few hundred bytes, so all
/// tokens take about 10 MiB.
const TOKENS_MAX: usize = 64 * 1024;

/// The number of random letters in a token. They have 91 random bits.
const SECRET_LETTERS: usize = 16;

const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The valid tokens with their clock, which removes them when they expire.
#[derive(Debug)]
pub(crate) struct TokenSet {
    clock: Arc<dyn Clock>,
    /// A leaf lock, held for one lookup or change.
    tokens: Mutex<Tokens>,
}

impl TokenSet {
    /// Creates an empty set of tokens. A token expires when it has not been used for `ttl`.
    pub(crate) fn new(ttl: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        let set = Arc::new(Self {
            clock,
            tokens: Mutex::new(Tokens::new(ttl)),
        });
        let timed: Arc<dyn Timed> = set.clone();
        set.clock.follow(Arc::downgrade(&timed));
        set
    }

    /// Creates a token for a user (AU-13). `index` is part of the token and makes it unique.
    pub(crate) fn assign(
        &self,
        user: Arc<str>,
        index: u64,
        now: Duration,
    ) -> Result<Arc<str>, EtcdError> {
        let token = self.tokens.lock().assign(user, index, now);
        self.clock.recheck();
        token
    }

    /// Returns the user of a token, if the token is valid, and renews its expiry (AU-13).
    pub(crate) fn user_of(&self, text: &str, now: Duration) -> Option<Arc<str>> {
        self.tokens.lock().user_of(text, now)
    }

    /// Invalidates all tokens of a user (AU-9).
    pub(crate) fn invalidate_user(&self, user: &str) {
        self.tokens.lock().invalidate_user(user);
    }

    /// Invalidates all tokens.
    pub(crate) fn invalidate_all(&self) {
        self.tokens.lock().invalidate_all();
    }
}

impl Timed for TokenSet {
    fn next_due(&self) -> Option<Duration> {
        let tokens = self.tokens.lock();
        tokens.by_expiry.first().map(|(expiry, _)| *expiry)
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        self.tokens.lock().remove_expired(now);
    }

    fn pending(&self, max: usize) -> PendingWork {
        self.tokens.lock().pending(max)
    }
}

/// The valid tokens.
#[derive(Debug)]
struct Tokens {
    ttl: Duration,
    capacity: usize,
    by_text: HashMap<Arc<str>, TokenEntry>,
    by_expiry: BTreeSet<(Duration, Arc<str>)>,
}

/// The user and the expiry of a token.
#[derive(Debug)]
struct TokenEntry {
    user: Arc<str>,
    expiry: Duration,
}

impl Tokens {
    /// Creates an empty set of tokens. A token expires when it has not been used for `ttl`.
    fn new(ttl: Duration) -> Self {
        Self::with_capacity(ttl, TOKENS_MAX)
    }

    fn with_capacity(ttl: Duration, capacity: usize) -> Self {
        Self {
            ttl,
            capacity,
            by_text: HashMap::new(),
            by_expiry: BTreeSet::new(),
        }
    }

    /// Creates a token for a user (AU-13). `index` is part of the token and makes it unique.
    fn assign(&mut self, user: Arc<str>, index: u64, now: Duration) -> Result<Arc<str>, EtcdError> {
        self.remove_expired(now);
        while self.by_text.len() >= self.capacity {
            let Some((_, text)) = self.by_expiry.pop_first() else {
                break;
            };
            self.by_text.remove(&text);
        }
        let text: Arc<str> = format!("{}.{index}", secret()?).into();
        let expiry = now.saturating_add(self.ttl);
        self.by_expiry.insert((expiry, text.clone()));
        self.by_text
            .insert(text.clone(), TokenEntry { user, expiry });
        Ok(text)
    }

    /// Returns the user of a token, if the token is valid, and renews its expiry (AU-13).
    fn user_of(&mut self, text: &str, now: Duration) -> Option<Arc<str>> {
        self.remove_expired(now);
        let expiry = now.saturating_add(self.ttl);
        let (text, _) = self.by_text.get_key_value(text)?;
        let text = text.clone();
        let token = self.by_text.get_mut(&text)?;
        if token.expiry != expiry {
            self.by_expiry.remove(&(token.expiry, text.clone()));
            self.by_expiry.insert((expiry, text));
            token.expiry = expiry;
        }
        Some(token.user.clone())
    }

    /// Invalidates all tokens of a user (AU-9).
    fn invalidate_user(&mut self, user: &str) {
        let by_expiry = &mut self.by_expiry;
        self.by_text.retain(|text, token| {
            let keep = &*token.user != user;
            if !keep {
                by_expiry.remove(&(token.expiry, text.clone()));
            }
            keep
        });
    }

    /// Invalidates all tokens.
    fn invalidate_all(&mut self) {
        self.by_text.clear();
        self.by_expiry.clear();
    }

    /// Lists the tokens that expire first, by the name of the user and the index. The random word stays secret.
    fn pending(&self, max: usize) -> PendingWork {
        let first = self.by_expiry.iter().take(max).map(|(due, text)| {
            let user = self.by_text.get(text).map_or("", |token| &*token.user);
            let index = text.rsplit('.').next().unwrap_or_default();
            DueWork {
                due: *due,
                kind: "token",
                id: format!("{user}.{index}"),
            }
        });
        let work: Vec<_> = first.collect();
        let more = (self.by_expiry.len() - work.len()) as u64;
        PendingWork { work, more }
    }

    fn remove_expired(&mut self, now: Duration) {
        while let Some((expiry, _)) = self.by_expiry.first()
            && *expiry <= now
        {
            if let Some((_, text)) = self.by_expiry.pop_first() {
                self.by_text.remove(&text);
            }
        }
    }
}

/// Returns random letters from the system's secure random generator.
fn secret() -> Result<String, EtcdError> {
    // The largest multiple of 52 in the range of a byte. Bytes at or above it are skipped, because
    // some letters would then be more likely than others.
    const UNIFORM_END: u8 = 4 * 52;
    let mut secret = String::with_capacity(SECRET_LETTERS);
    let mut bytes = [0; 2 * SECRET_LETTERS];
    while secret.len() < SECRET_LETTERS {
        getrandom::fill(&mut bytes).map_err(|_| EtcdError::Internal)?;
        let uniform = bytes.iter().filter(|byte| **byte < UNIFORM_END);
        let letters = uniform.map(|byte| char::from(LETTERS[usize::from(byte % 52)]));
        secret.extend(letters.take(SECRET_LETTERS - secret.len()));
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use revstore_engine::ManualClock;

    use super::*;

    const TTL: Duration = Duration::from_secs(300);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn check_consistent(tokens: &Tokens) {
        let by_text = tokens.by_text.iter();
        let expected: BTreeSet<_> = by_text
            .map(|(text, token)| (token.expiry, text.clone()))
            .collect();
        assert_eq!(tokens.by_expiry, expected);
    }

    #[test]
    fn au_13_a_token_consists_of_a_random_word_and_an_index() {
        let mut tokens = Tokens::new(TTL);
        let token = tokens.assign("u".into(), 7, at(0)).unwrap();
        let (word, index) = token.split_once('.').unwrap();
        assert!(word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_alphabetic()));
        assert_eq!(index, "7");
        assert_ne!(secret().unwrap(), secret().unwrap());
    }

    #[test]
    fn au_13_use_renews_a_token() {
        let mut tokens = Tokens::new(TTL);
        let used = tokens.assign("used".into(), 1, at(0)).unwrap();
        let unused = tokens.assign("unused".into(), 2, at(0)).unwrap();
        assert_eq!(tokens.user_of(&used, at(299)).as_deref(), Some("used"));
        assert_eq!(tokens.user_of(&unused, at(300)), None);
        assert_eq!(tokens.user_of(&used, at(598)).as_deref(), Some("used"));
        assert_eq!(tokens.user_of(&used, at(898)), None);
        assert_eq!(tokens.user_of("never", at(0)), None);
        assert!(tokens.by_text.is_empty());
        check_consistent(&tokens);
    }

    #[test]
    fn au_9_all_tokens_of_a_user_can_be_invalidated() {
        let mut tokens = Tokens::new(TTL);
        let first = tokens.assign("u".into(), 1, at(0)).unwrap();
        let second = tokens.assign("u".into(), 2, at(0)).unwrap();
        let other = tokens.assign("v".into(), 3, at(0)).unwrap();
        tokens.invalidate_user("u");
        check_consistent(&tokens);
        assert_eq!(tokens.user_of(&first, at(0)), None);
        assert_eq!(tokens.user_of(&second, at(0)), None);
        assert!(tokens.user_of(&other, at(0)).is_some());
        tokens.invalidate_all();
        assert_eq!(tokens.user_of(&other, at(0)), None);
        check_consistent(&tokens);
    }

    #[test]
    fn au_13_tokens_expire_by_the_clock_and_are_listed_without_their_secrets() {
        let clock = ManualClock::new();
        let tokens = TokenSet::new(TTL, Arc::new(clock.clone()));
        let first = tokens.assign("u".into(), 7, clock.now()).unwrap();
        clock.advance(at(1));
        tokens.assign("v".into(), 8, clock.now()).unwrap();
        let listed = |max| {
            let pending = tokens.pending(max);
            let ids = pending.work.into_iter().map(|it| (it.due, it.id));
            (ids.collect::<Vec<_>>(), pending.more)
        };
        assert_eq!(listed(1), (vec![(at(300), "u.7".to_owned())], 1));
        clock.advance(at(299));
        assert_eq!(tokens.user_of(&first, clock.now()), None);
        assert_eq!(listed(9), (vec![(at(301), "v.8".to_owned())], 0));
        clock.advance(at(1));
        assert_eq!(tokens.next_due(), None);
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let mut tokens = Tokens::with_capacity(TTL, 2);
        let first = tokens.assign("u".into(), 1, at(0)).unwrap();
        let second = tokens.assign("u".into(), 2, at(0)).unwrap();
        tokens.user_of(&first, at(1));
        let third = tokens.assign("u".into(), 3, at(1)).unwrap();
        assert_eq!(
            tokens.user_of(&second, at(1)),
            None,
            "the least recently used token"
        );
        assert!(tokens.user_of(&first, at(1)).is_some() && tokens.user_of(&third, at(1)).is_some());
        check_consistent(&tokens);
    }
}
