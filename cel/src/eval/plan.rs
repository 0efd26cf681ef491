//! The plan: constants are computed, and functions are found.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use crate::check::{Checked, Reference};
use crate::format;
use crate::functions::{self, Context, Function};
use crate::pattern::{self, Shared};
use crate::syntax::{Comprehension, Entry, Expr, Kind};
use crate::values::{Key, Map, Value, double_to_int, double_to_uint};

/// A planned expression.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) root: Node,
    pub(super) patterns: Shared,
}

#[derive(Debug)]
pub(super) enum Node {
    Const(Value),
    Attribute(Box<Attribute>),
    /// `&&`, or `||` if `ends_with` is true.
    Logical {
        terms: Vec<Node>,
        ends_with: bool,
    },
    Equal {
        sides: Box<[Node; 2]>,
        is_not: bool,
    },
    Call(Box<Call>),
    /// A function without arguments, whose value is known.
    Known(Value),
    List {
        items: Vec<Node>,
        optional: Vec<bool>,
    },
    Map(Vec<Entry<Node, Node>>),
    Struct {
        /// The type, if the object keeps its name.
        name: Option<Arc<str>>,
        fields: Vec<Entry<String, Node>>,
    },
    Fold(Box<Fold>),
    /// A test whether a value is one of some constants.
    Member(Box<Node>, Map),
    /// `or`, or `orValue`.
    Otherwise {
        sides: Box<[Node; 2]>,
        is_value: bool,
    },
    /// An addition to what a loop collects.
    Collect(Box<Call>),
}

/// A variable or a value, and the fields and indices that follow.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) base: Base,
    pub(super) qualifiers: Vec<Arc<Qualifier>>,
    pub(super) is_test: bool,
}

#[derive(Debug)]
pub(super) enum Base {
    Variable(String),
    Value(Node),
    Conditional {
        condition: Node,
        then: Box<Attribute>,
        otherwise: Box<Attribute>,
    },
}

#[derive(Debug)]
pub(super) struct Qualifier {
    pub(super) key: QualifierKey,
    pub(super) is_optional: bool,
    pub(super) is_test: bool,
}

#[derive(Debug)]
pub(super) enum QualifierKey {
    Const(Value),
    Attribute(Attribute),
    Value(Node),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) overload: &'static str,
    pub(super) function: Function,
    pub(super) args: Vec<Node>,
    /// Whether arguments behind one that failed are not evaluated.
    pub(super) stops_early: bool,
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Node,
    pub(super) variable: String,
    pub(super) second: Option<String>,
    pub(super) accumulator: String,
    pub(super) init: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// Plans an expression. The error is why that is not possible.
pub(crate) fn plan(root: &Expr, found: &Checked) -> Result<Plan, String> {
    let mut planner = Planner {
        found,
        patterns: HashMap::new(),
        collecting: Vec::new(),
    };
    let root = planner.plan(root)?;
    Ok(Plan {
        root,
        patterns: Arc::new(planner.patterns),
    })
}

struct Planner<'a> {
    found: &'a Checked,
    patterns: HashMap<String, Regex>,
    /// For each loop around: the variable in which it collects, if it does.
    collecting: Vec<Option<String>>,
}

impl Attribute {
    fn of(node: Node) -> Self {
        match node {
            Node::Attribute(attribute) => *attribute,
            node => Self {
                base: Base::Value(node),
                qualifiers: Vec::new(),
                is_test: false,
            },
        }
    }

    fn qualify(&mut self, qualifier: &Arc<Qualifier>) {
        if let Base::Conditional {
            then, otherwise, ..
        } = &mut self.base
        {
            then.qualify(qualifier);
            otherwise.qualify(qualifier);
        } else {
            self.qualifiers.push(qualifier.clone());
        }
    }
}

type Planned = Result<Node, String>;

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Planned {
        if let Some(reference) = self.found.references.get(&expr.id) {
            return Ok(match reference {
                Reference::Type(name) => Node::Const(Value::Type(name.clone())),
                Reference::Variable(name) => Node::Attribute(Box::new(Attribute {
                    base: Base::Variable(name.clone()),
                    qualifiers: Vec::new(),
                    is_test: false,
                })),
            });
        }
        match &expr.kind {
            Kind::Literal(value) => Ok(Node::Const(value.clone())),
            Kind::Ident(name) => Err(format!("undeclared reference to '{name}'")),
            Kind::Select {
                operand,
                field,
                is_test,
            } => {
                let mut attribute = Attribute::of(self.plan(operand)?);
                attribute.is_test = *is_test;
                attribute.qualify(&Arc::new(Qualifier {
                    key: QualifierKey::Const(Value::from(field.as_str())),
                    is_optional: false,
                    is_test: *is_test,
                }));
                Ok(Node::Attribute(Box::new(attribute)))
            }
            Kind::Call {
                target,
                function,
                args,
            } => self.call(expr, target.as_deref(), function, args),
            Kind::List { items, optional } => {
                let items = items.iter().map(|item| self.plan(item));
                let items = items.collect::<Result<Vec<_>, _>>()?;
                let constants: Option<Vec<_>> = items.iter().map(constant).collect();
                match constants {
                    Some(values) if !optional.contains(&true) => {
                        Ok(Node::Const(Value::list(values)))
                    }
                    _ => Ok(Node::List {
                        items,
                        optional: optional.clone(),
                    }),
                }
            }
            Kind::Map(entries) => self.map(entries),
            Kind::Struct { name, fields } => {
                let mut planned = Vec::new();
                for field in fields {
                    planned.push(Entry {
                        id: field.id,
                        key: field.key.clone(),
                        value: self.plan(&field.value)?,
                        is_optional: field.is_optional,
                    });
                }
                Ok(Node::Struct {
                    name: self.found.has_patch_types.then(|| name.as_str().into()),
                    fields: planned,
                })
            }
            Kind::Comprehension(inner) => self.fold(inner),
        }
    }

    fn map(&mut self, entries: &[Entry<Expr>]) -> Planned {
        let mut planned = Vec::new();
        let mut constants = Some(Vec::new());
        for entry in entries {
            let key = self.plan(&entry.key)?;
            let value = self.plan(&entry.value)?;
            constants = match (constants, constant(&key), constant(&value)) {
                (Some(mut list), Some(key), Some(value)) if !entry.is_optional => {
                    let key = Key::of(&key).ok_or("unsupported key type")?;
                    list.push((key, value));
                    Some(list)
                }
                _ => None,
            };
            planned.push(Entry {
                id: entry.id,
                key,
                value,
                is_optional: entry.is_optional,
            });
        }
        Ok(match constants {
            Some(list) => Node::Const(Value::Map(Map::new(list))),
            None => Node::Map(planned),
        })
    }

    fn fold(&mut self, inner: &Comprehension) -> Planned {
        let init = self.plan(&inner.init)?;
        let range = self.plan(&inner.range)?;
        let collects = match &inner.init.kind {
            Kind::List { items, .. } => items.is_empty(),
            Kind::Map(entries) => entries.is_empty(),
            _ => false,
        };
        self.collecting
            .push(collects.then(|| inner.accumulator.clone()));
        let condition = self.plan(&inner.condition);
        let step = self.plan(&inner.step);
        self.collecting.pop();
        Ok(Node::Fold(Box::new(Fold {
            range,
            variable: inner.variable.clone(),
            second: inner.second.clone(),
            accumulator: inner.accumulator.clone(),
            init,
            condition: condition?,
            step: step?,
            result: self.plan(&inner.result)?,
        })))
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, name: &str, args: &[Expr]) -> Planned {
        let overload = match self.found.overloads(expr.id) {
            [overload] => overload,
            _ => "",
        };
        let mut nodes = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            nodes.push(self.plan(arg)?);
        }
        if nodes.len() == 2 {
            match name {
                "_&&_" | "_||_" => {
                    return Ok(Node::Logical {
                        terms: nodes,
                        ends_with: name == "_||_",
                    });
                }
                _ => {}
            }
        }
        let nodes = match <[Node; 2]>::try_from(nodes) {
            Ok([left, right]) => {
                let sides = |left, right| Box::new([left, right]);
                match name {
                    "_==_" | "_!=_" => {
                        return Ok(Node::Equal {
                            sides: sides(left, right),
                            is_not: name == "_!=_",
                        });
                    }
                    "_[_]" | "_[?_]" | "_?._" => return index(left, right, name != "_[_]"),
                    "or" | "orValue" => {
                        return Ok(Node::Otherwise {
                            sides: sides(left, right),
                            is_value: name == "orValue",
                        });
                    }
                    "@in" if overload == "in_list" => {
                        if let Some(set) = membership(&right) {
                            if set.len() == 0 {
                                return Ok(Node::Const(Value::Bool(false)));
                            }
                            return Ok(Node::Member(Box::new(left), set));
                        }
                    }
                    _ => {}
                }
                vec![left, right]
            }
            Err(nodes) => nodes,
        };
        self.function(name, overload, nodes)
    }

    fn function(&mut self, name: &str, overload: &'static str, mut nodes: Vec<Node>) -> Planned {
        if name == "_?_:_" && nodes.len() == 3 {
            let mut nodes = nodes.drain(..);
            if let (Some(condition), Some(then), Some(otherwise)) =
                (nodes.next(), nodes.next(), nodes.next())
            {
                return Ok(Node::Attribute(Box::new(Attribute {
                    base: Base::Conditional {
                        condition,
                        then: Box::new(Attribute::of(then)),
                        otherwise: Box::new(Attribute::of(otherwise)),
                    },
                    qualifiers: Vec::new(),
                    is_test: false,
                })));
            }
            return Err("a conditional has three parts".to_owned());
        }
        if nodes.is_empty() {
            let format = name.strip_prefix("format.").and_then(format::find);
            return Ok(Node::Known(match format {
                Some(format) => Value::Format(format),
                None => Value::Optional(None),
            }));
        }
        let function =
            functions::find(name).ok_or_else(|| format!("no such overload: {name}(...)"))?;
        let mut stops_early = nodes.len() > 2;
        match (name, &nodes[..]) {
            (
                "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp"
                | "type" | "uint",
                [Node::Const(value)],
            ) => {
                let value = function(&mut Context::new(), std::slice::from_ref(value));
                return value.map(Node::Const).map_err(|error| error.to_string());
            }
            ("matches" | "find" | "findAll", [_, Node::Const(Value::String(text)), ..]) => {
                if !self.patterns.contains_key(&**text) {
                    self.patterns
                        .insert(text.to_string(), pattern::compile(text)?.0);
                }
                stops_early = true;
            }
            _ => {}
        }
        let collects = match (name, &nodes[..]) {
            ("_+_", [first, Node::List { .. } | Node::Const(Value::List(_))])
            | ("cel.@mapInsert", [first, ..]) => self.is_collected(first),
            _ => false,
        };
        if collects {
            nodes.remove(0);
        }
        let call = Box::new(Call {
            name: name.to_owned(),
            overload,
            function,
            args: nodes,
            stops_early,
        });
        Ok(if collects {
            Node::Collect(call)
        } else {
            Node::Call(call)
        })
    }

    /// Returns whether a node is the variable in which the innermost loop collects.
    fn is_collected(&self, node: &Node) -> bool {
        match (self.collecting.last(), node) {
            (Some(Some(collected)), Node::Attribute(attribute)) => {
                matches!(&attribute.base, Base::Variable(name) if name == collected)
                    && attribute.qualifiers.is_empty()
            }
            _ => false,
        }
    }
}

fn constant(node: &Node) -> Option<Value> {
    match node {
        Node::Const(value) => Some(value.clone()),
        _ => None,
    }
}

fn index(operand: Node, index: Node, is_optional: bool) -> Planned {
    let mut attribute = Attribute::of(operand);
    let key = match index {
        Node::Const(
            value @ (Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)),
        ) => QualifierKey::Const(value),
        Node::Const(other) => {
            return Err(format!("invalid qualifier type: {}", other.type_name()));
        }
        Node::Attribute(attribute) => QualifierKey::Attribute(*attribute),
        node => QualifierKey::Value(node),
    };
    attribute.qualify(&Arc::new(Qualifier {
        key,
        is_optional,
        is_test: false,
    }));
    Ok(Node::Attribute(Box::new(attribute)))
}

/// Returns the constants of a list as a set, if they can be one.
fn membership(list: &Node) -> Option<Map> {
    let Node::Const(Value::List(list)) = list else {
        return None;
    };
    let mut keys = Vec::new();
    for item in list.iter() {
        let key = Key::of(&item)?;
        if let Key::Double(value) = key {
            // Numbers are members whatever their type is.
            #[expect(
                clippy::cast_precision_loss,
                clippy::float_cmp,
                reason = "only exact ones"
            )]
            if let Some(int) = double_to_int(value).filter(|int| *int as f64 == value) {
                keys.push(Key::Int(int));
            }
            keys.extend(
                double_to_uint(value)
                    .filter(|_| value.fract() == 0.0)
                    .map(Key::Uint),
            );
        }
        keys.push(key);
    }
    let keys = keys.into_iter().map(|key| (key, Value::Bool(true)));
    Some(Map::new(keys))
}
