//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;

use super::go_quote;

/// A semantic version.
#[derive(Clone, Debug)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    before: Vec<Part>,
    build: Vec<String>,
}

/// A part of the name of a version before a release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    // Numbers are before texts.
    Number(u64),
    Text(String),
}

impl Semver {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<_> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, before) = match rest.split_once('-') {
            Some((patch, before)) => (patch, Some(before)),
            None => (rest, None),
        };
        let mut numbers = [0; 3];
        for (number, (name, digits)) in
            numbers
                .iter_mut()
                .zip([("major", major), ("minor", minor), ("patch", patch)])
        {
            *number = numeric(name, digits)?;
        }
        let mut version = Self {
            numbers,
            before: Vec::new(),
            build: Vec::new(),
        };
        for part in before.into_iter().flat_map(|text| text.split('.')) {
            version.before.push(pre_release(part)?);
        }
        for part in build.into_iter().flat_map(|text| text.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !part.chars().all(is_letter) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {}",
                    go_quote(part, false)
                ));
            }
            version.build.push(part.to_owned());
        }
        Ok(version)
    }

    /// Reads a version that may begin with `v`, be short, or have leading zeros.
    pub(crate) fn parse_loose(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            if part.len() > 1 {
                let trimmed = part.trim_start_matches('0');
                *part = if trimmed.starts_with(|letter: char| letter.is_ascii_digit()) {
                    trimmed.to_owned()
                } else {
                    format!("0{trimmed}")
                };
            }
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.before.cmp(&other.before),
        })
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-'
}

fn numeric(name: &str, digits: &str) -> Result<u64, String> {
    let title = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!(
            "Invalid character(s) found in {name} number {}",
            go_quote(digits, false)
        ));
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(format!(
            "{title} number must not contain leading zeroes {}",
            go_quote(digits, false)
        ));
    }
    digits.parse().map_err(|_| {
        let reason = if digits.is_empty() {
            "invalid syntax"
        } else {
            "value out of range"
        };
        format!(
            "strconv.ParseUint: parsing {}: {reason}",
            go_quote(digits, false)
        )
    })
}

fn pre_release(part: &str) -> Result<Part, String> {
    if part.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if part.bytes().all(|digit| digit.is_ascii_digit()) {
        if part.len() > 1 && part.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                go_quote(part, false)
            ));
        }
        return part.parse().map(Part::Number).map_err(|_| {
            format!(
                "strconv.ParseUint: parsing {}: value out of range",
                go_quote(part, false)
            )
        });
    }
    if part.chars().all(is_letter) {
        return Ok(Part::Text(part.to_owned()));
    }
    Err(format!(
        "Invalid character(s) found in prerelease {}",
        go_quote(part, false)
    ))
}

impl fmt::Display for Semver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(out, "{major}.{minor}.{patch}")?;
        for (index, part) in self.before.iter().enumerate() {
            out.write_str(if index == 0 { "-" } else { "." })?;
            match part {
                Part::Number(number) => write!(out, "{number}")?,
                Part::Text(text) => out.write_str(text)?,
            }
        }
        for (index, part) in self.build.iter().enumerate() {
            write!(out, "{}{part}", if index == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}
