//! Passwords, which are kept as bcrypt hashes only.

use std::fmt;

use crate::status::EtcdError;

/// bcrypt looks at no more bytes than this.
const PASSWORD_BYTES_MAX: usize = 72;

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PasswordHash(String);

impl PasswordHash {
    /// Takes as long as the cost says, so it belongs on a thread that may block.
    pub(crate) fn of(password: &str, cost: u32) -> Result<Self, EtcdError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(EtcdError::PasswordTooLong);
        }
        let hash = bcrypt::hash(password, cost).map_err(|_| EtcdError::Internal)?;
        Ok(Self(hash))
    }

    /// Whether this is the password. Takes as long as making the hash took.
    pub(crate) fn matches(&self, password: &str) -> bool {
        bcrypt::verify(password, &self.0).unwrap_or(false)
    }

    /// The hash as text, with its salt and cost, as bcrypt's libraries write it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    /// Without the hash: it does not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST_MIN: u32 = 4;

    fn hash(password: &str) -> PasswordHash {
        PasswordHash::of(password, COST_MIN).unwrap()
    }

    /// All of these were put to etcd 3.5.16, which takes the empty password as one too.
    #[test]
    fn au_3_passwords_are_compared() {
        for (password, tried, expected) in [
            ("p", "p", true),
            ("p", "q", false),
            ("p", "", false),
            ("", "", true),
            ("", "p", false),
            ("a\0b", "a\0b", true),
            ("a\0b", "a", false),
        ] {
            assert_eq!(
                hash(password).matches(tried),
                expected,
                "{password:?} {tried:?}"
            );
        }
    }

    #[test]
    fn au_3_passwords_have_72_bytes_at_most() {
        let longest = "x".repeat(72);
        assert!(hash(&longest).matches(&longest));
        let longer = PasswordHash::of(&"x".repeat(73), COST_MIN);
        assert_eq!(longer, Err(EtcdError::PasswordTooLong));
    }

    #[test]
    fn a_hash_says_what_it_cost_and_no_log_sees_it() {
        let hash = PasswordHash::of("p", 5).unwrap();
        assert!(hash.0.starts_with("$2b$05$"));
        assert_eq!(format!("{hash:?}"), "PasswordHash");
    }
}
