//! The functions that expressions can call, with their types.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::types::{OPTIONAL, Type};

/// One form of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) is_member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// The names of the parameters in its types.
    pub(crate) parameters: Vec<Arc<str>>,
}

/// Functions by name.
pub(crate) type Functions = HashMap<&'static str, Vec<Overload>>;

/// All functions.
pub(crate) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut functions = Functions::new();
    for line in include_str!("declarations.txt").lines() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let (name, overload) = overload(line);
            functions.entry(name).or_default().push(overload);
        }
    }
    functions
});

/// Reads `name id(type, type) result`, where the name of a member begins with a dot.
fn overload(line: &'static str) -> (&'static str, Overload) {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (id, rest) = rest.split_once('(').unwrap_or((rest, ""));
    let (args, result) = rest.split_once(')').unwrap_or((rest, ""));
    let args: Vec<_> = split(args).into_iter().map(read).collect();
    let result = read(result);
    let mut parameters = Vec::new();
    for of in args.iter().chain([&result]) {
        collect(of, &mut parameters);
    }
    let overload = Overload {
        id,
        is_member: name.starts_with('.'),
        args,
        result,
        parameters,
    };
    (name.strip_prefix('.').unwrap_or(name), overload)
}

/// Splits at the commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (index, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

/// Reads a type.
fn read(text: &str) -> Type {
    let text = text.trim();
    if let Some((name, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let mut parts = split(inner).into_iter().map(read);
        let first = parts.next().unwrap_or(Type::Dyn);
        return match name {
            "list" => Type::list(first),
            "map" => Type::map(first, parts.next().unwrap_or(Type::Dyn)),
            "type" => Type::Type(Some(Arc::new(first))),
            _ => Type::Opaque(OPTIONAL.into(), Arc::new([first])),
        };
    }
    named(text).unwrap_or_else(|| Type::Param(text.into()))
}

/// Returns the type that a name stands for.
pub(crate) fn named(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "null_type" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "ip" => Type::Opaque("net.IP".into(), Arc::new([])),
        "cidr" => Type::Opaque("net.CIDR".into(), Arc::new([])),
        "url" => Type::object("kubernetes.URL"),
        "quantity" => Type::object("kubernetes.Quantity"),
        "semver" => Type::object("kubernetes.Semver"),
        "format" => Type::object("kubernetes.NamedFormat"),
        "authorizer" => Type::object("kubernetes.authorization.Authorizer"),
        "pathcheck" => Type::object("kubernetes.authorization.PathCheck"),
        "groupcheck" => Type::object("kubernetes.authorization.GroupCheck"),
        "resourcecheck" => Type::object("kubernetes.authorization.ResourceCheck"),
        "decision" => Type::object("kubernetes.authorization.Decision"),
        _ => return None,
    })
}

/// Returns the type that an identifier in an expression is.
pub(crate) fn type_identifier(name: &str) -> Option<Type> {
    Some(match name {
        "bool" | "int" | "uint" | "double" | "string" | "bytes" | "null_type" => named(name)?,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "optional_type" => Type::Opaque(OPTIONAL.into(), Arc::new([Type::Param("V".into())])),
        "net.IP" => named("ip")?,
        "net.CIDR" => named("cidr")?,
        "kubernetes.URL" => named("url")?,
        "kubernetes.Quantity" => named("quantity")?,
        "kubernetes.Semver" => named("semver")?,
        "kubernetes.NamedFormat" => named("format")?,
        _ => return None,
    })
}

fn collect(of: &Type, parameters: &mut Vec<Arc<str>>) {
    if let Type::Param(name) = of
        && !parameters.contains(name)
    {
        parameters.push(name.clone());
    }
    for inner in of.parameters() {
        collect(&inner, parameters);
    }
}
