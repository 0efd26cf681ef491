//! Chains of `&&` and `||` as trees of low depth.

use super::ast::{Expr, Kind, Node};

/// Joins the terms of a chain. `operators` are the numbers of the operators between them.
pub(super) fn balance(function: &str, mut terms: Vec<Expr>, operators: &[Node]) -> Expr {
    if operators.is_empty() {
        return terms.remove(0);
    }
    let mut slots: Vec<Option<Expr>> = terms.into_iter().map(Some).collect();
    join(function, &mut slots, operators, 0, operators.len() - 1)
}

fn join(
    function: &str,
    terms: &mut [Option<Expr>],
    operators: &[Node],
    low: usize,
    high: usize,
) -> Expr {
    let middle = usize::midpoint(low, high + 1);
    let take = |index: usize, terms: &mut [Option<Expr>]| {
        terms[index]
            .take()
            .unwrap_or(Expr::new(0, Kind::Ident(String::new())))
    };
    let left = if middle == low {
        take(middle, terms)
    } else {
        join(function, terms, operators, low, middle - 1)
    };
    let right = if middle == high {
        take(middle + 1, terms)
    } else {
        join(function, terms, operators, middle + 1, high)
    };
    Expr::new(
        operators[middle],
        Kind::Call {
            target: None,
            function: function.to_owned(),
            args: vec![left, right],
        },
    )
}
