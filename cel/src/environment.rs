//! What expressions can refer to.

use std::collections::{BTreeMap, HashMap};

use crate::schema::Declared;
use crate::types::Type;

/// The variables that expressions can use, and the types of their objects.
///
/// ```
/// use revstore_cel::{Environment, Type};
///
/// let environment = Environment::new().with_variable("name", Type::String);
/// let program = environment.compile("name.startsWith('a') && size(name) < 10").unwrap();
/// let result = program.evaluate(&[("name", "abc".into())], 1_000).result;
/// assert_eq!(result.unwrap().as_bool(), Some(true));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, Type>,
    structures: HashMap<String, BTreeMap<String, Type>>,
    /// The schemas of variables, for the estimate of costs.
    declared: BTreeMap<String, Declared>,
}

impl Environment {
    /// Returns an environment without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, of: Type) -> Self {
        self.variables.insert(name.to_owned(), of);
        self
    }

    /// Adds a type of objects with fields.
    #[must_use]
    pub fn with_structure<F: Into<String>>(
        mut self,
        name: &str,
        fields: impl IntoIterator<Item = (F, Type)>,
    ) -> Self {
        let fields = fields
            .into_iter()
            .map(|(name, of)| (name.into(), of))
            .collect();
        self.structures.insert(name.to_owned(), fields);
        self
    }

    /// Adds a variable whose values follow a schema.
    #[must_use]
    pub fn with_declared(mut self, name: &str, declared: &Declared) -> Self {
        declared.collect(&mut self.structures);
        self.variables.insert(name.to_owned(), declared.of.clone());
        self.declared.insert(name.to_owned(), declared.clone());
        self
    }

    /// Adds a variable with an optional value that follows a schema.
    #[must_use]
    pub fn with_optional(mut self, name: &str, declared: &Declared) -> Self {
        declared.collect(&mut self.structures);
        let of = Type::optional(declared.of.clone());
        self.variables.insert(name.to_owned(), of);
        self.declared.insert(name.to_owned(), declared.clone());
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    pub(crate) fn structure(&self, name: &str) -> Option<&BTreeMap<String, Type>> {
        self.structures.get(name)
    }

    /// Returns the schema that bounds sizes of which only the path below a variable is known.
    pub(crate) fn first_declared(&self) -> Option<&Declared> {
        self.declared.values().next()
    }

    pub(crate) fn declared(&self, name: &str) -> Option<&Declared> {
        self.declared.get(name)
    }
}
