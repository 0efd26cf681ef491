//! Which tests cite which clause.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::clauses::citation::{Id, ids, in_name};
use crate::clauses::list::{Clause, Level, List};
use crate::clauses::sources::Source;

/// More tests than these in a file are counted and not named.
const NAMED_MAX: usize = 4;

/// The clauses and who cites them.
#[derive(Clone, Debug)]
pub struct Coverage<'a> {
    list: &'a List,
    /// For each clause the files, and the tests in those.
    tests: BTreeMap<Id, BTreeMap<&'a str, BTreeSet<&'a str>>>,
    /// Ids that are not in the list, and the file that names them.
    unknown: BTreeSet<(Id, &'a str)>,
}

impl<'a> Coverage<'a> {
    /// Looks through sources for the clauses of a list.
    pub fn of(list: &'a List, sources: &'a [Source]) -> Self {
        let (families, known) = (list.families(), list.ids());
        let mut coverage = Self {
            list,
            tests: BTreeMap::new(),
            unknown: BTreeSet::new(),
        };
        for source in sources {
            let named = ids(&source.text, &families, &known);
            let unknown = named.into_iter().filter(|id| !known.contains(id));
            coverage
                .unknown
                .extend(unknown.map(|id| (id, source.path.as_str())));
            for test in &source.tests {
                let mut cited = ids(&test.text, &families, &known);
                cited.extend(in_name(&test.name, &families, &known));
                for id in cited {
                    let files = coverage.tests.entry(id).or_default();
                    let tests = files.entry(source.path.as_str()).or_default();
                    tests.insert(&test.name);
                }
            }
        }
        coverage
    }

    /// The clauses that need a test and have none.
    pub fn gaps(&self) -> Vec<&'a Clause> {
        let needed = self
            .list
            .sections
            .iter()
            .filter(|section| section.is_needed());
        let clauses = needed.flat_map(|section| &section.clauses);
        clauses
            .filter(|clause| matches!(clause.level, Level::Must | Level::Should))
            .filter(|clause| !self.tests.contains_key(&clause.id))
            .collect()
    }

    /// What is named as a clause and is none, with the file that does.
    pub fn unknown(&self) -> &BTreeSet<(Id, &'a str)> {
        &self.unknown
    }

    fn tests_of(&self, clause: &Clause) -> String {
        let Some(files) = self.tests.get(&clause.id) else {
            return "–".to_owned();
        };
        let files = files.iter().map(|(path, tests)| {
            if tests.len() > NAMED_MAX {
                return format!("{path}: {} tests", tests.len());
            }
            let tests: Vec<_> = tests.iter().map(|test| format!("`{test}`")).collect();
            format!("{path}: {}", tests.join(", "))
        });
        files.collect::<Vec<_>>().join("; ")
    }
}

/// As Markdown: a table for each section, and how many clauses have a test.
impl fmt::Display for Coverage<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "# Clauses and the tests that cite them")?;
        for section in &self.list.sections {
            let cited = |clause: &&Clause| self.tests.contains_key(&clause.id);
            writeln!(formatter, "\n## {}\n", section.title)?;
            writeln!(
                formatter,
                "{} of {} are cited by a test.\n",
                section.clauses.iter().filter(cited).count(),
                section.clauses.len(),
            )?;
            writeln!(formatter, "| Clause | | | Tests |\n|---|---|---|---|")?;
            for clause in &section.clauses {
                let Clause { id, level, about } = clause;
                let tests = self.tests_of(clause);
                writeln!(formatter, "| {id} | {level} | {about} | {tests} |")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clauses::Test;

    const LIST: &str = "## A. First\nX-1 M a\nX-2 H b\nX-3 D c\n## L. Last\nX-4 M d\n";

    fn source(path: &str, text: &str, tests: &[(&str, &str)]) -> Source {
        let named = |(name, says): &(&str, &str)| Test {
            name: (*name).to_owned(),
            text: (*says).to_owned(),
        };
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
            tests: tests.iter().map(named).collect(),
        }
    }

    #[test]
    fn only_tests_fill_gaps() {
        let list: List = LIST.parse().unwrap();
        let sources = [
            source("a.rs", "X-1 X-2 X-9", &[("one", "X-1")]),
            source("b.rs", "", &[("x_3_two", "")]),
        ];
        let coverage = Coverage::of(&list, &sources);
        let gaps: Vec<_> = coverage
            .gaps()
            .iter()
            .map(|gap| gap.id.to_string())
            .collect();
        assert_eq!(gaps, ["X-2"]);
        let unknown: Vec<_> = coverage.unknown().iter().collect();
        assert_eq!(unknown, [&(Id::parse("X-9").unwrap(), "a.rs")]);
        let table = coverage.to_string();
        assert!(
            table.contains("| X-1 | must | a | a.rs: `one` |"),
            "{table}"
        );
        assert!(table.contains("| X-2 | should | b | – |"), "{table}");
        assert!(
            table.contains("| X-3 | differ | c | b.rs: `x_3_two` |"),
            "{table}"
        );
        assert!(table.contains("2 of 3 are cited"), "{table}");
    }
}
