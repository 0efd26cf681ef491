//! Shrinks a sequence of operations that shows a difference.

use std::io;

use prost_reflect::{DynamicMessage, ReflectMessage as _, Value};

use crate::differential::generate::Operation;
use crate::differential::pair::Difference;

/// Removes operations, and then parts of their messages, while the rest still shows a difference. `differs`
/// runs operations on a new pair and returns the number of operations up to a difference, and the difference.
///
/// # Errors
/// If `differs` fails.
pub fn shrink(
    operations: Vec<Operation>,
    difference: Difference,
    differs: impl Fn(&[Operation]) -> io::Result<Option<(usize, Difference)>>,
) -> io::Result<(Vec<Operation>, Difference)> {
    let mut smallest = (operations, difference);
    loop {
        let size = size(&smallest.0);
        remove(&mut smallest, &differs)?;
        simplify(&mut smallest, &differs)?;
        if self::size(&smallest.0) == size {
            return Ok(smallest);
        }
    }
}

fn size(operations: &[Operation]) -> usize {
    operations
        .iter()
        .map(|operation| 1 + operation.action().to_string().len())
        .sum()
}

/// Replaces the smallest sequence by `candidate`, up to its difference, if it shows a difference.
fn keep_if_differs(
    candidate: Vec<Operation>,
    smallest: &mut (Vec<Operation>, Difference),
    differs: impl Fn(&[Operation]) -> io::Result<Option<(usize, Difference)>>,
) -> io::Result<bool> {
    let Some((length, difference)) = differs(&candidate)? else {
        return Ok(false);
    };
    *smallest = (candidate, difference);
    smallest.0.truncate(length);
    Ok(true)
}

/// Removes runs of operations, the longest first.
fn remove(
    smallest: &mut (Vec<Operation>, Difference),
    differs: impl Fn(&[Operation]) -> io::Result<Option<(usize, Difference)>>,
) -> io::Result<()> {
    let mut length = smallest.0.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < smallest.0.len() {
            let mut candidate = smallest.0.clone();
            candidate.drain(at..(at + length).min(smallest.0.len()));
            if !keep_if_differs(candidate, smallest, &differs)? {
                at += length;
            }
        }
        length /= 2;
    }
    Ok(())
}

/// Removes parts of messages.
fn simplify(
    smallest: &mut (Vec<Operation>, Difference),
    differs: impl Fn(&[Operation]) -> io::Result<Option<(usize, Difference)>>,
) -> io::Result<()> {
    let mut at = 0;
    while at < smallest.0.len() {
        let mut simpler = simpler(&smallest.0[at].message).into_iter();
        let simplified = loop {
            let Some(message) = simpler.next() else {
                break false;
            };
            let mut candidate = smallest.0.clone();
            candidate[at].message = message;
            if keep_if_differs(candidate, smallest, &differs)? {
                break true;
            }
        };
        if !simplified {
            at += 1;
        }
    }
    Ok(())
}

/// Returns the messages without one part: a field, an element of a list, or a part of a nested message.
fn simpler(message: &DynamicMessage) -> Vec<DynamicMessage> {
    let mut all = Vec::new();
    let fields: Vec<_> = message
        .fields()
        .map(|(field, value)| (field, value.clone()))
        .collect();
    for (field, value) in fields {
        let with = |value| {
            let mut other = message.clone();
            other.set_field(&field, value);
            other
        };
        match &value {
            Value::List(elements) => {
                for at in 0..elements.len() {
                    let mut fewer = elements.clone();
                    fewer.remove(at);
                    all.push(with(Value::List(fewer)));
                    if let Value::Message(element) = &elements[at] {
                        all.extend(simpler(element).into_iter().map(|element| {
                            let mut others = elements.clone();
                            others[at] = Value::Message(element);
                            with(Value::List(others))
                        }));
                    }
                }
            }
            Value::Message(inner) => {
                all.extend(
                    simpler(inner)
                        .into_iter()
                        .map(|inner| with(Value::Message(inner))),
                );
                // A watch request without its union is ignored (WA-15).
                if message.descriptor().name() != "WatchRequest" {
                    all.push(without(message, &field));
                }
            }
            _ => all.push(without(message, &field)),
        }
    }
    all
}

fn without(message: &DynamicMessage, field: &prost_reflect::FieldDescriptor) -> DynamicMessage {
    let mut other = message.clone();
    other.clear_field(field);
    other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::generate::{Generator, StoreState};

    /// Simulates a pair that differs at the first put of `ab` after a compaction.
    fn differs(operations: &[Operation]) -> Option<(usize, Difference)> {
        let texts: Vec<_> = operations.iter().map(|o| o.action().to_string()).collect();
        let compaction = texts.iter().position(|text| text.contains("> Compact"))?;
        let put = |text: &String| text.contains("> Put") && text.contains(r#"key: "ab""#);
        let at = compaction + texts[compaction..].iter().position(put)?;
        Some((
            at + 1,
            Difference {
                etcd: String::new(),
                ours: String::new(),
            },
        ))
    }

    #[test]
    fn operations_without_effect_on_the_difference_are_removed() {
        let mut generator = Generator::new(1);
        let state = StoreState::default();
        let operations: Vec<_> = (0..500).map(|_| generator.operation(&state)).collect();
        let (_, difference) = differs(&operations).unwrap();
        let (smallest, _) = shrink(operations, difference, |some| Ok(differs(some))).unwrap();
        let texts: Vec<_> = smallest.iter().map(|o| o.action().to_string()).collect();
        assert_eq!(texts, ["> Compact\n", "> Put key: \"ab\"\n"]);
    }
}
