//! The run of a plan.

use std::sync::Arc;

use super::fold::Scope;
use super::plan::{Call, Node, Plan};
use crate::activation::Activation;
use crate::cost::{self, call_cost};
use crate::fault::{EvaluationError, fail, no_such_overload};
use crate::functions::{Context, Outcome};
use crate::pattern::Patterns;
use crate::syntax::Entry;
use crate::values::{Key, Map, Object, Value};

/// One evaluation.
pub(super) struct Run<'p> {
    pub(super) activation: &'p dyn Activation,
    pub(super) context: Context,
    cost: u64,
    limit: u64,
}

/// Evaluates a plan. Returns the cost, too.
pub(crate) fn run(plan: &Plan, activation: &dyn Activation, limit: u64) -> (Outcome, u64) {
    let mut run = Run {
        activation,
        context: Context {
            patterns: Patterns::new(plan.patterns.clone()),
            ..Context::new()
        },
        cost: 0,
        limit,
    };
    let outcome = run.eval(&plan.root, None).and_then(valid);
    (outcome, run.cost)
}

/// Returns a value, or the error that it is.
pub(super) fn valid(value: Value) -> Outcome {
    match value {
        Value::Invalid(message) => fail(&*message),
        value => Ok(value),
    }
}

impl<'p> Run<'p> {
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), EvaluationError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            return Err(EvaluationError::CostLimit);
        }
        Ok(())
    }

    pub(super) fn refund(&mut self, cost: u64) {
        self.cost = self.cost.saturating_sub(cost);
    }

    pub(super) fn eval(&mut self, node: &'p Node, scope: Option<&Scope<'p, '_>>) -> Outcome {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.attribute(attribute, scope),
            Node::Logical { terms, ends_with } => self.logical(terms, *ends_with, scope),
            Node::Equal { sides, is_not } => self.equal(sides, *is_not, scope),
            Node::Call(call) => self.call(call, scope),
            Node::Known(value) => {
                self.charge(1)?;
                Ok(value.clone())
            }
            Node::List { items, optional } => {
                let list = self.list(items, optional, scope);
                self.made(list, cost::LIST)
            }
            Node::Map(entries) => {
                let map = self.map(entries, scope);
                self.made(map, cost::MAP)
            }
            Node::Struct { name, fields } => {
                let object = self.object(name.as_ref(), fields, scope);
                self.made(object, cost::STRUCT)
            }
            Node::Fold(fold) => self.fold(fold, scope),
            Node::Member(item, set) => {
                let item = self.eval(item, scope)?;
                Ok(Value::Bool(
                    Key::of(&item).is_some_and(|key| set.get(&key).is_some()),
                ))
            }
            Node::Otherwise { sides, is_value } => match self.eval(&sides[0], scope)? {
                Value::Optional(Some(value)) if *is_value => Ok((*value).clone()),
                Value::Optional(None) => self.eval(&sides[1], scope),
                other => Ok(other),
            },
            Node::Collect(call) => self.collect(call, scope),
        }
    }

    /// Charges the making of a value, even if it failed.
    fn made(&mut self, outcome: Outcome, cost: u64) -> Outcome {
        if !matches!(outcome, Err(EvaluationError::CostLimit)) {
            self.charge(cost)?;
        }
        outcome
    }

    fn list(
        &mut self,
        items: &'p [Node],
        optional: &[bool],
        scope: Option<&Scope<'p, '_>>,
    ) -> Outcome {
        let mut values = Vec::with_capacity(items.len());
        for (item, is_optional) in items.iter().zip(optional) {
            match self.eval(item, scope)? {
                Value::Optional(inner) if *is_optional => {
                    values.extend(inner.map(|value| (*value).clone()));
                }
                value if *is_optional => {
                    return fail(format!(
                        "cannot initialize optional list element from non-optional value {value}"
                    ));
                }
                value => values.push(value),
            }
        }
        Ok(Value::list(values))
    }

    fn object(
        &mut self,
        name: Option<&Arc<str>>,
        fields: &'p [Entry<String, Node>],
        scope: Option<&Scope<'p, '_>>,
    ) -> Outcome {
        let mut values = Vec::new();
        for field in fields {
            let value = self.eval(&field.value, scope)?;
            if let Some(value) = optional_entry(value, field.is_optional)? {
                values.push((Key::String(field.key.as_str().into()), value));
            }
        }
        let fields = Map::new(values);
        match name {
            Some(name) => Object::make(name, fields),
            None => Ok(Value::Map(fields)),
        }
    }

    fn map(&mut self, entries: &'p [Entry<Node, Node>], scope: Option<&Scope<'p, '_>>) -> Outcome {
        let mut values = std::collections::BTreeMap::new();
        for entry in entries {
            let key = self.eval(&entry.key, scope)?;
            let value = self.eval(&entry.value, scope)?;
            let key = Key::of(&key).ok_or("unsupported key type")?;
            match optional_entry(value, entry.is_optional)? {
                Some(value) => values.insert(key, value),
                None => values.remove(&key),
            };
        }
        Ok(Value::Map(Map::new(values)))
    }

    /// Evaluates `&&`, or `||`: an error counts only if no other term decides.
    fn logical(
        &mut self,
        terms: &'p [Node],
        ends_with: bool,
        scope: Option<&Scope<'p, '_>>,
    ) -> Outcome {
        let mut error = None;
        for term in terms {
            match self.eval(term, scope) {
                Ok(Value::Bool(value)) if value == ends_with => return Ok(Value::Bool(value)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or_else(|| Some(no_such_overload())),
                Err(EvaluationError::CostLimit) => return Err(EvaluationError::CostLimit),
                Err(reason) => error = error.or(Some(reason)),
            }
        }
        error.map_or(Ok(Value::Bool(!ends_with)), Err)
    }

    fn equal(
        &mut self,
        sides: &'p [Node; 2],
        is_not: bool,
        scope: Option<&Scope<'p, '_>>,
    ) -> Outcome {
        let left = self.arg(&sides[0], scope)?;
        let right = self.arg(&sides[1], scope)?;
        let (name, overload) = if is_not {
            ("_!=_", "not_equals")
        } else {
            ("_==_", "equals")
        };
        let args = [left, right];
        let cost = call_cost(name, overload, &args, None, &mut self.context.work)?;
        self.charge(cost)?;
        let [left, right] = args;
        let is_equal = left?.equals(&right?, &mut self.context.work)?;
        Ok(Value::Bool(is_equal != is_not))
    }

    /// Evaluates an argument: only the cost limit ends the evaluation.
    pub(super) fn arg(
        &mut self,
        node: &'p Node,
        scope: Option<&Scope<'p, '_>>,
    ) -> Result<Outcome, EvaluationError> {
        match self.eval(node, scope) {
            Err(EvaluationError::CostLimit) => Err(EvaluationError::CostLimit),
            other => Ok(other),
        }
    }

    fn call(&mut self, call: &'p Call, scope: Option<&Scope<'p, '_>>) -> Outcome {
        let mut args = Vec::with_capacity(call.args.len());
        for (index, node) in call.args.iter().enumerate() {
            let arg = self.arg(node, scope)?;
            // An error of the last argument is found when all are there: the call costs something.
            if call.stops_early && arg.is_err() && index + 1 < call.args.len() {
                return arg;
            }
            args.push(arg);
        }
        self.apply(call, &args)
    }

    /// Calls a function, and charges what that costs.
    fn apply(&mut self, call: &'p Call, args: &[Outcome]) -> Outcome {
        // The cost of these depends on the result, whose size the arguments bound.
        let is_late = matches!(call.name.as_str(), "join" | "slice");
        if !is_late {
            let work = &mut self.context.work;
            let cost = call_cost(&call.name, call.overload, args, None, work)?;
            self.charge(cost)?;
        }
        if call.name == "@not_strictly_false" {
            return Ok(Value::Bool(!matches!(
                args.first(),
                Some(Ok(Value::Bool(false)))
            )));
        }
        let failed = args.iter().find_map(|arg| arg.as_ref().err().cloned());
        let outcome = if let Some(error) = failed {
            Err(error)
        } else {
            let values: Vec<_> = args.iter().flatten().cloned().collect();
            (call.function)(&mut self.context, &values)
        };
        if is_late {
            let result = outcome.as_ref().ok();
            let work = &mut self.context.work;
            let cost = call_cost(&call.name, call.overload, args, result, work)?;
            self.charge(cost)?;
        }
        outcome
    }
}

/// Returns the value of an entry, if it has one.
fn optional_entry(value: Value, is_optional: bool) -> Result<Option<Value>, EvaluationError> {
    match value {
        Value::Optional(inner) if is_optional => Ok(inner.map(|value| (*value).clone())),
        value if is_optional => fail(format!(
            "cannot initialize optional entry from non-optional value {value}"
        )),
        value => Ok(Some(value)),
    }
}
