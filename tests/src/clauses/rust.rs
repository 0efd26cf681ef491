//! The tests in a file of Rust.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::clauses::Test;

/// Macros that make a test of each function that they name.
const CASE_MACROS: [&str; 1] = ["on_every_server"];

/// The tests of a source, with the comments above and inside of them: functions under an attribute
/// that ends in `test`, and those that [`on_every_server!`](crate::on_every_server) names.
///
/// # Errors
/// When it is not Rust.
pub fn tests(source: &str) -> Result<Vec<Test>, String> {
    let tokens: TokenStream = source.parse().map_err(|error| format!("{error}"))?;
    let mut cases = BTreeSet::new();
    find_cases(tokens.clone(), &mut cases);
    let lines: Vec<_> = source.lines().collect();
    let mut tests = Vec::new();
    find_tests(tokens, &cases, &lines, &mut tests);
    Ok(tests)
}

/// The names in the calls of [`CASE_MACROS`], which are more than those of functions.
fn find_cases(tokens: TokenStream, cases: &mut BTreeSet<String>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    for window in tokens.windows(3) {
        if let [
            TokenTree::Ident(name),
            TokenTree::Punct(mark),
            TokenTree::Group(group),
        ] = window
            && mark.as_char() == '!'
            && CASE_MACROS.iter().any(|case_macro| name == case_macro)
        {
            let names = group.stream().into_iter().filter_map(|token| match token {
                TokenTree::Ident(name) => Some(name.to_string()),
                _ => None,
            });
            cases.extend(names);
        }
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            find_cases(group.stream(), cases);
        }
    }
}

fn find_tests(
    tokens: TokenStream,
    cases: &BTreeSet<String>,
    lines: &[&str],
    tests: &mut Vec<Test>,
) {
    let mut tokens = tokens.into_iter().peekable();
    // Of the item that begins here: its first line, and whether an attribute makes it a test.
    let (mut first, mut marked) = (None, false);
    // The name behind `fn`, until the body comes.
    let mut function = None;
    while let Some(token) = tokens.next() {
        let line = token.span().start().line;
        let begins = *first.get_or_insert(line);
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                match tokens.peek() {
                    Some(TokenTree::Group(attribute)) => marked |= makes_a_test(attribute),
                    // An attribute of what is around: the next item begins behind it.
                    Some(TokenTree::Punct(mark)) if mark.as_char() == '!' => {
                        tokens.nth(1);
                        first = None;
                    }
                    _ => {}
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => {
                (first, marked, function) = (None, false, None);
            }
            TokenTree::Ident(word) if word == "fn" => {
                if let Some(TokenTree::Ident(name)) = tokens.peek() {
                    function = Some(name.to_string());
                }
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let name = function.take();
                if let Some(name) = name.filter(|name| marked || cases.contains(name)) {
                    let last = group.span_close().end().line;
                    let above = comments_above(lines, begins);
                    let text = lines[above - 1..last].join("\n");
                    tests.push(Test { name, text });
                } else {
                    find_tests(group.stream(), cases, lines, tests);
                }
                (first, marked) = (None, false);
            }
            // Tests may stand inside any macro, as in `proptest!(...)`.
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                find_tests(group.stream(), cases, lines, tests);
            }
            _ => {}
        }
    }
}

/// Whether it is `#[test]`, `#[tokio::test(...)]` or the like.
fn makes_a_test(attribute: &Group) -> bool {
    let path = attribute
        .stream()
        .into_iter()
        .map_while(|token| match token {
            TokenTree::Ident(word) => Some(Some(word.to_string())),
            TokenTree::Punct(mark) if mark.as_char() == ':' => Some(None),
            _ => None,
        });
    path.flatten().last().is_some_and(|last| last == "test")
}

/// The first of the lines with comments right above a line; those are no tokens.
fn comments_above(lines: &[&str], line: usize) -> usize {
    let above = lines[..line - 1].iter().rev();
    let comments = above.take_while(|line| {
        let line = line.trim_start();
        line.starts_with("//") && !line.starts_with("//!")
    });
    line - comments.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[(&str, &[&str])]) {
        let found = tests(source).unwrap();
        let names: Vec<_> = found.iter().map(|test| test.name.as_str()).collect();
        let expected_names: Vec<_> = expected.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, expected_names);
        let families = BTreeSet::from(["X"]);
        for (test, (name, ids)) in found.iter().zip(expected) {
            let found = crate::clauses::citation::ids(&test.text, &families, &BTreeSet::new());
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, *ids, "{name}");
        }
    }

    #[test]
    fn a_test_has_its_comments_and_its_body() {
        let source = r#"
//! X-1.
// X-2
/// X-3
#[test]
fn a() {
    // X-4
    let b = "X-5"; if b { c() }
} // X-6
/// X-7
fn c() {}
#[tokio::test(flavor = "x")]
async fn d() -> Result<(), X> { "X-8" }
"#;
        check(
            source,
            &[("a", &["X-2", "X-3", "X-4", "X-5", "X-6"]), ("d", &["X-8"])],
        );
    }

    #[test]
    fn tests_stand_in_modules_and_macros() {
        let source = r#"
#[cfg(test)]
mod tests {
    struct S { a: [u8; 2] } // X-1
    const C: u8 = { 1 };
    proptest! {
        /// X-2
        #[test]
        fn a(x in 0..1) { x }
    }
    proptest!(#[test] fn b(x in 0..1) { "X-3" });
    #[should_panic]
    #[test]
    fn c() { "X-4" }
}
"#;
        check(source, &[("a", &["X-2"]), ("b", &["X-3"]), ("c", &["X-4"])]);
    }

    #[test]
    fn cases_are_tests_by_name() {
        let source = r#"
on_every_server! { needs: [Etcdctl]; a, b }
/// X-1
fn a(servers: &Servers) {}
/// X-2
fn helper() {}
fn b(servers: &Servers) { "X-3" }
"#;
        check(source, &[("a", &["X-1"]), ("b", &["X-3"])]);
    }
}
