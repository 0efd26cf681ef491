//! Users: tokens of service accounts over HTTPS, as inside of a cluster, and what they may do.

use std::fs;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Config};
use serde_json::json;

use crate::server::{Server, status, within};

#[tokio::test]
async fn tokens_of_service_accounts() {
    let server = Server::start(&["--authorization-mode=RBAC"]);
    let (admin, post) = (server.client().await, PostParams::default());
    let version = admin.apiserver_version().await.unwrap();
    assert_eq!((&*version.major, &*version.minor), ("1", "36"));
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    let account = serde_json::from_value(json!({"metadata": {"name": "robot"}})).unwrap();
    accounts.create(&post, &account).await.unwrap();
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request: TokenRequest = accounts
        .create_subresource("token", "robot", &post, &request)
        .await
        .unwrap();

    // What a pod has: the address, a file with the authority, and one with the token.
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, request.status.unwrap().token.unwrap()).unwrap();
    let known = server.config().await;
    let mut config = Config::new(known.cluster_url);
    config.root_cert = known.root_cert;
    config.auth_info.token_file = Some(token.to_str().unwrap().to_owned());
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let refused = status(maps.list(&ListParams::default()).await);
    assert!(
        refused.is_forbidden()
            && refused
                .message
                .contains("system:serviceaccount:default:robot")
    );

    let roles: Api<Role> = Api::default_namespaced(admin.clone());
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
    });
    let role = serde_json::from_value(role).unwrap();
    roles.create(&post, &role).await.unwrap();
    let bindings: Api<RoleBinding> = Api::default_namespaced(admin);
    let binding = json!({
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&post, &binding).await.unwrap();
    // Bindings have an effect when the server has read them.
    within(async {
        while maps.list(&ListParams::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(status(maps.create(&post, &crate::server::config_map("a")).await).is_forbidden());
}

#[tokio::test]
async fn an_unknown_token() {
    let server = Server::start(&[]);
    let mut config = server.config().await;
    config.auth_info.token = Some("unknown".to_owned().into());
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    assert_eq!(status(maps.list(&ListParams::default()).await).code, 401);
}
