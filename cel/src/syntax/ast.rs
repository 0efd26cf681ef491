//! The tree of an expression.

use crate::values::Value;

/// The number of an expression in its tree.
pub(crate) type Node = u32;

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: Node,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Value),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        /// Whether it is the argument of `has`.
        is_test: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    List {
        items: Vec<Expr>,
        /// Which items are optional.
        optional: Vec<bool>,
    },
    Map(Vec<Entry<Expr>>),
    Struct {
        name: String,
        fields: Vec<Entry<String>>,
    },
    Comprehension(Box<Comprehension>),
}

/// An entry of a map, or a field of an object.
#[derive(Clone, Debug)]
pub(crate) struct Entry<K, V = Expr> {
    pub(crate) id: Node,
    pub(crate) key: K,
    pub(crate) value: V,
    pub(crate) is_optional: bool,
}

/// A loop over a list or map.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) variable: String,
    /// The value, where the first is the index or key.
    pub(crate) second: Option<String>,
    pub(crate) accumulator: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Comprehension {
    /// Returns whether it only binds a variable: there is nothing to loop over.
    pub(crate) fn is_binding(&self) -> bool {
        matches!(&self.range.kind, Kind::List { items, .. } if items.is_empty())
            && matches!(self.condition.kind, Kind::Literal(Value::Bool(false)))
            && self.accumulator != "__result__"
    }
}

impl Expr {
    pub(crate) fn new(id: Node, kind: Kind) -> Self {
        Self { id, kind }
    }

    /// Calls a function with each direct part of the expression.
    pub(crate) fn children<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => visit(operand),
            Kind::Call { target, args, .. } => {
                if let Some(target) = target {
                    visit(target);
                }
                args.iter().for_each(visit);
            }
            Kind::List { items, .. } => items.iter().for_each(visit),
            Kind::Map(entries) => {
                for entry in entries {
                    visit(&entry.key);
                    visit(&entry.value);
                }
            }
            Kind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            Kind::Comprehension(inner) => {
                for part in [
                    &inner.range,
                    &inner.init,
                    &inner.condition,
                    &inner.step,
                    &inner.result,
                ] {
                    visit(part);
                }
            }
        }
    }

    /// Returns the qualified name that selections of an identifier spell.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select {
                operand,
                field,
                is_test: false,
            } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }
}
