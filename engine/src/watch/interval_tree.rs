//! A balanced tree of ranges that finds all ranges that contain a key. etcd's `adt.IntervalTree`.

use std::cmp::Ordering;

use bytes::Bytes;

/// The number of a group of watches, which the tree stores for its range.
pub(super) type GroupId = u32;

/// The greatest height of a tree: an AVL tree with 2^32 nodes has at most 46 levels.
const HEIGHT_MAX: usize = 48;
/// The index of no node.
const NONE: NodeId = NodeId::MAX;

type NodeId = u32;

/// Ranges and their groups, each range once.
///
/// An AVL tree, ordered by start and then by end, in which every node stores the largest end in its
/// subtree. A change takes O(log n) time, whatever the ranges are, and a search O(log n + results).
/// The nodes are in one vector, and no function is recursive, so a stack of constant size suffices.
#[derive(Debug)]
pub(super) struct IntervalTree {
    nodes: Vec<IntervalNode>,
    /// Indexes of free slots in `nodes`.
    free: Vec<NodeId>,
    root: NodeId,
}

#[derive(Debug)]
struct IntervalNode {
    start: Bytes,
    end: RangeEnd,
    group: GroupId,
    /// The largest end in this subtree.
    max_end: RangeEnd,
    height: u8,
    left: NodeId,
    right: NodeId,
}

/// The exclusive end of a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RangeEnd {
    Before(Bytes),
    Never,
}

impl RangeEnd {
    /// Returns whether the end is after `key`.
    fn is_after(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key < **end,
            Self::Never => true,
        }
    }
}

/// The nodes from the root to the position of a change.
struct Path {
    nodes: [NodeId; HEIGHT_MAX],
    len: usize,
}

impl Path {
    fn new() -> Self {
        Self {
            nodes: [NONE; HEIGHT_MAX],
            len: 0,
        }
    }

    fn push(&mut self, node: NodeId) {
        self.nodes[self.len] = node;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<NodeId> {
        self.len = self.len.checked_sub(1)?;
        Some(self.nodes[self.len])
    }

    fn last(&self) -> Option<NodeId> {
        Some(self.nodes[self.len.checked_sub(1)?])
    }
}

impl Default for IntervalTree {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NONE,
        }
    }
}

impl IntervalTree {
    /// Inserts a range with `group`, unless the range is in the tree. Returns its group.
    pub(super) fn insert(&mut self, start: &Bytes, end: &RangeEnd, group: GroupId) -> GroupId {
        let mut path = Path::new();
        let found = self.descend(start, end, &mut path);
        if found != NONE {
            return self.node(found).group;
        }
        let node = self.allocate(IntervalNode {
            start: start.clone(),
            end: end.clone(),
            group,
            max_end: end.clone(),
            height: 1,
            left: NONE,
            right: NONE,
        });
        match path.last() {
            None => self.root = node,
            Some(parent) => {
                let parent = self.node_mut(parent);
                match parent.compare(start, end) {
                    Ordering::Less => parent.left = node,
                    Ordering::Equal | Ordering::Greater => parent.right = node,
                }
            }
        }
        self.rebalance(path);
        group
    }

    /// Removes a range.
    pub(super) fn remove(&mut self, start: &Bytes, end: &RangeEnd) {
        let mut path = Path::new();
        let mut removed = self.descend(start, end, &mut path);
        if removed == NONE {
            return;
        }
        if self.node(removed).left != NONE && self.node(removed).right != NONE {
            // The next range in order takes the slot; its own node has no left child.
            path.push(removed);
            let mut successor = self.node(removed).right;
            while self.node(successor).left != NONE {
                path.push(successor);
                successor = self.node(successor).left;
            }
            let next = self.node(successor);
            let (start, end, group) = (next.start.clone(), next.end.clone(), next.group);
            let node = self.node_mut(removed);
            (node.start, node.end, node.group) = (start, end, group);
            removed = successor;
        }
        let node = self.node(removed);
        let child = if node.left == NONE {
            node.right
        } else {
            node.left
        };
        self.replace_child(path.last(), removed, child);
        // The slot must not keep the bytes of the range.
        let node = self.node_mut(removed);
        (node.start, node.end, node.max_end) = (Bytes::new(), RangeEnd::Never, RangeEnd::Never);
        self.free.push(removed);
        self.rebalance(path);
    }

    /// Calls `visit` with the group of each range that contains `key`.
    pub(super) fn visit(&self, key: &[u8], mut visit: impl FnMut(GroupId)) {
        if self.root == NONE {
            return;
        }
        // Subtrees to search: the right siblings of the nodes on one path, so at most one per level.
        let mut subtrees = Path::new();
        let mut next = self.root;
        loop {
            let node = (next != NONE)
                .then(|| self.node(next))
                .filter(|node| node.max_end.is_after(key));
            next = match node {
                Some(node) if *node.start <= *key => {
                    if node.end.is_after(key) {
                        visit(node.group);
                    }
                    if node.right != NONE {
                        subtrees.push(node.right);
                    }
                    node.left
                }
                // All ranges on the right start after the key.
                Some(node) => node.left,
                None => match subtrees.pop() {
                    Some(subtree) => subtree,
                    None => return,
                },
            };
        }
    }

    /// Returns the node of a range, or `NONE`, and the nodes above it.
    fn descend(&self, start: &Bytes, end: &RangeEnd, path: &mut Path) -> NodeId {
        let mut next = self.root;
        while next != NONE {
            let node = self.node(next);
            let child = match node.compare(start, end) {
                Ordering::Equal => return next,
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
            };
            path.push(next);
            next = child;
        }
        NONE
    }

    /// Restores heights, largest ends and the balance on a path, from its end to the root.
    fn rebalance(&mut self, mut path: Path) {
        while let Some(id) = path.pop() {
            self.refresh(id);
            let balanced = self.balance(id);
            if balanced != id {
                self.replace_child(path.last(), id, balanced);
            }
        }
    }

    /// Rotates a subtree whose children differ in height by two. Returns its root.
    fn balance(&mut self, id: NodeId) -> NodeId {
        let (left, right) = (self.node(id).left, self.node(id).right);
        if self.height(left) > self.height(right) + 1 {
            if self.height(self.node(left).left) < self.height(self.node(left).right) {
                self.node_mut(id).left = self.rotate_left(left);
            }
            self.rotate_right(id)
        } else if self.height(right) > self.height(left) + 1 {
            if self.height(self.node(right).right) < self.height(self.node(right).left) {
                self.node_mut(id).right = self.rotate_right(right);
            }
            self.rotate_left(id)
        } else {
            id
        }
    }

    fn rotate_right(&mut self, id: NodeId) -> NodeId {
        let above = self.node(id).left;
        self.node_mut(id).left = self.node(above).right;
        self.node_mut(above).right = id;
        self.refresh(id);
        self.refresh(above);
        above
    }

    fn rotate_left(&mut self, id: NodeId) -> NodeId {
        let above = self.node(id).right;
        self.node_mut(id).right = self.node(above).left;
        self.node_mut(above).left = id;
        self.refresh(id);
        self.refresh(above);
        above
    }

    /// Recomputes the height and the largest end of a node from its children.
    fn refresh(&mut self, id: NodeId) {
        let node = self.node(id);
        let children = [node.left, node.right];
        let height = 1 + self.height(children[0]).max(self.height(children[1]));
        let existing = children.into_iter().filter(|child| *child != NONE);
        let ends = existing.map(|child| &self.node(child).max_end);
        let max_end = ends.fold(&node.end, Ord::max);
        let changed = (*max_end != node.max_end).then(|| max_end.clone());
        let node = self.node_mut(id);
        node.height = height;
        if let Some(max_end) = changed {
            node.max_end = max_end;
        }
    }

    fn replace_child(&mut self, parent: Option<NodeId>, old: NodeId, new: NodeId) {
        match parent {
            None => self.root = new,
            Some(parent) => {
                let parent = self.node_mut(parent);
                if parent.left == old {
                    parent.left = new;
                } else {
                    parent.right = new;
                }
            }
        }
    }

    fn allocate(&mut self, node: IntervalNode) -> NodeId {
        if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        self.nodes.push(node);
        NodeId::try_from(self.nodes.len() - 1).expect("fewer than 2^32 ranges fit in memory")
    }

    fn height(&self, id: NodeId) -> u8 {
        if id == NONE { 0 } else { self.node(id).height }
    }

    fn node(&self, id: NodeId) -> &IntervalNode {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut IntervalNode {
        &mut self.nodes[id as usize]
    }
}

impl IntervalNode {
    /// Compares a range with that of the node.
    fn compare(&self, start: &Bytes, end: &RangeEnd) -> Ordering {
        start.cmp(&self.start).then_with(|| end.cmp(&self.end))
    }
}

#[cfg(all(test, not(loom)))]
impl IntervalTree {
    /// Checks the invariants of the whole tree. Returns its height.
    ///
    /// # Panics
    /// If one does not hold.
    pub(super) fn check(&self) -> u8 {
        let mut sorted: Vec<(&Bytes, &RangeEnd)> = Vec::new();
        let height = self.check_subtree(self.root, &mut sorted);
        assert!(sorted.is_sorted_by(|one, other| one < other), "{sorted:?}");
        assert_eq!(sorted.len() + self.free.len(), self.nodes.len());
        height
    }

    fn check_subtree<'a>(&'a self, id: NodeId, sorted: &mut Vec<(&'a Bytes, &'a RangeEnd)>) -> u8 {
        if id == NONE {
            return 0;
        }
        let node = self.node(id);
        let left = self.check_subtree(node.left, sorted);
        sorted.push((&node.start, &node.end));
        let right = self.check_subtree(node.right, sorted);
        assert!(left.abs_diff(right) <= 1, "{left} and {right}");
        assert_eq!(node.height, 1 + left.max(right));
        let children = [node.left, node.right].into_iter();
        let ends = children.filter(|child| *child != NONE);
        let ends = ends.map(|child| &self.node(child).max_end);
        assert_eq!(node.max_end, *ends.fold(&node.end, Ord::max));
        node.height
    }
}
