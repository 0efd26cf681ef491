//! The table of rules, and which rule fires for a call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use revstore_engine::KeyRange;

use super::action::Action;
use super::removal::{Removal, Signal};
use super::rule::{Rule, RuleError, RuleId, check_verbs, positions};
use super::selector::KeySelector;
use super::trigger::TriggerState;
use crate::call::{Call, Method, MethodKind};

/// The maximum number of rules. More are refused.
pub const RULES_MAX: usize = 10_000;

/// The rules of a server. Clones share them.
///
/// - A call asks the rules of its method in the order in which they were added, and those of all methods between them.
///   The first that fires decides, except that delays add up and later rules are asked, too.
/// - The decisions depend only on the rules and on the order of the calls: each rule has its own counters and its own
///   generator of random numbers.
/// - Without rules, a decision costs one atomic load. Rules of other methods cost nothing.
///
/// ```
/// use revstore_control::call::{Call, Method, MethodKind};
/// use revstore_control::fault::{Action, Preset, Rule, Rules, Selector, Trigger};
/// let rules = Rules::new(&[Method { name: "etcdserverpb.KV/Put", kind: MethodKind::Keys }]);
/// let selector = Selector { methods: vec!["Put".into()], ..Selector::default() };
/// let action = Action::Preset(Preset::Timeout);
/// let id = rules.add(Rule { selector, trigger: Trigger::Next(1), action: action.clone() })?;
/// let put = Call { method: Some(0), ..Call::default() };
/// assert_eq!(rules.decide(&put).action.map(|(_, action)| action), Some(action));
/// assert_eq!(rules.decide(&put).action, None);
/// assert_eq!(rules.list()[0].fired, 1);
/// rules.clear(Some(id))?;
/// # Ok::<(), revstore_control::fault::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rules {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    methods: Vec<Method>,
    /// Of a Kubernetes API, which has no methods: the resources that are in no namespace.
    cluster_scoped: Option<BTreeSet<String>>,
    /// The number of rules, so that calls of a server without rules take no lock. Relaxed: a call that runs beside
    /// the addition of a rule may or may not see it.
    count: AtomicUsize,
    /// Held to read by decisions, to write by changes. The lock of an entry's trigger is taken under it.
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    rules: BTreeMap<RuleId, Arc<Entry>>,
    /// The rules of each method, in ascending order.
    by_method: BTreeMap<usize, Vec<Arc<Entry>>>,
    /// The rules of all methods, in ascending order.
    of_all: Vec<Arc<Entry>>,
}

#[derive(Debug)]
struct Entry {
    id: RuleId,
    rule: Rule,
    /// The range of the selector.
    keys: Option<KeyRange>,
    /// The positions of the methods; empty for all.
    methods: Vec<usize>,
    trigger: Mutex<TriggerState>,
    removal: Arc<Signal>,
}

/// What happens to a call.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The call waits for these, one after the other.
    pub delays: Vec<DelayOf>,
    /// Then this happens, by the rule with this number; without it, the call is executed.
    pub action: Option<(RuleId, Action)>,
    /// The end of the rule of the action.
    pub removal: Option<Removal>,
}

/// A delay of a call.
#[derive(Clone, Debug)]
pub struct DelayOf {
    /// The number of the rule.
    pub rule: RuleId,
    /// The time.
    pub time: Duration,
    /// Whether it is time of the wall.
    pub wall: bool,
    /// The end of the rule, which ends the delay.
    pub removal: Removal,
}

/// A rule, and how often it fired.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleStatus {
    /// The number of the rule.
    pub id: RuleId,
    /// The rule.
    pub rule: Rule,
    /// The number of calls for which it fired.
    pub fired: u64,
}

impl Rules {
    /// Creates a table without rules for the methods of a server.
    pub fn new(methods: &[Method]) -> Self {
        Self::of(methods, None)
    }

    /// Creates a table without rules for a Kubernetes API, which serves these resources in no namespace, such as `nodes` and
    /// `clusterroles.rbac.authorization.k8s.io`.
    pub fn of_front(cluster_scoped: impl IntoIterator<Item = String>) -> Self {
        Self::of(&[], Some(cluster_scoped.into_iter().collect()))
    }

    fn of(methods: &[Method], cluster_scoped: Option<BTreeSet<String>>) -> Self {
        Self {
            shared: Arc::new(Shared {
                methods: methods.to_vec(),
                cluster_scoped,
                count: AtomicUsize::new(0),
                table: RwLock::default(),
            }),
        }
    }

    /// Returns the methods that selectors can name.
    pub fn methods(&self) -> &[Method] {
        &self.shared.methods
    }

    /// Checks that each name is that of a method, as in selectors; of a Kubernetes API, that it is a verb.
    ///
    /// # Errors
    /// [`RuleError::UnknownMethod`] or [`RuleError::UnknownVerb`].
    pub fn check_names(&self, names: &[String]) -> Result<(), RuleError> {
        if self.shared.cluster_scoped.is_some() {
            return check_verbs(names);
        }
        positions(names, &self.shared.methods).map(drop)
    }

    /// Adds a rule behind all others. Its number is above those of all rules before.
    ///
    /// # Errors
    /// The rule is impossible, or there are [`RULES_MAX`] rules. Nothing is changed.
    pub fn add(&self, rule: Rule) -> Result<RuleId, RuleError> {
        let methods = match &self.shared.cluster_scoped {
            Some(cluster_scoped) => {
                rule.check_front(cluster_scoped)?;
                Vec::new()
            }
            None => rule.check(&self.shared.methods)?,
        };
        let mut table = self.shared.table.write();
        if table.rules.len() >= RULES_MAX {
            return Err(RuleError::TooMany(RULES_MAX));
        }
        table.next_id += 1;
        let id = RuleId(table.next_id);
        let entry = Arc::new(Entry {
            id,
            keys: rule.selector.keys.as_ref().map(KeySelector::to_range),
            trigger: Mutex::new(TriggerState::new(rule.trigger)),
            removal: Arc::default(),
            methods,
            rule,
        });
        if entry.methods.is_empty() {
            table.of_all.push(entry.clone());
        }
        for method in &entry.methods {
            let rules = table.by_method.entry(*method).or_default();
            rules.push(entry.clone());
        }
        table.rules.insert(id, entry);
        self.shared
            .count
            .store(table.rules.len(), Ordering::Relaxed);
        Ok(id)
    }

    /// Removes a rule, or all. What they hold goes on: delayed calls and held events. Returns how many were removed.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn clear(&self, id: Option<RuleId>) -> Result<usize, RuleError> {
        let removed: Vec<Arc<Entry>> = {
            let mut table = self.shared.table.write();
            let removed = match id {
                None => {
                    table.by_method.clear();
                    table.of_all.clear();
                    std::mem::take(&mut table.rules).into_values().collect()
                }
                Some(id) => {
                    let entry = table.rules.remove(&id).ok_or(RuleError::NotFound(id))?;
                    table.of_all.retain(|other| other.id != id);
                    for method in &entry.methods {
                        if let Some(rules) = table.by_method.get_mut(method) {
                            rules.retain(|other| other.id != id);
                        }
                    }
                    vec![entry]
                }
            };
            self.shared
                .count
                .store(table.rules.len(), Ordering::Relaxed);
            removed
        };
        for entry in &removed {
            entry.removal.raise();
        }
        Ok(removed.len())
    }

    /// Returns all rules, in the order in which they were added.
    pub fn list(&self) -> Vec<RuleStatus> {
        let table = self.shared.table.read();
        let status = |entry: &Arc<Entry>| RuleStatus {
            id: entry.id,
            rule: entry.rule.clone(),
            fired: entry.trigger.lock().fired,
        };
        table.rules.values().map(status).collect()
    }

    /// Returns whether there are no rules. Costs an atomic load.
    pub fn is_empty(&self) -> bool {
        self.shared.count.load(Ordering::Relaxed) == 0
    }

    /// Decides what happens to a request. Rules with actions on the events of watches and on new connections are not
    /// asked, and those that lose keep-alives only of a keep-alive.
    pub fn decide(&self, call: &Call<'_>) -> Decision {
        let is_read = call
            .front
            .is_some_and(|front| ["get", "list"].contains(&front.verb));
        let method = call
            .method
            .and_then(|method| self.shared.methods.get(method));
        let is_keep_alive = method.is_some_and(|method| method.kind == MethodKind::KeepAlive);
        self.decide_among(call, |action| match action {
            Action::Hold | Action::Cut | Action::CancelCompacted | Action::Refuse => false,
            Action::LoseKeepAlive => is_keep_alive,
            Action::Stale { .. } => is_read,
            _ => true,
        })
    }

    /// Decides what happens to the events of a watch, which are about to be sent: [`Action::Hold`], [`Action::Cut`]
    /// or [`Action::CancelCompacted`].
    pub fn decide_events(&self, call: &Call<'_>) -> Decision {
        self.decide_among(call, |action| {
            matches!(action, Action::Hold | Action::Cut | Action::CancelCompacted)
        })
    }

    /// Returns whether a new connection is refused.
    pub fn refuses(&self, revision: i64) -> bool {
        let call = Call {
            revision,
            ..Call::default()
        };
        let decision = self.decide_among(&call, |action| *action == Action::Refuse);
        decision.action.is_some()
    }

    fn decide_among(&self, call: &Call<'_>, asked: impl Fn(&Action) -> bool) -> Decision {
        let mut decision = Decision::default();
        if self.is_empty() {
            return decision;
        }
        let table = self.shared.table.read();
        let of_method = call.method.and_then(|method| table.by_method.get(&method));
        let (mut of_method, mut of_all) =
            (of_method.map_or(&[][..], |rules| rules), &table.of_all[..]);
        loop {
            // Both lists are in ascending order.
            let entry = match (of_method.split_first(), of_all.split_first()) {
                (Some((one, rest)), Some((other, _))) if one.id < other.id => {
                    of_method = rest;
                    one
                }
                (_, Some((other, rest))) => {
                    of_all = rest;
                    other
                }
                (Some((one, rest)), None) => {
                    of_method = rest;
                    one
                }
                (None, None) => return decision,
            };
            let rule = &entry.rule;
            let fires = asked(&rule.action)
                && rule.selector.matches(entry.keys.as_ref(), call)
                && entry.trigger.lock().fires(call.revision);
            if !fires {
                continue;
            }
            if let Action::Delay { time, wall } = rule.action {
                decision.delays.push(DelayOf {
                    rule: entry.id,
                    time,
                    wall,
                    removal: Removal::of(&entry.removal),
                });
            } else {
                decision.action = Some((entry.id, rule.action.clone()));
                decision.removal = Some(Removal::of(&entry.removal));
                return decision;
            }
        }
    }
}

impl Decision {
    /// Returns whether the call goes on as without rules.
    pub fn is_none(&self) -> bool {
        self.delays.is_empty() && self.action.is_none()
    }
}
