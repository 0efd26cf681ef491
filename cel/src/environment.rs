//! What expressions can refer to.

use std::collections::{BTreeMap, HashMap};

use crate::schema::{Declared, escape};
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
    has_patch_types: bool,
}

/// The type of the operations of a JSON patch.
pub(crate) const JSON_PATCH: &str = "JSONPatch";
/// The type of a configuration to apply. Those of its parts begin with it and a dot.
const OBJECT: &str = "Object";

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

    /// Adds a field to a type of objects.
    pub fn add_field(&mut self, structure: &str, name: &str, of: Type) {
        let fields = self.structures.entry(structure.to_owned()).or_default();
        fields.insert(name.to_owned(), of);
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

    /// Adds the types of patches and what makes their paths: `Object` and those that begin with `Object.`, with any
    /// fields, `JSONPatch`, and `jsonpatch.escapeKey`.
    #[must_use]
    pub fn with_patch_types(mut self) -> Self {
        self.has_patch_types = true;
        self
    }

    pub(crate) fn has_patch_types(&self) -> bool {
        self.has_patch_types
    }

    fn is_any_object(&self, name: &str) -> bool {
        self.has_patch_types
            && name
                .strip_prefix(OBJECT)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    fn is_json_patch(&self, name: &str) -> bool {
        self.has_patch_types && name == JSON_PATCH
    }

    /// Returns whether there is a type of objects.
    pub(crate) fn has_structure(&self, name: &str) -> bool {
        self.is_any_object(name) || self.is_json_patch(name) || self.structures.contains_key(name)
    }

    /// Returns the name and the type of a field, whose name may be escaped.
    pub(crate) fn field(&self, structure: &str, field: &str) -> Option<(String, Type)> {
        if self.is_any_object(structure) {
            return Some((field.to_owned(), Type::Dyn));
        }
        if self.is_json_patch(structure) {
            let of = match field {
                "op" | "path" | "from" => Type::String,
                "value" => Type::Dyn,
                _ => return None,
            };
            return Some((field.to_owned(), of));
        }
        let fields = self.structures.get(structure)?;
        if let Some(of) = fields.get(field) {
            return Some((field.to_owned(), of.clone()));
        }
        let escaped = escape(field)?;
        let of = fields.get(&escaped)?;
        Some((escaped, of.clone()))
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    /// Returns the schema that bounds sizes of which only the path below a variable is known.
    pub(crate) fn first_declared(&self) -> Option<&Declared> {
        self.declared.values().next()
    }

    pub(crate) fn declared(&self, name: &str) -> Option<&Declared> {
        self.declared.get(name)
    }
}
