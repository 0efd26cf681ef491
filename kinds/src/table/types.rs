//! Types and their fields: what the Go structs and OpenAPI say.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use super::TABLE;

/// A reference to a type of the table. It dereferences to the type.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeRef(pub(super) u32);

impl TypeRef {
    /// The type.
    pub fn get(self) -> &'static Type {
        &TABLE.types[self.0 as usize]
    }
}

impl Deref for TypeRef {
    type Target = Type;

    fn deref(&self) -> &Type {
        self.get()
    }
}

// Only the name: types may contain themselves.
impl fmt::Debug for TypeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeRef({})", self.0)
    }
}

/// A Go package with types.
#[derive(Debug)]
pub struct Package {
    pub(super) name: &'static str,
    pub(super) openapi: &'static str,
    pub(super) group_version: Option<(&'static str, &'static str)>,
    /// Its types, sorted by their names.
    pub(super) types: Vec<TypeRef>,
}

impl Package {
    /// The name in this table, such as `core.v1`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What comes before the names of its types in OpenAPI, without the last dot: `io.k8s.api.core.v1`.
    pub fn openapi_prefix(&self) -> &'static str {
        self.openapi
    }

    /// The group and version of its kinds. Those of `meta.v1` have the group version of the request.
    pub fn group_version(&self) -> Option<(&'static str, &'static str)> {
        self.group_version
    }

    /// The type with a name, such as `PodSpec`.
    pub fn type_named(&self, name: &str) -> Option<&'static Type> {
        let index = self
            .types
            .binary_search_by(|known| known.get().name().cmp(name))
            .ok()?;
        Some(self.types[index].get())
    }
}

/// What the JSON and protobuf of a type look like.
#[derive(Debug)]
pub enum Shape {
    /// An object with known fields.
    Struct(Vec<Field>),
    /// A value that may be absent: `null` differs from the zero value.
    Pointer(TypeRef),
    /// A list.
    List {
        /// The type of the elements.
        item: TypeRef,
        /// Whether the list is a message of its own in protobuf, with the elements in field 1.
        message: bool,
    },
    /// An object with any keys.
    Map {
        /// The type of the keys, a string.
        key: TypeRef,
        /// The type of the values.
        value: TypeRef,
    },
    /// A string.
    String,
    /// A boolean.
    Bool,
    /// A 32 bit integer.
    Int32,
    /// A 64 bit integer.
    Int64,
    /// A floating-point number.
    Float64,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A number with a suffix as a string, such as `500m`; also accepts numbers.
    Quantity,
    /// A 32 bit integer or a string.
    IntOrString,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// The fields of an entry of `managedFields`.
    FieldsV1,
    /// Any object.
    RawExtension,
    /// Any JSON.
    Json,
    /// One JSON schema or a list of them. The fields are those of the protobuf message.
    SchemaOrArray(Vec<Field>),
    /// A JSON schema or a boolean. The fields are those of the protobuf message.
    SchemaOrBool(Vec<Field>),
    /// A JSON schema or a list of strings. The fields are those of the protobuf message.
    SchemaOrStrings(Vec<Field>),
}

/// A type of Kubernetes, or a list, map or pointer of one.
///
/// ```
/// let pod = revstore_kinds::kind("", "v1", "Pod").unwrap();
/// let containers = pod.field("spec").unwrap().ty().field("containers").unwrap();
/// let image = containers.ty().element().unwrap().field("image").unwrap();
/// assert_eq!(containers.merge_key(), Some("name"));
/// assert!(matches!(image.ty().shape(), revstore_kinds::Shape::String));
/// ```
#[derive(Debug)]
pub struct Type {
    /// `core.v1.PodSpec`, or an expression such as `[]core.v1.Container`.
    pub(super) full_name: &'static str,
    /// The index of its package, if it has a name.
    pub(super) package: Option<u16>,
    pub(super) shape: Shape,
    pub(super) atomic: bool,
    pub(super) unions: Vec<Union>,
    pub(super) deprecation: Option<Deprecation>,
}

impl Type {
    /// The name without the package, such as `PodSpec`; for a list, map or pointer its expression in the table, such as
    /// `[]core.v1.Container`.
    pub fn name(&self) -> &'static str {
        match self.package {
            Some(_) => self
                .full_name
                .rsplit_once('.')
                .map_or(self.full_name, |(_, name)| name),
            None => self.full_name,
        }
    }

    /// The name with the package, such as `core.v1.PodSpec`.
    pub fn full_name(&self) -> &'static str {
        self.full_name
    }

    /// The package, if the type has a name.
    pub fn package(&self) -> Option<&'static Package> {
        self.package
            .map(|index| &TABLE.packages[usize::from(index)])
    }

    /// The name in OpenAPI, such as `io.k8s.api.core.v1.PodSpec`, if the type has a name.
    pub fn openapi_name(&self) -> Option<String> {
        self.package()
            .map(|package| format!("{}.{}", package.openapi, self.name()))
    }

    /// The name in Go, as in the errors of its JSON decoder: `int32`, `v1.PodSpec`, `[]v1.Container`.
    pub fn go_name(&self) -> Cow<'static, str> {
        if let Some(package) = self.package() {
            let short = package.name.rsplit('.').next().unwrap_or(package.name);
            return Cow::Owned(format!("{short}.{}", self.name()));
        }
        match &self.shape {
            Shape::Pointer(target) => Cow::Owned(format!("*{}", target.go_name())),
            Shape::List { item, .. } => Cow::Owned(format!("[]{}", item.go_name())),
            Shape::Map { key, value } => {
                Cow::Owned(format!("map[{}]{}", key.go_name(), value.go_name()))
            }
            Shape::Bytes => Cow::Borrowed("[]uint8"),
            _ => Cow::Borrowed(self.full_name),
        }
    }

    /// What its JSON looks like. Named lists, maps and strings have the shape of what they stand for.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type without pointers.
    pub fn target(&'static self) -> &'static Type {
        let mut target = self;
        while let Shape::Pointer(next) = &target.shape {
            target = next.get();
        }
        target
    }

    /// The fields of a struct, or of what a pointer to a struct points to; of other types none.
    pub fn fields(&self) -> &[Field] {
        match &self.shape {
            Shape::Struct(fields) => fields,
            Shape::Pointer(target) => target.get().fields(),
            _ => &[],
        }
    }

    /// The field with a name in JSON.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// The type of the elements of a list or of the values of a map, also behind a pointer.
    pub fn element(&'static self) -> Option<&'static Type> {
        match &self.target().shape {
            Shape::List { item, .. } => Some(item.get()),
            Shape::Map { value, .. } => Some(value.get()),
            _ => None,
        }
    }

    /// Whether a value is replaced as a whole by server-side apply (`x-kubernetes-map-type: atomic`).
    pub fn is_atomic(&self) -> bool {
        self.atomic
    }

    /// The unions among its fields (`x-kubernetes-unions`).
    pub fn unions(&self) -> &[Union] {
        &self.unions
    }

    /// Since when the kind is deprecated.
    pub fn deprecation(&self) -> Option<&Deprecation> {
        self.deprecation.as_ref()
    }
}

/// Fields of which at most one is set.
#[derive(Debug)]
pub struct Union {
    /// The field that names which one is set, if there is one.
    pub discriminator: Option<&'static str>,
    /// The fields with the values of the discriminator.
    pub fields: Vec<(&'static str, &'static str)>,
}

/// The life of a deprecated kind.
#[derive(Debug)]
pub struct Deprecation {
    /// The version of Kubernetes since which it is deprecated: `1.33`.
    pub since: &'static str,
    /// The version of Kubernetes that does not have it any more.
    pub removed: Option<&'static str>,
    /// Group, version and kind of its replacement.
    pub replacement: Option<(&'static str, &'static str, &'static str)>,
}

/// A field of a struct.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Field {
    pub(super) name: &'static str,
    pub(super) ty: TypeRef,
    /// The numbers in protobuf from the outside in; zeros fill the rest.
    pub(super) numbers: [u8; 3],
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
    pub(super) required: bool,
    pub(super) always_shown: bool,
    pub(super) list: Option<List>,
    pub(super) strategies: &'static str,
    pub(super) merge_key: Option<&'static str>,
    pub(super) map_type: Option<&'static str>,
    pub(super) default: Option<&'static str>,
}

impl Field {
    /// The name in JSON.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The type.
    pub fn ty(&self) -> &'static Type {
        self.ty.get()
    }

    /// Whether the field is a pointer: absent differs from the zero value.
    pub fn is_pointer(&self) -> bool {
        matches!(self.ty.get().shape, Shape::Pointer(_))
    }

    /// The numbers in protobuf. Several numbers name a field of a message in a message whose fields JSON has in this
    /// struct; none means that protobuf does not have the field (`apiVersion`, `kind`).
    pub fn numbers(&self) -> &[u8] {
        let depth = self
            .numbers
            .iter()
            .position(|number| *number == 0)
            .unwrap_or(self.numbers.len());
        &self.numbers[..depth]
    }

    /// Whether JSON leaves out the empty value (`omitempty` in Go): an absent pointer, an empty list, map or string, 0
    /// and `false`, but never a struct.
    pub fn omit_empty(&self) -> bool {
        self.omit_empty
    }

    /// Whether JSON leaves out the zero value (`omitzero` in Go), also of a struct.
    pub fn omit_zero(&self) -> bool {
        self.omit_zero
    }

    /// Whether JSON has the field in every object: it is not left out when empty, or it is a struct and can never be
    /// empty for Go.
    pub fn is_always_shown(&self) -> bool {
        self.always_shown
    }

    /// Whether OpenAPI requires the field.
    pub fn required(&self) -> bool {
        self.required
    }

    /// How server-side apply merges the list.
    pub fn list(&self) -> Option<List> {
        self.list
    }

    /// The strategies of strategic merge patches, such as `merge` and `retainKeys`.
    pub fn patch_strategies(&self) -> impl Iterator<Item = &'static str> {
        self.strategies
            .split(',')
            .filter(|strategy| !strategy.is_empty())
    }

    /// Whether strategic merge patches have a strategy for the field.
    pub fn has_patch_strategy(&self, strategy: &str) -> bool {
        self.patch_strategies().any(|known| known == strategy)
    }

    /// The key by which strategic merge patches find elements of the list.
    pub fn merge_key(&self) -> Option<&'static str> {
        self.merge_key
    }

    /// Whether server-side apply replaces the value as a whole, because of the field or of its type.
    pub fn is_atomic(&self) -> bool {
        match self.map_type {
            Some(map_type) => map_type == "atomic",
            None => {
                self.ty().target().is_atomic()
                    || self.list.is_some_and(|list| list.ty == ListType::Atomic)
            }
        }
    }

    /// The `x-kubernetes-map-type` of the field itself.
    pub fn map_type(&self) -> Option<&'static str> {
        self.map_type
    }

    /// The default in OpenAPI, as JSON, if it is not the zero value of its type.
    pub fn default_json(&self) -> Option<&'static str> {
        self.default
    }
}

/// How server-side apply merges a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    pub(super) ty: ListType,
    pub(super) keys: &'static str,
}

impl List {
    /// The type of the list.
    pub fn ty(self) -> ListType {
        self.ty
    }

    /// The keys of a list of type [`ListType::Map`].
    pub fn keys(self) -> impl Iterator<Item = &'static str> {
        self.keys.split(',').filter(|key| !key.is_empty())
    }
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// Scalars that occur once.
    Set,
    /// Objects that differ in their keys.
    Map,
}
