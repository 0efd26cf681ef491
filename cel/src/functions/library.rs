//! Patterns, URLs, quantities, addresses, versions and formats.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Function, Outcome};
use crate::fault::{EvaluationError, fail, no_such_overload};
use crate::format;
use crate::values::{Cidr, Quantity, Semver, Url, Value, parse_cidr, parse_ip};

pub(super) fn find(name: &str) -> Option<Function> {
    patterns(name)
        .or_else(|| urls(name))
        .or_else(|| amounts(name))
        .or_else(|| addresses(name))
        .or_else(|| formats(name))
}

fn patterns(name: &str) -> Option<Function> {
    Some(match name {
        "matches" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let regex = context.patterns.get(pattern, &mut context.work)?;
                Ok(Value::Bool(regex.is_match(text)))
            }
            _ => Err(no_such_overload()),
        },
        "find" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let regex = context.patterns.get(pattern, &mut context.work);
                let regex = regex.map_err(illegal)?;
                Ok(Value::from(
                    regex.find(text).map_or("", |found| found.as_str()),
                ))
            }
            _ => Err(no_such_overload()),
        },
        "findAll" => |context, args| {
            let (text, pattern, count) = match args {
                [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
                [
                    Value::String(text),
                    Value::String(pattern),
                    Value::Int(count),
                ] => (text, pattern, *count),
                _ => return Err(no_such_overload()),
            };
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let regex = context
                .patterns
                .get(pattern, &mut context.work)
                .map_err(illegal)?;
            // An empty match directly behind another match is none.
            let mut end = None;
            let mut found = Vec::new();
            for place in regex.find_iter(text) {
                if found.len() == count {
                    break;
                }
                if !place.is_empty() || end != Some(place.start()) {
                    found.push(Value::from(place.as_str()));
                }
                end = Some(place.end());
            }
            Ok(Value::list(found))
        },
        _ => return None,
    })
}

fn illegal(error: EvaluationError) -> EvaluationError {
    match error {
        EvaluationError::Failed(reason) => {
            EvaluationError::Failed(format!("Illegal regex: {reason}"))
        }
        limit @ EvaluationError::CostLimit => limit,
    }
}

fn urls(name: &str) -> Option<Function> {
    Some(match name {
        "url" => |_, args| match args {
            [Value::String(text)] => match Url::parse(text) {
                Ok(url) => Ok(Value::Url(Arc::new(url))),
                Err(reason) => fail(format!(
                    "URL parse error during conversion from string: {reason}"
                )),
            },
            _ => Err(no_such_overload()),
        },
        "isURL" => |_, args| is(args, |text| Url::parse(text).is_ok()),
        "getScheme" => |_, args| url_part(args, |url| Value::from(url.scheme.as_str())),
        "getHost" => |_, args| url_part(args, |url| Value::from(url.host.as_str())),
        "getHostname" => |_, args| url_part(args, |url| Value::from(url.hostname())),
        "getPort" => |_, args| url_part(args, |url| Value::from(url.port())),
        "getEscapedPath" => |_, args| url_part(args, |url| Value::from(url.path.as_str())),
        "getQuery" => |_, args| {
            url_part(args, |url| {
                Value::map(url.query().into_iter().map(|(key, values)| {
                    (
                        key,
                        Value::list(values.into_iter().map(Value::from).collect()),
                    )
                }))
            })
        },
        _ => return None,
    })
}

fn is(args: &[Value], holds: fn(&str) -> bool) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(holds(text))),
        _ => Err(no_such_overload()),
    }
}

fn url_part(args: &[Value], get: fn(&Url) -> Value) -> Outcome {
    match args {
        [Value::Url(url)] => Ok(get(url)),
        _ => Err(no_such_overload()),
    }
}

fn amounts(name: &str) -> Option<Function> {
    Some(match name {
        "quantity" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Quantity(Quantity::parse(text)?)),
            _ => Err(no_such_overload()),
        },
        "isQuantity" => |_, args| is(args, |text| Quantity::parse(text).is_ok()),
        "sign" => |_, args| quantity(args, |quantity| Ok(Value::Int(quantity.sign()))),
        "asInteger" => |_, args| {
            quantity(args, |quantity| {
                quantity
                    .as_int()
                    .map(Value::Int)
                    .ok_or_else(|| "cannot convert value to integer".into())
            })
        },
        "isInteger" => |_, args| {
            quantity(args, |quantity| {
                Ok(Value::Bool(quantity.as_int().is_some()))
            })
        },
        "asApproximateFloat" => {
            |_, args| quantity(args, |quantity| Ok(Value::Double(quantity.as_float())))
        }
        "add" => |_, args| combine(args, Quantity::add),
        "sub" => |_, args| combine(args, Quantity::sub),
        "isGreaterThan" => |_, args| Ok(Value::Bool(order(args)? > 0)),
        "isLessThan" => |_, args| Ok(Value::Bool(order(args)? < 0)),
        "compareTo" => |_, args| Ok(Value::Int(order(args)?)),
        "semver" => |_, args| version(args).map(|it| Value::Semver(Arc::new(it))),
        "isSemver" => |_, args| match version(args) {
            Ok(_) => Ok(Value::Bool(true)),
            Err(error) if error == no_such_overload() => Err(error),
            Err(_) => Ok(Value::Bool(false)),
        },
        "major" => |_, args| number(args, 0),
        "minor" => |_, args| number(args, 1),
        "patch" => |_, args| number(args, 2),
        _ => return None,
    })
}

fn quantity(args: &[Value], get: fn(Quantity) -> Outcome) -> Outcome {
    match args {
        [Value::Quantity(quantity)] => get(*quantity),
        _ => Err(no_such_overload()),
    }
}

fn combine(args: &[Value], combine: fn(Quantity, Quantity) -> Quantity) -> Outcome {
    let (left, right) = match args {
        [Value::Quantity(left), Value::Quantity(right)] => (*left, *right),
        [Value::Quantity(left), Value::Int(right)] => (*left, Quantity::whole(*right)),
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Quantity(combine(left, right)))
}

/// Compares two quantities or versions.
fn order(args: &[Value]) -> Result<i64, EvaluationError> {
    let ordering = match args {
        [Value::Quantity(left), Value::Quantity(right)] => left.cmp(right),
        [Value::Semver(left), Value::Semver(right)] => left.compare(right),
        _ => return Err(no_such_overload()),
    };
    Ok(ordering as i64)
}

fn version(args: &[Value]) -> Result<Semver, EvaluationError> {
    Ok(match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Semver::parse(text)?,
        [Value::String(text), Value::Bool(true)] => Semver::parse_loose(text)?,
        _ => return Err(no_such_overload()),
    })
}

fn number(args: &[Value], index: usize) -> Outcome {
    match args {
        [Value::Semver(version)] => Ok(Value::Int(version.numbers[index].cast_signed())),
        _ => Err(no_such_overload()),
    }
}

fn addresses(name: &str) -> Option<Function> {
    Some(match name {
        "ip" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Ip(parse_ip(text)?)),
            [Value::Cidr(cidr)] => Ok(Value::Ip(cidr.address)),
            _ => Err(no_such_overload()),
        },
        "isIP" => |_, args| is(args, |text| parse_ip(text).is_ok()),
        "ip.isCanonical" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_ip(text)?.to_string() == **text)),
            _ => Err(no_such_overload()),
        },
        "family" => |_, args| match args {
            [Value::Ip(address)] => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
            _ => Err(no_such_overload()),
        },
        "isUnspecified" => |_, args| address(args, std::net::IpAddr::is_unspecified),
        "isLoopback" => |_, args| address(args, std::net::IpAddr::is_loopback),
        "isLinkLocalMulticast" => |_, args| address(args, is_link_local_multicast),
        "isLinkLocalUnicast" => |_, args| address(args, is_link_local),
        "isGlobalUnicast" => |_, args| address(args, is_global),
        "cidr" => |_, args| match args {
            [Value::String(text)] => match parse_cidr(text) {
                Ok(cidr) => Ok(Value::Cidr(cidr)),
                Err(reason) => fail(format!(
                    "network address parse error during conversion from string: {reason}"
                )),
            },
            _ => Err(no_such_overload()),
        },
        "isCIDR" => |_, args| is(args, |text| parse_cidr(text).is_ok()),
        "containsIP" => |_, args| match args {
            [Value::Cidr(cidr), Value::Ip(address)] => Ok(Value::Bool(cidr.contains(*address))),
            [Value::Cidr(cidr), Value::String(text)] => {
                Ok(Value::Bool(cidr.contains(parse_ip(text)?)))
            }
            _ => Err(no_such_overload()),
        },
        "containsCIDR" => |_, args| match args {
            [Value::Cidr(cidr), Value::Cidr(other)] => Ok(Value::Bool(cidr.covers(other))),
            [Value::Cidr(cidr), Value::String(text)] => match parse_cidr(text) {
                Ok(other) => Ok(Value::Bool(cidr.covers(&other))),
                Err(reason) => fail(format!(
                    "network address parse error during conversion from string: {reason}"
                )),
            },
            _ => Err(no_such_overload()),
        },
        "prefixLength" => |_, args| match args {
            [Value::Cidr(cidr)] => Ok(Value::Int(i64::from(cidr.bits))),
            _ => Err(no_such_overload()),
        },
        "masked" => |_, args| match args {
            [Value::Cidr(cidr)] => Ok(Value::Cidr(Cidr::masked(*cidr))),
            _ => Err(no_such_overload()),
        },
        _ => return None,
    })
}

fn address(args: &[Value], holds: fn(&IpAddr) -> bool) -> Outcome {
    match args {
        [Value::Ip(address)] => Ok(Value::Bool(holds(address))),
        _ => Err(no_such_overload()),
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !is_broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local(address)
}

fn formats(name: &str) -> Option<Function> {
    Some(match name {
        "validate" => |context, args| match args {
            [Value::Format(format), Value::String(text)] => {
                context.work.spend(text.len() / 16)?;
                let found = format.validate(text);
                if found.is_empty() {
                    return Ok(Value::Optional(None));
                }
                let found = found.into_iter().map(Value::from).collect();
                Ok(Value::some(Value::list(found)))
            }
            _ => Err(no_such_overload()),
        },
        "format.named" => |_, args| match args {
            [Value::String(name)] => Ok(format::find(name)
                .map_or(Value::Optional(None), |format| {
                    Value::some(Value::Format(format))
                })),
            _ => Err(no_such_overload()),
        },
        _ => return None,
    })
}
