//! The time to compile and to evaluate expressions, and of a rule that runs to the limit of its cost.

use criterion::{Criterion, criterion_group, criterion_main};
use revstore_cel::{CALL_COST_MAX, Declared, Environment, Value, to_value};
use serde_json::{Value as Json, json};

const RULE: &str =
    "self.items.all(i, i.startsWith('item') && i.size() < 20) && self.min <= self.max";

fn environment(schema: &Json) -> Environment {
    let declared = Declared::from_schema(schema, "Object", false).expect("the schema is fine");
    Environment::new().with_declared("self", &declared)
}

fn run(criterion: &mut Criterion) {
    let schema = json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"},
        "items": {"type": "array", "items": {"type": "string"}},
    }});
    let environment = environment(&schema);
    let object = |count: usize| {
        let items: Vec<_> = (0..count).map(|index| format!("item-{index}")).collect();
        to_value(&json!({"min": 1, "max": 2, "items": items}), &schema, false)
    };
    criterion.bench_function("compile", |bencher| {
        bencher.iter(|| environment.compile(RULE));
    });
    let rule = environment.compile(RULE).expect("it compiles");
    let small = [("self", object(10))];
    criterion.bench_function("evaluate 10 items", |bencher| {
        bencher.iter(|| rule.evaluate(&small, CALL_COST_MAX));
    });
    // The longest that one call can take: it ends at the limit.
    let hostile = [
        (
            "nested loops",
            "self.items.all(a, self.items.all(b, self.items.all(c, a != 'x')))",
        ),
        (
            "copies",
            "self.items.map(a, self.items).flatten().map(b, b + b).size() > 0",
        ),
        (
            "patterns",
            "self.items.all(a, ('(x+x+)+y' + a).matches(a + '.*' + a))",
        ),
        (
            "comparisons",
            "self.items.map(a, self.items).exists(l, [l] == [self.items + ['x']])",
        ),
    ];
    let large: [(&str, Value); 1] = [("self", object(1_000))];
    for (name, source) in hostile {
        let rule = environment.compile(source).expect("it compiles");
        criterion.bench_function(&format!("hostile {name}"), |bencher| {
            bencher.iter(|| rule.evaluate(&large, CALL_COST_MAX));
        });
    }
}

criterion_group!(benches, run);
criterion_main!(benches);
