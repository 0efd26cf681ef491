//! A B-tree with counts: the ordered map from key to entry, which stores the number of live keys of
//! every subtree next to the pointer to it.
//!
//! ```text
//!            inner   separators    "g"      "p"
//!                    live       3      4       2
//!                    children    │      │       │
//!            leaf  [a c e f]  [g h k m]  [p q z]     with one bit per key: live or not
//! ```
//!
//! A deleted key stays in the tree, not live, until compaction drops its last version. Lookup,
//! insertion, removal and counting a range take logarithmic time; a scan visits the leaves.

use std::ops::ControlFlow;

use super::sorted_node::Sorted;
use crate::history::Entry;

/// The maximum number of entries in a leaf: the number of bits of its bit set.
const LEAF_ENTRIES_MAX: usize = u64::BITS as usize;
/// The maximum number of children of an inner node.
const CHILDREN_MAX: usize = 64;
/// The minimum number of entries or children of a node. A node with fewer is joined with a
/// neighbour if possible.
const FILL_MIN: usize = 16;

#[derive(Debug)]
pub(crate) struct Tree {
    root: TreeNode,
    len: usize,
}

#[derive(Debug)]
enum TreeNode {
    Leaf(Box<Leaf>),
    Inner(Box<InnerNode>),
}

#[derive(Debug)]
struct Leaf {
    entries: Sorted<Entry>,
    /// Bit i: whether entry i is live.
    live: u64,
}

#[derive(Debug)]
struct InnerNode {
    /// Separator i is above every key of child i and not above any of child i + 1.
    separators: Sorted<Entry>,
    children: Vec<TreeNode>,
    /// The number of live keys below each child.
    live: Vec<usize>,
}

/// The result of a split: the new right neighbour and a lower bound of its keys.
struct Split {
    separator: Entry,
    right: TreeNode,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self {
            root: TreeNode::empty(),
            len: 0,
        }
    }

    /// Returns the number of keys, live or not.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let leaf = self.root.leaf_of(key);
        leaf.entries
            .find(key)
            .ok()
            .map(|at| &leaf.entries.as_slice()[at])
    }

    /// Adds an entry whose key is not in the tree, as not live.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.len += 1;
        if let Some(Split { separator, right }) = self.root.insert(entry) {
            let left = std::mem::replace(&mut self.root, TreeNode::empty());
            let live = vec![left.live(), right.live()];
            let root = InnerNode {
                separators: Sorted::one(separator),
                children: vec![left, right],
                live,
            };
            self.root = TreeNode::Inner(Box::new(root));
        }
    }

    /// Removes a key, if it is in the tree.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        if self.root.remove(key) {
            self.len -= 1;
        }
        // A root with one child only adds height.
        while let TreeNode::Inner(inner) = &mut self.root
            && inner.children.len() <= 1
        {
            self.root = inner.children.pop().unwrap_or_else(TreeNode::empty);
        }
    }

    /// Marks a key as live or not live.
    pub(crate) fn set_live(&mut self, key: &[u8], live: bool) {
        self.root.set_live(key, live);
    }

    /// Returns the number of live keys.
    pub(crate) fn live(&self) -> usize {
        self.root.live()
    }

    /// Returns the number of live keys below `key`.
    pub(crate) fn live_below(&self, key: &[u8]) -> usize {
        let mut below = 0;
        let mut node = &self.root;
        loop {
            match node {
                TreeNode::Inner(inner) => {
                    let child = inner.child_of(key);
                    below += inner.live[..child].iter().sum::<usize>();
                    node = &inner.children[child];
                }
                TreeNode::Leaf(leaf) => {
                    let (Ok(at) | Err(at)) = leaf.entries.find(key);
                    return below + (leaf.live & low_bits(at)).count_ones() as usize;
                }
            }
        }
    }

    /// Calls `visit` with the entries from `start` on in key order, one leaf at a time, until it
    /// breaks.
    pub(crate) fn visit_from<B>(
        &self,
        start: &[u8],
        mut visit: impl FnMut(&[Entry]) -> ControlFlow<B>,
    ) -> Option<B> {
        match self.root.visit_from(start, &mut visit) {
            ControlFlow::Break(value) => Some(value),
            ControlFlow::Continue(()) => None,
        }
    }
}

impl TreeNode {
    fn empty() -> Self {
        Self::Leaf(Box::new(Leaf {
            entries: Sorted::new(),
            live: 0,
        }))
    }

    fn leaf_of(&self, key: &[u8]) -> &Leaf {
        let mut node = self;
        loop {
            match node {
                TreeNode::Leaf(leaf) => return leaf,
                TreeNode::Inner(inner) => node = &inner.children[inner.child_of(key)],
            }
        }
    }

    fn live(&self) -> usize {
        match self {
            TreeNode::Leaf(leaf) => leaf.live.count_ones() as usize,
            TreeNode::Inner(inner) => inner.live.iter().sum(),
        }
    }

    fn fill(&self) -> usize {
        match self {
            TreeNode::Leaf(leaf) => leaf.entries.len(),
            TreeNode::Inner(inner) => inner.children.len(),
        }
    }

    fn insert(&mut self, entry: Entry) -> Option<Split> {
        match self {
            TreeNode::Leaf(leaf) => leaf.insert(entry),
            TreeNode::Inner(inner) => inner.insert(entry),
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        match self {
            TreeNode::Leaf(leaf) => leaf.remove(key),
            TreeNode::Inner(inner) => inner.remove(key),
        }
    }

    /// Returns the change of the number of live keys: -1, 0 or 1.
    fn set_live(&mut self, key: &[u8], live: bool) -> isize {
        match self {
            TreeNode::Leaf(leaf) => leaf.set_live(key, live),
            TreeNode::Inner(inner) => {
                let child = inner.child_of(key);
                let change = inner.children[child].set_live(key, live);
                inner.live[child] = inner.live[child].saturating_add_signed(change);
                change
            }
        }
    }

    fn visit_from<B>(
        &self,
        start: &[u8],
        visit: &mut impl FnMut(&[Entry]) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match self {
            TreeNode::Leaf(leaf) => {
                let (Ok(first) | Err(first)) = leaf.entries.find(start);
                visit(&leaf.entries.as_slice()[first..])
            }
            TreeNode::Inner(inner) => {
                let first = inner.child_of(start);
                inner.children[first].visit_from(start, visit)?;
                for child in &inner.children[first + 1..] {
                    child.visit_all(visit)?;
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn visit_all<B>(&self, visit: &mut impl FnMut(&[Entry]) -> ControlFlow<B>) -> ControlFlow<B> {
        match self {
            TreeNode::Leaf(leaf) => visit(leaf.entries.as_slice()),
            TreeNode::Inner(inner) => inner
                .children
                .iter()
                .try_for_each(|child| child.visit_all(visit)),
        }
    }

    /// Appends the content of the right neighbour, whose lower bound is `separator`.
    fn join(&mut self, separator: Entry, right: TreeNode) {
        match (self, right) {
            (TreeNode::Leaf(left), TreeNode::Leaf(right)) => {
                left.live |= right.live << left.entries.len();
                left.entries.append(right.entries);
            }
            (TreeNode::Inner(left), TreeNode::Inner(mut right)) => {
                left.separators.insert(left.separators.len(), separator);
                left.separators.append(right.separators);
                left.children.append(&mut right.children);
                left.live.append(&mut right.live);
            }
            _ => unreachable!("neighbours have the same height"),
        }
    }
}

impl Leaf {
    fn insert(&mut self, entry: Entry) -> Option<Split> {
        let (Ok(at) | Err(at)) = self.entries.find(entry.key());
        if self.entries.len() < LEAF_ENTRIES_MAX {
            self.insert_at(at, entry);
            return None;
        }
        // Keys that are inserted in order leave full leaves; other keys leave half full ones.
        let middle = if at == LEAF_ENTRIES_MAX {
            at
        } else {
            LEAF_ENTRIES_MAX / 2
        };
        let mut right = Leaf {
            entries: self.entries.split_off(middle),
            live: if middle < LEAF_ENTRIES_MAX {
                self.live >> middle
            } else {
                0
            },
        };
        self.live &= low_bits(middle);
        if at < middle {
            self.insert_at(at, entry);
        } else {
            right.insert_at(at - middle, entry);
        }
        let separator = right.entries.as_slice()[0].clone();
        Some(Split {
            separator,
            right: TreeNode::Leaf(Box::new(right)),
        })
    }

    fn insert_at(&mut self, at: usize, entry: Entry) {
        let low = low_bits(at);
        self.live = (self.live & low) | ((self.live & !low) << 1);
        self.entries.insert(at, entry);
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Ok(at) = self.entries.find(key) else {
            return false;
        };
        self.entries.remove(at);
        let low = low_bits(at);
        self.live = (self.live & low) | ((self.live >> 1) & !low);
        true
    }

    fn set_live(&mut self, key: &[u8], live: bool) -> isize {
        let Ok(at) = self.entries.find(key) else {
            return 0;
        };
        let bit = 1 << at;
        match (self.live & bit != 0, live) {
            (false, true) => {
                self.live |= bit;
                1
            }
            (true, false) => {
                self.live &= !bit;
                -1
            }
            _ => 0,
        }
    }
}

impl InnerNode {
    fn child_of(&self, key: &[u8]) -> usize {
        match self.separators.find(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    fn insert(&mut self, entry: Entry) -> Option<Split> {
        let child = self.child_of(entry.key());
        let Split { separator, right } = self.children[child].insert(entry)?;
        self.live[child] = self.children[child].live();
        self.live.insert(child + 1, right.live());
        self.separators.insert(child, separator);
        self.children.insert(child + 1, right);
        if self.children.len() <= CHILDREN_MAX {
            return None;
        }
        let last = child + 2 == self.children.len();
        let middle = if last { CHILDREN_MAX } else { CHILDREN_MAX / 2 };
        let separators = self.separators.split_off(middle);
        // The separator between the halves moves up.
        let separator = self.separators.pop()?;
        let right = InnerNode {
            separators,
            children: self.children.split_off(middle),
            live: self.live.split_off(middle),
        };
        Some(Split {
            separator,
            right: TreeNode::Inner(Box::new(right)),
        })
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let child = self.child_of(key);
        if !self.children[child].remove(key) {
            return false;
        }
        self.live[child] = self.children[child].live();
        let fill = self.children[child].fill();
        if fill == 0 {
            self.children.remove(child);
            self.live.remove(child);
            if self.separators.len() > 0 {
                self.separators.remove(child.saturating_sub(1));
            }
        } else if fill < FILL_MIN {
            let left = child.min(self.children.len().saturating_sub(2));
            self.join_if_small(left);
        }
        true
    }

    /// Joins child `left` and the next one if the result has room for growth.
    fn join_if_small(&mut self, left: usize) {
        let room = LEAF_ENTRIES_MAX.min(CHILDREN_MAX) * 3 / 4;
        let Some(right) = self.children.get(left + 1) else {
            return;
        };
        if self.children[left].fill() + right.fill() > room {
            return;
        }
        let right = self.children.remove(left + 1);
        let separator = self.separators.remove(left);
        self.live[left] += self.live.remove(left + 1);
        self.children[left].join(separator, right);
    }
}

/// Returns a number with the lowest `count` bits set.
fn low_bits(count: usize) -> u64 {
    if count >= u64::BITS as usize {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use super::{Tree, TreeNode};
    use crate::history::Entry;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        Remove(u16),
        SetLive(u16, bool),
    }

    fn bytes(number: u16) -> Vec<u8> {
        format!("/registry/pods/{number:05}").into_bytes()
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..3000_u16).prop_map(Step::Insert),
            2 => (0..3000_u16).prop_map(Step::Remove),
            3 => ((0..3000_u16), any::<bool>()).prop_map(|(key, live)| Step::SetLive(key, live)),
        ];
        proptest::collection::vec(step, 0..3000)
    }

    /// Checks all invariants that the types do not enforce.
    fn check_shape(
        node: &TreeNode,
        low: Option<&Entry>,
        high: Option<&Entry>,
        root: bool,
    ) -> usize {
        match node {
            TreeNode::Leaf(leaf) => {
                let entries = leaf.entries.as_slice();
                assert!(root || !entries.is_empty());
                assert!(entries.is_sorted_by(|a, b| a < b));
                for entry in entries {
                    assert!(low.is_none_or(|low| low <= entry));
                    assert!(high.is_none_or(|high| entry < high));
                }
                1
            }
            TreeNode::Inner(inner) => {
                assert_eq!(inner.separators.len() + 1, inner.children.len());
                assert!(!inner.children.is_empty());
                let mut heights = Vec::new();
                for (at, child) in inner.children.iter().enumerate() {
                    let low = if at == 0 {
                        low
                    } else {
                        inner.separators.as_slice().get(at - 1)
                    };
                    let high = inner.separators.as_slice().get(at).or(high);
                    heights.push(check_shape(child, low, high, false));
                    assert_eq!(inner.live[at], child.live());
                }
                assert!(heights.windows(2).all(|pair| pair[0] == pair[1]));
                heights[0] + 1
            }
        }
    }

    fn check(steps: &[Step]) {
        let mut tree = Tree::new();
        let mut model: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(number) => {
                    if let std::collections::btree_map::Entry::Vacant(vacant) =
                        model.entry(bytes(*number))
                    {
                        tree.insert(Entry::new(vacant.key()));
                        vacant.insert(false);
                    }
                }
                Step::Remove(number) => {
                    model.remove(&bytes(*number));
                    tree.remove(&bytes(*number));
                }
                Step::SetLive(number, live) => {
                    if let Some(state) = model.get_mut(&bytes(*number)) {
                        *state = *live;
                    }
                    tree.set_live(&bytes(*number), *live);
                }
            }
        }
        check_shape(&tree.root, None, None, true);
        assert_eq!(tree.len(), model.len());
        for probe in (0..3000).step_by(211) {
            let probe = bytes(probe);
            let below = model
                .range(..probe.clone())
                .filter(|(_, live)| **live)
                .count();
            assert_eq!(tree.live_below(&probe), below);
            assert_eq!(tree.get(&probe).is_some(), model.contains_key(&probe));
            let mut seen = Vec::new();
            tree.visit_from(&probe, |entries| {
                seen.extend(entries.iter().map(|entry| entry.key().to_vec()));
                if seen.len() >= 100 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            seen.truncate(100);
            let expected: Vec<_> = model
                .range(probe..)
                .take(100)
                .map(|(key, _)| key.clone())
                .collect();
            assert_eq!(seen, expected);
        }
        assert_eq!(tree.live(), model.values().filter(|live| **live).count());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_tree_agrees_with_a_plain_map(steps in steps()) {
            check(&steps);
        }
    }

    #[test]
    fn growing_in_order_and_shrinking_to_nothing_keeps_the_shape() {
        let all = 0..3000;
        let mut steps: Vec<Step> = all.clone().map(Step::Insert).collect();
        steps.extend(all.clone().map(|key| Step::SetLive(key, key % 3 == 0)));
        check(&steps);
        steps.extend(all.rev().map(Step::Remove));
        check(&steps);
    }
}
