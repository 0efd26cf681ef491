//! The forms of a resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::encode::form::{Form, FormId};

/// A form with a number that no other registration has, so that what it has written is never taken for
/// the encoding of a form that replaces it.
#[derive(Clone, Debug)]
pub(crate) struct RegisteredForm {
    pub(crate) number: u64,
    pub(crate) form: Arc<dyn Form>,
}

impl RegisteredForm {
    pub(crate) fn new(form: Arc<dyn Form>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            // Relaxed: only uniqueness matters.
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            form,
        }
    }
}

/// The forms of a resource by id.
#[derive(Debug)]
pub(crate) struct FormSet {
    default: RegisteredForm,
    others: BTreeMap<FormId, RegisteredForm>,
}

impl FormSet {
    /// Returns the set of the configured forms, in which `default` has the id [`FormId::DEFAULT`] unless
    /// another form has it.
    pub(crate) fn new(default: Arc<dyn Form>, forms: &BTreeMap<FormId, Arc<dyn Form>>) -> Self {
        let mut set = Self {
            default: RegisteredForm::new(default),
            others: BTreeMap::new(),
        };
        for (id, form) in forms {
            set.insert(*id, form.clone());
        }
        set
    }

    pub(crate) fn default_form(&self) -> &RegisteredForm {
        &self.default
    }

    pub(crate) fn get(&self, id: FormId) -> Option<&RegisteredForm> {
        match id {
            FormId::DEFAULT => Some(&self.default),
            other => self.others.get(&other),
        }
    }

    pub(crate) fn insert(&mut self, id: FormId, form: Arc<dyn Form>) {
        let form = RegisteredForm::new(form);
        if id == FormId::DEFAULT {
            self.default = form;
        } else {
            self.others.insert(id, form);
        }
    }

    /// Removes a form. The default form stays.
    pub(crate) fn remove(&mut self, id: FormId) -> bool {
        self.others.remove(&id).is_some()
    }
}
