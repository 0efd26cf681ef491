//! The grammar, by recursive descent.

use super::ast::{Entry, Expr, Kind, Node};
use super::balance::balance;
use super::error::{Issues, Position};
use super::lexer::{Token, TokenKind, tokens};
use super::literal;
use crate::values::Value;

/// The maximum number of characters of an expression.
pub const SOURCE_CHARS_MAX: usize = 100_000;
/// The maximum depth of each rule of the grammar.
pub const DEPTH_MAX: usize = 250;

/// An expression that was read.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Expr,
    /// The number of characters before each expression, by its number.
    pub(crate) offsets: Vec<u32>,
    /// The number of characters before each line.
    lines: Vec<u32>,
}

impl Parsed {
    pub(crate) fn position(&self, id: Node) -> Option<Position> {
        let offset = *self.offsets.get(id as usize)?;
        Some(position(&self.lines, offset))
    }
}

fn position(lines: &[u32], offset: u32) -> Position {
    let line = lines.partition_point(|start| *start <= offset);
    Position {
        line,
        column: (offset - lines[line - 1]) as usize,
    }
}

/// Reads an expression.
pub(crate) fn parse(source: &str, issues: &mut Issues) -> Option<Parsed> {
    let count = source.chars().count();
    if count > SOURCE_CHARS_MAX {
        let message = format!(
            "expression code point size exceeds limit: size: {count}, limit {SOURCE_CHARS_MAX}"
        );
        issues.report(None, message);
        return None;
    }
    let mut lines = vec![0];
    for (offset, letter) in (1..).zip(source.chars()) {
        if letter == '\n' {
            lines.push(offset);
        }
    }
    let (tokens, errors) = tokens(source);
    for (offset, message) in errors {
        let message = format!("Syntax error: {message}");
        issues.report(Some(position(&lines, offset)), message);
    }
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        offsets: vec![0],
        depth: [0; 4],
        failed: Vec::new(),
    };
    let root = parser.whole();
    for (offset, message) in std::mem::take(&mut parser.failed) {
        issues.report(offset.map(|offset| position(&lines, offset)), message);
    }
    let parsed = Parsed {
        root: root.ok()?,
        offsets: parser.offsets,
        lines,
    };
    issues.is_empty().then_some(parsed)
}

/// The reader stopped, and has reported why.
pub(super) struct Stop;

pub(super) struct Parser<'a> {
    tokens: &'a [Token<'a>],
    next: usize,
    pub(super) offsets: Vec<u32>,
    depth: [usize; 4],
    failed: Vec<(Option<u32>, String)>,
}

/// The rules of the grammar that contain themselves.
#[derive(Clone, Copy)]
enum Rule {
    Expr,
    Relation,
    Calc,
    Member,
}

/// The words that no variable or function has as its name.
const RESERVED: [&str; 20] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
];

/// What an operand can begin with.
const OPERAND: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

type Result<T = Expr> = std::result::Result<T, Stop>;

impl<'a> Parser<'a> {
    fn token(&self) -> Token<'a> {
        self.tokens[self.next]
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.token();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&self, text: &str) -> bool {
        let token = self.token();
        token.text == text && matches!(token.kind, TokenKind::Symbol | TokenKind::Word)
    }

    fn take(&mut self, text: &str) -> Option<Token<'a>> {
        self.is(text).then(|| self.advance())
    }

    pub(super) fn node(&mut self, offset: u32) -> Node {
        self.offsets.push(offset);
        Node::try_from(self.offsets.len() - 1).unwrap_or(Node::MAX)
    }

    pub(super) fn report(&mut self, offset: u32, message: String) {
        self.failed.push((Some(offset), message));
    }

    fn enter(&mut self, rule: Rule, count: usize) -> Result<()> {
        self.depth[rule as usize] += count;
        if self.depth[rule as usize] > DEPTH_MAX {
            let message = format!("expression recursion limit exceeded: {DEPTH_MAX}");
            self.failed.push((None, message));
            return Err(Stop);
        }
        Ok(())
    }

    fn unexpected(&mut self, expected: &str) -> Stop {
        let token = self.token();
        let after = self.tokens.get(self.next + 1).copied().unwrap_or(token);
        let is_extra = token.kind != TokenKind::End
            && match expected {
                OPERAND => starts_operand(after),
                "<EOF>" => after.kind == TokenKind::End,
                _ => expected.contains(&format!("'{}'", after.text)) && !after.text.is_empty(),
            };
        let text = if token.kind == TokenKind::End {
            "<EOF>"
        } else {
            token.text
        };
        let verb = if is_extra { "extraneous" } else { "mismatched" };
        self.report(
            token.offset,
            format!("Syntax error: {verb} input '{text}' expecting {expected}"),
        );
        Stop
    }

    fn expect(&mut self, text: &str) -> Result<Token<'a>> {
        match self.take(text) {
            Some(token) => Ok(token),
            None => Err(self.unexpected(&format!("'{text}'"))),
        }
    }

    fn whole(&mut self) -> Result {
        let expr = self.expr()?;
        if self.token().kind != TokenKind::End {
            return Err(self.unexpected("<EOF>"));
        }
        Ok(expr)
    }

    fn expr(&mut self) -> Result {
        self.enter(Rule::Expr, 1)?;
        let mut expr = self.binary(1)?;
        if let Some(mark) = self.take("?") {
            let id = self.node(mark.offset);
            let then = self.binary(1)?;
            self.expect(":")?;
            let otherwise = self.expr()?;
            expr = call(id, "_?_:_", vec![expr, then, otherwise]);
        }
        self.depth[Rule::Expr as usize] -= 1;
        Ok(expr)
    }

    /// Returns how strongly the operator that follows binds, if there is one.
    fn level(&self) -> Option<u8> {
        let token = self.token();
        if !matches!(token.kind, TokenKind::Symbol | TokenKind::Word) {
            return None;
        }
        Some(match token.text {
            "||" => 1,
            "&&" => 2,
            "<" | "<=" | ">=" | ">" | "==" | "!=" | "in" => 3,
            "+" | "-" => 4,
            "*" | "/" | "%" => 5,
            _ => return None,
        })
    }

    /// Reads operators that bind at least as strongly as a level. One function for all levels needs the least stack.
    fn binary(&mut self, level_min: u8) -> Result {
        let mut left = self.unary()?;
        let mut entered = [0; 2];
        while let Some(level) = self.level().filter(|level| *level >= level_min) {
            if level <= 2 {
                left = self.chain(left, level)?;
                continue;
            }
            let rule = if level == 3 {
                Rule::Relation
            } else {
                Rule::Calc
            };
            self.enter(rule, 1)?;
            entered[usize::from(level > 3)] += 1;
            let operator = self.advance();
            let id = self.node(operator.offset);
            let right = self.binary(level + 1)?;
            left = operation(id, operator.text, left, right);
        }
        self.depth[Rule::Relation as usize] -= entered[0];
        self.depth[Rule::Calc as usize] -= entered[1];
        Ok(left)
    }

    /// Reads a chain of `||`, or of `&&`.
    fn chain(&mut self, first: Expr, level: u8) -> Result {
        let (symbol, function) = if level == 1 {
            ("||", "_||_")
        } else {
            ("&&", "_&&_")
        };
        let mut terms = vec![first];
        let mut operators = Vec::new();
        while let Some(token) = self.take(symbol) {
            let id = self.node(token.offset);
            operators.push(id);
            terms.push(self.binary(level + 1)?);
        }
        Ok(balance(function, terms, &operators))
    }

    fn unary(&mut self) -> Result {
        let sign = self.token();
        if !self.is("!") && !self.is("-") {
            return self.member();
        }
        let mut count = 0;
        while self.is(sign.text) {
            // The sign of a number is part of it.
            let after = self.tokens[self.next + 1];
            let is_number = matches!(after.kind, TokenKind::Int | TokenKind::Float);
            if sign.text == "-" && is_number {
                break;
            }
            self.advance();
            count += 1;
        }
        if count % 2 == 0 {
            return self.member();
        }
        let id = self.node(sign.offset);
        let operand = self.member()?;
        let function = if sign.text == "!" { "!_" } else { "-_" };
        Ok(call(id, function, vec![operand]))
    }

    fn member(&mut self) -> Result {
        self.enter(Rule::Member, 1)?;
        let mut entered = 1;
        let mut expr = self.primary()?;
        loop {
            let token = self.token();
            if self.is(".") {
                self.enter(Rule::Member, 1)?;
                self.advance();
                expr = self.selection(expr, token)?;
            } else if self.is("[") {
                self.enter(Rule::Member, 1)?;
                self.advance();
                let is_optional = self.take("?").is_some();
                let id = self.node(token.offset);
                let index = self.expr()?;
                self.expect("]")?;
                let function = if is_optional { "_[?_]" } else { "_[_]" };
                expr = call(id, function, vec![expr, index]);
            } else {
                break;
            }
            entered += 1;
        }
        self.depth[Rule::Member as usize] -= entered;
        Ok(expr)
    }

    /// Reads what follows a dot.
    fn selection(&mut self, operand: Expr, dot: Token<'a>) -> Result {
        let is_optional = self.take("?").is_some();
        let name = self.token();
        let field = match name.kind {
            TokenKind::Ident => name.text,
            TokenKind::Escaped => {
                self.report(name.offset, "unsupported syntax: '`'".to_owned());
                name.text.trim_matches('`')
            }
            TokenKind::Word => {
                self.report(
                    name.offset,
                    format!(
                        "Syntax error: mismatched input '{}' expecting IDENTIFIER",
                        name.text
                    ),
                );
                return Err(Stop);
            }
            _ => return Err(self.unexpected("{'?', IDENTIFIER, ESC_IDENTIFIER}")),
        };
        self.advance();
        if !is_optional && name.kind == TokenKind::Ident && self.is("(") {
            let open = self.advance();
            let id = self.node(open.offset);
            let args = self.exprs(")")?;
            return self.call(id, field, Some(operand), args);
        }
        if is_optional {
            let id = self.node(dot.offset);
            let literal = self.literal(name.offset, Value::from(field));
            return Ok(call(id, "_?._", vec![operand, literal]));
        }
        let id = self.node(dot.offset);
        Ok(Expr::new(
            id,
            Kind::Select {
                operand: Box::new(operand),
                field: field.to_owned(),
                is_test: false,
            },
        ))
    }

    /// Makes a call, or expands a macro.
    fn call(&mut self, id: Node, name: &str, target: Option<Expr>, args: Vec<Expr>) -> Result {
        self.expand(id, name, target, args)
            .or_else(|(target, args)| {
                Ok(Expr::new(
                    id,
                    Kind::Call {
                        target: target.map(Box::new),
                        function: name.to_owned(),
                        args,
                    },
                ))
            })
    }

    /// Reads expressions up to a closing bracket.
    fn exprs(&mut self, end: &str) -> Result<Vec<Expr>> {
        let mut list = Vec::new();
        if self.take(end).is_some() {
            return Ok(list);
        }
        loop {
            list.push(self.expr()?);
            if self.take(end).is_some() {
                return Ok(list);
            }
            if self.take(",").is_none() {
                return Err(self.unexpected(&format!("{{'{end}', ','}}")));
            }
        }
    }

    pub(super) fn literal(&mut self, offset: u32, value: Value) -> Expr {
        let id = self.node(offset);
        Expr::new(id, Kind::Literal(value))
    }

    fn primary(&mut self) -> Result {
        let token = self.token();
        match token.kind {
            TokenKind::Ident => self.ident(None),
            TokenKind::Symbol => match token.text {
                "." => {
                    self.advance();
                    if self.token().kind != TokenKind::Ident {
                        return Err(self.unexpected("IDENTIFIER"));
                    }
                    self.ident(Some(token))
                }
                "(" => {
                    self.advance();
                    let inner = self.expr()?;
                    self.expect(")")?;
                    Ok(inner)
                }
                "[" => self.list(),
                "{" => self.map(),
                "-" => {
                    self.advance();
                    Ok(self.constant(true))
                }
                _ => Err(self.unexpected(OPERAND)),
            },
            TokenKind::Word if token.text == "in" => Err(self.unexpected(OPERAND)),
            TokenKind::Escaped | TokenKind::End => Err(self.unexpected(OPERAND)),
            _ => Ok(self.constant(false)),
        }
    }

    fn constant(&mut self, is_negative: bool) -> Expr {
        let token = self.advance();
        let text = token.text;
        let start = token.offset - u32::from(is_negative);
        let value = match token.kind {
            TokenKind::Int => literal::int(text, is_negative)
                .map(Value::Int)
                .ok_or("invalid int literal"),
            TokenKind::Uint => literal::uint(&text[..text.len() - 1])
                .map(Value::Uint)
                .ok_or("invalid uint literal"),
            TokenKind::Float => match text.parse::<f64>() {
                Ok(value) if value.is_finite() => {
                    Ok(Value::Double(if is_negative { -value } else { value }))
                }
                _ => Err("invalid double literal"),
            },
            TokenKind::String => literal::unquote(text, false)
                .map(|bytes| Value::from(&*String::from_utf8_lossy(&bytes))),
            TokenKind::Bytes => {
                literal::unquote(text, true).map(|bytes| Value::Bytes(bytes.into()))
            }
            _ => Ok(match text {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => Value::Null,
            }),
        };
        let value = value.unwrap_or_else(|reason| {
            self.report(start, reason.to_owned());
            Value::Null
        });
        self.literal(start, value)
    }

    /// Reads an identifier, a call, or the creation of an object.
    fn ident(&mut self, dot: Option<Token<'a>>) -> Result {
        if let Some(end) = self.object_name_end() {
            return self.object(dot, end);
        }
        let token = self.advance();
        if RESERVED.contains(&token.text) {
            let offset = dot.map_or(token.offset, |dot| dot.offset);
            self.report(offset, format!("reserved identifier: {}", token.text));
        }
        let name = format!("{}{}", dot.map_or("", |dot| dot.text), token.text);
        if let Some(open) = self.take("(") {
            let id = self.node(open.offset);
            let args = self.exprs(")")?;
            return self.call(id, &name, None, args);
        }
        let id = self.node(token.offset);
        Ok(Expr::new(id, Kind::Ident(name)))
    }

    /// Returns the token behind the name of an object to create.
    fn object_name_end(&self) -> Option<usize> {
        let mut next = self.next + 1;
        loop {
            let token = self.tokens.get(next)?;
            match token.text {
                "{" if token.kind == TokenKind::Symbol => return Some(next),
                "." if self.tokens.get(next + 1)?.kind == TokenKind::Ident => next += 2,
                _ => return None,
            }
        }
    }

    fn object(&mut self, dot: Option<Token<'a>>, end: usize) -> Result {
        let mut name = dot.map_or("", |dot| dot.text).to_owned();
        while self.next < end {
            name.push_str(self.advance().text);
        }
        let open = self.advance();
        let id = self.node(open.offset);
        let mut fields = Vec::new();
        while self.take("}").is_none() {
            let is_optional = self.take("?").is_some();
            let token = self.advance();
            if !matches!(token.kind, TokenKind::Ident | TokenKind::Escaped) {
                self.next -= 1;
                return Err(self.unexpected("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"));
            }
            let colon = self.expect(":")?;
            let id = self.node(colon.offset);
            let value = self.expr()?;
            fields.push(Entry {
                id,
                key: token.text.trim_matches('`').to_owned(),
                value,
                is_optional,
            });
            if self.take(",").is_none() && !self.is("}") {
                return Err(self.unexpected("{'}', ','}"));
            }
        }
        Ok(Expr::new(id, Kind::Struct { name, fields }))
    }

    fn list(&mut self) -> Result {
        let open = self.advance();
        let id = self.node(open.offset);
        let mut items = Vec::new();
        let mut optional = Vec::new();
        while self.take("]").is_none() {
            optional.push(self.take("?").is_some());
            items.push(self.expr()?);
            if self.take(",").is_none() && !self.is("]") {
                return Err(self.unexpected("{']', ','}"));
            }
        }
        Ok(Expr::new(id, Kind::List { items, optional }))
    }

    fn map(&mut self) -> Result {
        let open = self.advance();
        let id = self.node(open.offset);
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let is_optional = self.take("?").is_some();
            let key = self.expr()?;
            let colon = self.expect(":")?;
            let id = self.node(colon.offset);
            let value = self.expr()?;
            entries.push(Entry {
                id,
                key,
                value,
                is_optional,
            });
            if self.take(",").is_none() && !self.is("}") {
                return Err(self.unexpected("{'}', ','}"));
            }
        }
        Ok(Expr::new(id, Kind::Map(entries)))
    }
}

fn operation(id: Node, symbol: &str, left: Expr, right: Expr) -> Expr {
    let function = match symbol {
        "in" => "@in".to_owned(),
        text => format!("_{text}_"),
    };
    call(id, &function, vec![left, right])
}

pub(super) fn call(id: Node, function: &str, args: Vec<Expr>) -> Expr {
    Expr::new(
        id,
        Kind::Call {
            target: None,
            function: function.to_owned(),
            args,
        },
    )
}

fn starts_operand(token: Token<'_>) -> bool {
    match token.kind {
        TokenKind::Symbol => ["[", "{", "(", ".", "-", "!"].contains(&token.text),
        TokenKind::Word => token.text != "in",
        TokenKind::End | TokenKind::Escaped => false,
        _ => true,
    }
}
