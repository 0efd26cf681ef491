//! Reads `data/kinds.txt`, one fact a line. `scripts/kinds` writes it, and a test reads all of it: what it must not
//! contain panics here.
//!
//! ```text
//! source MODULE VERSION
//! group NAME|-
//! version NAME on|off
//! resource PLURAL SINGULAR KIND namespaced|cluster VERB,..|* SHORT,..|- CATEGORY,..|-
//! sub NAME KIND|GROUP/VERSION/KIND VERB,..
//! package NAME OPENAPI-PREFIX [GROUP|- VERSION]
//! type NAME CODEC|EXPRESSION [message] [map=..] [union=..] [deprecated=..] [removed=..] [replaced=..]
//!  FIELD EXPRESSION NUMBER[.NUMBER]|- FLAGS|- [list=..] [patch=..] [key=..] [map=..] [default=..]
//! ```
//! An expression is the name of a type behind any of `*` (pointer), `[]` (list), `{KEY}` (map; without a key of
//! strings). Flags are `o` (omitempty), `z` (omitzero), `r` (required).

use std::collections::HashMap;

use super::Table;
use super::resource::{Group, Resource, Subresource, Version};
use super::types::{Deprecation, Field, List, ListType, Package, Shape, Type, TypeRef, Union};

const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

pub(super) fn table(text: &'static str) -> Table {
    let mut types = Types {
        types: Vec::with_capacity(2048),
        by_name: HashMap::with_capacity(2048),
    };
    let mut sources = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut packages: Vec<Package> = Vec::new();
    let mut lines = text.lines().peekable();
    // Kinds have no package yet when resources name them: they are looked up at the end.
    while let Some(line) = lines.next() {
        let mut words = line.split(' ');
        let mut word = || {
            words
                .next()
                .unwrap_or_else(|| panic!("incomplete line: {line}"))
        };
        match word() {
            "#" => {}
            "source" => sources.push((word(), word())),
            "group" => groups.push(Group {
                name: undash(word()),
                versions: Vec::new(),
            }),
            "version" => {
                let group = groups.last_mut().expect("a group");
                group.versions.push(Version {
                    group: group.name,
                    name: word(),
                    on: word() == "on",
                    resources: Vec::new(),
                });
            }
            "resource" => {
                let version = last_version(&mut groups);
                version.resources.push(Resource {
                    group: version.group,
                    version: version.name,
                    on: version.on,
                    plural: word(),
                    singular: word(),
                    kind: word(),
                    object: UNRESOLVED,
                    list: None,
                    namespaced: word() == "namespaced",
                    verbs: verbs(word()),
                    short_names: list(word()),
                    categories: list(word()),
                    subresources: Vec::new(),
                });
            }
            "sub" => {
                let resource = last_version(&mut groups)
                    .resources
                    .last_mut()
                    .expect("a resource");
                let name = word();
                let mut kind = word().rsplitn(3, '/');
                resource.subresources.push(Subresource {
                    name,
                    kind: kind.next().unwrap_or_default(),
                    version: kind.next().unwrap_or(resource.version),
                    group: kind.next().unwrap_or(resource.group),
                    object: UNRESOLVED,
                    verbs: verbs(word()),
                });
            }
            "package" => packages.push(Package {
                name: word(),
                openapi: word(),
                group_version: words
                    .next()
                    .map(|group| (undash(group), words.next().unwrap_or_default())),
                types: Vec::new(),
            }),
            "type" => {
                let id = types.reference(word());
                let mut fields = Vec::new();
                let shape = word();
                while let Some(field) = lines.next_if(|line| line.starts_with(' ')) {
                    fields.push(types.field(&field[1..]));
                }
                let index = packages.len() - 1;
                packages[index].types.push(id);
                let shape = types.shape(shape, fields);
                let ty = &mut types.types[id.0 as usize];
                ty.shape = shape;
                ty.package = Some(u16::try_from(index).expect("few packages"));
                ty.attributes(words);
            }
            _ => panic!("unknown line: {line}"),
        }
    }
    resolve(&mut groups, &packages, &types);
    types.find_always_shown();
    Table {
        sources,
        groups,
        packages,
        types: types.types,
        by_name: types.by_name,
    }
}

/// Stands for a kind until all types are known.
const UNRESOLVED: TypeRef = TypeRef(u32::MAX);

fn last_version(groups: &mut [Group]) -> &mut Version {
    groups
        .last_mut()
        .and_then(|group| group.versions.last_mut())
        .expect("a version")
}

fn undash(word: &str) -> &str {
    if word == "-" { "" } else { word }
}

fn list(word: &'static str) -> Vec<&'static str> {
    if word == "-" {
        Vec::new()
    } else {
        word.split(',').collect()
    }
}

fn verbs(word: &'static str) -> Vec<&'static str> {
    if word == "*" {
        ALL_VERBS.to_vec()
    } else {
        list(word)
    }
}

/// Sets the types of resources and subresources.
fn resolve(groups: &mut [Group], packages: &[Package], types: &Types) {
    let find = |group: &str, version: &str, kind: &str, suffix: &str| {
        let package = packages
            .iter()
            .find(|package| package.group_version == Some((group, version)));
        let name = format!(
            "{}.{kind}{suffix}",
            package.expect("a package of each version").name
        );
        types.by_name.get(name.as_str()).copied()
    };
    for resource in groups
        .iter_mut()
        .flat_map(|group| &mut group.versions)
        .flat_map(|version| &mut version.resources)
    {
        let (group, version, kind) = (resource.group, resource.version, resource.kind);
        resource.object = find(group, version, kind, "").expect("the type of a kind");
        if resource.verbs.contains(&"list") {
            resource.list = Some(find(group, version, kind, "List").expect("the type of a list"));
        }
        for sub in &mut resource.subresources {
            sub.object =
                find(sub.group, sub.version, sub.kind, "").expect("the type of a subresource");
        }
    }
}

struct Types {
    types: Vec<Type>,
    by_name: HashMap<&'static str, TypeRef>,
}

impl Types {
    /// The type that an expression names. A name that is not defined yet gets its shape when it is.
    fn reference(&mut self, expression: &'static str) -> TypeRef {
        if let Some(known) = self.by_name.get(expression) {
            return *known;
        }
        let id = TypeRef(u32::try_from(self.types.len()).expect("few types"));
        self.by_name.insert(expression, id);
        self.types.push(Type {
            full_name: expression,
            package: None,
            shape: Shape::Json,
            atomic: false,
            unions: Vec::new(),
            deprecation: None,
        });
        if !expression.contains('.') || expression.starts_with(['*', '[', '{']) {
            self.types[id.0 as usize].shape = self.shape(expression, Vec::new());
        }
        id
    }

    fn shape(&mut self, expression: &'static str, fields: Vec<Field>) -> Shape {
        if let Some(target) = expression.strip_prefix('*') {
            return Shape::Pointer(self.reference(target));
        }
        if let Some(item) = expression.strip_prefix("[]") {
            return Shape::List {
                item: self.reference(item),
                message: false,
            };
        }
        if let Some((key, value)) = expression
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
        {
            let key = self.reference(if key.is_empty() { "string" } else { key });
            return Shape::Map {
                key,
                value: self.reference(value),
            };
        }
        match expression {
            "struct" => Shape::Struct(fields),
            "string" => Shape::String,
            "bool" => Shape::Bool,
            "int32" => Shape::Int32,
            "int64" => Shape::Int64,
            "float64" => Shape::Float64,
            "bytes" => Shape::Bytes,
            "quantity" => Shape::Quantity,
            "int-or-string" => Shape::IntOrString,
            "time" => Shape::Time,
            "micro-time" => Shape::MicroTime,
            "fields" => Shape::FieldsV1,
            "raw" => Shape::RawExtension,
            "json" => Shape::Json,
            "schema-or-array" => Shape::SchemaOrArray(fields),
            "schema-or-bool" => Shape::SchemaOrBool(fields),
            "schema-or-strings" => Shape::SchemaOrStrings(fields),
            _ => panic!("unknown type: {expression}"),
        }
    }

    /// Finds the fields that are in all objects, when the types of all fields are known.
    fn find_always_shown(&mut self) {
        let can_be_empty: Vec<bool> = self
            .types
            .iter()
            .map(|ty| ty.shape.can_be_empty())
            .collect();
        for ty in &mut self.types {
            if let Shape::Struct(fields) = &mut ty.shape {
                for field in fields {
                    let omitted = field.omit_empty && can_be_empty[field.ty.0 as usize];
                    field.always_shown = !omitted && !field.omit_zero;
                }
            }
        }
    }

    fn field(&mut self, line: &'static str) -> Field {
        let mut words = line.split(' ');
        let mut word = || {
            words
                .next()
                .unwrap_or_else(|| panic!("incomplete field: {line}"))
        };
        let (name, ty, path, flags) = (word(), word(), word(), word());
        let mut numbers = [0; 3];
        if path != "-" {
            for (slot, number) in numbers.iter_mut().zip(path.split('.')) {
                *slot = number
                    .parse()
                    .unwrap_or_else(|_| panic!("not a number: {line}"));
            }
        }
        let mut field = Field {
            name,
            ty: self.reference(ty),
            numbers,
            omit_empty: flags.contains('o'),
            omit_zero: flags.contains('z'),
            required: flags.contains('r'),
            always_shown: false,
            list: None,
            strategies: "",
            merge_key: None,
            map_type: None,
            default: None,
        };
        for attribute in words {
            match attribute.split_once('=') {
                Some(("list", list)) => {
                    let (ty, keys) = list.split_once(':').unwrap_or((list, ""));
                    let ty = match ty {
                        "atomic" => ListType::Atomic,
                        "set" => ListType::Set,
                        "map" => ListType::Map,
                        _ => panic!("unknown type of a list: {line}"),
                    };
                    field.list = Some(List { ty, keys });
                }
                Some(("patch", strategies)) => field.strategies = strategies,
                Some(("key", key)) => field.merge_key = Some(key),
                Some(("map", map_type)) => field.map_type = Some(map_type),
                Some(("default", json)) => field.default = Some(json),
                _ => panic!("unknown attribute: {line}"),
            }
        }
        field
    }
}

impl Shape {
    /// Whether Go's `omitempty` ever leaves out a value of this shape.
    fn can_be_empty(&self) -> bool {
        match self {
            Shape::Pointer(_)
            | Shape::List { .. }
            | Shape::Map { .. }
            | Shape::String
            | Shape::Bool
            | Shape::Int32
            | Shape::Int64
            | Shape::Float64
            | Shape::Bytes => true,
            Shape::Struct(_)
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::Time
            | Shape::MicroTime
            | Shape::FieldsV1
            | Shape::RawExtension
            | Shape::Json
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrStrings(_) => false,
        }
    }
}

impl Type {
    fn attributes(&mut self, words: std::str::Split<'static, char>) {
        for attribute in words {
            if attribute == "message" {
                if let Shape::List { message, .. } = &mut self.shape {
                    *message = true;
                }
                continue;
            }
            let (name, value) = attribute
                .split_once('=')
                .unwrap_or_else(|| panic!("unknown attribute: {attribute}"));
            match name {
                "map" => self.atomic = value == "atomic",
                "union" => {
                    let (discriminator, fields) =
                        value.split_once(';').expect("the fields of a union");
                    self.unions.push(Union {
                        discriminator: (!discriminator.is_empty()).then_some(discriminator),
                        fields: fields
                            .split(',')
                            .filter_map(|field| field.split_once(':'))
                            .collect(),
                    });
                }
                "deprecated" => {
                    self.deprecation = Some(Deprecation {
                        since: value,
                        removed: None,
                        replacement: None,
                    });
                }
                "removed" | "replaced" => {
                    let deprecation = self.deprecation.as_mut().expect("a version of deprecation");
                    if name == "removed" {
                        deprecation.removed = Some(value);
                    } else {
                        let mut parts = value.splitn(3, '/');
                        let mut part = || parts.next().expect("group, version and kind");
                        deprecation.replacement = Some((part(), part(), part()));
                    }
                }
                _ => panic!("unknown attribute: {attribute}"),
            }
        }
    }
}
