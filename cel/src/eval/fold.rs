//! Loops.

use std::cell::RefCell;

use super::plan::{Call, Fold};
use super::run::{Run, valid};
use crate::cost::{self, SELECT};
use crate::fault::{EvaluationError, fail, no_such_overload};
use crate::functions::Outcome;
use crate::values::{Key, Value};

/// The variables of a loop, and those of the loops around it.
pub(super) struct Scope<'p, 's> {
    fold: &'p Fold,
    /// What it has collected. `None` until it is first used.
    collected: RefCell<Option<Outcome>>,
    first: RefCell<Value>,
    second: RefCell<Value>,
    /// Whether the rounds are over: only the accumulator is left.
    is_done: std::cell::Cell<bool>,
    parent: Option<&'s Scope<'p, 's>>,
}

impl<'p> Run<'p> {
    /// Returns the value of a variable of a loop.
    pub(super) fn local(&mut self, name: &str, scope: Option<&Scope<'p, '_>>) -> Option<Outcome> {
        let mut current = scope;
        while let Some(scope) = current {
            if name == scope.fold.accumulator {
                return Some(self.collected(scope));
            }
            if !scope.is_done.get() {
                if name == scope.fold.variable {
                    return Some(valid(scope.first.borrow().clone()));
                }
                if scope.fold.second.as_deref() == Some(name) {
                    return Some(valid(scope.second.borrow().clone()));
                }
            }
            current = scope.parent;
        }
        None
    }

    /// Returns what a loop has collected. Its begin is evaluated when it is first used.
    fn collected(&mut self, scope: &Scope<'p, '_>) -> Outcome {
        if scope.collected.borrow().is_none() {
            let init = self.eval(&scope.fold.init, scope.parent);
            *scope.collected.borrow_mut() = Some(init);
        }
        scope
            .collected
            .borrow()
            .clone()
            .unwrap_or_else(|| Err(no_such_overload()))
    }

    pub(super) fn fold(&mut self, fold: &'p Fold, parent: Option<&Scope<'p, '_>>) -> Outcome {
        let range = self.eval(&fold.range, parent)?;
        let scope = Scope {
            fold,
            collected: RefCell::new(None),
            first: RefCell::new(Value::Null),
            second: RefCell::new(Value::Null),
            is_done: std::cell::Cell::new(false),
            parent,
        };
        match (&range, &fold.second) {
            (Value::List(list), None) => {
                for item in list.iter() {
                    if !self.round(&scope, item, None)? {
                        break;
                    }
                }
            }
            (Value::List(list), Some(_)) => {
                for (index, item) in (0..).zip(list.iter()) {
                    if !self.round(&scope, Value::Int(index), Some(item))? {
                        break;
                    }
                }
            }
            (Value::Map(map), second) => {
                for (key, value) in map.iter() {
                    let value = second.as_ref().map(|_| value.clone());
                    if !self.round(&scope, key.to_value(), value)? {
                        break;
                    }
                }
            }
            (_, None) => return fail("expected iterable type"),
            (_, Some(_)) => return fail("unsupported comprehension range type"),
        }
        scope.is_done.set(true);
        self.eval(&fold.result, Some(&scope))
    }

    /// Runs one round. Returns whether there may be another one.
    fn round(
        &mut self,
        scope: &Scope<'p, '_>,
        first: Value,
        second: Option<Value>,
    ) -> Result<bool, EvaluationError> {
        // A round may cost nothing.
        self.context.work.spend(1)?;
        scope.first.replace(first);
        if let Some(second) = second {
            scope.second.replace(second);
        }
        if let Ok(Value::Bool(false)) = self.arg(&scope.fold.condition, Some(scope))? {
            return Ok(false);
        }
        let step = self.arg(&scope.fold.step, Some(scope))?;
        scope.collected.replace(Some(step));
        Ok(true)
    }

    /// Adds to what the innermost loop has collected, without a copy of it.
    pub(super) fn collect(&mut self, call: &'p Call, scope: Option<&Scope<'p, '_>>) -> Outcome {
        let Some(scope) = scope else {
            return Err(no_such_overload());
        };
        self.charge(SELECT)?;
        if scope.collected.borrow().is_none() {
            let init = self.eval(&scope.fold.init, scope.parent);
            scope.collected.replace(Some(init));
        }
        let is_failed = matches!(&*scope.collected.borrow(), Some(Err(_)));
        let mut args = Vec::with_capacity(call.args.len());
        for node in &call.args {
            if call.stops_early && is_failed {
                break;
            }
            let arg = self.arg(node, Some(scope))?;
            let is_error = arg.is_err();
            args.push(arg);
            if call.stops_early && is_error {
                break;
            }
        }
        let collected = scope
            .collected
            .take()
            .unwrap_or_else(|| Err(no_such_overload()));
        let is_complete = collected.is_ok() && args.len() == call.args.len();
        if is_complete || !call.stops_early {
            self.charge(cost::SELECT)?;
        }
        let mut collected = collected?;
        let mut values = args.into_iter().collect::<Result<Vec<_>, _>>()?;
        match (&mut collected, &values[..]) {
            (Value::List(list), [Value::List(added)]) => {
                for item in added.iter() {
                    list.push(item);
                }
                Ok(collected)
            }
            (Value::Map(map), [key, value]) => {
                let key = Key::of(key).ok_or_else(no_such_overload)?;
                if !map.insert(key.clone(), value.clone()) {
                    return fail(format!(
                        "insert failed: key {} already exists",
                        key_text(&key)
                    ));
                }
                Ok(collected)
            }
            (Value::Map(map), [Value::Map(added)]) => {
                self.context.work.spend(added.len())?;
                for (key, value) in added.iter() {
                    if !map.insert(key.clone(), value.clone()) {
                        return fail(format!(
                            "insert failed: key {} already exists",
                            key_text(key)
                        ));
                    }
                }
                Ok(collected)
            }
            _ => {
                values.insert(0, collected);
                (call.function)(&mut self.context, &values)
            }
        }
    }
}

fn key_text(key: &Key) -> String {
    match key {
        Key::String(text) => text.to_string(),
        other => other.to_value().to_string(),
    }
}
