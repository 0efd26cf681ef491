//! Whether one type can stand for another, and what that says about unknown types.

use std::collections::HashMap;
use std::sync::Arc;

use crate::types::Type;

/// What unknown types turned out to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Substitution(HashMap<Arc<str>, Type>);

impl Substitution {
    fn find(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Param(name) => self.0.get(name),
            _ => None,
        }
    }

    fn add(&mut self, of: &Type, to: Type) {
        if let Type::Param(name) = of {
            self.0.insert(name.clone(), to);
        }
    }

    pub(super) fn from(pairs: impl IntoIterator<Item = (Arc<str>, Type)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Returns a type with what is known. `is_final`: what is unknown can be anything.
    pub(super) fn apply(&self, of: &Type, is_final: bool) -> Type {
        if let Some(found) = self.find(of) {
            return self.apply(found, is_final);
        }
        let inner = |of: &Type| self.apply(of, is_final);
        match of {
            Type::Param(_) if is_final => Type::Dyn,
            Type::List(item) => Type::list(inner(item)),
            Type::Map(key, value) => Type::map(inner(key), inner(value)),
            Type::Opaque(name, parameters) => {
                Type::Opaque(name.clone(), parameters.iter().map(inner).collect())
            }
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(inner(of)))),
            _ => of.clone(),
        }
    }

    /// Returns whether all types can stand for others, and keeps what that says if they can.
    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut copy = self.clone();
        let is_assignable = copy.all(from, to);
        if is_assignable {
            *self = copy;
        }
        is_assignable
    }

    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        let mut copy = self.clone();
        let is_assignable = copy.one(from, to);
        if is_assignable {
            *self = copy;
        }
        is_assignable
    }

    fn all(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.one(from, to))
    }

    fn one(&mut self, from: &Type, to: &Type) -> bool {
        if matches!(to, Type::Param(_)) {
            let (is_valid, has_found) = self.substitute(from, to);
            if is_valid || has_found {
                return is_valid;
            }
        }
        if matches!(from, Type::Param(_)) {
            return self.substitute(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null | Type::Opaque(..) | Type::Struct(_) | Type::Duration | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(from), Type::List(to)) => self.one(from, to),
            (Type::Map(key, value), Type::Map(to_key, to_value)) => {
                self.one(key, to_key) && self.one(value, to_value)
            }
            (Type::Opaque(name, parameters), Type::Opaque(to_name, to_parameters)) => {
                name == to_name && self.all(parameters, to_parameters)
            }
            _ => from == to,
        }
    }

    /// Returns whether an unknown type can be another one, and whether something was known of it.
    fn substitute(&mut self, of: &Type, unknown: &Type) -> (bool, bool) {
        if of == unknown {
            return (true, true);
        }
        if let Some(found) = self.find(unknown).cloned() {
            if *of == found {
                return (true, true);
            }
            if self.one(of, &found) {
                let wider = wider(of, &found).clone();
                if self.is_free(unknown, &wider) {
                    self.add(unknown, wider);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_free(unknown, of) {
            self.add(unknown, of.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Returns whether an unknown type does not occur in another type.
    fn is_free(&self, unknown: &Type, within: &Type) -> bool {
        if unknown == within {
            return false;
        }
        match within {
            Type::Param(_) => self
                .find(within)
                .is_none_or(|found| self.is_free(unknown, found)),
            _ => within
                .parameters()
                .iter()
                .all(|inner| self.is_free(unknown, inner)),
        }
    }
}

/// Returns the less specific of two types.
pub(super) fn wider<'a>(left: &'a Type, right: &'a Type) -> &'a Type {
    if is_wider_or_equal(left, right) {
        left
    } else {
        right
    }
}

fn is_wider_or_equal(left: &Type, right: &Type) -> bool {
    if matches!(left, Type::Dyn | Type::Param(_)) {
        return true;
    }
    if matches!(right, Type::Dyn | Type::Param(_)) {
        return false;
    }
    match (left, right) {
        (Type::List(left), Type::List(right)) => is_wider_or_equal(left, right),
        (Type::Map(key, value), Type::Map(right_key, right_value)) => {
            is_wider_or_equal(key, right_key) && is_wider_or_equal(value, right_value)
        }
        (Type::Opaque(name, parameters), Type::Opaque(right_name, right_parameters)) => {
            name == right_name
                && parameters.len() == right_parameters.len()
                && parameters
                    .iter()
                    .zip(right_parameters.iter())
                    .all(|(left, right)| is_wider_or_equal(left, right))
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => left == right,
    }
}
