//! The checker: one visit of the tree.

use std::collections::HashMap;
use std::sync::Arc;

use super::unify::{Substitution, wider};
use crate::declarations::{FUNCTIONS, Overload, type_identifier};
use crate::environment::Environment;
use crate::syntax::{Comprehension, Entry, Expr, Issues, Kind, Node, Parsed};
use crate::types::Type;
use crate::values::Value;

/// The function that only environments with the types of patches have.
const ESCAPE_KEY: &str = "jsonpatch.escapeKey";

/// What the checker found out.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) types: HashMap<Node, Type>,
    /// The forms of functions that a call can mean.
    pub(crate) overloads: HashMap<Node, Vec<&'static str>>,
    /// The variables and types to which identifiers and selections refer.
    pub(crate) references: HashMap<Node, Reference>,
    /// The variables that are used.
    pub(crate) variables: Vec<String>,
    /// Whether objects keep the names of their types.
    pub(crate) has_patch_types: bool,
}

/// To what a name refers.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    Variable(String),
    Type(Arc<str>),
}

impl Checked {
    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        self.types.get(&expr.id).unwrap_or(&Type::Dyn)
    }

    pub(crate) fn overloads(&self, id: Node) -> &[&'static str] {
        self.overloads.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// Checks an expression. Rewrites calls of functions whose name has dots.
pub(crate) fn check(
    parsed: &mut Parsed,
    environment: &Environment,
    issues: &mut Issues,
) -> Checked {
    let mut root = std::mem::replace(&mut parsed.root, Expr::new(0, Kind::Literal(Value::Null)));
    let mut checker = Checker {
        parsed,
        environment,
        issues,
        scopes: Vec::new(),
        known: Substitution::default(),
        unknown_count: 0,
        escaped: None,
        found: Checked {
            types: HashMap::new(),
            overloads: HashMap::new(),
            references: HashMap::new(),
            variables: Vec::new(),
            has_patch_types: environment.has_patch_types(),
        },
    };
    checker.visit(&mut root);
    let Checker {
        known, mut found, ..
    } = checker;
    for of in found.types.values_mut() {
        *of = known.apply(of, true);
    }
    parsed.root = root;
    if issues.is_empty() {
        super::literals::check(parsed, &found, issues);
    }
    found
}

struct Checker<'a> {
    parsed: &'a Parsed,
    environment: &'a Environment,
    issues: &'a mut Issues,
    /// The variables of loops, the innermost last.
    scopes: Vec<(String, Type)>,
    known: Substitution,
    unknown_count: usize,
    /// The name of the last field that was looked up, where it is not the one in the expression.
    escaped: Option<String>,
    found: Checked,
}

impl Checker<'_> {
    fn report(&mut self, id: Node, message: String) {
        self.issues.report(self.parsed.position(id), message);
    }

    fn unknown(&mut self) -> Type {
        let name = format!("_var{}", self.unknown_count);
        self.unknown_count += 1;
        Type::Param(name.into())
    }

    fn set(&mut self, id: Node, of: Type) {
        self.found.types.insert(id, of);
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.found
            .types
            .get(&expr.id)
            .cloned()
            .unwrap_or(Type::Error)
    }

    fn mismatch(&mut self, id: Node, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    /// Looks a name up. A leading dot means that it is no variable of a loop.
    fn lookup(&mut self, name: &str) -> Option<(Type, Reference)> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let local = self.scopes.iter().rev().find(|(local, _)| local == plain);
        if let Some((_, of)) = local {
            return Some((of.clone(), Reference::Variable(plain.to_owned())));
        }
        if let Some(of) = self.environment.variable(plain) {
            if !self.found.variables.iter().any(|used| used == plain) {
                self.found.variables.push(plain.to_owned());
            }
            return Some((of.clone(), Reference::Variable(plain.to_owned())));
        }
        let of = type_identifier(plain).or_else(|| {
            self.environment
                .has_structure(plain)
                .then(|| Type::object(plain))
        })?;
        Some((
            Type::Type(Some(Arc::new(of))),
            Reference::Type(plain.into()),
        ))
    }

    fn visit(&mut self, expr: &mut Expr) {
        let id = expr.id;
        match &mut expr.kind {
            Kind::Literal(value) => {
                let of = literal_type(value);
                self.set(id, of);
            }
            Kind::Ident(name) => {
                let name = std::mem::take(name);
                match self.lookup(&name) {
                    Some((of, reference)) => {
                        self.set(id, of);
                        self.found.references.insert(id, reference);
                        name.strip_prefix('.')
                            .unwrap_or(&name)
                            .clone_into(match &mut expr.kind {
                                Kind::Ident(slot) => slot,
                                _ => return,
                            });
                    }
                    None => self.undeclared(id, &name),
                }
            }
            Kind::Select { .. } => self.select(expr),
            Kind::Call { .. } => self.call(expr),
            Kind::List { items, optional } => {
                let mut joined = None;
                for (item, is_optional) in items.iter_mut().zip(&*optional) {
                    self.visit(item);
                    let of = self.entry_type(item, *is_optional);
                    joined = Some(self.join(joined, of));
                }
                let item = joined.unwrap_or_else(|| self.unknown());
                self.set(id, Type::list(item));
            }
            Kind::Map(entries) => self.map(id, entries),
            Kind::Struct { name, fields } => {
                let mut name = std::mem::take(name);
                self.structure(id, &mut name, fields);
                if let Kind::Struct { name: slot, .. } = &mut expr.kind {
                    *slot = name;
                }
            }
            Kind::Comprehension(inner) => self.comprehension(id, inner),
        }
    }

    fn undeclared(&mut self, id: Node, name: &str) {
        self.set(id, Type::Error);
        self.report(
            id,
            format!("undeclared reference to '{name}' (in container '')"),
        );
    }

    /// Returns the type of an entry: that of the value of an optional one.
    fn entry_type(&mut self, value: &Expr, is_optional: bool) -> Type {
        let of = self.type_of(value);
        if !is_optional {
            return of;
        }
        if let Some(inner) = of.optional_value() {
            return inner.clone();
        }
        if !of.is_dyn() {
            self.mismatch(value.id, &Type::optional(of.clone()), &of);
        }
        of
    }

    /// Returns the type of a list that has items of two types. Different ones are refused later, as literals.
    fn join(&mut self, before: Option<Type>, of: Type) -> Type {
        match before {
            None => of,
            Some(before) if self.known.assign(&before, &of) => wider(&before, &of).clone(),
            Some(_) => Type::Dyn,
        }
    }

    fn map(&mut self, id: Node, entries: &mut [Entry<Expr>]) {
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.visit(&mut entry.key);
            let of = self.type_of(&entry.key);
            key = Some(self.join(key, of));
            self.visit(&mut entry.value);
            let of = self.entry_type(&entry.value, entry.is_optional);
            value = Some(self.join(value, of));
        }
        let key = key.unwrap_or_else(|| self.unknown());
        let value = value.unwrap_or_else(|| self.unknown());
        self.set(id, Type::map(key, value));
    }

    fn structure(&mut self, id: Node, name: &mut String, fields: &mut [Entry<String>]) {
        let Some((found, _)) = self.lookup(name) else {
            return self.undeclared(id, name);
        };
        let plain = name.strip_prefix('.').unwrap_or(name).to_owned();
        *name = plain;
        let of = match found {
            Type::Type(Some(inner)) => match &*inner {
                Type::Struct(_) | Type::Duration | Type::Timestamp => (*inner).clone(),
                other => {
                    self.report(id, format!("'{}' is not a message type", other.name()));
                    Type::Error
                }
            },
            other => {
                self.report(id, format!("'{}' is not a type", other.name()));
                Type::Error
            }
        };
        self.set(id, of);
        for field in fields {
            self.visit(&mut field.value);
            let expected = self.field_type(field.id, name, &field.key);
            let of = self.entry_type(&field.value, field.is_optional);
            if !self.known.assign(&expected, &of) {
                self.report(
                    field.id,
                    format!(
                        "expected type of field '{}' is '{expected}' but provided type is '{of}'",
                        field.key
                    ),
                );
            }
        }
    }

    /// Returns the type of a field. A reserved word stands for the field with its escaped name.
    fn field_type(&mut self, id: Node, structure: &str, field: &str) -> Type {
        self.escaped = None;
        if !self.environment.has_structure(structure) {
            self.report(id, format!("unexpected failed resolution of '{structure}'"));
            return Type::Error;
        }
        let Some((name, of)) = self.environment.field(structure, field) else {
            self.report(id, format!("undefined field '{field}'"));
            return Type::Error;
        };
        if name != field {
            self.escaped = Some(name);
        }
        of
    }

    fn select(&mut self, expr: &mut Expr) {
        let id = expr.id;
        if let Some(name) = expr.qualified_name()
            && let Some((of, reference)) = self.lookup(&name)
        {
            self.set(id, of);
            self.found.references.insert(id, reference);
            let plain = name.strip_prefix('.').unwrap_or(&name);
            expr.kind = Kind::Ident(plain.to_owned());
            return;
        }
        let Kind::Select {
            operand,
            field,
            is_test,
        } = &mut expr.kind
        else {
            return;
        };
        let of = self.selected(id, operand, field, false);
        if let Some(escaped) = self.escaped.take() {
            *field = escaped;
        }
        let of = if *is_test { Type::Bool } else { of };
        let of = self.known.apply(&of, false);
        self.set(id, of);
    }

    /// Returns the type of a field.
    fn selected(&mut self, id: Node, operand: &mut Expr, field: &str, is_optional: bool) -> Type {
        self.visit(operand);
        let whole = self.known.apply(&self.type_of(operand), false);
        let target = whole.optional_value().unwrap_or(&whole);
        let of = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Struct(name) => self.field_type(id, &name.clone(), field),
            Type::Param(_) => {
                self.known.assign(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.report(
                        id,
                        format!("type '{other}' does not support field selection"),
                    );
                }
                Type::Dyn
            }
        };
        if is_optional || whole.optional_value().is_some() {
            return Type::optional(of);
        }
        of
    }

    fn call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let Kind::Call {
            target,
            function,
            args,
        } = &mut expr.kind
        else {
            return;
        };
        if function == "_?._" {
            let [operand, field] = &mut args[..] else {
                return;
            };
            let Kind::Literal(Value::String(name)) = &field.kind else {
                return self.report(id, "unsupported optional field selection".to_owned());
            };
            let name = name.clone();
            let of = self.selected(id, operand, &name, true);
            if let Some(escaped) = self.escaped.take() {
                field.kind = Kind::Literal(Value::from(escaped));
            }
            let of = self.known.apply(&of, false);
            self.set(id, of);
            self.found
                .overloads
                .insert(id, vec!["select_optional_field"]);
            return;
        }
        for arg in args.iter_mut() {
            self.visit(arg);
        }
        if let Some(prefix) = target.as_ref().and_then(|target| target.qualified_name()) {
            // A function whose name has dots, such as `sets.contains`.
            let name = format!("{prefix}.{function}");
            let name = name.strip_prefix('.').unwrap_or(&name);
            if FUNCTIONS.contains_key(name) && self.has_function(name) {
                name.clone_into(function);
                *target = None;
            }
        }
        if let Some(target) = target {
            self.visit(target);
        } else if let Some(plain) = function.strip_prefix('.') {
            *function = plain.to_owned();
        }
        let Some(overloads) = FUNCTIONS.get(function.as_str()) else {
            let name = function.clone();
            return self.undeclared(id, &name);
        };
        let types: Vec<_> = target
            .as_deref()
            .into_iter()
            .chain(args.iter())
            .map(|arg| self.type_of(arg))
            .collect();
        let is_member = target.is_some();
        let name = function.clone();
        if matches!(name.as_str(), "_&&_" | "_||_") {
            return self.logical(id, overloads[0].id, args, &types);
        }
        self.resolve(id, &name, overloads, is_member, &types);
    }

    /// Returns whether a function is one of the environment.
    fn has_function(&self, name: &str) -> bool {
        name != ESCAPE_KEY || self.environment.has_patch_types()
    }

    fn logical(&mut self, id: Node, overload: &'static str, args: &[Expr], types: &[Type]) {
        let mut is_fine = true;
        for (arg, of) in args.iter().zip(types) {
            if !self.known.assign(of, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, of);
                is_fine = false;
            }
        }
        self.found.overloads.insert(id, vec![overload]);
        self.set(id, if is_fine { Type::Bool } else { Type::Error });
    }

    /// Finds the forms of a function that the types of its arguments allow.
    fn resolve(
        &mut self,
        id: Node,
        name: &str,
        overloads: &'static [Overload],
        is_member: bool,
        types: &[Type],
    ) {
        let mut matching = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|it| it.is_member == is_member) {
            let fresh: Vec<_> = overload
                .parameters
                .iter()
                .map(|name| (name.clone(), self.unknown()))
                .collect();
            let fresh = Substitution::from(fresh);
            let expected: Vec<_> = overload
                .args
                .iter()
                .map(|of| fresh.apply(of, false))
                .collect();
            if !self.known.assign_all(types, &expected) {
                continue;
            }
            matching.push(overload.id);
            let of = self
                .known
                .apply(&fresh.apply(&overload.result, false), false);
            result = Some(match result {
                None => of,
                Some(before) if before.is_dyn() || before == of => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let types: Vec<_> = types.iter().map(|of| self.known.apply(of, true)).collect();
            let (target, args) = if is_member {
                types.split_at(1)
            } else {
                types.split_at(0)
            };
            let target = target
                .first()
                .map_or_else(String::new, |of| format!("{of}."));
            let args: Vec<_> = args.iter().map(Type::to_string).collect();
            self.set(id, Type::Error);
            return self.report(
                id,
                format!(
                    "found no matching overload for '{name}' applied to '{target}({})'",
                    args.join(", ")
                ),
            );
        };
        self.found.overloads.insert(id, matching);
        self.set(id, result);
    }

    fn comprehension(&mut self, id: Node, inner: &mut Comprehension) {
        self.visit(&mut inner.range);
        self.visit(&mut inner.init);
        let range = self.known.apply(&self.type_of(&inner.range), false);
        let result = self.type_of(&inner.init);
        self.scopes
            .push((inner.accumulator.clone(), result.clone()));
        let has_second = inner.second.is_some();
        let (first, second) = match &range {
            Type::List(item) if has_second => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.known.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(inner.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((inner.variable.clone(), first));
        if let Some(name) = &inner.second {
            self.scopes.push((name.clone(), second));
        }
        self.visit(&mut inner.condition);
        self.assert(&inner.condition, &Type::Bool);
        self.visit(&mut inner.step);
        self.assert(&inner.step, &result);
        self.scopes.truncate(depth);
        self.visit(&mut inner.result);
        self.scopes.truncate(depth - 1);
        let of = self.known.apply(&self.type_of(&inner.result), false);
        self.set(id, of);
    }

    fn assert(&mut self, expr: &Expr, expected: &Type) {
        let of = self.type_of(expr);
        if !self.known.assign(expected, &of) {
            self.mismatch(expr.id, expected, &of);
        }
    }
}

fn literal_type(value: &Value) -> Type {
    match value {
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::String(_) => Type::String,
        Value::Bytes(_) => Type::Bytes,
        _ => Type::Null,
    }
}
