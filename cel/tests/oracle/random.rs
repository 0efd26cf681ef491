//! Random expressions, most of which have types that fit.

use fastrand::Rng;

/// The types that are generated.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Int,
    Bool,
    String,
    Ints,
    Strings,
    Map,
    Time,
    Span,
}

/// Returns expressions from a seed.
pub(crate) fn expressions(seed: u64, count: usize) -> Vec<String> {
    let mut rng = Rng::with_seed(seed);
    let kinds = [
        Kind::Int,
        Kind::Bool,
        Kind::Bool,
        Kind::String,
        Kind::Ints,
        Kind::Strings,
        Kind::Map,
        Kind::Time,
        Kind::Span,
    ];
    (0..count)
        .map(|_| {
            let kind = kinds[rng.usize(..kinds.len())];
            make(&mut rng, kind, 4, &mut Vec::new())
        })
        .collect()
}

/// Makes an expression. `@` letters in a template are parts: `i`, `b`, `s`, `I`, `S`, `m`, `t`, `d`.
#[expect(clippy::too_many_lines, reason = "one table")]
fn make(rng: &mut Rng, kind: Kind, depth: usize, scope: &mut Vec<(String, Kind)>) -> String {
    let local = scope
        .iter()
        .filter(|(_, of)| *of == kind)
        .map(|(name, _)| name.clone());
    let local: Vec<_> = local.collect();
    if !local.is_empty() && rng.u8(..4) == 0 {
        return local[rng.usize(..local.len())].clone();
    }
    let (leaves, nodes): (&[&str], &[&str]) = match kind {
        Kind::Int => (
            &[
                "0",
                "1",
                "-3",
                "7",
                "self.count",
                "self.numbers[0]",
                "self.inner.deep.value",
                "self.pairs[1].value",
            ],
            &[
                "@i + @i",
                "@i - @i",
                "@i * @i",
                "@i / @i",
                "@i % @i",
                "size(@s)",
                "@I.size()",
                "(@b ? @i : @i)",
                "@I[@i]",
                "@I.sum()",
                "@I.max()",
                "@s.indexOf(@s)",
                "int(string(@i))",
                "-(@i)",
                "@I[?@i].orValue(@i)",
                "@t.getHours()",
                "@d.getMinutes()",
                "@m.size()",
                "@S.size()",
                "@I.indexOf(@i)",
                "dyn(@i)",
            ],
        ),
        Kind::Bool => (
            &[
                "true",
                "false",
                "self.on",
                "has(self.absent)",
                "has(self.inner.deep)",
            ],
            &[
                "@b && @b",
                "@b || @b",
                "!(@b)",
                "@i < @i",
                "@i == @i",
                "@s == @s",
                "@s < @s",
                "@s.contains(@s)",
                "@s.startsWith(@s)",
                "@i in @I",
                "@s in @S",
                "@s in @m",
                "@I == @I",
                "@I.all(%i, @b)",
                "@I.exists(%i, @b)",
                "@I.exists_one(%i, @b)",
                "@S.all(%s, @b)",
                "@m.all(%s, @b)",
                "@S.exists(%s, @b)",
                "(@b ? @b : @b)",
                "@t < @t",
                "@d >= @d",
                "@I.isSorted()",
                "sets.contains(@I, @I)",
                "sets.intersects(@S, @S)",
                "@m == @m",
                "@s.matches('^[a-c]+$')",
                "@s.matches(@s)",
                "@I.all(%i, %i, @b)",
                "@S.exists(%i, %s, @b)",
                "isQuantity(@s)",
                "@i == 1 / @i",
                "@S[@i] == @s",
                "optional.of(@i).hasValue()",
            ],
        ),
        Kind::String => (
            &[
                "''",
                "'a'",
                "'abc'",
                "'B c'",
                "self.name",
                "self.text",
                "self.kind",
                "self.names[0]",
                "self.labels.app",
            ],
            &[
                "@s + @s",
                "@S[@i]",
                "(@b ? @s : @s)",
                "string(@i)",
                "@S.join(@s)",
                "@s.upperAscii()",
                "@s.replace(@s, @s)",
                "@s.substring(@i)",
                "@m[@s]",
                "@s.trim()",
                "string(@b)",
                "@m.?x.orValue(@s)",
                "'%s-%d'.format([@s, @i])",
                "string(@d)",
                "@s.find('[a-z]+')",
                "@S.max()",
                "@s.charAt(@i)",
                "strings.quote(@s)",
            ],
        ),
        Kind::Ints => (
            &["[]", "[1]", "[1, 2, 3]", "self.numbers", "[self.count]"],
            &[
                "@I + @I",
                "[@i, @i]",
                "@I.map(%i, @i)",
                "@I.filter(%i, @b)",
                "@I.map(%i, @b, @i)",
                "@S.map(%s, @i)",
                "(@b ? @I : @I)",
                "@I.sort()",
                "@I.reverse()",
                "@I.distinct()",
                "@I.slice(0, @i)",
                "lists.range(@i % 5)",
                "[@I, @I].flatten()",
                "@I.transformList(%i, %i, @i)",
                // Go visits the keys of a map in any order.
                "@m.transformList(%s, %s, @i).sort()",
                "@I.sortBy(%i, @i)",
                "[?optional.of(@i), @i]",
            ],
        ),
        Kind::Strings => (
            &["['a']", "['a', 'b']", "self.names", "self.all", "self.set"],
            &[
                "@S + @S",
                "[@s]",
                "@S.map(%s, @s)",
                "@S.filter(%s, @b)",
                "@s.split(@s)",
                "@I.map(%i, @s)",
                "@m.map(%s, @s).sort()",
                "@S.sort()",
                "@S.distinct()",
                "@s.findAll('[a-z]')",
                "(@b ? @S : @S)",
                "@m.transformList(%s, %s, @s).sort()",
            ],
        ),
        Kind::Map => (
            &["{'a': 'b'}", "self.labels", "{'x': self.name}"],
            &[
                "{@s: @s}",
                "(@b ? @m : @m)",
                "@m.transformMap(%s, %s, @s)",
                "{'k': @s, 'x': @s}",
                "@m.transformMap(%s, %s, @b, @s)",
            ],
        ),
        Kind::Time => (
            &["self.when", "self.day", "timestamp('2020-01-01T00:00:00Z')"],
            &["@t + @d", "@t - @d", "timestamp(@i)", "(@b ? @t : @t)"],
        ),
        Kind::Span => (
            &["self.wait", "duration('1m')", "duration('0s')"],
            &[
                "@d + @d",
                "@d - @d",
                "@t - @t",
                "(@b ? @d : @d)",
                "[@d, @d].max()",
            ],
        ),
    };
    if depth == 0 || rng.u8(..5) == 0 {
        return leaves[rng.usize(..leaves.len())].to_owned();
    }
    let template = nodes[rng.usize(..nodes.len())];
    fill(rng, template, depth - 1, scope)
}

fn fill(rng: &mut Rng, template: &str, depth: usize, scope: &mut Vec<(String, Kind)>) -> String {
    let before = scope.len();
    let mut out = String::new();
    let mut letters = template.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' && !template.contains('\'') {
            let kind = if letters.next() == Some('i') {
                Kind::Int
            } else {
                Kind::String
            };
            let name = format!("v{}", scope.len());
            out.push_str(&name);
            scope.push((name, kind));
        } else if letter == '@' {
            let kind = match letters.next() {
                Some('i') => Kind::Int,
                Some('b') => Kind::Bool,
                Some('s') => Kind::String,
                Some('I') => Kind::Ints,
                Some('S') => Kind::Strings,
                Some('m') => Kind::Map,
                Some('t') => Kind::Time,
                _ => Kind::Span,
            };
            let part = make(rng, kind, depth, scope);
            let is_operand = part.contains(' ') && !part.ends_with(')') || part.starts_with('-');
            let (open, close) = if is_operand { ("(", ")") } else { ("", "") };
            out.extend([open, &part, close]);
        } else {
            out.push(letter);
        }
    }
    scope.truncate(before);
    out
}
