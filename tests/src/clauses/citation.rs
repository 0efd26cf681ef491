//! Ids of clauses in a text.

use std::collections::BTreeSet;
use std::fmt;

/// The id of a clause, as `RG-1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// What it begins with, as `RG`.
    pub family: String,
    /// Its number as it is written, as `1` or `01`.
    number: String,
}

impl Id {
    /// Reads an id.
    pub fn parse(text: &str) -> Option<Self> {
        let (family, number) = text.split_once('-')?;
        let letters = !family.is_empty() && family.bytes().all(|byte| byte.is_ascii_uppercase());
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (letters && digits).then(|| Self {
            family: family.to_owned(),
            number: number.to_owned(),
        })
    }

    fn value(&self) -> u32 {
        self.number.parse().unwrap_or(u32::MAX)
    }

    fn with(&self, value: u32) -> Self {
        let width = self.number.len();
        Self {
            family: self.family.clone(),
            number: format!("{value:0width$}"),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.family, self.number)
    }
}

/// The ids in a text that begin with one of `families`.
///
/// `TXN-7/8` names both, `RG-11..13` and `RG-11 to RG-13` all between that are in `known`, since
/// numbers have gaps.
pub fn ids(text: &str, families: &BTreeSet<&str>, known: &BTreeSet<&Id>) -> BTreeSet<Id> {
    let mut found = BTreeSet::new();
    let mut rest = text;
    let mut before = None;
    while let Some(start) = rest.find(|c: char| c.is_ascii_uppercase()) {
        let inside_a_word = match start {
            0 => before,
            _ => rest[..start].chars().next_back(),
        };
        let word = &rest[start..];
        let family_end = word
            .find(|c: char| !c.is_ascii_uppercase())
            .unwrap_or(word.len());
        let number_end = word[family_end..]
            .strip_prefix('-')
            .map_or(family_end, |number| family_end + 1 + digits(number));
        let id = Id::parse(&word[..number_end]).filter(|id| families.contains(id.family.as_str()));
        let id = id.filter(|_| !inside_a_word.is_some_and(|c| c.is_alphanumeric() || c == '-'));
        before = word[..number_end].chars().next_back();
        rest = &word[number_end..];
        if let Some(id) = id {
            rest = further(&id, rest, known, &mut found);
            found.insert(id);
        }
    }
    found
}

/// Adds what follows an id as `/8`, `..13`, ` to 13` or ` to RG-13`; returns what follows that.
fn further<'text>(
    first: &Id,
    text: &'text str,
    known: &BTreeSet<&Id>,
    found: &mut BTreeSet<Id>,
) -> &'text str {
    let mut rest = text;
    while let Some(other) = rest.strip_prefix('/')
        && digits(other) > 0
    {
        let end = digits(other);
        found.insert(first.with(other[..end].parse().unwrap_or(u32::MAX)));
        rest = &other[end..];
    }
    let last = rest
        .strip_prefix("..")
        .or_else(|| rest.strip_prefix(" to "));
    if let Some(last) = last {
        let prefix = format!("{}-", first.family);
        let last = last.strip_prefix(prefix.as_str()).unwrap_or(last);
        let end = digits(last);
        if let Ok(to) = last[..end].parse::<u32>() {
            found.extend(between(first, to, known));
            // Where the range ends there has to be a clause.
            found.insert(first.with(to));
            rest = &last[end..];
        }
    }
    rest
}

/// The ids that the name of a function begins with, as in `rg_6_an_empty_key`,
/// `le_1_le_2_bounds_of_ttls`, `rg_1_to_5_forms_of_keys` and `wa_7_and_14_refusals`.
pub fn in_name(name: &str, families: &BTreeSet<&str>, known: &BTreeSet<&Id>) -> BTreeSet<Id> {
    let mut found = BTreeSet::new();
    let mut words = name.split('_').peekable();
    let (mut last, mut through) = (None::<Id>, false);
    while let Some(word) = words.next() {
        if matches!(word, "to" | "and") && last.is_some() {
            through = word == "to";
            continue;
        }
        let family = word.to_uppercase();
        let id = match words.peek() {
            Some(number) if families.contains(family.as_str()) => {
                let id = Id::parse(&format!("{family}-{number}"));
                words.next();
                id
            }
            // A further one need not name the family again.
            _ => last
                .as_ref()
                .and_then(|first| Id::parse(&format!("{}-{word}", first.family))),
        };
        let Some(id) = id else { break };
        if let Some(first) = last.filter(|_| through) {
            found.extend(between(&first, id.value(), known));
        }
        found.insert(id.clone());
        (last, through) = (Some(id), false);
    }
    found
}

/// All known ids from one up to a number.
fn between(first: &Id, last: u32, known: &BTreeSet<&Id>) -> BTreeSet<Id> {
    let within = first.value()..=last;
    let family = known.iter().filter(|id| id.family == first.family);
    let ids = family.filter(|id| within.contains(&id.value()));
    ids.map(|id| (*id).clone()).collect()
}

/// How many digits a text begins with.
fn digits(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Id> {
        let known = ["AB-1", "AB-2", "AB-5", "AB-11", "ABC-7", "ABC-8", "Z-01"];
        known.iter().map(|id| Id::parse(id).unwrap()).collect()
    }

    fn families() -> BTreeSet<&'static str> {
        BTreeSet::from(["AB", "ABC", "Z"])
    }

    fn check(text: &str, expected: &[&str]) {
        let found = ids(text, &families(), &known().iter().collect());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn ids_stand_alone() {
        check("AB-1, (AB-2)AB-5.", &["AB-1", "AB-2", "AB-5"]);
        check("XAB-1 rAB-1 UTF-8 Z-x AB- AB", &[]);
        check("An AB-9 that is not there", &["AB-9"]);
        check("AB-12, not AB-1", &["AB-1", "AB-12"]);
        check("Z-01 is not Z-1", &["Z-01", "Z-1"]);
    }

    #[test]
    fn several_in_one_word() {
        check("ABC-7/8", &["ABC-7", "ABC-8"]);
        check("AB-2..11 and AB-1", &["AB-1", "AB-11", "AB-2", "AB-5"]);
        check("AB-1 to AB-5", &["AB-1", "AB-2", "AB-5"]);
        check("AB-1 to 3", &["AB-1", "AB-2", "AB-3"]);
        check("AB-1 to the end, AB-2..", &["AB-1", "AB-2"]);
    }

    fn check_name(name: &str, expected: &[&str]) {
        let found = in_name(name, &families(), &known().iter().collect());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn names_of_functions_begin_with_some() {
        check_name("ab_2_an_empty_key", &["AB-2"]);
        check_name("ab_2", &["AB-2"]);
        check_name("abc_7_abc_8_gaps", &["ABC-7", "ABC-8"]);
        check_name("ab_1_to_5_forms", &["AB-1", "AB-2", "AB-5"]);
        check_name("ab_2_to_ab_5_abc_7_forms", &["AB-2", "AB-5", "ABC-7"]);
        check_name("ab_2_5_and_11_forms", &["AB-11", "AB-2", "AB-5"]);
        check_name("ab_2_to_whom", &["AB-2"]);
        check_name("ab_2_and_more", &["AB-2"]);
        check_name("ab_x_1", &[]);
        check_name("ab_6th", &[]);
        check_name("of_ab_2_keys", &[]);
        check_name("ab_2_keys_of_abc_7", &["AB-2"]);
    }
}
