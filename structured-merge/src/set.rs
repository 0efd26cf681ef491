//! Sets of fields.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::PathElement;

/// A set of fields. A field and the object that contains it are independent members: the set with `spec.a`
/// does not contain `spec`.
///
/// Sets share what they have in common, so that a clone costs nothing, and a set that is made of others little memory: about
/// 50 bytes for each field, and its name. Operations take time for the fields of both sets.
///
/// ```
/// use revstore_structured_merge::{FieldSet, PathElement};
/// let field = |name: &str| PathElement::Field(name.into());
/// let set = FieldSet::of_paths([[field("spec"), field("a")].as_slice()]);
/// assert!(set.contains(&[field("spec"), field("a")]));
/// assert!(!set.contains(&[field("spec")]));
/// assert!(set.difference(&set).is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct FieldSet {
    /// Sorted, each element once; `None` without any.
    slots: Option<Arc<[Slot]>>,
}

/// An element with what the set has of it: the field itself, or fields in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) element: PathElement,
    pub(crate) is_member: bool,
    pub(crate) child: FieldSet,
}

impl Slot {
    /// Returns the slot, if it says anything.
    fn filled(element: &PathElement, is_member: bool, child: FieldSet) -> Option<Self> {
        (is_member || !child.is_empty()).then(|| Self {
            element: element.clone(),
            is_member,
            child,
        })
    }
}

impl PartialEq for FieldSet {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared(other) || self.slots() == other.slots()
    }
}

impl Eq for FieldSet {}

impl FieldSet {
    /// The set without fields.
    pub const EMPTY: Self = Self { slots: None };

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
            let path: Vec<_> = names.map(|name| PathElement::Field(name.into())).collect();
            set.insert(&path);
        }
        set
    }

    /// Returns the set with these slots in any order. Of several slots of an element the last one with fields in it counts.
    pub(crate) fn of_slots(mut slots: Vec<Slot>) -> Self {
        slots.retain(|slot| slot.is_member || !slot.child.is_empty());
        slots.sort_by(|one, other| one.element.cmp(&other.element));
        slots.dedup_by(|later, kept| {
            let is_same = later.element == kept.element;
            if is_same {
                kept.is_member |= later.is_member;
                if !later.child.is_empty() {
                    kept.child = std::mem::take(&mut later.child);
                }
            }
            is_same
        });
        Self::sorted(slots)
    }

    fn sorted(slots: Vec<Slot>) -> Self {
        Self {
            slots: (!slots.is_empty()).then(|| slots.into()),
        }
    }

    /// Returns what the set has of the elements of its paths.
    pub(crate) fn slots(&self) -> &[Slot] {
        self.slots.as_deref().unwrap_or_default()
    }

    /// Returns what the set has of an element.
    pub(crate) fn slot(&self, element: &PathElement) -> Option<&Slot> {
        let slots = self.slots();
        let found = slots.binary_search_by(|slot| slot.element.cmp(element));
        found.ok().and_then(|index| slots.get(index))
    }

    /// Returns what the set has of a member of an object.
    pub(crate) fn slot_of_field(&self, name: &str) -> Option<&Slot> {
        let slots = self.slots();
        let found = slots.binary_search_by(|slot| match &slot.element {
            PathElement::Field(known) => (**known).cmp(name),
            _ => Ordering::Greater,
        });
        found.ok().and_then(|index| slots.get(index))
    }

    /// Adds a field; the empty path is ignored. It takes time for the fields beside it and those that contain it.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((element, rest)) = path.split_first() else {
            return;
        };
        let mut slots = self.slots().to_vec();
        let place = slots.binary_search_by(|slot| slot.element.cmp(element));
        let place = place.unwrap_or_else(|place| {
            let new = Slot {
                element: element.clone(),
                is_member: false,
                child: Self::EMPTY,
            };
            slots.insert(place, new);
            place
        });
        match rest {
            [] => slots[place].is_member = true,
            rest => slots[place].child.insert(rest),
        }
        *self = Self::sorted(slots);
    }

    /// Returns whether the set contains a field.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((element, rest)) = path.split_first() else {
            return false;
        };
        self.slot(element).is_some_and(|slot| match rest {
            [] => slot.is_member,
            rest => slot.child.contains(rest),
        })
    }

    /// Returns whether the set has no fields.
    pub fn is_empty(&self) -> bool {
        self.slots.is_none()
    }

    /// Returns whether two sets are one in memory.
    fn is_shared(&self, other: &Self) -> bool {
        match (&self.slots, &other.slots) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Returns the fields that are in one of the sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if other.is_empty() || self.is_shared(other) {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        Self::union_all([self.clone(), other.clone()])
    }

    /// Returns the fields that are in one of several sets.
    #[must_use]
    pub fn union_all(sets: impl IntoIterator<Item = Self>) -> Self {
        Self::union_of(sets.into_iter().collect())
    }

    fn union_of(mut sets: Vec<Self>) -> Self {
        sets.retain(|set| !set.is_empty());
        sets.dedup_by(|one, other| one.is_shared(other));
        if sets.len() < 2 {
            return sets.pop().unwrap_or_default();
        }
        let mut slots: Vec<&Slot> = sets.iter().flat_map(Self::slots).collect();
        slots.sort_by(|one, other| one.element.cmp(&other.element));
        let union = slots.chunk_by(|one, other| one.element == other.element);
        let union = union.map(|same| Slot {
            element: same[0].element.clone(),
            is_member: same.iter().any(|slot| slot.is_member),
            child: match same {
                [slot] => slot.child.clone(),
                same => Self::union_of(same.iter().map(|slot| slot.child.clone()).collect()),
            },
        });
        Self::sorted(union.collect())
    }

    /// Adds the fields of another set.
    pub fn extend(&mut self, other: &Self) {
        *self = self.union(other);
    }

    /// Returns the fields that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if self.is_shared(other) {
            return self.clone();
        }
        self.changed(other, |slot, other| {
            let other = other?;
            let child = slot.child.intersection(&other.child);
            Slot::filled(&slot.element, slot.is_member && other.is_member, child)
        })
    }

    /// Returns the fields that are not in the other set. The fields in a field are not affected by it.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        if self.is_shared(other) {
            return Self::EMPTY;
        }
        self.without(other, false)
    }

    /// Returns the fields that are not in the other set, nor in a field in it.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, is_recursive: bool) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        self.changed(other, |slot, other| match other {
            None => Some(slot.clone()),
            Some(other) if is_recursive && other.is_member => None,
            Some(other) => {
                let child = slot.child.without(&other.child, is_recursive);
                Slot::filled(&slot.element, slot.is_member && !other.is_member, child)
            }
        })
    }

    /// Returns whether all fields of the set are in the other one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.is_shared(other) || self.difference(other).is_empty()
    }

    /// Returns the set with what a function makes of its slots and those of another set with the same elements. If this is
    /// all that was there, it is the set itself.
    fn changed(
        &self,
        other: &Self,
        mut change: impl FnMut(&Slot, Option<&Slot>) -> Option<Slot>,
    ) -> Self {
        let mut others = other.slots().iter().peekable();
        self.map(|slot| {
            while others
                .next_if(|other| other.element < slot.element)
                .is_some()
            {}
            change(slot, others.next_if(|other| other.element == slot.element))
        })
    }

    /// Returns the set with what a function makes of its slots, in their order. If this is all that was there, it is the
    /// set itself.
    pub(crate) fn map(&self, mut change: impl FnMut(&Slot) -> Option<Slot>) -> Self {
        let slots = self.slots();
        // Nothing is allocated as long as slots stay as they are.
        let mut new: Option<Vec<Slot>> = None;
        for (index, slot) in slots.iter().enumerate() {
            let changed = change(slot);
            if let Some(new) = &mut new {
                new.extend(changed);
                continue;
            }
            let is_same = changed.as_ref().is_some_and(|changed| {
                changed.is_member == slot.is_member && changed.child.is_shared(&slot.child)
            });
            if !is_same {
                let mut kept = slots[..index].to_vec();
                kept.extend(changed);
                new = Some(kept);
            }
        }
        new.map_or_else(|| self.clone(), Self::sorted)
    }

    /// Calls a function with the path of each field; `path` is the beginning of all. Of the fields of an object those come
    /// first that have no others in them.
    pub fn for_each(&self, path: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
        for slot in self.slots().iter().filter(|slot| slot.is_member) {
            path.push(slot.element.clone());
            visit(path);
            path.pop();
        }
        for slot in self.slots() {
            path.push(slot.element.clone());
            slot.child.for_each(path, visit);
            path.pop();
        }
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        let slots = self.slots().iter();
        slots
            .map(|slot| usize::from(slot.is_member) + slot.child.len())
            .sum()
    }

    /// Returns the set, or the one before it if both are equal, which then are one in memory. The items of a list mostly
    /// have the same fields.
    pub(crate) fn shared_with(self, last: &mut Self) -> Self {
        if self == *last {
            return last.clone();
        }
        last.clone_from(&self);
        self
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
        assert!(one.is_subset(&one.union(&other)) && !one.is_subset(&other));
        let all = FieldSet::union_all([other.clone(), one.clone(), FieldSet::of_names(&["f"])]);
        assert_eq!(all, one.union(&other).union(&FieldSet::of_names(&["f"])));
    }

    #[test]
    fn sets_share_what_does_not_change() {
        let one = FieldSet::of_names(&["a.b", "a.c", "d"]);
        let less = one.difference(&FieldSet::of_names(&["d", "x"]));
        assert_eq!(less, FieldSet::of_names(&["a.b", "a.c"]));
        assert!(less.slots()[0].child.is_shared(&one.slots()[0].child));
        assert!(one.difference(&FieldSet::of_names(&["x"])).is_shared(&one));
        assert!(one.intersection(&one.union(&less)).is_shared(&one));
    }
}
