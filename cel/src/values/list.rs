//! Lists, whose concatenation copies nothing.

use std::sync::Arc;

use super::Value;

/// A list.
#[derive(Clone, Debug)]
pub struct List(Arc<Part>);

#[derive(Debug)]
enum Part {
    Items(Vec<Value>, ListKind),
    /// Two lists one behind the other, and the number of items.
    Both(List, List, usize),
}

/// What the items of a list mean together.
#[derive(Clone, Debug, Default)]
pub(crate) enum ListKind {
    #[default]
    Atomic,
    Set,
    /// A map by the values of these fields.
    Map(Arc<[String]>),
}

impl List {
    pub(crate) fn new(items: Vec<Value>) -> Self {
        Self::of_kind(items, ListKind::Atomic)
    }

    pub(crate) fn of_kind(items: Vec<Value>, kind: ListKind) -> Self {
        Self(Arc::new(Part::Items(items, kind)))
    }

    pub(crate) fn len(&self) -> usize {
        match &*self.0 {
            Part::Items(items, _) => items.len(),
            Part::Both(.., len) => *len,
        }
    }

    pub(crate) fn kind(&self) -> &ListKind {
        match &*self.0 {
            Part::Items(_, kind) => kind,
            Part::Both(..) => &ListKind::Atomic,
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        match &*self.0 {
            Part::Items(items, _) => items.get(index).cloned(),
            Part::Both(first, second, _) => match index.checked_sub(first.len()) {
                Some(index) => second.get(index),
                None => first.get(index),
            },
        }
    }

    /// Returns the list and another one behind it.
    pub(crate) fn concat(&self, other: &Self) -> Self {
        if self.len() == 0 {
            return other.clone();
        }
        if other.len() == 0 {
            return self.clone();
        }
        let len = self.len().saturating_add(other.len());
        Self(Arc::new(Part::Both(self.clone(), other.clone(), len)))
    }

    /// Adds an item. Copies the list only if it is shared.
    pub(crate) fn push(&mut self, item: Value) {
        if let Some(Part::Items(items, _)) = Arc::get_mut(&mut self.0) {
            items.push(item);
        } else {
            let mut items: Vec<_> = self.iter().collect();
            items.push(item);
            *self = Self::new(items);
        }
    }

    pub(crate) fn iter(&self) -> Items<'_> {
        let mut items = Items {
            parts: Vec::new(),
            current: [].iter(),
        };
        items.enter(self);
        items
    }
}

/// The items of a list in order.
pub(crate) struct Items<'a> {
    parts: Vec<&'a List>,
    current: std::slice::Iter<'a, Value>,
}

impl<'a> Items<'a> {
    fn enter(&mut self, list: &'a List) {
        let mut list = list;
        loop {
            match &*list.0 {
                Part::Items(items, _) => {
                    self.current = items.iter();
                    return;
                }
                Part::Both(first, second, _) => {
                    self.parts.push(second);
                    list = first;
                }
            }
        }
    }
}

impl Iterator for Items<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(item) = self.current.next() {
                return Some(item.clone());
            }
            let part = self.parts.pop()?;
            self.enter(part);
        }
    }
}
