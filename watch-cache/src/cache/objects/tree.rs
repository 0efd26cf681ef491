//! The ordered map of current objects: a B-tree whose copies are free until one of them changes.

use std::fmt;
use std::sync::Arc;

/// Items in a leaf and children of an inner node, at most. Wide enough that a tree of 100,000 items
/// has four levels, narrow enough that copying a node costs little.
const WIDTH: usize = 32;
/// A node with fewer is joined to its neighbour where both fit into one.
const NARROW: usize = WIDTH / 4;

/// Something that a tree orders by its key. Cloning must be cheap.
pub(crate) trait Item: Clone {
    fn key(&self) -> &[u8];
}

/// An ordered map that is copied by counting a reference.
///
/// A change copies the nodes between the root and the leaf, and only those that a copy of the tree
/// still shares: without copies nothing is copied. Every inner node counts what is below each
/// child, so that counting a range is logarithmic.
#[derive(Clone)]
pub(crate) struct Tree<T> {
    root: Arc<Node<T>>,
    len: usize,
}

#[derive(Clone)]
enum Node<T> {
    Leaf(Vec<T>),
    Inner(Vec<Child<T>>),
}

#[derive(Clone)]
struct Child<T> {
    /// The smallest item below.
    first: T,
    /// Items below.
    count: usize,
    node: Arc<Node<T>>,
}

impl<T> fmt::Debug for Tree<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<T: Item> Default for Tree<T> {
    fn default() -> Self {
        Self {
            root: Arc::new(Node::Leaf(Vec::new())),
            len: 0,
        }
    }
}

impl<T: Item> Tree<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&T> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => {
                    let at = items.binary_search_by(|item| item.key().cmp(key)).ok()?;
                    return Some(&items[at]);
                }
                Node::Inner(children) => node = &children.get(child_of(children, key))?.node,
            }
        }
    }

    /// Adds an item, or puts it in the place of the one with its key, which is returned.
    pub(crate) fn insert(&mut self, item: T) -> Option<T> {
        let root = Arc::make_mut(&mut self.root);
        let (replaced, split) = root.insert(item);
        if let Some(right) = split {
            let left = Child::of(std::mem::replace(&mut self.root, right));
            let right = Child::of(self.root.clone());
            if let (Some(left), Some(right)) = (left, right) {
                self.root = Arc::new(Node::Inner(vec![left, right]));
            }
        }
        self.len += usize::from(replaced.is_none());
        replaced
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<T> {
        // Looked up first: what is absent must copy nothing.
        self.get(key)?;
        let removed = Arc::make_mut(&mut self.root).remove(key);
        self.len -= usize::from(removed.is_some());
        while let Node::Inner(children) = &*self.root {
            match children.as_slice() {
                [only] => self.root = only.node.clone(),
                [] => self.root = Arc::new(Node::Leaf(Vec::new())),
                _ => break,
            }
        }
        removed
    }

    /// How many items lie below `key`. Logarithmic.
    pub(crate) fn rank(&self, key: &[u8]) -> usize {
        let mut rank = 0;
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => {
                    return rank + items.partition_point(|item| item.key() < key);
                }
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    rank += children[..at]
                        .iter()
                        .map(|child| child.count)
                        .sum::<usize>();
                    let Some(child) = children.get(at) else {
                        return rank;
                    };
                    node = &child.node;
                }
            }
        }
    }

    /// The items from `key` on, ascending. The walk keeps the tree as it is now; it holds no lock,
    /// and a path of nodes at a time.
    pub(crate) fn walk(&self, key: &[u8]) -> Walk<T> {
        let mut path = Vec::new();
        let mut node = self.root.clone();
        loop {
            let (at, below) = match &*node {
                Node::Leaf(items) => (items.partition_point(|item| item.key() < key), None),
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    (at, children.get(at).map(|child| child.node.clone()))
                }
            };
            let is_inner = below.is_some();
            path.push((node, if is_inner { at + 1 } else { at }));
            match below {
                Some(below) => node = below,
                None => return Walk { path },
            }
        }
    }
}

/// The child in which `key` is, or would be.
fn child_of<T: Item>(children: &[Child<T>], key: &[u8]) -> usize {
    children
        .partition_point(|child| child.first.key() <= key)
        .saturating_sub(1)
}

impl<T: Item> Child<T> {
    /// Nothing for an empty node.
    fn of(node: Arc<Node<T>>) -> Option<Self> {
        let first = node.first()?.clone();
        let count = node.count();
        Some(Self { first, count, node })
    }

    /// Says again what the node below has become.
    fn refresh(&mut self) {
        if let Some(first) = self.node.first() {
            self.first = first.clone();
        }
        self.count = self.node.count();
    }
}

impl<T: Item> Node<T> {
    fn first(&self) -> Option<&T> {
        match self {
            Self::Leaf(items) => items.first(),
            Self::Inner(children) => children.first().map(|child| &child.first),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Inner(children) => children.iter().map(|child| child.count).sum(),
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Takes the right half away if there is too much.
    fn split(&mut self) -> Option<Arc<Self>> {
        if self.width() <= WIDTH {
            return None;
        }
        // Keys often come in ascending order; a full left node then wastes no space.
        let at = self.width() - WIDTH / 2;
        Some(Arc::new(match self {
            Self::Leaf(items) => Self::Leaf(items.split_off(at)),
            Self::Inner(children) => Self::Inner(children.split_off(at)),
        }))
    }

    fn insert(&mut self, item: T) -> (Option<T>, Option<Arc<Self>>) {
        let replaced = match self {
            Self::Leaf(items) => {
                match items.binary_search_by(|known| known.key().cmp(item.key())) {
                    Ok(at) => Some(std::mem::replace(&mut items[at], item)),
                    Err(at) => {
                        items.insert(at, item);
                        None
                    }
                }
            }
            Self::Inner(children) => {
                let at = child_of(children, item.key());
                let child = &mut children[at];
                let (replaced, split) = Arc::make_mut(&mut child.node).insert(item);
                child.refresh();
                if let Some(right) = split.and_then(Child::of) {
                    children.insert(at + 1, right);
                }
                replaced
            }
        };
        (replaced, self.split())
    }

    fn remove(&mut self, key: &[u8]) -> Option<T> {
        match self {
            Self::Leaf(items) => {
                let at = items.binary_search_by(|item| item.key().cmp(key)).ok()?;
                Some(items.remove(at))
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                let child = children.get_mut(at)?;
                let removed = Arc::make_mut(&mut child.node).remove(key)?;
                child.refresh();
                let width = child.node.width();
                if width == 0 {
                    children.remove(at);
                } else if width < NARROW {
                    join(children, at);
                }
                Some(removed)
            }
        }
    }
}

/// Joins the child at `at` to a neighbour if one node holds both.
fn join<T: Item>(children: &mut Vec<Child<T>>, at: usize) {
    let left = if at + 1 < children.len() {
        at
    } else {
        at.saturating_sub(1)
    };
    let Some([a, b]) = children.get(left..left + 2) else {
        return;
    };
    if a.node.width() + b.node.width() > WIDTH {
        return;
    }
    let right = children.remove(left + 1);
    let child = &mut children[left];
    match (Arc::make_mut(&mut child.node), &*right.node) {
        (Node::Leaf(into), Node::Leaf(from)) => into.extend(from.iter().cloned()),
        (Node::Inner(into), Node::Inner(from)) => into.extend(from.iter().cloned()),
        // Neighbours are of one height.
        _ => {}
    }
    child.refresh();
}

/// Items in ascending order.
pub(crate) struct Walk<T> {
    /// From the root down: a node, and where it goes on.
    path: Vec<(Arc<Node<T>>, usize)>,
}

impl<T> fmt::Debug for Walk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").finish_non_exhaustive()
    }
}

impl<T: Item> Iterator for Walk<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            let (node, at) = self.path.last_mut()?;
            let below = match &**node {
                Node::Leaf(items) => {
                    if let Some(item) = items.get(*at) {
                        *at += 1;
                        return Some(item.clone());
                    }
                    None
                }
                Node::Inner(children) => children.get(*at).map(|child| child.node.clone()),
            };
            *at += 1;
            match below {
                Some(below) => self.path.push((below, 0)),
                None => {
                    self.path.pop();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Item, Tree};

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Pair(Vec<u8>, u64);

    impl Item for Pair {
        fn key(&self) -> &[u8] {
            &self.0
        }
    }

    fn check(tree: &Tree<Pair>, model: &BTreeMap<Vec<u8>, u64>, from: &[u8]) {
        let walked: Vec<_> = tree.walk(from).map(|pair| (pair.0, pair.1)).collect();
        let expected: Vec<_> = model
            .range(from.to_vec()..)
            .map(|(key, value)| (key.clone(), *value))
            .collect();
        assert_eq!(walked, expected);
        assert_eq!(tree.rank(from), model.range(..from.to_vec()).count());
        assert_eq!(tree.len(), model.len());
    }

    #[test]
    fn a_tree_and_its_copies_equal_plain_maps() {
        let mut random = crate::random::Random::seeded(7);
        for _ in 0..20 {
            let mut tree = Tree::default();
            let mut model = BTreeMap::new();
            let mut copies = Vec::new();
            let keys = 1 + random.below(3000);
            for step in 0..4000 {
                let key = random.below(keys).to_string().into_bytes();
                // Grows at first, then shrinks to nearly nothing.
                if random.below(4000) > step {
                    let replaced = tree.insert(Pair(key.clone(), step)).map(|pair| pair.1);
                    assert_eq!(replaced, model.insert(key, step));
                } else {
                    assert_eq!(tree.remove(&key).map(|pair| pair.1), model.remove(&key));
                }
                if step % 500 == 0 {
                    copies.push((tree.clone(), model.clone()));
                }
            }
            copies.push((tree, model));
            for (tree, model) in &copies {
                check(tree, model, b"");
                check(tree, model, b"5");
                check(tree, model, b"99999");
                for (key, value) in model {
                    assert_eq!(tree.get(key).map(|pair| pair.1), Some(*value));
                }
            }
        }
    }
}
