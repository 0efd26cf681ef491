//! The order of the items of merged lists.

use serde_json::Value;

use crate::patch::PatchError;
use crate::patch::strategic::PATCH;
use crate::patch::strategic::merge_key::{Key, Positions};

/// The longest list for which the order is that of Go's sort function also if the items cannot be compared.
const UNORDERED_ITEMS_MAX: usize = 20;

/// An item with its key.
type Keyed = (Key, Value);

/// Orders the items of a merged list: those that are listed in `listed` in that order, all others in the
/// order of `server`. Both orders are kept when the two lists are merged: an item of the second list comes
/// before an item of the first one if it is before it in `server`.
pub(super) fn order(
    items: Vec<Value>,
    merge_key: Option<&str>,
    listed: &Positions,
    server: &Positions,
) -> Result<Vec<Value>, PatchError> {
    let mut first = Vec::new();
    let mut others = Vec::new();
    for item in items {
        let key = Key::of_item(&item, merge_key)?;
        match listed.get(&key) {
            Some(_) => first.push((key, item)),
            None => others.push((key, item)),
        }
    }
    let first = sort(first, listed);
    let others = sort(others, server);
    Ok(merge(others, first, server))
}

/// Sorts items. Objects with the directive to delete them are last: they are in a list that was added with
/// its directives.
fn sort(items: Vec<Keyed>, order: &Positions) -> Vec<Keyed> {
    let is_deleted = |(_, item): &Keyed| {
        item.get(PATCH)
            .is_some_and(|directive| directive == "delete")
    };
    let (deleted, items): (Vec<_>, Vec<_>) = items.into_iter().partition(is_deleted);
    let mut items = sort_by_position(items, order);
    items.extend(deleted);
    items
}

fn sort_by_position(mut items: Vec<Keyed>, order: &Positions) -> Vec<Keyed> {
    if items.iter().all(|(key, _)| order.get(key).is_some()) {
        items.sort_by_key(|(key, _)| order.get(key));
        return items;
    }
    // Items without a position are "before" all others. Insertion sort then moves each to the front.
    if items.len() > UNORDERED_ITEMS_MAX {
        return items;
    }
    for last in 1..items.len() {
        for index in (1..=last).rev() {
            let is_before = match (order.get(&items[index].0), order.get(&items[index - 1].0)) {
                (Some(one), Some(other)) => one < other,
                _ => true,
            };
            if !is_before {
                break;
            }
            items.swap(index, index - 1);
        }
    }
    items
}

fn merge(left: Vec<Keyed>, right: Vec<Keyed>, order: &Positions) -> Vec<Value> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let mut left = left.into_iter().peekable();
    let mut right = right.into_iter().peekable();
    loop {
        let takes_left = match (left.peek(), right.peek()) {
            (None, None) => return merged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((one, _)), Some((other, _))) => match (order.get(one), order.get(other)) {
                (Some(one), Some(other)) => one < other,
                _ => false,
            },
        };
        let next = if takes_left {
            left.next()
        } else {
            right.next()
        };
        merged.extend(next.map(|(_, item)| item));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::order;
    use crate::patch::strategic::merge_key::Positions;

    fn check(items: &Value, listed: &Value, server: &Value, expected: &Value) {
        let positions = |list: &Value| Positions::of_items(list.as_array().unwrap(), None).unwrap();
        let items = items.as_array().unwrap().clone();
        let ordered = order(items, None, &positions(listed), &positions(server)).unwrap();
        assert_eq!(&Value::from(ordered), expected);
    }

    #[test]
    fn listed_items_keep_their_order_and_others_their_place() {
        check(
            &json!([1, 2, 3]),
            &json!([3, 1]),
            &json!([1, 2, 3]),
            &json!([2, 3, 1]),
        );
        check(
            &json!([1, 2, 3]),
            &json!([]),
            &json!([1, 2, 3]),
            &json!([1, 2, 3]),
        );
        check(
            &json!([1, 2, 9]),
            &json!([9]),
            &json!([1, 2]),
            &json!([9, 1, 2]),
        );
        check(
            &json!([1, 2, 9]),
            &json!([2, 9]),
            &json!([1, 2]),
            &json!([1, 2, 9]),
        );
        // Without positions the order is reversed.
        check(&json!([1, 2, 3]), &json!([]), &json!([]), &json!([3, 2, 1]));
    }
}
