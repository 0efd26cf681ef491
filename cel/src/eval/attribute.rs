//! Variables, fields and indices.

use std::sync::Arc;

use super::fold::Scope;
use super::plan::{Attribute, Base, Qualifier, QualifierKey};
use super::run::{Run, valid};
use crate::cost::SELECT;
use crate::fault::{EvaluationError, fail, no_such_overload};
use crate::functions::Outcome;
use crate::values::{Key, List, Value, double_to_int};

impl<'p> Run<'p> {
    /// Evaluates an attribute that is an expression, which costs something.
    pub(super) fn attribute(
        &mut self,
        attribute: &'p Attribute,
        scope: Option<&Scope<'p, '_>>,
    ) -> Outcome {
        let value = self.resolve(attribute, scope);
        let is_conditional = matches!(attribute.base, Base::Conditional { .. });
        if !is_conditional {
            self.charge(SELECT)?;
        }
        if attribute.is_test {
            self.refund(SELECT);
            if let Ok(Value::Optional(inner)) = &value {
                return Ok(Value::Bool(inner.is_some()));
            }
        }
        value
    }

    /// Evaluates an attribute that is a part of another one, which costs nothing itself.
    fn resolve(&mut self, attribute: &'p Attribute, scope: Option<&Scope<'p, '_>>) -> Outcome {
        let mut qualifiers = &attribute.qualifiers[..];
        let value = match &attribute.base {
            Base::Variable(name) => match self.computed(name, qualifiers, scope) {
                Some(value) => {
                    qualifiers = &qualifiers[1..];
                    self.charge(SELECT)?;
                    value?
                }
                None => self.variable(name, scope)?,
            },
            Base::Value(node) => self.eval(node, scope)?,
            Base::Conditional {
                condition,
                then,
                otherwise,
            } => {
                return match self.eval(condition, scope)? {
                    Value::Bool(true) => self.resolve(then, scope),
                    Value::Bool(false) => self.resolve(otherwise, scope),
                    _ => Err(no_such_overload()),
                };
            }
        };
        if qualifiers.is_empty() {
            return valid(value);
        }
        let (mut value, mut is_optional) = match value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            value => (value, false),
        };
        for qualifier in qualifiers {
            is_optional |= qualifier.is_optional;
            match self.qualify(qualifier, value, is_optional, scope)? {
                Some(next) => value = next,
                None => return Ok(Value::Optional(None)),
            }
        }
        let value = valid(value)?;
        Ok(if is_optional {
            Value::some(value)
        } else {
            value
        })
    }

    /// Returns the field of a variable that is computed. One that is tested is not: it exists.
    fn computed(
        &mut self,
        name: &str,
        qualifiers: &'p [Arc<Qualifier>],
        scope: Option<&Scope<'p, '_>>,
    ) -> Option<Outcome> {
        let qualifier = qualifiers.first()?;
        let QualifierKey::Const(Value::String(field)) = &qualifier.key else {
            return None;
        };
        if self.local(name, scope).is_some() {
            return None;
        }
        let value = self.activation.field(name, field)?;
        Some(value.map(|value| {
            if qualifier.is_test {
                Value::Bool(true)
            } else if qualifier.is_optional {
                Value::some(value)
            } else {
                value
            }
        }))
    }

    fn variable(&mut self, name: &str, scope: Option<&Scope<'p, '_>>) -> Outcome {
        if let Some(found) = self.local(name, scope) {
            return found;
        }
        match self.activation.variable(name) {
            Some(value) => Ok(value),
            None => fail(format!("no such attribute(s): {name}")),
        }
    }

    /// Returns the field or item of a value. `None`: an optional one is absent.
    fn qualify(
        &mut self,
        qualifier: &'p Qualifier,
        value: Value,
        is_optional: bool,
        scope: Option<&Scope<'p, '_>>,
    ) -> Result<Option<Value>, EvaluationError> {
        let key = match &qualifier.key {
            QualifierKey::Const(key) => Ok(key.clone()),
            QualifierKey::Attribute(attribute) => self.resolve(attribute, scope),
            QualifierKey::Value(node) => self.eval(node, scope),
        };
        let mut absent = None;
        let found = match (valid(value), key) {
            (_, Err(EvaluationError::CostLimit)) => return Err(EvaluationError::CostLimit),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(value), Ok(key)) => {
                let found = part(&value, &key);
                if matches!(found, Ok(None)) {
                    absent = Some(missing(&value, &key));
                }
                found
            }
        };
        if qualifier.is_test {
            let is_found = found.as_ref().is_ok_and(Option::is_some);
            if !is_optional || is_found {
                self.charge(SELECT)?;
            }
            return match found {
                Ok(found) if is_optional => Ok(found),
                Ok(_) => Ok(Some(Value::Bool(is_found))),
                Err(error) => Err(error),
            };
        }
        if is_optional {
            let found = found?;
            if found.is_some() {
                self.charge(SELECT)?;
            }
            return Ok(found);
        }
        self.charge(SELECT)?;
        match (found?, absent) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }
}

/// Returns the error of a key that is not there.
fn missing(value: &Value, key: &Value) -> EvaluationError {
    let what = if matches!(value, Value::List(_)) {
        "index out of bounds"
    } else {
        "no such key"
    };
    EvaluationError::Failed(format!("{what}: {}", plain(key)))
}

fn plain(key: &Value) -> String {
    match key {
        Value::String(text) => text.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => crate::values::double_text(*value),
        other => other.to_string(),
    }
}

/// Returns a part of a value, if it has it.
fn part(value: &Value, key: &Value) -> Result<Option<Value>, EvaluationError> {
    match value {
        Value::Map(map) => match Key::of(key) {
            Some(key) => Ok(map.get(&key).cloned()),
            None => fail(format!("unsupported key type: {}", key.type_name())),
        },
        Value::List(list) => item(list, key),
        Value::Object(object) => Ok(object.part(key).cloned()),
        _ => Ok(None),
    }
}

fn item(list: &List, key: &Value) -> Result<Option<Value>, EvaluationError> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "only exact indices"
    )]
    let index = match key {
        Value::Int(index) => Some(*index),
        Value::Uint(index) => i64::try_from(*index).ok(),
        Value::Double(value) => match double_to_int(*value).filter(|int| *int as f64 == *value) {
            Some(index) => Some(index),
            None => return fail(format!("unsupported index value {} in list", plain(key))),
        },
        _ => {
            return fail(format!(
                "unsupported index type '{}' in list",
                key.type_name()
            ));
        }
    };
    Ok(index
        .and_then(|index| usize::try_from(index).ok())
        .and_then(|index| list.get(index)))
}
