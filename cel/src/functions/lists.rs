//! Functions of lists.

use std::cmp::Ordering;

use super::{Context, Function, Outcome, compare};
use crate::fault::{EvaluationError, fail, no_such_overload};
use crate::values::{List, Value};

/// The maximum number of items of a range.
const RANGE_MAX: i64 = 1_000_000;

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "max" => |_, args| extreme(args, "max", Ordering::Less),
        "min" => |_, args| extreme(args, "min", Ordering::Greater),
        "slice" => slice,
        "flatten" => |context, args| match args {
            [Value::List(list)] => flatten(context, list, 1),
            [Value::List(list), Value::Int(depth)] => flatten(context, list, *depth),
            _ => Err(no_such_overload()),
        },
        "sort" => |_, args| match args {
            [Value::List(list)] => sort(list, list),
            _ => Err(no_such_overload()),
        },
        "@sortByAssociatedKeys" => |_, args| match args {
            [Value::List(list), Value::List(keys)] => sort(list, keys),
            _ => Err(no_such_overload()),
        },
        "lists.range" => |_, args| match args {
            [Value::Int(count)] if *count > RANGE_MAX => Err(EvaluationError::CostLimit),
            [Value::Int(count)] => Ok(Value::list((0..*count).map(Value::Int).collect())),
            _ => Err(no_such_overload()),
        },
        "reverse" => |context, args| match args {
            [Value::List(list)] => {
                context.work.spend(list.len())?;
                let mut items: Vec<_> = list.iter().collect();
                items.reverse();
                Ok(Value::list(items))
            }
            _ => Err(no_such_overload()),
        },
        "distinct" => distinct,
        "first" => |_, args| match args {
            [Value::List(list)] => Ok(list.get(0).map_or(Value::Optional(None), Value::some)),
            _ => Err(no_such_overload()),
        },
        "last" => |_, args| match args {
            [Value::List(list)] => {
                let index = list.len().checked_sub(1);
                let item = index.and_then(|index| list.get(index));
                Ok(item.map_or(Value::Optional(None), Value::some))
            }
            _ => Err(no_such_overload()),
        },
        "optional.unwrap" | "unwrapOpt" => unwrap,
        "sets.contains" => |context, args| match args {
            [Value::List(list), Value::List(part)] => contains_all(context, list, part),
            _ => Err(no_such_overload()),
        },
        "sets.equivalent" => |context, args| match args {
            [Value::List(left), Value::List(right)] => match contains_all(context, left, right)? {
                Value::Bool(true) => contains_all(context, right, left),
                other => Ok(other),
            },
            _ => Err(no_such_overload()),
        },
        "sets.intersects" => |context, args| match args {
            [Value::List(left), Value::List(right)] => {
                for item in left.iter() {
                    if right.contains(&item, &mut context.work)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            _ => Err(no_such_overload()),
        },
        _ => return None,
    })
}

fn contains_all(context: &mut Context, list: &List, part: &List) -> Outcome {
    for item in part.iter() {
        if !list.contains(&item, &mut context.work)? {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn is_sorted(_: &mut Context, args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else {
        return Err(no_such_overload());
    };
    let mut before: Option<Value> = None;
    for item in list.iter() {
        comparable(&item)?;
        if let Some(before) = &before
            && compare(before, &item).is_ok_and(Ordering::is_gt)
        {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

/// Refuses a value of a type without an order.
fn comparable(value: &Value) -> Result<(), EvaluationError> {
    match value {
        Value::Double(_) => Ok(()),
        value => compare(value, value).map(drop),
    }
}

fn sum(context: &mut Context, args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else {
        return Err(no_such_overload());
    };
    let Some(add) = super::operators::find("_+_") else {
        return Err(no_such_overload());
    };
    let mut items = list.iter();
    let Some(mut total) = items.next() else {
        return Ok(Value::Int(0));
    };
    for item in items {
        total = add(context, &[total, item])?;
    }
    Ok(total)
}

fn extreme(args: &[Value], name: &str, replaced: Ordering) -> Outcome {
    let [Value::List(list)] = args else {
        return Err(no_such_overload());
    };
    let mut best: Option<Value> = None;
    for item in list.iter() {
        comparable(&item)?;
        let is_better = match &best {
            None => true,
            Some(best) => compare(best, &item).is_ok_and(|ordering| ordering == replaced),
        };
        if is_better {
            best = Some(item);
        }
    }
    best.map_or_else(|| fail(format!("{name} called on empty list")), Ok)
}

fn slice(context: &mut Context, args: &[Value]) -> Outcome {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(no_such_overload());
    };
    let call = format!("cannot slice({start}, {end})");
    let (Ok(from), Ok(until)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fail(format!("{call}, negative indexes not supported"));
    };
    if from > until {
        return fail(format!(
            "{call}, start index must be less than or equal to end index"
        ));
    }
    if list.len() < until {
        return fail(format!("{call}, list is length {}", list.len()));
    }
    context.work.spend(until)?;
    Ok(Value::list(
        list.iter().skip(from).take(until - from).collect(),
    ))
}

fn flatten(context: &mut Context, list: &List, depth: i64) -> Outcome {
    if depth < 0 {
        return fail("level must be non-negative");
    }
    let mut items = Vec::new();
    flatten_into(context, list, depth, &mut items)?;
    Ok(Value::list(items))
}

fn flatten_into(
    context: &mut Context,
    list: &List,
    depth: i64,
    out: &mut Vec<Value>,
) -> Result<(), EvaluationError> {
    for item in list.iter() {
        context.work.spend(1)?;
        match &item {
            Value::List(inner) if depth > 0 => flatten_into(context, inner, depth - 1, out)?,
            _ => out.push(item),
        }
    }
    Ok(())
}

fn sort(list: &List, keys: &List) -> Outcome {
    if list.len() != keys.len() {
        return fail(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        ));
    }
    let mut pairs: Vec<_> = keys.iter().zip(list.iter()).collect();
    let Some((first, _)) = pairs.first() else {
        return Ok(Value::List(list.clone()));
    };
    if compare(first, first).is_err() && !matches!(first, Value::Double(_)) {
        return fail("list elements must be comparable");
    }
    let name = first.type_name().to_owned();
    if pairs.iter().any(|(key, _)| key.type_name() != name) {
        return fail("list elements must have the same type");
    }
    pairs.sort_by(|(left, _), (right, _)| compare(left, right).unwrap_or(Ordering::Equal));
    Ok(Value::list(
        pairs.into_iter().map(|(_, item)| item).collect(),
    ))
}

fn distinct(context: &mut Context, args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else {
        return Err(no_such_overload());
    };
    let mut found: Vec<Value> = Vec::new();
    for item in list.iter() {
        let mut is_new = true;
        for own in &found {
            if item.equals(own, &mut context.work)? {
                is_new = false;
                break;
            }
        }
        if is_new {
            found.push(item);
        }
    }
    Ok(Value::list(found))
}

fn unwrap(context: &mut Context, args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else {
        return Err(no_such_overload());
    };
    context.work.spend(list.len())?;
    let mut found = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(value)) => found.push((*value).clone()),
            Value::Optional(None) => {}
            other => return fail(format!("value {other} is not optional")),
        }
    }
    Ok(Value::list(found))
}
