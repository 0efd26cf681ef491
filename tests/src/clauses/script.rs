//! The tests in files of other languages, by the looks of their lines.

use crate::clauses::Test;

/// What looks like the beginning of a method in Java and is none.
const STATEMENTS: [&str; 8] = [
    "if",
    "for",
    "while",
    "switch",
    "try",
    "catch",
    "else",
    "synchronized",
];

/// A language that clients under test are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `func TestName(`
    Go,
    /// `void name(` below `@Test`
    Java,
    /// `def test_name(`
    Python,
    /// `test("name"` and `it("name"`
    JavaScript,
}

/// What begins at a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Beginning {
    Test(String),
    /// A function that is no test: what follows belongs to no test.
    Helper,
}

impl Language {
    /// The language of a file by its ending.
    pub fn of_ending(ending: &str) -> Option<Self> {
        Some(match ending {
            "go" => Self::Go,
            "java" => Self::Java,
            "py" => Self::Python,
            "js" | "mjs" | "cjs" | "ts" => Self::JavaScript,
            _ => return None,
        })
    }

    /// Whether a line belongs to the function that begins below it.
    fn is_above(self, line: &str) -> bool {
        let line = line.trim_start();
        match self {
            Self::Python => line.starts_with(['#', '@']),
            Self::Java => line.starts_with("//") || line.starts_with(['@', '*', '/']),
            Self::Go | Self::JavaScript => line.starts_with("//") || line.starts_with(['*', '/']),
        }
    }

    fn beginning(self, line: &str, above: &[&str]) -> Option<Beginning> {
        let trimmed = line.trim_start();
        let name = |text: &str| {
            let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
            text[..end.unwrap_or(text.len())].to_owned()
        };
        let quoted = |text: &str| {
            let quote = text.chars().next().filter(|c| "\"'`".contains(*c))?;
            text[1..].split(quote).next().map(str::to_owned)
        };
        let test_if = |is_test, name| {
            if is_test {
                Beginning::Test(name)
            } else {
                Beginning::Helper
            }
        };
        match self {
            Self::Go => {
                let function = line.strip_prefix("func ")?;
                Some(test_if(function.starts_with("Test"), name(function)))
            }
            Self::Python => {
                let function = trimmed.strip_prefix("async ").unwrap_or(trimmed);
                let function = function.strip_prefix("def ")?;
                let is_test = function.starts_with("test_");
                // A function inside of a test belongs to it.
                (is_test || line == trimmed).then(|| test_if(is_test, name(function)))
            }
            Self::Java => {
                let signature = trimmed.strip_suffix('{')?.split_once('(')?.0;
                let (kind, function) = signature.rsplit_once(' ')?;
                let is_call = kind.contains(['=', '.', '(', '"']) || kind == "new";
                let is_statement = signature.split(' ').any(|word| STATEMENTS.contains(&word));
                if is_call || is_statement {
                    return None;
                }
                let marked = above.iter().any(|line| {
                    let attribute = line.trim_start().strip_prefix('@');
                    attribute.is_some_and(|word| name(word).ends_with("Test"))
                });
                Some(test_if(marked, name(function)))
            }
            Self::JavaScript => {
                let call = ["test(", "it("]
                    .iter()
                    .find_map(|call| trimmed.strip_prefix(call));
                if let Some(name) = call.and_then(quoted) {
                    return Some(Beginning::Test(name));
                }
                let function = line.strip_prefix("async ").unwrap_or(line);
                function
                    .starts_with("function ")
                    .then_some(Beginning::Helper)
            }
        }
    }
}

/// The tests of a source, each up to where the next function begins.
pub fn tests(source: &str, language: Language) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    let mut inside = false;
    let mut above = Vec::new();
    for line in source.lines() {
        let beginning = language.beginning(line, &above);
        if beginning.is_none() && language.is_above(line) {
            above.push(line);
            continue;
        }
        match beginning {
            Some(Beginning::Test(name)) => {
                inside = true;
                let text = above.join("\n");
                tests.push(Test { name, text });
            }
            Some(Beginning::Helper) => inside = false,
            // Comments in the middle of a test.
            None if inside => push(&mut tests, &above),
            None => {}
        }
        above.clear();
        if inside {
            push(&mut tests, &[line]);
        }
    }
    if inside {
        push(&mut tests, &above);
    }
    tests
}

fn push(tests: &mut [Test], lines: &[&str]) {
    if let Some(test) = tests.last_mut() {
        for line in lines {
            test.text.push('\n');
            test.text.push_str(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, language: Language, expected: &[(&str, &[&str])]) {
        let found = tests(source, language);
        let found: Vec<_> = found
            .iter()
            .map(|test| {
                let words = test.text.split(|c: char| !c.is_alphanumeric());
                let marks: Vec<_> = words.filter(|word| word.starts_with('X')).collect();
                (test.name.as_str(), marks)
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, marks)| (*name, marks.to_vec()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn go() {
        let source = "
// X0

// X1
func TestOne(t *testing.T) {
\t// X2
\tx(\"X3\")
}

// X4
func helper() { X5 }
func TestTwo(t *testing.T) {
\t// X6
}
";
        let expected: [(&str, &[&str]); 2] =
            [("TestOne", &["X1", "X2", "X3"]), ("TestTwo", &["X6"])];
        check(source, Language::Go, &expected);
    }

    #[test]
    fn java() {
        let source = "
class A {
  /** X1 */
  @Test
  void one() throws Exception {
    // X2
    if (x) {
      X3
    }
  }
  // X4
  private static void helper(int x) {
  }
  @ParameterizedTest
  public void two() {
    X5
  }
}
";
        let expected: [(&str, &[&str]); 2] = [("one", &["X1", "X2", "X3"]), ("two", &["X5"])];
        check(source, Language::Java, &expected);
    }

    #[test]
    fn python() {
        let source = "
# X1
@mark
def test_one(x):
    # X2
    def inner():
        X3

def helper():
    X4

class A:
    async def test_two(self):
        \"\"\"X5\"\"\"
";
        let expected: [(&str, &[&str]); 2] =
            [("test_one", &["X1", "X2", "X3"]), ("test_two", &["X5"])];
        check(source, Language::Python, &expected);
    }

    #[test]
    fn javascript() {
        let source = "
// X1
test('one (of two)', async () => {
  // X2
});
async function helper() {
  X3
}
  it(\"two\", () => { X4 });
";
        let expected: [(&str, &[&str]); 2] = [("one (of two)", &["X1", "X2"]), ("two", &["X4"])];
        check(source, Language::JavaScript, &expected);
    }
}
