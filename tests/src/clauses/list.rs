//! The list of clauses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::clauses::citation::Id;

/// The text of the list.
pub const TEXT: &str = include_str!("../../clauses.txt");

/// The sections whose clauses need a test: those that say what an etcd does.
const NEEDED_SECTIONS: std::ops::RangeInclusive<char> = 'A'..='K';

/// What is asked of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It must match.
    Must,
    /// It should match.
    Should,
    /// Accepted, ignored or simplified.
    Accept,
    /// Differs on purpose.
    Differ,
    /// May be there.
    Optional,
    /// Nothing to show.
    Note,
}

/// A clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Its id.
    pub id: Id,
    /// What is asked of it.
    pub level: Level,
    /// What it says, in a few words.
    pub about: String,
}

/// Clauses under a heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// The clauses in order.
    pub clauses: Vec<Clause>,
}

/// All clauses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The sections in order.
    pub sections: Vec<Section>,
}

impl Level {
    fn of_letter(letter: &str) -> Option<Self> {
        Some(match letter {
            "M" => Self::Must,
            "H" | "S" => Self::Should,
            "A" => Self::Accept,
            "D" => Self::Differ,
            "O" => Self::Optional,
            "N" => Self::Note,
            _ => return None,
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Must => "must",
            Self::Should => "should",
            Self::Accept => "accept",
            Self::Differ => "differ",
            Self::Optional => "may",
            Self::Note => "note",
        })
    }
}

impl Section {
    /// The letter that the title begins with, as in `A. Data model`.
    pub fn letter(&self) -> Option<char> {
        let (letter, _) = self.title.split_once(". ")?;
        let mut letters = letter.chars();
        letters.next().filter(|_| letters.next().is_none())
    }

    /// Whether each of its clauses needs a test if it must or should match.
    pub fn is_needed(&self) -> bool {
        self.letter()
            .is_some_and(|letter| NEEDED_SECTIONS.contains(&letter))
    }
}

impl List {
    /// The list of this repository.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load() -> Result<Self, String> {
        TEXT.parse()
    }

    /// All ids.
    pub fn ids(&self) -> BTreeSet<&Id> {
        let clauses = self.sections.iter().flat_map(|section| &section.clauses);
        clauses.map(|clause| &clause.id).collect()
    }

    /// The letter of the section that a clause stands in, if that has one.
    pub fn letter_of(&self, id: &Id) -> Option<char> {
        let holds = |section: &&Section| section.clauses.iter().any(|clause| clause.id == *id);
        self.sections.iter().find(holds)?.letter()
    }

    /// What ids begin with: nothing else is taken for one.
    pub fn families(&self) -> BTreeSet<&str> {
        self.ids()
            .into_iter()
            .map(|id| id.family.as_str())
            .collect()
    }
}

impl FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list = Self::default();
        let mut seen = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let wrong = |what: &str| format!("line {}: {what}: {line}", at + 1);
            if let Some(title) = line.strip_prefix("## ") {
                list.sections.push(Section {
                    title: title.to_owned(),
                    clauses: Vec::new(),
                });
                continue;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_default();
            let (id, letter, about) = (word(), word(), word());
            let id = Id::parse(id).ok_or_else(|| wrong("no clause"))?;
            if let Some(before) = seen.insert(id.clone(), at + 1) {
                return Err(wrong(&format!("is on line {before} too")));
            }
            let level = Level::of_letter(letter).ok_or_else(|| wrong("no such letter"))?;
            let section = list.sections.last_mut();
            section
                .ok_or_else(|| wrong("no section"))?
                .clauses
                .push(Clause {
                    id,
                    level,
                    about: about.to_owned(),
                });
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read_and_says_something_of_each_clause() {
        let list = List::load().unwrap();
        assert!(list.sections[0].is_needed());
        assert!(!list.sections.last().unwrap().is_needed());
        for clause in list.sections.iter().flat_map(|section| &section.clauses) {
            assert!(!clause.about.is_empty(), "{}", clause.id);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| text.parse::<List>().unwrap_err();
        assert_eq!(error("RG-1 M a key"), "line 1: no section: RG-1 M a key");
        assert_eq!(error("## A\nRG M"), "line 2: no clause: RG M");
        assert_eq!(error("## A\nRG-1 X"), "line 2: no such letter: RG-1 X");
        assert_eq!(
            error("## A\nRG-1 M a\nRG-1 M b"),
            "line 3: is on line 2 too: RG-1 M b"
        );
    }
}
