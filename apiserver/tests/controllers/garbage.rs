//! Objects whose owners are gone.

use serde_json::{Value, json};

use crate::client::{send, value};
use crate::support::{
    CONFIG_MAPS, NAMESPACES, SECRETS, create, create_owned, define_widgets, delete, get,
    is_deleting, patch, reference, started, wait, wait_empty, wait_gone, widget,
};

const COLLECTOR: &str = "garbage-collector-controller";

fn held(name: &str, owner: &Value) -> Value {
    json!({"metadata": {
        "name": name,
        "ownerReferences": [reference(owner)],
        "finalizers": ["example.com/hold"],
    }})
}

fn release() -> Value {
    json!({"metadata": {"finalizers": null}})
}

#[test]
fn background_deletion_takes_dependents_and_theirs() {
    let server = started(COLLECTOR);
    let owner = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    let child = create_owned(&server, SECRETS, "child", &[reference(&owner)]);
    create_owned(&server, CONFIG_MAPS, "grandchild", &[reference(&child)]);
    let other = create_owned(&server, CONFIG_MAPS, "other", &[]);
    create_owned(
        &server,
        CONFIG_MAPS,
        "shared",
        &[reference(&owner), reference(&other)],
    );
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Background");
    wait_gone(&server, SECRETS, "child");
    wait_gone(&server, CONFIG_MAPS, "grandchild");
    // One with another owner loses the reference only.
    let shared = wait(&server, CONFIG_MAPS, "shared", |shared| {
        let owners = shared.and_then(|shared| shared["metadata"]["ownerReferences"].as_array());
        owners.is_none_or(|owners| owners.len() == 1)
    });
    let shared = shared.unwrap_or_default();
    assert_eq!(
        shared["metadata"]["ownerReferences"][0]["name"], "other",
        "{shared}"
    );
}

#[test]
fn foreground_deletion_waits_for_dependents_also_for_later_ones() {
    let server = started(COLLECTOR);
    let owner = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    create(&server, SECRETS, &held("held", &owner));
    create_owned(&server, SECRETS, "free", &[reference(&owner)]);
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Foreground");
    wait_gone(&server, SECRETS, "free");
    wait(&server, SECRETS, "held", is_deleting);
    create_owned(&server, SECRETS, "late", &[reference(&owner)]);
    wait_gone(&server, SECRETS, "late");
    let (code, owner) = get(&server, &format!("{CONFIG_MAPS}/owner"));
    assert_eq!(
        (code, &owner["metadata"]["finalizers"]),
        (200, &json!(["foregroundDeletion"]))
    );
    patch(&server, &format!("{SECRETS}/held"), &release());
    wait_gone(&server, CONFIG_MAPS, "owner");
    assert_eq!(get(&server, &format!("{SECRETS}/held")).0, 404);
}

#[test]
fn dependents_that_do_not_block_survive_their_owner_for_a_moment() {
    let server = started(COLLECTOR);
    let owner = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    let mut held = held("held", &owner);
    held["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(false);
    create(&server, SECRETS, &held);
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Foreground");
    wait_gone(&server, CONFIG_MAPS, "owner");
    wait(&server, SECRETS, "held", is_deleting);
}

#[test]
fn orphans_stay_without_the_reference() {
    let server = started(COLLECTOR);
    let owner = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    for number in 0..20 {
        create_owned(
            &server,
            SECRETS,
            &format!("s{number}"),
            &[reference(&owner)],
        );
    }
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Orphan");
    wait_gone(&server, CONFIG_MAPS, "owner");
    let (_, list) = get(&server, SECRETS);
    let items = list["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(items.len(), 20);
    for item in items {
        assert_eq!(item["metadata"].get("ownerReferences"), None, "{item}");
    }
}

#[test]
fn owners_that_never_existed_or_were_created_again_keep_nothing() {
    let server = started(COLLECTOR);
    let first = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Background");
    let second = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    create_owned(&server, SECRETS, "old", &[reference(&first)]);
    create_owned(&server, SECRETS, "new", &[reference(&second)]);
    let mut missing = reference(&second);
    missing["name"] = json!("missing");
    create_owned(&server, SECRETS, "lost", &[missing]);
    wait_gone(&server, SECRETS, "old");
    wait_gone(&server, SECRETS, "lost");
    assert_eq!(get(&server, &format!("{SECRETS}/new")).0, 200);
}

#[test]
fn owners_in_other_namespaces_are_reported_and_keep_nothing() {
    let server = started(COLLECTOR);
    create(&server, NAMESPACES, &json!({"metadata": {"name": "other"}}));
    let owner = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    let elsewhere = "/api/v1/namespaces/other/secrets";
    create_owned(&server, elsewhere, "stranger", &[reference(&owner)]);
    wait_gone(&server, elsewhere, "stranger");
    let (_, events) = get(&server, "/api/v1/namespaces/other/events");
    let event = &events["items"][0];
    assert_eq!(event["reason"], "OwnerRefInvalidNamespace", "{events}");
    assert_eq!(event["involvedObject"]["name"], "stranger", "{events}");
    // An object without a namespace is not deleted because of that.
    create_owned(&server, NAMESPACES, "owned", &[reference(&owner)]);
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Background");
    let last = create_owned(&server, CONFIG_MAPS, "last", &[]);
    create_owned(&server, SECRETS, "witness", &[reference(&last)]);
    delete(&server, &format!("{CONFIG_MAPS}/last"), "Background");
    wait_gone(&server, SECRETS, "witness");
    assert!(!is_deleting(Some(
        &get(&server, &format!("{NAMESPACES}/owned")).1
    )));
}

#[test]
fn cycles_are_deleted() {
    let server = started(COLLECTOR);
    let one = create_owned(&server, CONFIG_MAPS, "one", &[]);
    let two = create_owned(&server, CONFIG_MAPS, "two", &[reference(&one)]);
    let three = create_owned(&server, CONFIG_MAPS, "three", &[reference(&two)]);
    let owners = json!({"metadata": {"ownerReferences": [reference(&three)]}});
    patch(&server, &format!("{CONFIG_MAPS}/one"), &owners);
    let mut own = create_owned(&server, CONFIG_MAPS, "own", &[]);
    own["metadata"]["ownerReferences"] = json!([reference(&own)]);
    patch(&server, &format!("{CONFIG_MAPS}/own"), &own);
    for name in ["one", "own"] {
        delete(&server, &format!("{CONFIG_MAPS}/{name}"), "Foreground");
    }
    for name in ["one", "two", "three", "own"] {
        wait_gone(&server, CONFIG_MAPS, name);
    }
}

#[test]
fn custom_resources_own_until_their_definition_is_deleted() {
    let server = started(COLLECTOR);
    define_widgets(&server);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let owner = create(&server, widgets, &widget("owner"));
    create_owned(&server, CONFIG_MAPS, "owned", &[reference(&owner)]);
    let own = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    let mut dependent = widget("dependent");
    dependent["metadata"]["ownerReferences"] = json!([reference(&own)]);
    create(&server, widgets, &dependent);
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Background");
    wait_gone(&server, widgets, "dependent");
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/owned")).0, 200);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    delete(
        &server,
        &format!("{definitions}/widgets.example.com"),
        "Background",
    );
    wait_gone(&server, CONFIG_MAPS, "owned");
    // An owner of an unknown kind may be known later: its dependents wait.
    create_owned(&server, CONFIG_MAPS, "waiting", &[reference(&owner)]);
    wait_gone(&server, definitions, "widgets.example.com");
    define_widgets(&server);
    wait_gone(&server, CONFIG_MAPS, "waiting");
}

#[test]
fn a_mass_of_dependents_goes_while_others_are_served() {
    const DEPENDENTS: usize = 2_000;
    let server = started(COLLECTOR);
    let owner = create_owned(&server, CONFIG_MAPS, "owner", &[]);
    let engine = server.engine().expect("embedded");
    for number in 0..DEPENDENTS {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": format!("s{number}"), "namespace": "default", "uid": format!("u{number}"),
            "ownerReferences": [reference(&owner)],
        }});
        let key = format!("/registry/secrets/default/s{number}");
        engine
            .put(key, object.to_string())
            .expect("the store writes");
    }
    delete(&server, &format!("{CONFIG_MAPS}/owner"), "Foreground");
    let mut answered = 0;
    while get(&server, &format!("{CONFIG_MAPS}/owner")).0 == 200 {
        let name = format!("c{answered}");
        create_owned(&server, CONFIG_MAPS, &name, &[]);
        let (code, _) = value(&send(
            &server,
            "DELETE",
            &format!("{CONFIG_MAPS}/{name}"),
            "",
        ));
        assert_eq!(code, 200);
        answered += 1;
    }
    assert!(answered > 0);
    wait_empty(&server, SECRETS);
}
