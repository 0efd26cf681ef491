//! Equality, with a bound for the number of parts that are compared.

use super::number::compare_numbers;
use super::{List, ListKind, Map, Value};
use crate::work::{Exhausted, Work};

impl Value {
    /// Returns whether two values are equal. Values of different types are not, but numbers may be.
    pub(crate) fn equals(&self, other: &Self, work: &mut Work) -> Result<bool, Exhausted> {
        work.spend(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::String(left), Self::String(right)) | (Self::Type(left), Self::Type(right)) => {
                left == right
            }
            (Self::Bytes(left), Self::Bytes(right)) => left == right,
            (Self::Duration(left), Self::Duration(right)) => left == right,
            (Self::Timestamp(left), Self::Timestamp(right)) => left == right,
            (Self::List(left), Self::List(right)) => left.equals(right, work)?,
            (Self::Map(left), Self::Map(right)) => left.equals(right, work)?,
            (Self::Object(left), Self::Object(right)) => {
                left.name() == right.name() && left.fields().equals(right.fields(), work)?
            }
            (Self::Optional(left), Self::Optional(right)) => match (left, right) {
                (Some(left), Some(right)) => left.equals(right, work)?,
                (left, right) => left.is_none() && right.is_none(),
            },
            (Self::Quantity(left), Self::Quantity(right)) => left == right,
            (Self::Ip(left), Self::Ip(right)) => left == right,
            (Self::Cidr(left), Self::Cidr(right)) => left == right,
            (Self::Url(left), Self::Url(right)) => left == right,
            (Self::Semver(left), Self::Semver(right)) => left.compare(right).is_eq(),
            (Self::Format(left), Self::Format(right)) => left.name == right.name,
            (Self::Unknown(left), Self::Unknown(right)) => left == right,
            _ => compare_numbers(self, other).is_some_and(std::cmp::Ordering::is_eq),
        })
    }
}

impl List {
    fn equals(&self, other: &Self, work: &mut Work) -> Result<bool, Exhausted> {
        if self.len() != other.len() {
            return Ok(false);
        }
        match self.kind() {
            ListKind::Atomic => {
                for (left, right) in self.iter().zip(other.iter()) {
                    if !left.equals(&right, work)? {
                        return Ok(false);
                    }
                }
            }
            ListKind::Set => {
                for right in other.iter() {
                    if !self.contains(&right, work)? {
                        return Ok(false);
                    }
                }
            }
            ListKind::Map(keys) => {
                for right in other.iter() {
                    let mut found = None;
                    for left in self.iter() {
                        if same_keys(&left, &right, keys, work)? {
                            found = Some(left);
                            break;
                        }
                    }
                    let Some(left) = found else {
                        return Ok(false);
                    };
                    if !left.equals(&right, work)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Returns whether one of the items is equal to a value.
    pub(crate) fn contains(&self, item: &Value, work: &mut Work) -> Result<bool, Exhausted> {
        for own in self.iter() {
            if own.equals(item, work)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the sum of two lists: sets and lists that are maps are merged.
    pub(crate) fn add(&self, other: &Self, work: &mut Work) -> Result<Self, Exhausted> {
        if matches!(self.kind(), ListKind::Atomic) {
            return Ok(self.concat(other));
        }
        let mut items: Vec<_> = self.iter().collect();
        work.spend(items.len())?;
        for item in other.iter() {
            let mut place = None;
            for (index, own) in items.iter().enumerate() {
                let is_same = match self.kind() {
                    ListKind::Map(keys) => same_keys(own, &item, keys, work)?,
                    _ => own.equals(&item, work)?,
                };
                if is_same {
                    place = Some(index);
                    break;
                }
            }
            match (place, self.kind()) {
                (Some(index), ListKind::Map(_)) => items[index] = item,
                (Some(_), _) => {}
                (None, _) => items.push(item),
            }
        }
        Ok(Self::of_kind(items, self.kind().clone()))
    }
}

fn same_keys(
    left: &Value,
    right: &Value,
    keys: &[String],
    work: &mut Work,
) -> Result<bool, Exhausted> {
    for key in keys {
        let is_same = match (left.get(key), right.get(key)) {
            (Some(left), Some(right)) => left.equals(right, work)?,
            (left, right) => left.is_none() && right.is_none(),
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Map {
    fn equals(&self, other: &Self, work: &mut Work) -> Result<bool, Exhausted> {
        if self.len() != other.len() {
            return Ok(false);
        }
        for (key, value) in self.iter() {
            let Some(own) = other.get(key) else {
                return Ok(false);
            };
            if !value.equals(own, work)? {
                return Ok(false);
            }
        }
        // Fields without a schema are compared only if both have them.
        Ok(self.hidden().iter().all(|(name, value)| {
            other.hidden().get(name).is_none_or(|own| own == value)
                && (!value.is_null() || other.get_str(name).is_none())
        }))
    }
}
