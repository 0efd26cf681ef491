use serde_json::{Value, json};

use super::{MAX_UPDATE_ENTRIES, MERGED_MANAGER, Write};
use crate::{CompareError, FieldSchema, FieldSet, Untyped, entries_of};

static NOTHING: FieldSet = FieldSet::EMPTY;

fn write<'a>(manager: &'a str, time: &'a str) -> Write<'a> {
    Write {
        manager,
        api_version: "example.com/v1",
        subresource: "",
        time,
        ignored: &NOTHING,
    }
}

fn track_update<S: FieldSchema>(
    live: &Value,
    new: &mut Value,
    schema: S,
    write: &Write<'_>,
) -> Result<(), CompareError> {
    let (live, new) = (live.as_object().unwrap(), new.as_object_mut().unwrap());
    super::track_update(live, new, &schema, write)
}

/// Returns the entries after a write of a custom resource.
fn track(live: &Value, new: &Value, write: &Write<'_>) -> Value {
    let mut new = new.clone();
    track_update(live, &mut new, Untyped, write).unwrap();
    let entries = &mut new["metadata"]["managedFields"];
    for entry in entries.as_array_mut().into_iter().flatten() {
        let entry = entry.as_object_mut().unwrap();
        assert_eq!(entry.remove("fieldsType").unwrap(), "FieldsV1");
        entry.remove("apiVersion");
    }
    entries.take()
}

fn widget(spec: &Value, entries: &Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "spec": spec,
        "metadata": {"name": "a", "uid": "u", "generation": 1, "managedFields": entries},
    })
}

fn entry(manager: &str, operation: &str, time: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": "example.com/v1",
        "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

#[test]
fn a_create_sets_all_fields() {
    let live = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
    let new = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "spec": {"color": "red"},
        "metadata": {"name": "a", "uid": "u", "creationTimestamp": "t", "labels": {"x": "1"}},
    });
    assert_eq!(
        track(&live, &new, &write("mytool", "t1")),
        json!([{
            "manager": "mytool", "operation": "Update", "time": "t1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
                "f:spec": {".": {}, "f:color": {}},
            },
        }])
    );
    assert_eq!(
        track(&live, &new, &write("", "t1"))[0]["manager"],
        "unknown"
    );
}

#[test]
fn changed_fields_move_to_their_writer() {
    let applied = entry(
        "m1",
        "Apply",
        "t1",
        &json!({"f:spec": {"f:color": {}, "f:size": {}}}),
    );
    let live = widget(&json!({"color": "red", "size": 1}), &json!([applied]));
    let new = widget(&json!({"color": "red", "size": 5}), &json!([applied]));
    assert_eq!(
        track(&live, &new, &write("kubectl-edit", "t2")),
        json!([
            {"manager": "m1", "operation": "Apply", "time": "t1", "fieldsV1": {"f:spec": {"f:color": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "time": "t2", "fieldsV1": {"f:spec": {"f:size": {}}}},
        ])
    );
    // A removed field is nobody's; the time is that of the last change of a value.
    let created = entry(
        "m",
        "Update",
        "t1",
        &json!({"f:spec": {".": {}, "f:color": {}, "f:size": {}}}),
    );
    let live = widget(&json!({"color": "red", "size": 1}), &json!([created]));
    let new = widget(&json!({"color": "red"}), &Value::Null);
    assert_eq!(
        track(&live, &new, &write("m", "t2")),
        json!([{"manager": "m", "operation": "Update", "time": "t1",
                "fieldsV1": {"f:spec": {".": {}, "f:color": {}}}}])
    );
    // Nothing changes.
    assert_eq!(
        track(&live, &live, &write("other", "t2"))
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // Of the same manager: one entry with a new time.
    let new = widget(&json!({"color": "blue", "size": 1}), &Value::Null);
    let entries = track(&live, &new, &write("m", "t2"));
    assert_eq!(
        (&entries[0]["time"], &entries[1]),
        (&json!("t2"), &Value::Null)
    );
}

#[test]
fn clients_may_replace_and_remove_entries() {
    let fields = json!({"f:spec": {"f:color": {}}});
    let created = entry("m", "Update", "t1", &fields);
    let live = widget(&json!({"color": "red"}), &json!([created]));
    let with = |entries: &Value| {
        track(
            &live,
            &widget(&json!({"color": "red"}), entries),
            &write("w", "t2"),
        )
    };
    for reset in [json!([]), json!([{}])] {
        assert_eq!(with(&reset), Value::Null);
    }
    for kept in [
        Value::Null,
        json!([{"manager": "x"}]),
        json!("x"),
        json!([1, 2]),
    ] {
        assert_eq!(with(&kept)[0]["manager"], "m", "{kept}");
    }
    assert_eq!(
        with(&json!([entry("x", "Apply", "t1", &fields)]))[0]["manager"],
        "x"
    );
    // An object that is not tracked stays so.
    let untracked = widget(&json!({"color": "red"}), &Value::Null);
    let new = widget(&json!({"color": "blue"}), &Value::Null);
    assert_eq!(track(&untracked, &new, &write("w", "t2")), Value::Null);
}

#[test]
fn subresources_have_entries_of_their_own() {
    let created = entry("m", "Update", "t1", &json!({"f:spec": {".": {}}}));
    let mut live = widget(&json!({}), &json!([created]));
    let mut new = live.clone();
    new["status"] = json!({"phase": "Ready"});
    // The entries of the body are ignored.
    new["metadata"]["managedFields"] = json!([{}]);
    let status = Write {
        subresource: "status",
        ..write("m", "t2")
    };
    let entries = track(&live, &new, &status);
    assert_eq!(entries[1]["subresource"], "status");
    assert_eq!(
        entries[1]["fieldsV1"],
        json!({"f:status": {".": {}, "f:phase": {}}})
    );
    // A write to the object does not change the status.
    live["metadata"]["managedFields"] = json!([created]);
    new["metadata"]["managedFields"] = json!([created]);
    let ignored = FieldSet::of_names(&["status"]);
    let object = Write {
        ignored: &ignored,
        ..write("w", "t2")
    };
    assert_eq!(track(&live, &new, &object).as_array().unwrap().len(), 1);
}

#[test]
fn the_number_of_updates_is_bounded() {
    let mut object = widget(&json!({"f00": 0}), &json!([]));
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    let live = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
    track_update(&live, &mut object, Untyped, &write("m00", "t00")).unwrap();
    for number in 1..=2 * MAX_UPDATE_ENTRIES {
        let mut new = object.clone();
        new["spec"][format!("f{number:02}")] = json!(number);
        let (manager, time) = (format!("m{number:02}"), format!("t{number:02}"));
        track_update(&object, &mut new, Untyped, &write(&manager, &time)).unwrap();
        object = new;
    }
    let entries = entries_of(&object).unwrap();
    assert_eq!(entries.len(), MAX_UPDATE_ENTRIES);
    assert_eq!(
        (entries[0].manager.as_str(), entries[1].manager.as_str()),
        (MERGED_MANAGER, "m12")
    );
    assert_eq!(entries[0].time.as_deref(), Some("t11"));
    assert_eq!(entries[0].fields.len(), 13);
}

#[test]
fn many_entries_of_a_client_are_merged_in_linear_time() {
    let entries: Vec<_> = (0..20_000)
        .map(|i| {
            entry(
                &format!("m{i}"),
                "Update",
                "t",
                &json!({"f:spec": {format!("f:{i}"): {}}}),
            )
        })
        .collect();
    let live = widget(&json!({"a": 1}), &Value::Null);
    let entries = track(
        &live,
        &widget(&json!({"a": 2}), &entries.into()),
        &write("m", "t2"),
    );
    assert_eq!(entries.as_array().unwrap().len(), MAX_UPDATE_ENTRIES);
}
