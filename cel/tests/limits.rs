//! Hostile expressions and data: what stops them is counted, and nothing overflows the stack.

use proptest::prelude::*;
use revstore_cel::{
    CALL_COST_MAX, DEPTH_MAX, Declared, Environment, EvaluationError, SOURCE_CHARS_MAX, Type,
    Value, to_value,
};
use serde_json::json;

fn environment() -> Environment {
    Environment::new()
        .with_variable("list", Type::list(Type::String))
        .with_variable("any", Type::Dyn)
}

fn list(count: usize) -> Value {
    Value::list(
        (0..count)
            .map(|index| Value::from(format!("item-{index}")))
            .collect(),
    )
}

/// Evaluates with a large list. Returns the result and the cost.
fn evaluate(source: &str, count: usize) -> (Result<Value, EvaluationError>, u64) {
    let program = environment()
        .compile(source)
        .unwrap_or_else(|error| panic!("{source}: {error}"));
    let variables = [("list", list(count)), ("any", list(count))];
    let evaluation = program.evaluate(&variables, CALL_COST_MAX);
    (evaluation.result, evaluation.cost)
}

#[test]
fn hostile_rules_end_at_the_limit_of_the_cost() {
    for source in [
        "list.all(a, list.all(b, list.all(c, true)))",
        "list.map(a, list.map(b, list.map(c, c))).size() > 0",
        "list.map(a, list).flatten().map(x, list).flatten().size() > 0",
        "list.all(a, (a + '(x{900})*').matches(a + '(y{900}z{900})*'))",
        "list.join(',').replace('', list.join(',')).size() > 0",
        "list.distinct().size() > 0",
        "list.sort().size() > 0",
        "list.map(a, list.sortBy(b, b)).size() > 0",
        "sets.equivalent(list, list)",
        "lists.range(9223372036854775807).size() > 0",
        "list.map(a, list).flatten().map(x, x + x + x + x).join('').size() > 0",
        "'%s%s%s'.format([list.map(a, list), list.map(a, list), list.map(a, list)]).size() > 0",
        "list.all(a, list.slice(0, 1500).size() > 0)",
        "list.all(a, list.reverse().size() > 0)",
        "list.transformMap(i, v, list.transformMap(j, w, w)).size() > 0",
        "list.map(a, list).sum().size() > 0 || true",
        "list.all(a, [list, list].flatten(3).size() > 0)",
    ] {
        let Ok(program) = environment().compile(source) else {
            continue;
        };
        let variables = [("list", list(2_000)), ("any", list(2_000))];
        let evaluation = program.evaluate(&variables, CALL_COST_MAX);
        assert!(
            matches!(evaluation.result, Err(EvaluationError::CostLimit)),
            "{source}: {}",
            evaluation.cost
        );
    }
}

#[test]
fn a_loop_over_a_large_list_counts_each_round() {
    let (result, cost) = evaluate("list.all(a, a != 'x')", 100_000);
    assert!(result.unwrap().as_bool().unwrap());
    assert_eq!(cost, 500_002);
    let (result, _) = evaluate("list.map(a, a).size() == 40000", 40_000);
    assert!(result.unwrap().as_bool().unwrap());
}

#[test]
fn concatenation_copies_nothing() {
    let sum = vec!["list"; 200].join(" + ");
    let (result, cost) = evaluate(&format!("size({sum})"), 100_000);
    assert_eq!(result.unwrap().to_string(), "20000000");
    assert_eq!(cost, 400);
}

#[test]
fn the_limit_cannot_be_absorbed() {
    let endless = "list.all(a, list.all(b, list.all(c, true)))";
    for source in [
        format!("{endless} || true"),
        format!("!({endless} && false)"),
        format!("[1].exists(x, {endless} || true)"),
        format!("true || {endless}"),
    ] {
        let (result, _) = evaluate(&source, 1_000);
        let is_first = source.starts_with("true");
        assert_eq!(result.is_ok(), is_first, "{source}");
    }
}

#[test]
fn deep_and_long_expressions_are_refused() {
    let limit = format!("expression recursion limit exceeded: {DEPTH_MAX}");
    for source in [
        format!("{}1{}", "(".repeat(300), ")".repeat(300)),
        format!("{}1{}", "[".repeat(300), "]".repeat(300)),
        format!("{}1{}", "{1:".repeat(300), "}".repeat(300)),
        format!("a{}", ".b".repeat(300)),
        format!("a{}", "[0]".repeat(300)),
        format!("1{}", " + 1".repeat(300)),
        format!("1{}", " < 1".repeat(300)),
        format!("{}1", "true ? 1 : ".repeat(300)),
        format!("{}1{}", "f(".repeat(300), ")".repeat(300)),
        format!("[1]{}", ".map(x, x)".repeat(300)),
    ] {
        let error = environment().compile(&source).unwrap_err().to_string();
        assert!(error.contains(&limit), "{error}");
    }
    let long = "a".repeat(SOURCE_CHARS_MAX + 1);
    let error = environment().compile(&long).unwrap_err().to_string();
    assert!(error.contains("code point size exceeds limit"), "{error}");
}

#[test]
fn the_deepest_expressions_that_are_accepted_do_not_overflow_the_stack() {
    for source in [
        format!("{}true{}", "(".repeat(240), ")".repeat(240)),
        format!("{}1{}", "[".repeat(240), "]".repeat(240)),
        format!("{}1{}", "[1].map(x, ".repeat(120), ")".repeat(120)),
        format!("1{}", " + 1".repeat(240)),
        format!("true{}", " && true".repeat(10_000)),
        format!("[1]{}", ".map(x, x)".repeat(200)),
        format!("optional.of(1){}", ".optMap(x, x)".repeat(8)),
        "!".repeat(50_000) + "true",
        "-".repeat(50_000) + "1",
    ] {
        if let Ok(program) = environment().compile(&source) {
            let _ = program.evaluate(&[("list", list(1)), ("any", list(1))], CALL_COST_MAX);
        }
    }
}

#[test]
fn patterns_that_are_large_or_slow_are_bounded() {
    let error = environment()
        .compile("'a'.matches('(a{1000}){1000}')")
        .unwrap_err();
    assert!(
        error.to_string().contains("invalid matches argument"),
        "{error}"
    );
    let (result, _) = evaluate("list.exists(a, a.matches('(' + a + '{900}){900}'))", 100);
    assert!(matches!(result, Err(EvaluationError::Failed(_))));
    let (result, _) = evaluate("('a{20}' + list[0]).matches('(a+)+' + list[0]) || true", 10);
    assert!(result.unwrap().as_bool().unwrap());
}

#[test]
fn deep_data_and_cyclic_looking_schemas_are_bounded() {
    // The deepest that is read, and one that is not.
    for (depth, is_read) in [(90, true), (300, false)] {
        let mut schema = json!({"type": "integer"});
        let mut data = json!(1);
        for _ in 0..depth {
            schema = json!({"type": "object", "properties": {"a": schema}});
            data = json!({"a": data});
        }
        let path = ".a".repeat(depth.min(120));
        let declared = Declared::from_schema(&schema, "Object", false).unwrap();
        let environment = Environment::new().with_declared("self", &declared);
        let program = environment.compile(&format!("has(self{path})"));
        assert_eq!(program.is_ok(), is_read);
        let value = to_value(&data, &schema, false);
        if let Ok(program) = program {
            let result = program.evaluate(&[("self", value)], CALL_COST_MAX).result;
            assert_eq!(result.unwrap().as_bool(), Some(true));
        }
    }
}

proptest! {
    /// No text makes the compiler panic, and what compiles can be evaluated.
    #[test]
    fn any_text_is_an_expression_or_an_error(
        parts in prop::collection::vec(prop_oneof![
            Just("list"), Just("any"), Just(".map(x, "), Just(")"), Just("("), Just("["), Just("]"), Just("{"), Just("}"),
            Just("."), Just("?"), Just(":"), Just(","), Just(" + "), Just(" && "), Just(" || "), Just(" in "), Just("-"), Just("!"),
            Just("1"), Just("2u"), Just("1.5e9"), Just("'a'"), Just("b'\\xff'"), Just("r'\\'"), Just("'''"), Just("\""), Just("\\"),
            Just("has("), Just("size("), Just(".all(x, x"), Just("optional.of("), Just("x"), Just("é"), Just("\n"), Just("//"),
            Just("`a b`"), Just("timestamp("), Just(".format([")
        ], 0..24),
    ) {
        let source = parts.concat();
        if let Ok(program) = environment().compile(&source) {
            let estimate = program.estimate();
            prop_assert!(estimate.min <= estimate.max, "{source}");
            let _ = program.evaluate(&[("list", list(3)), ("any", list(3))], 10_000);
        }
    }

    /// An evaluation without a limit costs no more than the estimate says.
    #[test]
    fn the_cost_is_within_the_estimate(
        index in 0..RULES.len(),
        items in prop::collection::vec("[a-c]{0,4}", 0..5),
        count in -3_i64..50,
    ) {
        let schema = json!({"type": "object", "properties": {
            "items": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 4}},
            "count": {"type": "integer"},
        }});
        let declared = Declared::from_schema(&schema, "Object", false).unwrap();
        let program = Environment::new().with_declared("self", &declared).compile(RULES[index]).unwrap();
        let value = to_value(&json!({"items": items, "count": count}), &schema, false);
        let evaluation = program.evaluate(&[("self", value)], u64::MAX);
        prop_assert!(evaluation.cost <= program.estimate().max, "{}", RULES[index]);
    }
}

const RULES: [&str; 6] = [
    "self.items.all(i, i.size() < self.count)",
    "self.items.exists(i, self.items.exists_one(j, i == j))",
    "self.items.map(i, i + i).filter(i, i.startsWith('a')).size() > 1",
    "self.count > 3 ? self.items.size() > 0 : self.items.sort() == self.items",
    "self.items.join(',').contains('ab')",
    "self.items.exists(i, i.matches('^a+b*$'))",
];
