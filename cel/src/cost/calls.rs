//! Estimates of the calls of functions.

use super::actual::selector;
use super::estimate::{Coster, Part};
use super::size::{CostEstimate, Size, UNKNOWN, scaled};
use super::{ACCESS, CHARACTER, LIST, PATTERN, costs_one};
use crate::syntax::Kind;
use crate::types::Type;
use crate::values::Value;

/// A cost, and the size of the result.
type Call = (CostEstimate, Option<Size>);

/// The length of the longest pattern of a format, and of a format as a text.
const FORMAT_PATTERN: f64 = 128.0;
const FORMAT: u64 = 64;
/// The bytes of an address.
const ADDRESS: Size = Size { min: 4, max: 16 };

fn fixed(value: u64) -> CostEstimate {
    CostEstimate::fixed(value)
}

/// Returns the number that an argument is, if it is a literal.
fn literal(part: &Part<'_>, default: u64) -> u64 {
    match part.expr.map(|expr| &expr.kind) {
        Some(Kind::Literal(Value::Int(value))) => (*value).max(0).cast_unsigned(),
        _ => default,
    }
}

impl Coster<'_> {
    fn part_size(&self, part: &Part<'_>) -> Size {
        part.size
            .or_else(|| self.declared_size(&part.path))
            .unwrap_or(UNKNOWN)
    }

    /// Returns the cost of a function that has a rule of its own.
    pub(super) fn known_call(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Part<'_>>,
        args: &[Part<'_>],
    ) -> Option<Call> {
        self.list_call(overload, target, args)
            .or_else(|| self.library_call(function, overload, target, args))
            .or_else(|| standard_call(overload, target, args))
    }

    /// Returns the cost of functions that make lists, and of those of sets.
    fn list_call(
        &self,
        overload: &str,
        target: Option<&Part<'_>>,
        args: &[Part<'_>],
    ) -> Option<Call> {
        let allocated =
            |factor: f64, size: Size| (size.scale(factor).add(fixed(1 + LIST)), Some(size));
        let squared = |part: &Part<'_>, is_text: bool| {
            let size = self.part_size(part);
            let factor = if is_text { 2.0 + CHARACTER } else { 2.0 };
            allocated(factor, size.times(size))
        };
        let is_text = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
        Some(match (overload, target, args) {
            ("list_slice", Some(target), [start, end]) => {
                let start = literal(start, 0);
                let end = literal(end, self.part_size(target).max);
                allocated(1.0, fixed(end.wrapping_sub(start)))
            }
            ("lists_range", None, [count]) => allocated(1.0, fixed(literal(count, u64::MAX))),
            ("list_reverse" | "list_flatten", Some(target), []) => {
                allocated(1.0, self.part_size(target))
            }
            ("list_flatten_int", Some(target), [depth]) => {
                #[expect(clippy::cast_precision_loss, reason = "depths are small")]
                let depth = literal(depth, u64::MAX) as f64;
                allocated(depth, self.part_size(target))
            }
            ("list_distinct", Some(target), []) => squared(target, false),
            (name, Some(target), []) if name.starts_with("list_") && name.ends_with("_sort") => {
                squared(target, is_text)
            }
            (name, Some(_), [keys]) if name.ends_with("_sortByAssociatedKeys") => {
                squared(keys, is_text)
            }
            (
                "list_sets_contains_list"
                | "list_sets_intersects_list"
                | "list_sets_equivalent_list",
                _,
                [left, right],
            ) => {
                let factor = if overload == "list_sets_equivalent_list" {
                    2.0
                } else {
                    1.0
                };
                let size = self.part_size(left).times(self.part_size(right));
                (size.scale(factor).add(fixed(1)), None)
            }
            _ => return None,
        })
    }

    /// Returns the items of a list.
    fn items<'p>(part: &Part<'p>) -> Option<Part<'p>> {
        let of = part.of.parameters().into_iter().next()?;
        let mut path = part.path.clone();
        if !path.is_empty() {
            path.push("@items".into());
        }
        Some(Part {
            expr: None,
            path,
            of,
            size: None,
        })
    }

    /// Returns the cost of the functions of Kubernetes.
    fn library_call(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Part<'_>>,
        args: &[Part<'_>],
    ) -> Option<Call> {
        let characters = |part: &Part<'_>| self.part_size(part).scale(CHARACTER);
        Some(match (function, target, args) {
            ("check", ..) => (fixed(ACCESS), None),
            _ if costs_one(function) => (fixed(1), None),
            ("fieldSelector" | "labelSelector", _, [text]) => {
                let size = self.part_size(text);
                let cost = CostEstimate {
                    min: selector(size.min),
                    max: selector(size.max),
                };
                (cost, None)
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                (self.search(target), None)
            }
            ("url" | "jsonpatch.escapeKey", _, [text]) => {
                (characters(text), Some(self.part_size(text)))
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                (characters(target), Some(self.part_size(target)))
            }
            ("replace", Some(target), [from, to, ..]) => {
                let size = self.part_size(target);
                let result = replaced(size, self.part_size(from), self.part_size(to));
                (size.scale(2.0 * CHARACTER), Some(result))
            }
            ("split", Some(target), _) => {
                let size = self.part_size(target);
                let max = match args
                    .get(1)
                    .and_then(|part| part.expr)
                    .map(|expr| &expr.kind)
                {
                    Some(Kind::Literal(Value::Int(count))) => count.cast_unsigned(),
                    _ => size.max,
                };
                (size.scale(2.0 * CHARACTER), Some(Size { min: 0, max }))
            }
            ("join", Some(target), _) => {
                let size = self.joined(target, args.first());
                (size.scale(CHARACTER), Some(size))
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = self.part_size(target);
                let text = size.add(fixed(1)).scale(CHARACTER);
                let cost = text.times(self.part_size(pattern).scale(PATTERN));
                (
                    cost,
                    Some(Size {
                        min: 0,
                        max: size.max,
                    }),
                )
            }
            ("ip", ..) if overload == "cidr_ip" => (fixed(1), None),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
                | "isSemver",
                _,
                [text, ..],
            ) => (characters(text), None),
            ("ip.isCanonical", _, [text, ..]) => {
                (self.part_size(text).scale(2.0 * CHARACTER), None)
            }
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                let mut cost = ADDRESS.add(ADDRESS).scale(CHARACTER);
                if function == "containsCIDR" {
                    cost = cost.add(ADDRESS.scale(CHARACTER)).add(fixed(1));
                }
                if matches!(
                    overload,
                    "cidr_contains_ip_string" | "cidr_contains_cidr_string"
                ) {
                    cost = cost.add(characters(other));
                }
                (cost, None)
            }
            ("validate", _, [text, ..]) => (characters(text).scale(FORMAT_PATTERN * PATTERN), None),
            ("_==_", _, [left, right]) if left.of == right.of => {
                return equality(left, right);
            }
            _ => return None,
        })
    }

    /// Returns the cost of looking at all items of a list, or at all of a text.
    fn search(&self, target: &Part<'_>) -> CostEstimate {
        let size = self.part_size(target);
        let Some(items) = Self::items(target) else {
            return size.scale(CHARACTER);
        };
        let mut item = fixed(1);
        if matches!(items.of, Type::String | Type::Bytes) {
            item = item.add(self.part_size(&items).scale(CHARACTER));
        }
        size.times(item)
    }

    fn joined(&self, target: &Part<'_>, separator: Option<&Part<'_>>) -> Size {
        let list = self.part_size(target);
        let mut size = match Self::items(target) {
            Some(items) => list.times(self.part_size(&items)),
            None => Size::default(),
        };
        if let Some(separator) = separator {
            let gaps = Size {
                min: list.min.saturating_sub(1),
                max: list.max.saturating_sub(1),
            };
            size = size.add(self.part_size(separator).times(gaps));
        }
        size
    }
}

/// Returns the size of a text in which parts were replaced.
fn replaced(size: Size, from: Size, to: Size) -> Size {
    let mut count = Size::default();
    let mut kept = Size::default();
    if from.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if to.max <= from.min {
        kept.max = size.max;
    } else {
        count.max = size.max.div_ceil(from.min);
    }
    if from.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if from.max <= to.min {
        kept.min = size.min;
    } else {
        count.min = size.min.div_ceil(from.max);
    }
    count.times(to).add(kept)
}

fn equality(left: &Part<'_>, right: &Part<'_>) -> Option<Call> {
    let _ = left;
    let cost = match &left.of {
        Type::Opaque(name, _) if matches!(&**name, "net.IP" | "net.CIDR") => fixed(1),
        Type::Struct(name) => match &**name {
            "kubernetes.NamedFormat" => CostEstimate {
                min: 1,
                max: scaled(FORMAT, CHARACTER),
            },
            "kubernetes.URL" => CostEstimate {
                min: 1,
                max: scaled(right.size.map_or(1, |size| size.max), CHARACTER),
            },
            "kubernetes.Quantity" | "kubernetes.Semver" => fixed(1),
            name if name.starts_with("kubernetes.authorization.") => fixed(1),
            _ => return None,
        },
        _ => return None,
    };
    Some((cost, None))
}

/// Returns the cost of the functions of the language.
fn standard_call(overload: &str, target: Option<&Part<'_>>, args: &[Part<'_>]) -> Option<Call> {
    let size = |part: &Part<'_>| part.size.unwrap_or(UNKNOWN);
    Some(match (overload, target, args) {
        ("string_format", Some(target), _) => (size(target).scale(CHARACTER), None),
        ("string_to_bytes", _, [text]) => {
            let size = size(text);
            let result = Size {
                min: size.min,
                max: size.max.wrapping_mul(4),
            };
            (size.scale(CHARACTER), Some(result))
        }
        ("bytes_to_string", _, [bytes]) => {
            let size = size(bytes);
            let result = Size {
                min: size.min / 4,
                max: size.max,
            };
            (size.scale(CHARACTER), Some(result))
        }
        ("strings_quote", _, [text]) => {
            let size = size(text);
            let result = Size {
                min: size.min.wrapping_add(2),
                max: size.max.wrapping_mul(2).wrapping_add(2),
            };
            (size.scale(CHARACTER), Some(result))
        }
        ("starts_with_string" | "ends_with_string", _, [part]) => {
            (size(part).scale(CHARACTER), None)
        }
        ("in_list", _, [_, list]) => (size(list).scale(1.0), None),
        ("matches_string", Some(target), [pattern]) => {
            let text = size(target).add(fixed(1)).scale(CHARACTER);
            (text.times(size(pattern).scale(PATTERN)), None)
        }
        ("contains_string", Some(target), [part]) => (
            size(target)
                .scale(CHARACTER)
                .times(size(part).scale(CHARACTER)),
            None,
        ),
        (
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            _,
            [left, right],
        ) => {
            let max = size(left).max.min(size(right).max);
            let range = CostEstimate {
                min: u64::from(max > 0),
                max,
            };
            (range.scale(CHARACTER), None)
        }
        _ => return None,
    })
}
