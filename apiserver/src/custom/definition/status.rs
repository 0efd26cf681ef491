//! The status of definitions: which names were accepted, and which resources are served.

use std::collections::HashSet;

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use super::{Names, condition};
use crate::custom::schema::Schema;
use crate::custom::text::quoted;

/// Sets a condition of a definition. `now` is the time of a change, in RFC 3339.
pub(crate) fn set_condition(
    definition: &mut JsonObject,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let new = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    });
    let owner = definition.entry("status").or_insert_with(|| json!({}));
    let conditions = &mut owner["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            let time = match old.get("lastTransitionTime") {
                Some(time) if old["status"] == status => time.clone(),
                _ => now.into(),
            };
            *old = new;
            old["lastTransitionTime"] = time;
        }
        None => list.push(new),
    }
}

fn names_json(names: &Names) -> Value {
    let mut json = json!({"plural": names.plural});
    for (name, value) in [
        ("singular", &names.singular),
        ("listKind", &names.list_kind),
    ] {
        if !value.is_empty() {
            json[name] = value.as_str().into();
        }
    }
    json["kind"] = names.kind.as_str().into();
    for (name, values) in [
        ("shortNames", &names.short_names),
        ("categories", &names.categories),
    ] {
        if !values.is_empty() {
            json[name] = json!(values);
        }
    }
    json
}

fn names_of(definition: &JsonObject, part: &str, field: &str) -> Names {
    Names::parse(definition.get(part).and_then(|part| part.get(field)))
}

fn group_of(definition: &JsonObject) -> &str {
    let group = definition.get("spec").and_then(|spec| spec.get("group"));
    group.and_then(Value::as_str).unwrap_or_default()
}

/// Decides which names are accepted, for all definitions in the order in which they are given. Returns the
/// definitions whose status changes, with the new one.
///
/// Call it whenever a definition was created, changed or removed: names that become free are given to
/// definitions that wait for them.
pub fn accept_names(definitions: &[JsonObject], now: &str) -> Vec<JsonObject> {
    let mut accepted: Vec<Names> = definitions
        .iter()
        .map(|definition| names_of(definition, "status", "acceptedNames"))
        .collect();
    let mut changed = Vec::new();
    for (at, definition) in definitions.iter().enumerate() {
        let wanted = names_of(definition, "spec", "names");
        if wanted == accepted[at] && condition(definition, "NamesAccepted") == Some("True") {
            continue;
        }
        let group = group_of(definition);
        let mut resources: HashSet<&str> = HashSet::new();
        let mut kinds: HashSet<&str> = HashSet::new();
        for (names, other) in accepted.iter().zip(definitions) {
            if group_of(other) == group {
                resources.extend([names.plural.as_str(), &names.singular]);
                resources.extend(names.short_names.iter().map(String::as_str));
                kinds.extend([names.kind.as_str(), &names.list_kind]);
            }
        }
        let (names, conflict) = choose(&wanted, &accepted[at], &resources, &kinds);
        let mut new = definition.clone();
        new.entry("status").or_insert_with(|| json!({}))["acceptedNames"] = names_json(&names);
        accepted[at] = names;
        set_name_conditions(&mut new, conflict.as_ref(), now);
        if let Some(message) = structural_violations(&new) {
            set_condition(
                &mut new,
                "NonStructuralSchema",
                "True",
                "Violations",
                &message,
                now,
            );
        }
        if new != *definition {
            changed.push(new);
        }
    }
    changed
}

fn set_name_conditions(definition: &mut JsonObject, conflict: Option<&Conflict>, now: &str) {
    let is_established = condition(definition, "Established") == Some("True");
    let names = match conflict {
        Some(conflict) => ("False", conflict.reason, conflict.message.as_str()),
        None => ("True", "NoConflicts", "no conflicts found"),
    };
    let established = match conflict {
        Some(_) => ("NotAccepted", "not all names are accepted"),
        None => ("Installing", "the initial names have been accepted"),
    };
    set_condition(definition, "NamesAccepted", names.0, names.1, names.2, now);
    if !is_established {
        let (reason, message) = established;
        set_condition(definition, "Established", "False", reason, message, now);
    }
}

/// Why names are not accepted.
struct Conflict {
    reason: &'static str,
    message: String,
}

/// Returns the names that a definition gets, and the last conflict.
fn choose(
    wanted: &Names,
    accepted: &Names,
    resources: &HashSet<&str>,
    kinds: &HashSet<&str>,
) -> (Names, Option<Conflict>) {
    let mut names = accepted.clone();
    let mut conflict = None;
    let in_use = |name: &str| format!("{} is already in use", quoted(name));
    let mut take = |name: &str, accepted: &str, used: &HashSet<&str>, reason| {
        let is_free = name == accepted || !used.contains(name);
        if !is_free {
            conflict = Some(Conflict {
                reason,
                message: in_use(name),
            });
        }
        is_free
    };
    if take(
        &wanted.plural,
        &accepted.plural,
        resources,
        "PluralConflict",
    ) {
        names.plural.clone_from(&wanted.plural);
    }
    if take(
        &wanted.singular,
        &accepted.singular,
        resources,
        "SingularConflict",
    ) {
        names.singular.clone_from(&wanted.singular);
    }
    let is_taken =
        |name: &&String| !accepted.short_names.contains(name) && resources.contains(name.as_str());
    let taken: Vec<_> = wanted
        .short_names
        .iter()
        .filter(is_taken)
        .map(|name| in_use(name))
        .collect();
    let mut short_conflict = None;
    match taken.as_slice() {
        [] => names.short_names.clone_from(&wanted.short_names),
        [one] => short_conflict = Some(one.clone()),
        several => short_conflict = Some(format!("[{}]", several.join(", "))),
    }
    let has_kind = take(&wanted.kind, &accepted.kind, kinds, "KindConflict");
    if has_kind {
        names.kind.clone_from(&wanted.kind);
    }
    let has_list_kind = take(
        &wanted.list_kind,
        &accepted.list_kind,
        kinds,
        "ListKindConflict",
    );
    if has_list_kind {
        names.list_kind.clone_from(&wanted.list_kind);
    }
    // The last conflict is reported, in the order of these names.
    if let Some(message) = short_conflict
        && has_kind
        && has_list_kind
    {
        conflict = Some(Conflict {
            reason: "ShortNamesConflict",
            message,
        });
    }
    names.categories.clone_from(&wanted.categories);
    (names, conflict)
}

/// Returns a definition as one whose resource is served, if its names are accepted and it is not yet.
/// Call it when the server answers requests for the resource.
pub fn establish(definition: &JsonObject, now: &str) -> Option<JsonObject> {
    let is = |kind: &str| condition(definition, kind) == Some("True");
    if !is("NamesAccepted") || is("Established") {
        return None;
    }
    let mut new = definition.clone();
    let message = "the initial names have been accepted";
    set_condition(
        &mut new,
        "Established",
        "True",
        "InitialNamesAccepted",
        message,
        now,
    );
    Some(new)
}

/// Returns why the schemas of a definition are not structural. One that was validated has no such schema.
fn structural_violations(definition: &JsonObject) -> Option<String> {
    let versions = definition.get("spec")?.get("versions")?.as_array()?;
    let mut violations = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        if let Some(schema) = version
            .get("schema")
            .and_then(|schema| schema.get("openAPIV3Schema"))
            && let Ok(schema) = Schema::parse(schema)
        {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            violations.extend(
                schema
                    .structural_errors(&path)
                    .iter()
                    .map(ToString::to_string),
            );
        }
    }
    match violations.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{JsonObject, accept_names, establish};

    fn definition(plural: &str, singular: &str, kind: &str, short: &[&str]) -> JsonObject {
        let mut names = json!({"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")});
        if !short.is_empty() {
            names["shortNames"] = json!(short);
        }
        serde_json::from_value(json!({"spec": {"group": "example.com", "names": names}, "status": {
            "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}}))
        .unwrap()
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "status": status, "lastTransitionTime": "T", "reason": reason, "message": message})
    }

    #[test]
    fn names_are_accepted_and_the_resource_is_established() {
        let changed = accept_names(&[definition("widgets", "widget", "Widget", &["wg"])], "T");
        let new = establish(&changed[0], "T").unwrap();
        assert_eq!(
            new["status"],
            json!({
            "conditions": [
                condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
                condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
            "acceptedNames": {"plural": "widgets", "singular": "widget", "shortNames": ["wg"], "kind": "Widget",
                "listKind": "WidgetList"},
            "storedVersions": ["v1"]})
        );
        assert_eq!(establish(&new, "U"), None);
        assert_eq!(accept_names(&[new], "U"), []);
    }

    #[test]
    fn names_in_use_are_refused_until_they_are_free() {
        let first = accept_names(&[definition("widgets", "widget", "Widget", &[])], "T").remove(0);
        let other = definition("others", "other", "Widget", &[]);
        let refused = accept_names(&[first.clone(), other], "T").remove(0);
        assert_eq!(
            refused["status"],
            json!({
            "conditions": [
                condition("NamesAccepted", "False", "ListKindConflict", "\"WidgetList\" is already in use"),
                condition("Established", "False", "NotAccepted", "not all names are accepted"),
            ],
            "acceptedNames": {"plural": "others", "singular": "other", "kind": ""}, "storedVersions": ["v1"]})
        );
        assert_eq!(accept_names(&[first, refused.clone()], "U"), []);
        assert_eq!(establish(&refused, "U"), None);
        let accepted = accept_names(&[refused], "U").remove(0);
        assert_eq!(accepted["status"]["acceptedNames"]["kind"], "Widget");
        assert_eq!(
            accepted["status"]["conditions"][0]["lastTransitionTime"],
            "U"
        );
    }

    #[test]
    fn definitions_that_come_together_do_not_get_the_same_names() {
        let changed = accept_names(
            &[
                definition("as", "a", "A", &["x"]),
                definition("bs", "b", "B", &["x", "as"]),
            ],
            "T",
        );
        assert_eq!(changed[0]["status"]["conditions"][0]["status"], "True");
        let second = &changed[1]["status"]["conditions"][0];
        assert_eq!(second["reason"], "ShortNamesConflict");
        assert_eq!(
            second["message"],
            "[\"x\" is already in use, \"as\" is already in use]"
        );
    }
}
