//! The conflicts of an apply.

use std::fmt::{self, Display, Formatter, Write as _};
use std::ops::ControlFlow;

use serde_json::Value;

use crate::versions::ByVersion;
use crate::{Comparison, Entry, FieldSet, Operation, PathElement};

/// The largest number of conflicts that are shown.
const SHOWN_MAX: usize = 500;
/// The largest size of the fields and managers of the conflicts that are shown, in bytes. The first conflict always is.
const SHOWN_BYTES_MAX: usize = 1024 * 1024;

/// A field that another manager has set to another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// The manager, as in messages: with its subresource, and with the version of the API of updates.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
}

/// The fields that other managers have set to other values.
///
/// Texts of fields can be much larger than the objects: each one has the names of all that contain the field. They are
/// made for the first 500 conflicts only, and for at most 1 MiB of them.
///
/// The text says how many conflicts there are and lists these. Use [`shown`](Self::shown) for one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts {
    /// The managers as in messages, in the order of the messages, with fields.
    managers: Vec<(String, FieldSet)>,
}

impl Conflicts {
    /// Returns the conflicts with the managers of changed fields.
    pub(crate) fn of(
        entries: &[Entry],
        version: &str,
        changed: &FieldSet,
        others: &ByVersion<Option<Comparison>>,
    ) -> Self {
        let mut entries: Vec<&Entry> = entries.iter().collect();
        entries.sort_by_cached_key(|entry| entry.identifier());
        let managers = entries.into_iter().filter_map(|entry| {
            let fields = if entry.api_version == version {
                entry.fields.intersection(changed)
            } else {
                let comparison = others.get(&entry.api_version)?.as_ref()?;
                entry.fields.intersection(&comparison.changed())
            };
            (!fields.is_empty()).then(|| (manager_text(entry), fields))
        });
        Self {
            managers: managers.collect(),
        }
    }

    /// Removes those of some fields.
    pub(crate) fn leave_out(&mut self, fields: &FieldSet) {
        self.managers.retain_mut(|(_, conflicts)| {
            *conflicts = conflicts.difference(fields);
            !conflicts.is_empty()
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.managers.is_empty()
    }

    /// Returns the number of all conflicts.
    pub fn count(&self) -> usize {
        self.managers.iter().map(|(_, fields)| fields.len()).sum()
    }

    /// Returns the conflicts that a message shows, in its order: the first 500, or those with 1 MiB of fields and managers,
    /// at least one.
    pub fn shown(&self) -> Vec<FieldConflict> {
        let mut shown = Vec::new();
        let mut bytes = 0;
        for (manager, fields) in &self.managers {
            let mut texts = PathTexts::default();
            let visited = texts.visit(fields, &mut |field| {
                bytes += field.len() + manager.len();
                if shown.len() == SHOWN_MAX || (bytes > SHOWN_BYTES_MAX && !shown.is_empty()) {
                    return ControlFlow::Break(());
                }
                shown.push(FieldConflict {
                    manager: manager.clone(),
                    field: field.to_owned(),
                });
                ControlFlow::Continue(())
            });
            if visited.is_break() {
                break;
            }
        }
        shown
    }
}

impl Display for Conflicts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (count, shown) = (self.count(), self.shown());
        if let ([conflict], 1) = (&*shown, count) {
            let (manager, field) = (&conflict.manager, &conflict.field);
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {manager}: {field}"
            );
        }
        write!(f, "Apply failed with {count} conflicts: ")?;
        let mut manager = None;
        for conflict in &shown {
            if manager != Some(&conflict.manager) {
                if manager.is_some() {
                    f.write_char('\n')?;
                }
                write!(f, "conflicts with {}:", conflict.manager)?;
                manager = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.field)?;
        }
        Ok(())
    }
}

/// The texts of the paths of fields, of which the beginning is written once for those that share it.
#[derive(Default)]
struct PathTexts {
    text: String,
}

impl PathTexts {
    /// Calls a function with the text of each field in the order of [`FieldSet::for_each`], until it breaks.
    fn visit(
        &mut self,
        fields: &FieldSet,
        visit: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let start = self.text.len();
        for slot in fields.slots().iter().filter(|slot| slot.is_member) {
            self.push(&slot.element);
            let visited = visit(&self.text);
            self.text.truncate(start);
            visited?;
        }
        for slot in fields.slots().iter().filter(|slot| !slot.child.is_empty()) {
            self.push(&slot.element);
            self.visit(&slot.child, visit)?;
            self.text.truncate(start);
        }
        ControlFlow::Continue(())
    }

    fn push(&mut self, element: &PathElement) {
        let _ = write!(self.text, "{element}");
    }
}

/// Returns a manager as messages have it.
fn manager_text(entry: &Entry) -> String {
    let mut text = Value::from(&*entry.manager).to_string();
    if !entry.subresource.is_empty() {
        let subresource = Value::from(&*entry.subresource);
        let _ = write!(text, " with subresource {subresource}");
    }
    if entry.operation == Operation::Update {
        let _ = write!(text, " using {}", entry.api_version);
    }
    text
}
