//! Sets of fields.

use std::collections::{BTreeMap, BTreeSet};

use crate::PathElement;

/// A set of fields. A field and the object that contains it are independent members: the set with `spec.a`
/// does not contain `spec`.
///
/// ```
/// use revstore_structured_merge::{FieldSet, PathElement};
/// let field = |name: &str| PathElement::Field(name.to_owned());
/// let set = FieldSet::of_paths([[field("spec"), field("a")].as_slice()]);
/// assert!(set.contains(&[field("spec"), field("a")]));
/// assert!(!set.contains(&[field("spec")]));
/// assert!(set.difference(&set).is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(crate) members: BTreeSet<PathElement>,
    /// The fields in other fields; none of the sets is empty.
    pub(crate) children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// The set without fields.
    pub const EMPTY: Self = Self {
        members: BTreeSet::new(),
        children: BTreeMap::new(),
    };

    /// Returns the set of these paths.
    pub fn of_paths<'a>(paths: impl IntoIterator<Item = &'a [PathElement]>) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path);
        }
        set
    }

    /// Returns the set of paths that consist of names, separated by dots.
    pub fn of_names(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let names = path.split('.');
            let path: Vec<_> = names
                .map(|name| PathElement::Field(name.to_owned()))
                .collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a field; the empty path is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [field] => {
                self.members.insert(field.clone());
            }
            [parent, rest @ ..] => {
                self.children
                    .entry(parent.clone())
                    .or_default()
                    .insert(rest);
            }
        }
    }

    /// Returns whether the set contains a field.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [field] => self.members.contains(field),
            [parent, rest @ ..] => {
                let child = self.children.get(parent);
                child.is_some_and(|child| child.contains(rest))
            }
        }
    }

    /// Returns whether the set has no fields.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Returns the fields that are in one of the sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.extend(other.clone());
        union
    }

    /// Adds the fields of another set.
    pub fn extend(&mut self, other: Self) {
        self.members.extend(other.members);
        for (element, child) in other.children {
            self.children.entry(element).or_default().extend(child);
        }
    }

    /// Returns the fields that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            let common = child.intersection(other.children.get(element)?);
            (!common.is_empty()).then(|| (element.clone(), common))
        });
        Self {
            members,
            children: children.collect(),
        }
    }

    /// Returns the fields that are not in the other set. The fields in a field are not affected by it.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Returns the fields that are not in the other set, nor in a field in it.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, is_recursive: bool) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            if is_recursive && other.members.contains(element) {
                return None;
            }
            let rest = match other.children.get(element) {
                Some(removed) => child.without(removed, is_recursive),
                None => child.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            members,
            children: children.collect(),
        }
    }

    /// Calls a function with the path of each field; `path` is the beginning of all.
    pub fn for_each(&self, path: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
        for member in &self.members {
            path.push(member.clone());
            visit(path);
            path.pop();
        }
        for (element, child) in &self.children {
            path.push(element.clone());
            child.for_each(path, visit);
            path.pop();
        }
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.members.len() + self.children.values().map(Self::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::FieldSet;

    #[test]
    fn sets_are_combined() {
        let one = FieldSet::of_names(&["a", "b.c", "b.d"]);
        let other = FieldSet::of_names(&["b", "b.c", "e"]);
        assert_eq!(
            one.union(&other),
            FieldSet::of_names(&["a", "b", "b.c", "b.d", "e"])
        );
        assert_eq!(one.intersection(&other), FieldSet::of_names(&["b.c"]));
        assert_eq!(one.difference(&other), FieldSet::of_names(&["a", "b.d"]));
        assert_eq!(one.recursive_difference(&other), FieldSet::of_names(&["a"]));
        assert_eq!(one.len(), 3);
        assert!(one.difference(&one).is_empty());
    }
}
