//! Passwords, stored only as bcrypt hashes.

use std::fmt;

use crate::status::EtcdError;

/// The maximum length of a password. bcrypt ignores further bytes.
const PASSWORD_BYTES_MAX: usize = 72;

/// The bcrypt hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PasswordHash(String);

impl PasswordHash {
    /// Hashes a password. The time depends on `cost`, so it must run on a thread that may block.
    pub(crate) fn of(password: &str, cost: u32) -> Result<Self, EtcdError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(EtcdError::PasswordTooLong);
        }
        let hash = bcrypt::hash(password, cost).map_err(|_| EtcdError::Internal)?;
        Ok(Self(hash))
    }

    /// Returns a hash that was stored.
    pub(crate) fn stored(hash: String) -> Self {
        Self(hash)
    }

    /// Returns whether the hash is that of `password`. Takes as long as creating the hash.
    pub(crate) fn matches(&self, password: &str) -> bool {
        bcrypt::verify(password, &self.0).unwrap_or(false)
    }

    /// Returns the hash with its cost and salt in the text format of bcrypt.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    /// Omits the hash, so that it does not appear in logs.
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

    /// The expected results were recorded with etcd 3.5.16, which also accepts the empty password.
    #[test]
    fn au_3_a_hash_matches_only_its_password() {
        for (password, given, expected) in [
            ("p", "p", true),
            ("p", "q", false),
            ("p", "", false),
            ("", "", true),
            ("", "p", false),
            ("a\0b", "a\0b", true),
            ("a\0b", "a", false),
        ] {
            assert_eq!(
                hash(password).matches(given),
                expected,
                "{password:?} {given:?}"
            );
        }
    }

    #[test]
    fn au_3_passwords_are_at_most_72_bytes_long() {
        let longest = "x".repeat(72);
        assert!(hash(&longest).matches(&longest));
        let longer = PasswordHash::of(&"x".repeat(73), COST_MIN);
        assert_eq!(longer, Err(EtcdError::PasswordTooLong));
    }

    #[test]
    fn a_hash_contains_its_cost_and_its_debug_output_hides_it() {
        let hash = PasswordHash::of("p", 5).unwrap();
        assert!(hash.0.starts_with("$2b$05$"));
        assert_eq!(format!("{hash:?}"), "PasswordHash");
    }
}
