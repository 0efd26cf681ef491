//! The memory of applies of large lists, which an allocator counts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use revstore_structured_merge::{
    ApplyError, FieldSchema, FieldSet, FieldShape, ListKey, Untyped, Write, apply, track_update,
};
use serde_json::{Map, Value, json};

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The tests share the counters.
static ALONE: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: all calls are passed on to the allocator of the system; the counters do not change what it does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let current = CURRENT.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(current, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of the trait.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `spec` is a list of objects with a key.
#[derive(Clone, Copy)]
enum Schema {
    Object,
    List,
    Other,
}

impl FieldSchema for Schema {
    fn shape(self, value: Option<&Value>) -> FieldShape {
        match self {
            Self::Object => FieldShape::Object,
            Self::List => FieldShape::Map(vec![ListKey {
                name: "name".into(),
                default: None,
            }]),
            Self::Other => Untyped.shape(value),
        }
    }

    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object, "spec") => Self::List,
            _ => Self::Other,
        }
    }

    fn item(self) -> Self {
        Self::Other
    }

    fn names(self, member: &str) -> bool {
        matches!(self, Self::Object) && ["apiVersion", "kind", "metadata", "spec"].contains(&member)
    }

    fn declares(self, _: &str) -> bool {
        true
    }

    fn check(self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

static NOTHING: FieldSet = FieldSet::EMPTY;

fn write(manager: &str) -> Write<'_> {
    Write {
        manager,
        api_version: "example.com/v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
        ignored: &NOTHING,
    }
}

fn config(items: &Value) -> Map<String, Value> {
    let config = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": items});
    config.as_object().cloned().unwrap()
}

/// Runs a function and returns the largest number of bytes that it had allocated beyond those before it, and those that
/// its result has.
fn measured<T>(run: impl FnOnce() -> T) -> (T, (usize, usize)) {
    let before = CURRENT.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = run();
    let (peak, kept) = (
        PEAK.load(Ordering::Relaxed),
        CURRENT.load(Ordering::Relaxed),
    );
    (result, (peak - before, kept.saturating_sub(before)))
}

/// Numbers of items, bytes of each, and as multiples of the configuration:
/// - what an apply may take besides its result: copies of the live object, in which each item takes 650 bytes, and the sets;
/// - the result, which is JSON as well, with 800 bytes for each item in each of the sets.
const LISTS: [(usize, usize, usize, usize); 2] = [(50_000, 4, 70, 115), (20_000, 90, 20, 35)];

#[test]
fn large_applies_take_little_besides_their_result() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (count, padding, times_max, kept_max) in LISTS {
        let text = "x".repeat(padding);
        let items = |value: usize| -> Value {
            let item = |number| json!({"name": format!("{number:06}{text}"), "v": value});
            (0..count).map(item).collect()
        };
        let (one, two) = (config(&items(1)), config(&items(2)));
        let body = serde_json::to_vec(&one).unwrap().len();
        let none = Map::new();
        let go = |what: &str, live: &Map<String, Value>, config: &Map<String, Value>, manager| {
            let (result, (peak, kept)) = measured(|| {
                apply(
                    (live, &none),
                    config,
                    &Schema::Object,
                    &write(manager),
                    true,
                )
                .unwrap()
            });
            println!(
                "{count} items, {what}: {} times the body, {} kept",
                peak / body,
                kept / body
            );
            assert!(
                peak < kept + times_max * body,
                "{count} items, {what}: {peak} {kept}"
            );
            assert!(kept < kept_max * body, "{count} items, {what}: {kept}");
            result
        };
        let live = go("created", &none, &one, "one");
        let shared = go("shared", &live, &one, "two");
        go("repeated", &shared, &one, "two");
        go("taken", &shared, &two, "three");
        go("given up", &live, &config(&json!([{"name": "x"}])), "one");
        let mut known = shared;
        known["metadata"]["uid"] = "u".into();
        let mut updated = two.clone();
        let ((), (peak, kept)) = measured(|| {
            track_update(&known, &mut updated, &Schema::Object, &write("four")).unwrap();
        });
        assert!(
            peak < kept + times_max * body,
            "{count} items, updated: {peak} {kept}"
        );
        assert!(kept < kept_max * body, "{count} items, updated: {kept}");
    }
}

/// Conflicts in an object with fields of 60 KiB of names: the texts of all would take 90 MB.
#[test]
fn conflicts_with_long_paths_take_little() {
    const LEVELS: usize = 60;
    const FIELDS: usize = 1_500;
    const MIB: usize = 1024 * 1024;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = "x".repeat(1024);
    let deep = |value: &str| {
        let fields = (0..FIELDS).map(|number| (format!("f{number}"), value.into()));
        let mut object = Value::Object(fields.collect());
        for _ in 0..LEVELS {
            object = json!({&*name: object});
        }
        config(&json!([{"name": "a", "deep": object}]))
    };
    let (one, two) = (deep("1"), deep("2"));
    let body = serde_json::to_vec(&two).unwrap().len();
    let none = Map::new();
    let apply = |live: &Map<String, Value>, config: &Map<String, Value>, manager| {
        apply(
            (live, &none),
            config,
            &Schema::Object,
            &write(manager),
            false,
        )
    };
    let live = apply(&none, &one, "one").unwrap();
    let ((count, text, shown), (peak, kept)) = measured(|| {
        let Err(ApplyError::Conflicts(conflicts)) = apply(&live, &two, "two") else {
            panic!("the other manager has all fields");
        };
        (
            conflicts.count(),
            conflicts.to_string(),
            conflicts.shown().len(),
        )
    });
    println!("{body} bytes, {peak} for conflicts, {kept} kept");
    assert_eq!(count, FIELDS);
    assert!(
        text.starts_with("Apply failed with 1500 conflicts: conflicts with \"one\":\n- .spec[")
    );
    assert!(
        shown > 10 && text.len() <= MIB + 64 * 1024,
        "{}",
        text.len()
    );
    assert!(peak < 3 * MIB + 40 * body, "{peak}");
}
