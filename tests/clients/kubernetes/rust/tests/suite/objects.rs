//! Built-in kinds: all verbs, patches, subresources, and typed errors.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::{Value, json};

use crate::server::{Server, config_map, create_maps, status};

fn deployment(name: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "image"}]},
            },
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn objects_and_their_errors() {
    let server = Server::start(&[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let (post, delete) = (PostParams::default(), DeleteParams::default());
    let created = maps.create(&post, &config_map("a")).await.unwrap();
    assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());
    assert!(status(maps.create(&post, &config_map("a")).await).is_already_exists());
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    maps.create(&dry_run, &config_map("dry")).await.unwrap();
    assert!(maps.get_opt("dry").await.unwrap().is_none());

    let mut changed = created.clone();
    changed
        .data
        .as_mut()
        .unwrap()
        .insert("color".to_owned(), "red".to_owned());
    let replaced = maps.replace("a", &post, &changed).await.unwrap();
    assert_eq!(replaced.data, changed.data);
    assert!(status(maps.replace("a", &post, &changed).await).is_conflict());
    assert_eq!(maps.get("a").await.unwrap(), replaced);
    let metadata = maps.get_metadata("a").await.unwrap();
    assert_eq!(metadata.metadata.uid, created.metadata.uid);

    let invalid = status(maps.create(&post, &config_map("Not_A_Name")).await);
    assert!(invalid.is_invalid() && invalid.code == 422);
    assert_eq!(invalid.details.unwrap().causes[0].field, "metadata.name");
    let unknown = status(maps.get("unknown").await);
    assert!(unknown.is_not_found() && unknown.code == 404);
    let other = Preconditions {
        uid: Some("other".to_owned()),
        ..Preconditions::default()
    };
    let result = maps.delete("a", &delete.clone().preconditions(other)).await;
    assert!(status(result.map(drop)).is_conflict());
    let deleted = maps.delete("a", &delete).await.unwrap();
    assert!(deleted.right().unwrap().is_success());
    assert!(status(maps.delete("a", &delete).await.map(drop)).is_not_found());
}

#[tokio::test]
async fn lists_in_pages_and_deletions_of_collections() {
    let server = Server::start(&[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    create_maps(&maps, &["a", "b", "c", "d", "e"]).await;
    let (mut names, mut versions) = (Vec::new(), Vec::new());
    let mut options = ListParams::default().labels("app=test").limit(2);
    loop {
        let page = maps.list(&options).await.unwrap();
        versions.push(page.metadata.resource_version);
        names.extend(page.items.into_iter().filter_map(|map| map.metadata.name));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => options = options.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    versions.dedup();
    assert_eq!(versions.len(), 1);

    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    create_maps(&maps, &["f"]).await;
    server.compact().await;
    let token = first.metadata.continue_.unwrap();
    let expired = status(
        maps.list(&ListParams::default().continue_token(&token))
            .await,
    );
    assert_eq!((expired.code, &*expired.reason), (410, "Expired"));
    let fields = ListParams::default().fields("metadata.name=f");
    assert_eq!(maps.list(&fields).await.unwrap().items.len(), 1);
    let selected = ListParams::default().labels("app in (test)");
    maps.delete_collection(&DeleteParams::default(), &selected)
        .await
        .unwrap();
    assert_eq!(maps.list(&selected).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn patches() {
    let server = Server::start(&[]);
    let deployments: Api<Deployment> = Api::default_namespaced(server.client().await);
    deployments
        .create(&PostParams::default(), &deployment("d"))
        .await
        .unwrap();
    let params = PatchParams::default();
    let container =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c2", "image": "two"}]}}}});
    deployments
        .patch("d", &params, &Patch::Strategic(container))
        .await
        .unwrap();
    let merge = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    deployments.patch("d", &params, &merge).await.unwrap();
    // The requests of JSON patches, whose type kube takes from another crate.
    let operations = serde_json::from_value(json!([
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
    ]));
    let json_patch = Patch::Json::<()>(operations.unwrap());
    let patched = deployments.patch("d", &params, &json_patch).await.unwrap();
    assert_eq!(patched.metadata.labels.unwrap()["a"], "b");
    let spec = patched.spec.unwrap();
    assert_eq!(spec.replicas, Some(3));
    let containers = spec.template.spec.unwrap().containers;
    let names: Vec<_> = containers
        .iter()
        .map(|container| &*container.name)
        .collect();
    assert_eq!(names, ["c2", "c"]);
    assert_eq!(
        status(deployments.patch("d", &params, &json_patch).await).code,
        422
    );
}

#[tokio::test]
async fn server_side_apply() {
    let server = Server::start(&[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let config = |color: &str| -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a"}, "data": {"color": color},
        })
    };
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    let created = maps
        .patch("a", &one, &Patch::Apply(config("blue")))
        .await
        .unwrap();
    assert_eq!(created.data.as_ref().unwrap()["color"], "blue");
    let conflict = status(maps.patch("a", &two, &Patch::Apply(config("red"))).await);
    assert!(conflict.is_conflict());
    let cause = &conflict.details.unwrap().causes[0];
    assert_eq!(
        (&*cause.reason, &*cause.field),
        ("FieldManagerConflict", ".data.color")
    );
    let forced = two.force();
    let applied = maps
        .patch("a", &forced, &Patch::Apply(config("red")))
        .await
        .unwrap();
    let managers = applied.metadata.managed_fields.unwrap();
    let managers: Vec<_> = managers
        .iter()
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    assert_eq!(managers, ["two"]);
    // An object of a type, whose fields that are absent are not applied.
    let mut typed = config_map("typed");
    typed.metadata.managed_fields = None;
    let applied = maps
        .patch("typed", &one, &Patch::Apply(typed))
        .await
        .unwrap();
    assert_eq!(applied.data.unwrap()["color"], "blue");
}

#[tokio::test]
async fn subresources() {
    let server = Server::start(&[]);
    let client = server.client().await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let (post, merge) = (PostParams::default(), PatchParams::default());
    let mut created = deployments.create(&post, &deployment("d")).await.unwrap();
    created.status.as_mut().unwrap().replicas = Some(2);
    created.spec.as_mut().unwrap().paused = Some(true);
    let updated = deployments
        .replace_status("d", &post, &created)
        .await
        .unwrap();
    assert_eq!(updated.status.unwrap().replicas, Some(2));
    assert_eq!(updated.spec.unwrap().paused, None);
    let patch = Patch::Merge(json!({"status": {"readyReplicas": 1}}));
    let patched = deployments.patch_status("d", &merge, &patch).await.unwrap();
    assert_eq!(patched.status.unwrap().ready_replicas, Some(1));

    let mut scale = deployments.get_scale("d").await.unwrap();
    scale.spec.as_mut().unwrap().replicas = Some(5);
    let scale = deployments.replace_scale("d", &post, &scale).await.unwrap();
    assert_eq!(scale.status.unwrap().replicas, 2);
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    deployments.patch_scale("d", &merge, &patch).await.unwrap();
    let found = deployments.get("d").await.unwrap();
    assert_eq!(found.spec.unwrap().replicas, Some(7));

    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&post, &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    pods.evict("p", &EvictParams::default()).await.unwrap();
    // A pod without a node ends at once.
    assert!(pods.get_opt("p").await.unwrap().is_none());
}
