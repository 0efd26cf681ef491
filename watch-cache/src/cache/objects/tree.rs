//! A persistent ordered map: a copy-on-write B+ tree whose clones cost one reference count.

use std::fmt;
use std::sync::Arc;

/// The maximum number of items in a leaf, and of children of an inner node. A tree of 100,000 items
/// has four levels, and a copy of one node is cheap.
const NODE_WIDTH_MAX: usize = 32;
/// The number of items or children below which a node is merged with its neighbour, if both fit into
/// one node.
const NODE_WIDTH_MIN: usize = NODE_WIDTH_MAX / 4;

/// An item of a [`PersistentTree`], which is ordered by key. Cloning must be cheap.
pub(crate) trait Item: Clone {
    fn key(&self) -> &[u8];
}

/// An ordered map with cheap clones.
///
/// A change copies those nodes on the path from the root to the leaf that a clone of the tree shares;
/// without clones it copies none. Every inner node stores the number of items below each child, so
/// that counting the items of a range costs O(log n).
#[derive(Clone)]
pub(crate) struct PersistentTree<T> {
    root: Arc<TreeNode<T>>,
    len: usize,
}

#[derive(Clone)]
enum TreeNode<T> {
    Leaf(Vec<T>),
    Inner(Vec<Child<T>>),
}

#[derive(Clone)]
struct Child<T> {
    /// The smallest item below the child.
    first: T,
    /// The number of items below the child.
    count: usize,
    node: Arc<TreeNode<T>>,
}

impl<T> fmt::Debug for PersistentTree<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentTree")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<T: Item> Default for PersistentTree<T> {
    fn default() -> Self {
        Self {
            root: Arc::new(TreeNode::Leaf(Vec::new())),
            len: 0,
        }
    }
}

impl<T: Item> PersistentTree<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&T> {
        let mut node = &*self.root;
        loop {
            match node {
                TreeNode::Leaf(items) => {
                    let at = items.binary_search_by(|item| item.key().cmp(key)).ok()?;
                    return Some(&items[at]);
                }
                TreeNode::Inner(children) => node = &children.get(child_of(children, key))?.node,
            }
        }
    }

    /// Inserts an item. Returns the previous item with the same key, which it replaces.
    pub(crate) fn insert(&mut self, item: T) -> Option<T> {
        let root = Arc::make_mut(&mut self.root);
        let (replaced, split) = root.insert(item);
        if let Some(right) = split {
            let left = Child::of(std::mem::replace(&mut self.root, right));
            let right = Child::of(self.root.clone());
            if let (Some(left), Some(right)) = (left, right) {
                self.root = Arc::new(TreeNode::Inner(vec![left, right]));
            }
        }
        self.len += usize::from(replaced.is_none());
        replaced
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<T> {
        // Looked up first, because removing an absent key must not copy shared nodes.
        self.get(key)?;
        let removed = Arc::make_mut(&mut self.root).remove(key);
        self.len -= usize::from(removed.is_some());
        while let TreeNode::Inner(children) = &*self.root {
            match children.as_slice() {
                [only] => self.root = only.node.clone(),
                [] => self.root = Arc::new(TreeNode::Leaf(Vec::new())),
                _ => break,
            }
        }
        removed
    }

    /// Returns the number of items with keys below `key`, in O(log n).
    pub(crate) fn rank(&self, key: &[u8]) -> usize {
        let mut rank = 0;
        let mut node = &*self.root;
        loop {
            match node {
                TreeNode::Leaf(items) => {
                    return rank + items.partition_point(|item| item.key() < key);
                }
                TreeNode::Inner(children) => {
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

    /// Converts the tree into one that is freed in steps.
    pub(crate) fn into_remains(self) -> TreeRemains<T> {
        TreeRemains {
            nodes: vec![self.root],
        }
    }

    /// Returns an iterator over the items from `key` on, in ascending order. The iterator reads the
    /// state of the tree at this call, holds no lock, and keeps one path of nodes alive at a time.
    pub(crate) fn iter_from(&self, key: &[u8]) -> TreeIter<T> {
        let mut path = Vec::new();
        let mut node = self.root.clone();
        loop {
            let (at, below) = match &*node {
                TreeNode::Leaf(items) => (items.partition_point(|item| item.key() < key), None),
                TreeNode::Inner(children) => {
                    let at = child_of(children, key);
                    (at, children.get(at).map(|child| child.node.clone()))
                }
            };
            let is_inner = below.is_some();
            path.push((node, if is_inner { at + 1 } else { at }));
            match below {
                Some(below) => node = below,
                None => return TreeIter { path },
            }
        }
    }
}

/// The nodes of a tree that is no longer used, and that is freed in steps.
pub(crate) struct TreeRemains<T> {
    nodes: Vec<Arc<TreeNode<T>>>,
}

/// The number of nodes of a [`TreeRemains`] that one step frees.
const FREED_NODES: usize = 4;

impl<T> fmt::Debug for TreeRemains<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeRemains").finish_non_exhaustive()
    }
}

impl<T> TreeRemains<T> {
    /// Frees some nodes, unless a clone of the tree shares them. Returns whether there were any.
    pub(crate) fn free_some(&mut self) -> bool {
        for freed in 0..FREED_NODES {
            let Some(node) = self.nodes.pop() else {
                return freed > 0;
            };
            if let Some(TreeNode::Inner(children)) = Arc::into_inner(node) {
                self.nodes
                    .extend(children.into_iter().map(|child| child.node));
            }
        }
        true
    }
}

/// Returns the position of the child whose range contains `key`.
fn child_of<T: Item>(children: &[Child<T>], key: &[u8]) -> usize {
    children
        .partition_point(|child| child.first.key() <= key)
        .saturating_sub(1)
}

impl<T: Item> Child<T> {
    /// Returns `None` for an empty node.
    fn of(node: Arc<TreeNode<T>>) -> Option<Self> {
        let first = node.first()?.clone();
        let count = node.count();
        Some(Self { first, count, node })
    }

    /// Updates `first` and `count` after a change of the node.
    fn refresh(&mut self) {
        if let Some(first) = self.node.first() {
            self.first = first.clone();
        }
        self.count = self.node.count();
    }
}

impl<T: Item> TreeNode<T> {
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

    /// Removes and returns the right half if the node has more than [`NODE_WIDTH_MAX`] items or children.
    fn split(&mut self) -> Option<Arc<Self>> {
        if self.width() <= NODE_WIDTH_MAX {
            return None;
        }
        // Keys are often inserted in ascending order. The left node is then nearly full.
        let at = self.width() - NODE_WIDTH_MAX / 2;
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
                } else if width < NODE_WIDTH_MIN {
                    merge(children, at);
                }
                Some(removed)
            }
        }
    }
}

/// Merges the child at position `at` with a neighbour if both fit into one node.
fn merge<T: Item>(children: &mut Vec<Child<T>>, at: usize) {
    let left = if at + 1 < children.len() {
        at
    } else {
        at.saturating_sub(1)
    };
    let Some([a, b]) = children.get(left..left + 2) else {
        return;
    };
    if a.node.width() + b.node.width() > NODE_WIDTH_MAX {
        return;
    }
    let right = children.remove(left + 1);
    let child = &mut children[left];
    match (Arc::make_mut(&mut child.node), &*right.node) {
        (TreeNode::Leaf(into), TreeNode::Leaf(from)) => into.extend(from.iter().cloned()),
        (TreeNode::Inner(into), TreeNode::Inner(from)) => into.extend(from.iter().cloned()),
        // Siblings have the same height, so the other combinations do not occur.
        _ => {}
    }
    child.refresh();
}

/// An iterator over the items of a [`PersistentTree`] in ascending order.
pub(crate) struct TreeIter<T> {
    /// The path from the root to a leaf: each node with the position of its next item or child.
    path: Vec<(Arc<TreeNode<T>>, usize)>,
}

impl<T> fmt::Debug for TreeIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeIter").finish_non_exhaustive()
    }
}

impl<T: Item> Iterator for TreeIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            let (node, at) = self.path.last_mut()?;
            let below = match &**node {
                TreeNode::Leaf(items) => {
                    if let Some(item) = items.get(*at) {
                        *at += 1;
                        return Some(item.clone());
                    }
                    None
                }
                TreeNode::Inner(children) => children.get(*at).map(|child| child.node.clone()),
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
    use std::sync::Arc;

    use super::{Item, PersistentTree};

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Pair(Vec<u8>, u64);

    impl Item for Pair {
        fn key(&self) -> &[u8] {
            &self.0
        }
    }

    fn check(tree: &PersistentTree<Pair>, model: &BTreeMap<Vec<u8>, u64>, from: &[u8]) {
        let collected: Vec<_> = tree.iter_from(from).map(|pair| (pair.0, pair.1)).collect();
        let expected: Vec<_> = model
            .range(from.to_vec()..)
            .map(|(key, value)| (key.clone(), *value))
            .collect();
        assert_eq!(collected, expected);
        assert_eq!(tree.rank(from), model.range(..from.to_vec()).count());
        assert_eq!(tree.len(), model.len());
    }

    #[test]
    fn a_tree_is_freed_in_steps_and_its_clones_stay() {
        let mut tree = PersistentTree::default();
        let mut model = BTreeMap::new();
        for number in 0..5000 {
            let key = number.to_string().into_bytes();
            tree.insert(Pair(key.clone(), number));
            model.insert(key, number);
        }
        let copy = tree.clone();
        tree.insert(Pair(b"x".to_vec(), 1));
        let leaf = Arc::downgrade(&tree.root);
        let mut remains = tree.into_remains();
        while remains.free_some() {}
        assert!(remains.nodes.is_empty() && leaf.upgrade().is_none());
        check(&copy, &model, b"");
        let mut remains = copy.into_remains();
        assert!(
            (0..40).all(|_| remains.free_some()),
            "one step frees a part"
        );
    }

    #[test]
    fn a_tree_and_its_clones_equal_plain_maps() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20 {
            let mut tree = PersistentTree::default();
            let mut model = BTreeMap::new();
            let mut copies = Vec::new();
            let keys = 1 + random.u64(..3000);
            for step in 0..4000 {
                let key = random.u64(..keys).to_string().into_bytes();
                // The tree grows at first, then shrinks to a few items.
                if random.u64(..4000) > step {
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
