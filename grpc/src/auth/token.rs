//! Simple tokens: random words that the server remembers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::status::EtcdError;

/// Tokens that are remembered at a time. Beyond it, the one that would expire first is forgotten,
/// and its user has to log in again. A token takes a few hundred bytes, so this is some ten MiB.
const TOKENS_MAX: usize = 64 * 1024;

/// How many letters are drawn for a token: 91 bits.
const SECRET_LETTERS: usize = 16;

const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The tokens that were handed out and are still good.
#[derive(Debug)]
pub(crate) struct Tokens {
    ttl: Duration,
    capacity: usize,
    by_text: HashMap<Arc<str>, Token>,
    by_expiry: BTreeSet<(Duration, Arc<str>)>,
}

#[derive(Debug)]
struct Token {
    user: Arc<str>,
    expiry: Duration,
}

impl Tokens {
    /// Each token is good until it has not been used for `ttl`.
    pub(crate) fn new(ttl: Duration) -> Self {
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

    /// Makes a token for a user (AU-13). The index makes it unlike all others.
    pub(crate) fn assign(
        &mut self,
        user: Arc<str>,
        index: u64,
        now: Duration,
    ) -> Result<Arc<str>, EtcdError> {
        self.forget_expired(now);
        while self.by_text.len() >= self.capacity {
            let Some((_, text)) = self.by_expiry.pop_first() else {
                break;
            };
            self.by_text.remove(&text);
        }
        let text: Arc<str> = format!("{}.{index}", secret()?).into();
        let expiry = now.saturating_add(self.ttl);
        self.by_expiry.insert((expiry, text.clone()));
        self.by_text.insert(text.clone(), Token { user, expiry });
        Ok(text)
    }

    /// Whose token this is, if it is still good. It then is for another while (AU-13).
    pub(crate) fn use_of(&mut self, text: &str, now: Duration) -> Option<Arc<str>> {
        self.forget_expired(now);
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

    /// AU-9: none of a user's tokens is good any more.
    pub(crate) fn forget_user(&mut self, user: &str) {
        let by_expiry = &mut self.by_expiry;
        self.by_text.retain(|text, token| {
            let stays = &*token.user != user;
            if !stays {
                by_expiry.remove(&(token.expiry, text.clone()));
            }
            stays
        });
    }

    /// No token is good any more.
    pub(crate) fn forget_all(&mut self) {
        self.by_text.clear();
        self.by_expiry.clear();
    }

    fn forget_expired(&mut self, now: Duration) {
        while let Some((expiry, _)) = self.by_expiry.first()
            && *expiry <= now
        {
            if let Some((_, text)) = self.by_expiry.pop_first() {
                self.by_text.remove(&text);
            }
        }
    }
}

/// Letters that nobody can guess.
fn secret() -> Result<String, EtcdError> {
    // Bytes from here on would make some letters likelier than others.
    const FAIR_MAX: u8 = 4 * 52;
    let mut secret = String::with_capacity(SECRET_LETTERS);
    let mut bytes = [0; 2 * SECRET_LETTERS];
    while secret.len() < SECRET_LETTERS {
        getrandom::fill(&mut bytes).map_err(|_| EtcdError::Internal)?;
        let fair = bytes.iter().filter(|byte| **byte < FAIR_MAX);
        let letters = fair.map(|byte| char::from(LETTERS[usize::from(byte % 52)]));
        secret.extend(letters.take(SECRET_LETTERS - secret.len()));
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
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
    fn au_13_a_token_is_a_word_and_an_index() {
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
        assert_eq!(tokens.use_of(&used, at(299)).as_deref(), Some("used"));
        assert_eq!(tokens.use_of(&unused, at(300)), None);
        assert_eq!(tokens.use_of(&used, at(598)).as_deref(), Some("used"));
        assert_eq!(tokens.use_of(&used, at(898)), None);
        assert_eq!(tokens.use_of("never", at(0)), None);
        assert!(tokens.by_text.is_empty());
        check_consistent(&tokens);
    }

    #[test]
    fn au_9_a_user_can_be_logged_out() {
        let mut tokens = Tokens::new(TTL);
        let first = tokens.assign("u".into(), 1, at(0)).unwrap();
        let second = tokens.assign("u".into(), 2, at(0)).unwrap();
        let other = tokens.assign("v".into(), 3, at(0)).unwrap();
        tokens.forget_user("u");
        check_consistent(&tokens);
        assert_eq!(tokens.use_of(&first, at(0)), None);
        assert_eq!(tokens.use_of(&second, at(0)), None);
        assert!(tokens.use_of(&other, at(0)).is_some());
        tokens.forget_all();
        assert_eq!(tokens.use_of(&other, at(0)), None);
        check_consistent(&tokens);
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let mut tokens = Tokens::with_capacity(TTL, 2);
        let first = tokens.assign("u".into(), 1, at(0)).unwrap();
        let second = tokens.assign("u".into(), 2, at(0)).unwrap();
        tokens.use_of(&first, at(1));
        let third = tokens.assign("u".into(), 3, at(1)).unwrap();
        assert_eq!(tokens.use_of(&second, at(1)), None, "used longest ago");
        assert!(tokens.use_of(&first, at(1)).is_some() && tokens.use_of(&third, at(1)).is_some());
        check_consistent(&tokens);
    }
}
