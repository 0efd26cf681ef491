//! Checks of literals after those of types: patterns, times, and lists and maps of one type.

use super::checker::Checked;
use crate::functions::format_string;
use crate::pattern;
use crate::syntax::{Expr, Issues, Kind, Node, Parsed};
use crate::types::Type;
use crate::values::{Timestamp, Value, parse_duration, parse_timestamp};

pub(super) fn check(parsed: &Parsed, found: &Checked, issues: &mut Issues) {
    let mut visitor = Visitor {
        parsed,
        found,
        issues,
    };
    visitor.visit(&parsed.root, false);
}

struct Visitor<'a> {
    parsed: &'a Parsed,
    found: &'a Checked,
    issues: &'a mut Issues,
}

impl Visitor<'_> {
    fn report(&mut self, id: Node, message: String) {
        self.issues.report(self.parsed.position(id), message);
    }

    fn visit(&mut self, expr: &Expr, is_format: bool) {
        let mut is_inside = is_format;
        match &expr.kind {
            Kind::Call {
                target,
                function,
                args,
            } => {
                is_inside |= function == "format";
                self.call(expr, function, target.as_deref(), args);
            }
            Kind::List { items, optional } if !is_format => {
                let types: Vec<_> = items
                    .iter()
                    .zip(optional)
                    .map(|(item, optional)| (item.id, self.entry_type(item, *optional)))
                    .collect();
                self.same(&types, true);
            }
            Kind::Map(entries) if !is_format => {
                let mut keys = Vec::new();
                let mut values = Vec::new();
                for entry in entries {
                    keys.push((entry.key.id, self.entry_type(&entry.key, false)));
                    values.push((
                        entry.value.id,
                        self.entry_type(&entry.value, entry.is_optional),
                    ));
                }
                self.same(&keys, false);
                self.same(&values, false);
            }
            _ => {}
        }
        let mut parts = Vec::new();
        expr.children(&mut |part| parts.push(part));
        for part in parts {
            self.visit(part, is_inside);
        }
    }

    fn entry_type(&self, expr: &Expr, is_optional: bool) -> Type {
        let of = self.found.type_of(expr).clone();
        match of.optional_value() {
            Some(inner) if is_optional => inner.clone(),
            _ => of,
        }
    }

    fn same(&mut self, types: &[(Node, Type)], only_first: bool) {
        let Some((_, first)) = types.first() else {
            return;
        };
        for (id, of) in &types[1..] {
            if of != first {
                self.report(*id, format!("expected type '{first}' but found '{of}'"));
                if only_first {
                    return;
                }
            }
        }
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) {
        if function == "format"
            && let Some(Expr {
                kind: Kind::Literal(Value::String(text)),
                ..
            }) = target
            && let [
                Expr {
                    kind: Kind::List { items, .. },
                    ..
                },
            ] = args
        {
            let types: Vec<_> = items.iter().map(|item| self.found.type_of(item)).collect();
            if let Err((index, message)) = format_string::check(text, &types) {
                let id = index.map_or(expr.id, |index| items[index].id);
                self.report(id, message);
            }
        }
        let Some(Expr {
            id,
            kind: Kind::Literal(value),
        }) = args.first()
        else {
            return;
        };
        let is_fine = match (function, value) {
            ("duration", Value::String(text)) => parse_duration(text).is_some(),
            ("timestamp", Value::String(text)) => parse_timestamp(text).is_some(),
            ("timestamp", Value::Int(seconds)) => Timestamp::new(*seconds, 0).is_some(),
            ("duration" | "timestamp", _) => false,
            ("matches", Value::String(text)) => pattern::check(text).is_ok(),
            _ => true,
        };
        if !is_fine {
            self.report(*id, format!("invalid {function} argument"));
        }
    }
}
