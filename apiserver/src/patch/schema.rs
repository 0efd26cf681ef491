//! What strategic merge patches need to know about the types of fields.

use std::borrow::Cow;

use thiserror::Error;

/// A type of the schema of an object, as strategic merge patches see it. It is cheap to copy.
///
/// A type is a structure with named fields, a list, or anything else: a map or a scalar.
pub trait PatchSchema: Copy {
    /// Returns a field of a structure.
    ///
    /// # Errors
    /// [`SchemaError`] if the type is not a structure or does not have the field.
    fn field(self, name: &str) -> Result<PatchField<Self>, SchemaError>;

    /// Returns the type of the items of a list.
    ///
    /// # Errors
    /// [`SchemaError`] if the type is not a list.
    fn items(self) -> Result<Self, SchemaError>;

    /// Returns the name of the type in error messages.
    fn name(self) -> Cow<'static, str>;
}

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchField<S> {
    /// The type of the value.
    pub schema: S,
    /// How the value of a patch is combined with the current one.
    pub strategy: ListStrategy,
    /// The field that identifies the items of a list.
    pub merge_key: Option<Cow<'static, str>>,
}

/// How the value of a field in a patch is combined with the current one. `retainKeys` is not part of it: it
/// only matters to clients that compute patches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListStrategy {
    /// Structures are merged, lists are replaced.
    #[default]
    Unset,
    /// Lists are merged as well.
    Merge,
    /// Structures are replaced as well.
    Replace,
}

impl ListStrategy {
    /// Returns the strategy of the extension `x-kubernetes-patch-strategy`, such as `merge,retainKeys`.
    pub fn from_extension(text: &str) -> Self {
        text.split(',')
            .find_map(|part| match part {
                "merge" => Some(Self::Merge),
                "replace" => Some(Self::Replace),
                _ => None,
            })
            .unwrap_or_default()
    }
}

/// The error of a patch that does not fit the schema.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A structure does not have a field.
    #[error("unable to find api field in struct {name} for the json field {field:?}")]
    UnknownField {
        /// The name of the type.
        name: String,
        /// The name of the field.
        field: String,
    },
    /// A type is not a structure.
    #[error("merging an object in json but data type is not struct, instead is: {0}")]
    NotAStructure(String),
    /// A type is not a list.
    #[error("expected slice or array type, but got: {0}")]
    NotAList(String),
}

/// The schema of objects that are not known to have any: the structures in them are not merged.
impl PatchSchema for () {
    fn field(self, _: &str) -> Result<PatchField<Self>, SchemaError> {
        Err(SchemaError::NotAStructure("map".to_owned()))
    }

    fn items(self) -> Result<Self, SchemaError> {
        Err(SchemaError::NotAList("map".to_owned()))
    }

    fn name(self) -> Cow<'static, str> {
        "map".into()
    }
}
