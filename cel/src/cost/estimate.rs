//! The estimate of the cost of an expression, from the bounds of the sizes of its variables.

use std::collections::HashMap;
use std::sync::Arc;

use super::size::{CostEstimate, Size, UNKNOWN};
use super::{LIST, MAP, SELECT, STRUCT};
use crate::check::Checked;
use crate::environment::Environment;
use crate::syntax::{Comprehension, Expr, Kind, Node};
use crate::types::Type;
use crate::values::Value;

/// Where a value comes from: a variable, and fields, `@items`, `@keys` and `@values`.
pub(super) type Path = Vec<Arc<str>>;

/// Estimates the cost of an expression.
pub(crate) fn estimate(root: &Expr, found: &Checked, environment: &Environment) -> CostEstimate {
    let mut coster = Coster {
        found,
        environment,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(root)
}

/// The sizes of the entries of a list or map.
#[derive(Clone, Copy, Debug)]
struct Entries {
    is_list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

/// A variable of a loop.
struct Local {
    name: String,
    path: Path,
    size: Option<Size>,
    entries: Option<Entries>,
}

/// A part of an expression, or the items of a list that is one.
pub(super) struct Part<'a> {
    pub(super) expr: Option<&'a Expr>,
    pub(super) path: Path,
    pub(super) of: Type,
    pub(super) size: Option<Size>,
}

pub(super) struct Coster<'a> {
    found: &'a Checked,
    environment: &'a Environment,
    paths: HashMap<Node, Path>,
    locals: Vec<Local>,
    sizes: HashMap<Node, Size>,
    entries: HashMap<Node, Entries>,
}

fn fixed(value: u64) -> CostEstimate {
    CostEstimate::fixed(value)
}

impl Coster<'_> {
    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Path {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn path_to(&self, expr: &Expr, name: &str) -> Path {
        let mut path = self.path(expr);
        path.push(name.into());
        path
    }

    fn cost(&mut self, expr: &Expr) -> CostEstimate {
        match &expr.kind {
            Kind::Literal(_) => fixed(0),
            Kind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.as_str().into()],
                };
                self.paths.insert(expr.id, path);
                fixed(SELECT)
            }
            Kind::Select {
                operand,
                field,
                is_test,
            } => {
                let cost = self.cost(operand);
                if *is_test {
                    return cost;
                }
                let path = self.path_to(operand, field);
                self.paths.insert(expr.id, path);
                match self.found.type_of(operand) {
                    Type::Map(..) | Type::Struct(_) | Type::Param(_) => cost.add(fixed(SELECT)),
                    _ => cost,
                }
            }
            Kind::Call {
                target,
                function,
                args,
            } => self.call(expr, target.as_deref(), function, args),
            Kind::List { items, .. } => {
                let mut sum = fixed(LIST);
                let mut size = Size {
                    min: if items.is_empty() { 0 } else { u64::MAX },
                    max: 0,
                };
                for item in items {
                    sum = sum.add(self.cost(item));
                    size = size.union(self.size_or_unknown(item));
                }
                let entries = Entries {
                    is_list: true,
                    key: fixed(1),
                    value: size,
                };
                self.entries.insert(expr.id, entries);
                sum
            }
            Kind::Map(list) => {
                let mut sum = fixed(MAP);
                let none = Size {
                    min: if list.is_empty() { 0 } else { u64::MAX },
                    max: 0,
                };
                let mut entries = Entries {
                    is_list: false,
                    key: none,
                    value: none,
                };
                for entry in list {
                    sum = sum.add(self.cost(&entry.key)).add(self.cost(&entry.value));
                    entries.key = entries.key.union(self.size_or_unknown(&entry.key));
                    entries.value = entries.value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, entries);
                sum
            }
            Kind::Struct { fields, .. } => fields
                .iter()
                .fold(fixed(STRUCT), |sum, field| sum.add(self.cost(&field.value))),
            Kind::Comprehension(inner) if inner.is_binding() => self.binding(expr, inner),
            Kind::Comprehension(inner) => self.comprehension(expr, inner),
        }
    }

    fn binding(&mut self, expr: &Expr, inner: &Comprehension) -> CostEstimate {
        let sum = self.cost(&inner.range).add(self.cost(&inner.init));
        self.push_value(&inner.accumulator, &inner.init);
        let sum = sum.add(self.cost(&inner.result));
        self.locals.pop();
        self.copy_sizes(expr, &inner.result);
        sum
    }

    fn push_value(&mut self, name: &str, expr: &Expr) {
        let path = self.path(expr);
        let entries = self.entries_of(expr);
        let size = self.size(expr);
        self.locals.push(Local {
            name: name.to_owned(),
            path,
            size,
            entries,
        });
    }

    fn push_entry(&mut self, name: &str, range: &Expr, is_key: bool) {
        let entries = self.entries_of(range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.found.type_of(range), Type::List(_)),
        };
        let part = match (is_list, is_key) {
            (true, true) => "@indices",
            (true, false) => "@items",
            (false, true) => "@keys",
            (false, false) => "@values",
        };
        let size = entries.map(|entries| if is_key { entries.key } else { entries.value });
        self.locals.push(Local {
            name: name.to_owned(),
            path: self.path_to(range, part),
            size,
            entries: None,
        });
    }

    fn comprehension(&mut self, expr: &Expr, inner: &Comprehension) -> CostEstimate {
        let mut sum = self.cost(&inner.range).add(self.cost(&inner.init));
        self.push_value(&inner.accumulator, &inner.init);
        let depth = self.locals.len();
        if let Some(second) = &inner.second {
            self.push_entry(&inner.variable, &inner.range, true);
            self.push_entry(second, &inner.range, false);
        } else {
            // The variable is a key of a map, or an item of a list.
            let is_list = match self.entries_of(&inner.range) {
                Some(entries) => entries.is_list,
                None => matches!(self.found.type_of(&inner.range), Type::List(_)),
            };
            self.push_entry(&inner.variable, &inner.range, !is_list);
        }
        let round = self.cost(&inner.condition);
        let round = self.cost(&inner.step).add(round);
        self.locals.truncate(depth);
        sum = sum.add(self.cost(&inner.result));
        self.locals.pop();
        let count = self.size_or_unknown(&inner.range);
        sum = sum.add(count.times(round));
        match inner.init.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&inner.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List { .. } | Kind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entries) = self.entries_of(&inner.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn call(
        &mut self,
        expr: &Expr,
        target: Option<&Expr>,
        function: &str,
        args: &[Expr],
    ) -> CostEstimate {
        if let ("dyn", [arg]) = (function, args) {
            let cost = self.cost(arg);
            self.copy_sizes(expr, arg);
            return cost.add(fixed(1));
        }
        let mut costs = Vec::new();
        let mut parts = Vec::new();
        for arg in args {
            costs.push(self.cost(arg));
            parts.push(self.part(arg));
        }
        let overloads = self.found.overloads(expr.id);
        if overloads.is_empty() {
            return CostEstimate::default();
        }
        let mut sum = CostEstimate::default();
        let mut target_part = None;
        if let Some(target) = target {
            sum = self.cost(target);
            target_part = Some(self.part(target));
        }
        let mut range = CostEstimate {
            min: u64::MAX,
            max: 0,
        };
        let mut result: Option<Size> = None;
        for overload in overloads {
            let (cost, size) = self.overload_cost(
                expr,
                function,
                overload,
                target_part.as_ref(),
                &parts,
                &costs,
            );
            range = range.union(cost);
            if let Some(size) = size {
                result = Some(result.map_or(size, |result| result.union(size)));
            }
            let item = match *overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(item), [operand, ..]) = (item, args) {
                result = self.entries_of(operand).map(|entries| entries.value);
                let path = self.path_to(operand, item);
                self.paths.insert(expr.id, path);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(result) = result {
            self.sizes.insert(expr.id, result);
        }
        sum.add(range)
    }

    /// Returns the cost of one form of a function, and the size of its result.
    fn overload_cost(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Part<'_>>,
        args: &[Part<'_>],
        costs: &[CostEstimate],
    ) -> (CostEstimate, Option<Size>) {
        let before = costs
            .iter()
            .fold(CostEstimate::default(), |sum, cost| sum.add(*cost));
        if let Some((cost, size)) = self.known_call(function, overload, target, args) {
            return (cost.add(before), size);
        }
        match (overload, args, costs) {
            ("logical_or" | "logical_and", _, [left, right]) => {
                let cost = CostEstimate {
                    min: left.min,
                    max: left.add(*right).max,
                };
                (cost, None)
            }
            ("conditional", [_, then, otherwise], [condition, then_cost, otherwise_cost]) => {
                let size = then
                    .size
                    .unwrap_or(UNKNOWN)
                    .union(otherwise.size.unwrap_or(UNKNOWN));
                self.join_entries(expr, then, otherwise);
                (condition.add(then_cost.union(*otherwise_cost)), Some(size))
            }
            ("add_string" | "add_bytes" | "add_list", [left, right], _) => {
                let size = left
                    .size
                    .unwrap_or(UNKNOWN)
                    .add(right.size.unwrap_or(UNKNOWN));
                self.join_entries(expr, left, right);
                let cost = match overload {
                    "add_list" => fixed(1),
                    _ => size.scale(super::CHARACTER),
                };
                (cost.add(before), Some(size))
            }
            _ => (fixed(1).add(before), None),
        }
    }

    /// Keeps what is known of the entries of both of two parts.
    fn join_entries(&mut self, expr: &Expr, left: &Part<'_>, right: &Part<'_>) {
        let left = left.expr.and_then(|expr| self.entries_of(expr));
        let right = right.expr.and_then(|expr| self.entries_of(expr));
        if let (Some(left), Some(right)) = (left, right) {
            self.entries.insert(expr.id, left.union(right));
        }
    }

    fn part<'e>(&mut self, expr: &'e Expr) -> Part<'e> {
        let mut path = self.path(expr);
        if path
            .first()
            .is_some_and(|name| matches!(&**name, "@result" | "__result__"))
        {
            path.clear();
        }
        Part {
            expr: Some(expr),
            path,
            of: self.found.type_of(expr).clone(),
            size: self.size(expr),
        }
    }

    /// Returns the size that the schema says.
    pub(super) fn declared_size(&self, path: &Path) -> Option<Size> {
        let (variable, path) = path.split_first()?;
        let declared = self.environment.declared(variable);
        let declared = declared.or_else(|| self.environment.first_declared())?;
        let part = declared.part(path)?;
        Some(Size {
            min: 0,
            max: part.elements_max,
        })
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Size {
        self.size(expr).unwrap_or(UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Size> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        match &expr.kind {
            Kind::Literal(value @ (Value::String(_) | Value::Bytes(_))) => {
                return value.size().map(|size| fixed(size as u64));
            }
            Kind::Literal(_) => return Some(fixed(1)),
            Kind::List { items, .. } => return Some(fixed(items.len() as u64)),
            Kind::Map(entries) => return Some(fixed(entries.len() as u64)),
            _ => {}
        }
        let path = self.path(expr);
        if let Some(size) = self.declared_size(&path) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.found.type_of(expr)) {
            return Some(fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }
}

/// Returns whether all values of a type have the same size.
fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        _ => of.optional_value().is_some_and(is_scalar),
    }
}
