//! The file of bearer tokens (`--token-auth-file`).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::auth::User;

/// The maximum size of a file of tokens.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Bearer tokens with their users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenFile {
    users: HashMap<String, User>,
}

/// The error of a file of tokens.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A line is malformed.
    #[error("line {line} of the token file: {reason}")]
    Malformed {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is malformed.
    pub fn open(path: &Path) -> Result<Self, TokenFileError> {
        let read = |source| TokenFileError::Read {
            path: path.to_owned(),
            source,
        };
        if path.metadata().map_err(read)?.len() > FILE_BYTES_MAX {
            return Err(read(io::Error::other("the file is larger than 16 MiB")));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(read)?)
    }

    /// Parses lines of the form `token,user,uid` or `token,user,uid,"group1,group2"`. Empty lines are
    /// skipped. Of several lines with one token the last counts.
    ///
    /// # Errors
    /// [`TokenFileError::Malformed`].
    ///
    /// ```
    /// use revstore_apiserver::auth::TokenFile;
    /// let tokens = TokenFile::parse("secret,dev,7,\"devs,ops\"\nother,ann,8,devs\n")?;
    /// assert_eq!(tokens.user("secret").unwrap().groups, ["devs", "ops"]);
    /// assert_eq!(tokens.user("other").unwrap().groups, ["devs"]);
    /// assert_eq!(tokens.user("none"), None);
    /// # Ok::<(), revstore_apiserver::auth::TokenFileError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let malformed = |reason| TokenFileError::Malformed {
                line: index + 1,
                reason,
            };
            if line.trim().is_empty() {
                continue;
            }
            let columns =
                columns(line).ok_or_else(|| malformed("a quotation mark is not closed"))?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(malformed("a token, a user and a uid are required"));
            };
            if token.is_empty() {
                return Err(malformed("the token is empty"));
            }
            let groups = rest.first().map_or("", String::as_str).split(',');
            let groups = groups.map(str::trim).filter(|group| !group.is_empty());
            let user = User {
                uid: uid.clone(),
                ..User::new(name.clone(), groups)
            };
            users.insert(token.clone(), user);
        }
        Ok(Self { users })
    }

    /// Adds a token, as a line of the file would.
    #[must_use]
    pub fn with(mut self, token: impl Into<String>, user: User) -> Self {
        self.users.insert(token.into(), user);
        self
    }

    /// Returns the user of a token.
    pub fn user(&self, token: &str) -> Option<&User> {
        self.users.get(token)
    }
}

/// Splits a line into its columns. A column in quotation marks may contain commas, and two marks for one.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        let column = columns.last_mut()?;
        match char {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => column.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            ' ' if !quoted && column.is_empty() => {}
            char => column.push(char),
        }
    }
    (!quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::TokenFile;

    #[test]
    fn quoted_columns_may_contain_commas_and_marks() {
        let tokens = TokenFile::parse("\"a\"\"b\", dev ,1\n\n").unwrap();
        assert_eq!(tokens.user("a\"b").unwrap().name, "dev ");
    }

    #[test]
    fn malformed_lines_are_named() {
        for (text, expected) in [
            (
                "a,b\n",
                "line 1 of the token file: a token, a user and a uid are required",
            ),
            (
                "t,b,c\n,b,c\n",
                "line 2 of the token file: the token is empty",
            ),
            (
                "t,b,\"c\n",
                "line 1 of the token file: a quotation mark is not closed",
            ),
        ] {
            assert_eq!(TokenFile::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
