//! The clauses of the specifications in `docs/`, and where the repository cites them.
//!
//! A clause is a list item such as ``- **RG-6** (must, recorded) An empty key is invalid``. The first word in
//! the parentheses is its force: whether revstore must satisfy it; `FORCES` lists the values. `(not tested:
//! ...)` at the end states why no test can cite it. A citation is the id in any comment, string or name:
//! `RG-6`, `TXN-7/8`, `RG-11..13`, `RG-11 to RG-13`, or `rg_11_to_13` at the beginning of the name of a
//! function.
//!
//! A citation counts as a test if its line is test code:
//! - Rust: files in a directory `tests`, files named `tests.rs`, and all lines after `#[cfg(test)] mod` in
//!   other files. Module documentation (`//!`) and the library of this crate (`tests/src`) are not test code.
//! - `tests/clients`: all sources.
//! - `tests/scenarios`: the first line of each scenario, except in `NOT_REPLAYED`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use regex::Regex;
use walkdir::{DirEntry, WalkDir};

/// The specifications, relative to the root of the repository.
const SPECIFICATIONS: [&str; 2] = ["docs/etcd-behaviour.md", "docs/watch-cache.md"];

/// Directories that contain no sources of this project. Hidden directories are skipped too.
const SKIPPED_DIRECTORIES: [&str; 4] = ["target", "node_modules", "build", "__pycache__"];

/// Extensions of the files that are searched for citations.
const SEARCHED_EXTENSIONS: [&str; 7] = ["rs", "md", "proto", "go", "java", "py", "js"];

/// The directory with the recorded scenarios.
const SCENARIOS: &str = "tests/scenarios/";

/// The file of scenarios that are not replayed: the responses of etcd where those of revstore differ.
const NOT_REPLAYED: &str = "tests/scenarios/known_differences.txt";

/// The values of the force of a clause. The specifications define them.
const FORCES: [&str; 6] = ["must", "should", "may", "ours", "planned", "note"];

/// A clause of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Its id, such as `RG-6`.
    pub id: String,
    /// Whether revstore must satisfy it: one of `FORCES`.
    pub force: String,
    /// The rule, on one line.
    pub text: String,
}

/// All clauses in the order of the documents.
#[derive(Debug)]
pub struct Clauses {
    list: Vec<Clause>,
    /// Matches an id with a known prefix, with the numbers and the range that follow it.
    id: Regex,
}

/// A line of a file that contains the id of a clause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Citation {
    /// The path of the file and the line.
    pub place: String,
    /// Whether the line is test code.
    pub in_test: bool,
}

/// All citations of a repository by id, including those of unknown clauses.
pub type Citations = BTreeMap<String, Vec<Citation>>;

impl Clause {
    /// Returns whether a test must cite the clause.
    pub fn needs_test(&self) -> bool {
        matches!(self.force.as_str(), "must" | "should") && !self.is_exempt()
    }

    /// Returns whether the clause states a reason why no test cites it.
    pub fn is_exempt(&self) -> bool {
        self.text.contains("(not tested: ")
    }
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

impl Clauses {
    /// Reads the specifications of this repository.
    ///
    /// # Errors
    /// If a file cannot be read, or a clause is malformed or defined twice.
    pub fn load() -> io::Result<Self> {
        let mut text = String::new();
        for path in SPECIFICATIONS {
            text += &fs::read_to_string(root().join(path))?;
        }
        Self::parse(&text).map_err(io::Error::other)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let clause = r"^- \*\*([A-Z]+-\d+)\*\* \((\w+)[^)]*\) (.+)$";
        let clause = Regex::new(clause).expect("a valid pattern");
        let mut list: Vec<Clause> = Vec::new();
        // Indented lines continue a list item.
        let text = text.replace("\n  ", " ");
        for line in text.lines().filter(|line| line.starts_with("- **")) {
            let parts = clause.captures(line);
            let parts = parts.ok_or_else(|| format!("malformed clause: {line}"))?;
            let [id, force, text] = [1, 2, 3].map(|part| parts[part].to_owned());
            if !FORCES.contains(&force.as_str()) || list.iter().any(|other| other.id == id) {
                return Err(format!("unknown force, or a clause defined twice: {line}"));
            }
            list.push(Clause { id, force, text });
        }
        let prefixes: BTreeSet<_> = list.iter().map(|clause| prefix(&clause.id)).collect();
        let prefixes = prefixes.into_iter().collect::<Vec<_>>().join("|");
        let id = format!(
            r"(?:^|[^\w-])(?<prefix>{prefixes})-(?<number>\d+)(?<others>(?:/\d+)*)(?:(?:\.\.| to )(?:[A-Z]+-)?(?<last>\d+))?\b"
        );
        let id = Regex::new(&id).expect("a valid pattern");
        Ok(Self { list, id })
    }

    /// Returns the clauses in the order of the documents.
    pub fn all(&self) -> &[Clause] {
        &self.list
    }

    /// Returns the clause with an id.
    pub fn get(&self, id: &str) -> Option<&Clause> {
        self.list.iter().find(|clause| clause.id == id)
    }

    /// Returns the ids in a line. Only ids with known prefixes count. The inner numbers of a range count if
    /// the clause exists.
    fn ids(&self, line: &str) -> BTreeSet<String> {
        let line = format!("{} {line}", self.ids_of_function(line));
        let mut ids = BTreeSet::new();
        for found in self.id.captures_iter(&line) {
            let (prefix, first) = (&found["prefix"], &found["number"]);
            let others = found["others"].split('/').filter(|text| !text.is_empty());
            let last = found.name("last").map(|last| last.as_str());
            let named = others.chain([first]).chain(last);
            ids.extend(named.map(|number| format!("{prefix}-{number}")));
            let value = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
            for between in value(first)..last.map_or(0, value) {
                // The numbers of conformance tests have two digits.
                let id = [
                    format!("{prefix}-{between}"),
                    format!("{prefix}-{between:02}"),
                ];
                ids.extend(id.into_iter().filter(|id| self.get(id).is_some()));
            }
        }
        ids
    }

    /// Returns the ids at the beginning of the name of a function that a line declares, as text:
    /// `RG-1 to RG-5` for `fn rg_1_to_5_forms_of_keys()`.
    fn ids_of_function(&self, line: &str) -> String {
        let name = line.split_once("fn ").map_or("", |(_, name)| name);
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let (mut prefix, mut text, mut previous) = (String::new(), String::new(), "");
        for word in name.split(|c: char| !c.is_ascii_alphanumeric()) {
            let upper = word.to_uppercase();
            if matches!(word, "to" | "and") {
                let _ = write!(text, " {word}");
            } else if !prefix.is_empty() && is_number(word) {
                let id = format!("{prefix}-{word}");
                // `t_59_429_waits` is about T-59 and a status code.
                if is_number(previous) && self.get(&id).is_none() {
                    break;
                }
                let _ = write!(text, " {id}");
            } else if self
                .list
                .iter()
                .any(|clause| self::prefix(&clause.id) == upper)
            {
                prefix = upper;
            } else {
                break;
            }
            previous = word;
        }
        text
    }

    /// Returns all citations in the files below a directory.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn citations(&self, root: &Path) -> io::Result<Citations> {
        let mut citations = Citations::new();
        let files = WalkDir::new(root).sort_by_file_name().into_iter();
        for entry in files.filter_entry(is_searched) {
            let entry = entry?;
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            if entry.file_type().is_file() {
                let text = fs::read_to_string(entry.path())?;
                self.cite(&path.to_string_lossy(), &text, &mut citations);
            }
        }
        Ok(citations)
    }

    fn cite(&self, path: &str, text: &str, citations: &mut Citations) {
        let lines: Vec<_> = text.lines().collect();
        let tests = first_test_line(path, &lines);
        for (at, line) in lines.iter().enumerate() {
            let is_scenario = path.starts_with(SCENARIOS);
            let in_test = at >= tests
                && !line.trim_start().starts_with("//!")
                && (!is_scenario || line.starts_with("==="));
            for id in self.ids(line) {
                let place = format!("{path}:{}", at + 1);
                let citation = Citation { place, in_test };
                citations.entry(id).or_default().push(citation);
            }
        }
    }
}

fn prefix(id: &str) -> &str {
    id.split_once('-').map_or(id, |(prefix, _)| prefix)
}

fn is_searched(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    if entry.file_type().is_dir() {
        let is_hidden = entry.depth() > 0 && name.starts_with('.');
        return !is_hidden && !SKIPPED_DIRECTORIES.contains(&name.as_ref());
    }
    let path = entry.path();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    SEARCHED_EXTENSIONS.contains(&extension.as_ref())
        || extension == "txt" && path.to_string_lossy().contains(SCENARIOS)
}

/// Returns the index of the first line of a file that is test code, or the number of lines.
fn first_test_line(path: &str, lines: &[&str]) -> usize {
    let extension = Path::new(path).extension().unwrap_or_default();
    let mut names = path.split('/');
    let is_test = path.starts_with("tests/clients/") && extension != "md"
        || path.starts_with(SCENARIOS) && path != NOT_REPLAYED
        || extension == "rs"
            && !path.starts_with("tests/src/")
            && names.any(|name| name == "tests" || name == "tests.rs");
    if is_test {
        return 0;
    }
    let module = lines.windows(2).position(|pair| {
        pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod ")
    });
    module.unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Title
- **AB-1** (must, recorded) First (not
  tested: no reason).
- **AB-2** (should, source 3.6) Second.

  A paragraph.
- **AB-5** (ours, decided) Fifth.
- **T-01** (planned) A test.
";

    #[test]
    fn clauses_are_list_items_and_may_span_lines() {
        let clauses = Clauses::parse(TEXT).unwrap();
        let read = clauses
            .all()
            .iter()
            .map(|clause| format!("{} {}", clause.id, clause.force));
        let expected = ["AB-1 must", "AB-2 should", "AB-5 ours", "T-01 planned"];
        assert_eq!(read.collect::<Vec<_>>(), expected);
        assert!(clauses.get("AB-1").unwrap().is_exempt());
        assert_eq!(clauses.get("AB-2").unwrap().text, "Second.");
        assert!(clauses.get("AB-2").unwrap().needs_test());
        Clauses::parse("- **AB-1** must").unwrap_err();
        Clauses::parse("- **AB-1** (maybe) x").unwrap_err();
        Clauses::parse("- **AB-1** (may) x\n- **AB-1** (may) y").unwrap_err();
    }

    #[test]
    fn ids_are_found_in_text_and_in_names_of_functions() {
        let clauses = Clauses::parse(TEXT).unwrap();
        for (line, expected) in [
            ("AB-1, (AB-2)AB-5.", "AB-1 AB-2 AB-5"),
            ("XAB-1 rAB-1 UTF-8 AB- AB Z-AB-1", ""),
            ("An AB-9 that does not exist, AB-1", "AB-1 AB-9"),
            ("AB-1/2 and T-01", "AB-1 AB-2 T-01"),
            ("AB-1..5", "AB-1 AB-2 AB-5"),
            ("AB-1 to AB-5, AB-2 to the end", "AB-1 AB-2 AB-5"),
            ("    fn ab_1_to_5_forms() {", "AB-1 AB-2 AB-5"),
            ("async fn ab_1_and_t_01_gaps() {", "AB-1 T-01"),
            ("fn ab_2_to_everyone() {", "AB-2"),
            ("fn ab_1_2_and_5_forms() {", "AB-1 AB-2 AB-5"),
            ("fn ab_2_429_waits() {", "AB-2"),
            ("fn of_ab_2() {", ""),
        ] {
            let ids: Vec<_> = clauses.ids(line).into_iter().collect();
            assert_eq!(ids.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn only_test_code_counts_as_a_test() {
        let clauses = Clauses::parse(TEXT).unwrap();
        let check = |path: &str, text: &str, expected: &[bool]| {
            let mut citations = Citations::new();
            clauses.cite(path, text, &mut citations);
            let found = citations.remove("AB-1").unwrap_or_default();
            let found: Vec<_> = found.iter().map(|citation| citation.in_test).collect();
            assert_eq!(found, expected, "{path}");
        };
        let source = "//! AB-1\n// AB-1\n#[cfg(test)]\nmod tests {\n// AB-1";
        check("a/src/b.rs", source, &[false, false, true]);
        check("a/tests/b/c.rs", "//! AB-1\n// AB-1", &[false, true]);
        check("tests/src/a.rs", "// AB-1", &[false]);
        check("tests/clients/go/a_test.go", "// AB-1", &[true]);
        check(
            "tests/scenarios/a.txt",
            "# AB-1\n=== a (AB-1)",
            &[false, true],
        );
        check(NOT_REPLAYED, "=== a (AB-1)", &[false]);
        check("docs/a.md", "AB-1", &[false]);
    }
}
