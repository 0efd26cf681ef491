//! Who owns whom, as the informers have seen it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::controllers::metadata::{Metadata, Owner};
use crate::controllers::monitor::Monitored;

/// The uid of an object, which all lists of it share.
pub(in crate::controllers) type Uid = Arc<str>;

/// Where an object is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) resource: Arc<Monitored>,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Place {
    /// Returns whether a reference of an object in `namespace` is one to an object here.
    fn is_named_by(&self, owner: &Owner, namespace: &str) -> bool {
        let names = &self.resource.resource.names;
        names.kind == owner.kind
            && names.group == owner.group()
            && self.name == owner.name
            && (!self.resource.namespaced || self.namespace == namespace)
    }
}

/// An object that exists.
#[derive(Debug)]
struct Node {
    place: Place,
    metadata: Metadata,
    /// The number of dependents that block its deletion in the foreground.
    blocking: usize,
}

/// What is to be done after a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::controllers) enum Task {
    /// Find out whether an object has an owner, and delete it otherwise.
    Check(Uid),
    /// Go on with the deletion of an object that has asked for something to be done with its dependents.
    Finish(Uid),
}

/// The objects with owners or dependents, by their uids. Nothing here waits or sends requests.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    /// The dependents of each owner, whether the owner exists or not.
    dependents: HashMap<Uid, HashSet<Uid>>,
    /// The last owners that were removed, with their namespaces: their dependents need not ask for them, also if their
    /// kind is not served any more.
    absent: VecDeque<(Uid, String)>,
}

/// The maximum number of removed owners that are remembered. Others are asked for.
const ABSENT_MAX: usize = 500;

impl Graph {
    /// Takes notice of a version of an object. Adds what is to be done to `tasks`.
    pub(super) fn set(&mut self, place: Place, metadata: Metadata, tasks: &mut Vec<Task>) {
        let uid: Uid = match self.nodes.get_key_value(&*metadata.uid) {
            Some((uid, _)) => uid.clone(),
            None => metadata.uid.as_str().into(),
        };
        let before = self.nodes.remove(&uid);
        let (old, blocking) = match before {
            Some(node) => (node.metadata, node.blocking),
            None => (Metadata::default(), self.count_blocking(&uid)),
        };
        let is_finishing = metadata.waits_for_dependents();
        if is_finishing || metadata.orphans_dependents() {
            tasks.push(Task::Finish(uid.clone()));
            if is_finishing && !old.waits_for_dependents() {
                self.check_dependents(&uid, tasks);
            }
        }
        // An owner that another object was seen to refer to may have another place.
        let is_new = old.uid.is_empty();
        let mut is_doubtful = false;
        if old.owners != metadata.owners {
            self.unlink(&uid, &old.owners, tasks);
            is_doubtful = self.link(&uid, &place, &metadata.owners);
        }
        if is_new {
            self.check_strangers(&uid, &place, tasks);
        }
        if is_doubtful {
            tasks.push(Task::Check(uid.clone()));
        }
        let node = Node {
            place,
            metadata,
            blocking,
        };
        self.nodes.insert(uid, node);
    }

    /// Takes notice of the end of an object; `is_sure` is whether it does not exist any more.
    pub(super) fn remove(&mut self, uid: &str, is_sure: bool, tasks: &mut Vec<Task>) {
        let Some((uid, node)) = self.nodes.remove_entry(uid) else {
            return;
        };
        if is_sure && self.dependents.contains_key(&uid) {
            let namespace = node.place.namespace.clone();
            self.absent.push_back((uid.clone(), namespace));
            if self.absent.len() > ABSENT_MAX {
                self.absent.pop_front();
            }
        }
        self.unlink(&uid, &node.metadata.owners, tasks);
        self.check_dependents(&uid, tasks);
    }

    /// Makes an object a dependent of its owners. Returns whether an owner may not exist, or is about to be deleted.
    fn link(&mut self, uid: &Uid, place: &Place, owners: &[Owner]) -> bool {
        let mut is_doubtful = false;
        for owner in owners {
            let key: Uid = owner.uid.as_str().into();
            let is_first = self
                .dependents
                .entry(key.clone())
                .or_default()
                .insert(uid.clone());
            match self.nodes.get_mut(&key) {
                Some(node) => {
                    node.blocking += usize::from(is_first && owner.blocks());
                    is_doubtful |= node.metadata.waits_for_dependents()
                        || !node.place.is_named_by(owner, &place.namespace);
                }
                None => is_doubtful = true,
            }
        }
        is_doubtful
    }

    /// Ends the dependence of an object on owners.
    fn unlink(&mut self, uid: &Uid, owners: &[Owner], tasks: &mut Vec<Task>) {
        for owner in owners {
            let key = owner.uid.as_str();
            let Some(dependents) = self.dependents.get_mut(key) else {
                continue;
            };
            let was_there = dependents.remove(uid);
            if dependents.is_empty() {
                self.dependents.remove(key);
            }
            if let Some((key, node)) = self.nodes.get_key_value(key)
                && was_there
                && owner.blocks()
            {
                let is_finishing = node.metadata.waits_for_dependents();
                let key = key.clone();
                if let Some(node) = self.nodes.get_mut(&key) {
                    node.blocking = node.blocking.saturating_sub(1);
                    if is_finishing && node.blocking == 0 {
                        tasks.push(Task::Finish(key));
                    }
                }
            }
        }
    }

    fn check_dependents(&self, uid: &str, tasks: &mut Vec<Task>) {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        tasks.extend(dependents.cloned().map(Task::Check));
    }

    /// Checks the dependents of a new object that refer to it at another place.
    fn check_strangers(&self, uid: &Uid, place: &Place, tasks: &mut Vec<Task>) {
        for dependent in self.dependents.get(uid).into_iter().flatten() {
            let Some(node) = self.nodes.get(dependent) else {
                continue;
            };
            let mut owners = node.metadata.owners.iter();
            let is_stranger = owners.any(|owner| {
                *owner.uid == **uid && !place.is_named_by(owner, &node.place.namespace)
            });
            if is_stranger {
                tasks.push(Task::Check(dependent.clone()));
            }
        }
    }

    fn count_blocking(&self, uid: &Uid) -> usize {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        let nodes = dependents.filter_map(|dependent| self.nodes.get(dependent));
        let blocking = nodes.filter(|node| {
            // The first reference to an owner counts, as in `link`.
            let mut owners = node.metadata.owners.iter();
            owners
                .find(|owner| *owner.uid == **uid)
                .is_some_and(Owner::blocks)
        });
        blocking.count()
    }

    /// Returns the place and the metadata of an object that exists.
    pub(super) fn find(&self, uid: &str) -> Option<(Place, Metadata)> {
        let node = self.nodes.get(uid)?;
        Some((node.place.clone(), node.metadata.clone()))
    }

    /// Returns whether an owner that an object in `namespace` may have was seen to be removed.
    pub(super) fn is_absent(&self, uid: &str, namespace: &str) -> bool {
        let mut absent = self.absent.iter();
        absent.any(|(known, own)| **known == *uid && (own.is_empty() || own == namespace))
    }

    /// Returns whether dependents block the deletion of an object.
    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.blocking > 0)
    }

    /// Returns whether an object has dependents, and whether one of them waits for its own dependents.
    pub(super) fn dependents_of(&self, uid: &str) -> (bool, bool) {
        let Some(dependents) = self.dependents.get(uid) else {
            return (false, false);
        };
        let mut nodes = dependents.iter().filter_map(|it| self.nodes.get(it));
        let waits = nodes.any(|node| node.metadata.waits_for_dependents());
        (true, waits)
    }
}
