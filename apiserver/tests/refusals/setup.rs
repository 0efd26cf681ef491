//! A server with objects that only an administrator may see.

use std::time::Duration;

use revstore_apiserver::ApiServer;
use revstore_apiserver::auth::{AuthorizationMode, User};
use revstore_engine::ManualClock;
use serde_json::{Value, json};

use crate::exchange::exchange;

pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The namespace and the name of all objects.
pub(crate) const NAMESPACE: &str = "vault";
pub(crate) const NAME: &str = "top";
/// What no answer may have: the content of the secret, also in base64, and of labels and annotations.
pub(crate) const MARKERS: [&str; 4] = ["hidden-7f3a", "aGlkZGVuLTdmM2E", "label-9c41", "note-52d8"];

/// The server, and the tokens of its service accounts.
pub(crate) struct Vault {
    pub(crate) server: ApiServer,
    /// Tokens that were valid, and were those of administrators.
    pub(crate) expired: String,
    pub(crate) deleted: String,
    /// A token of another server with the same issuer.
    pub(crate) foreign: String,
}

fn post(server: &ApiServer, path: &str, body: &Value) -> Value {
    let fields = "Content-Type: application/json\r\n";
    let (code, answer) = exchange(server.endpoint(), "POST", path, fields, &body.to_string());
    assert_eq!(code, 201, "{path}: {answer}");
    serde_json::from_str(&answer).expect("an object")
}

fn metadata() -> Value {
    json!({"name": NAME, "labels": {"app": MARKERS[2]}, "annotations": {"note": MARKERS[3]}})
}

fn token(server: &ApiServer, account: &str) -> String {
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    post(server, &accounts, &json!({"metadata": {"name": account}}));
    let path = format!("{accounts}/{account}/token");
    let answer = post(server, &path, &json!({"spec": {"expirationSeconds": 600}}));
    answer["status"]["token"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Binds a role of the cluster to a subject.
fn bind(server: &ApiServer, name: &str, role: &str, subject: &Value) {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    post(
        server,
        path,
        &json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}),
    );
}

/// Gives a user a role in a namespace, or in the cluster if there is none.
pub(crate) fn allow(server: &ApiServer, user: &str, namespace: Option<&str>, rules: &Value) {
    let (prefix, kind, plural) = match namespace {
        Some(namespace) => (format!("/namespaces/{namespace}"), "Role", "role"),
        None => (String::new(), "ClusterRole", "clusterrole"),
    };
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": user}, "rules": rules});
    post(server, &format!("{group}{prefix}/{plural}s"), &role);
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": user});
    let binding = json!({"metadata": {"name": user}, "roleRef": role, "subjects": [subject]});
    post(
        server,
        &format!("{group}{prefix}/{plural}bindings"),
        &binding,
    );
}

fn objects(server: &ApiServer) {
    let here = format!("/api/v1/namespaces/{NAMESPACE}");
    let apps = format!("/apis/apps/v1/namespaces/{NAMESPACE}");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let containers = json!([{"name": "c", "image": MARKERS[0]}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let workload = json!({"metadata": metadata(), "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["widgets"]}]);
    let named = json!({"metadata": metadata()});
    let role_ref =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME});
    for (path, object) in [
        (
            format!("{here}/secrets"),
            json!({"metadata": metadata(), "stringData": {"k": MARKERS[0]}}),
        ),
        (
            format!("{here}/configmaps"),
            json!({"metadata": metadata(), "data": {"k": MARKERS[0]}}),
        ),
        (format!("{here}/serviceaccounts"), named.clone()),
        (
            format!("{here}/pods"),
            json!({"metadata": metadata(), "spec": {"containers": containers}}),
        ),
        (format!("{apps}/deployments"), workload),
        ("/api/v1/nodes".to_owned(), named.clone()),
        ("/api/v1/namespaces".to_owned(), named.clone()),
        (
            format!("{rbac}/namespaces/{NAMESPACE}/roles"),
            json!({"metadata": metadata(), "rules": rules}),
        ),
        (
            format!("{rbac}/clusterroles"),
            json!({"metadata": metadata(), "rules": rules}),
        ),
        (
            format!("{rbac}/clusterrolebindings"),
            json!({"metadata": metadata(), "roleRef": role_ref}),
        ),
        (
            format!("{rbac}/namespaces/{NAMESPACE}/rolebindings"),
            json!({"metadata": metadata(), "roleRef": role_ref}),
        ),
        (
            format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"),
            named.clone(),
        ),
    ] {
        post(server, &path, &object);
    }
}

/// The rights of the users that have some.
fn rights(server: &ApiServer) {
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    allow(server, "elsewhere", Some("other"), &everything);
    let mine = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*", "*/*"], "resourceNames": ["mine"]}]);
    allow(server, "one-name", Some(NAMESPACE), &mine);
    let reads = json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["endpoints", "secrets/x"]}]);
    allow(server, "reader", Some(NAMESPACE), &reads);
    let wrong = json!([{"verbs": ["*"], "apiGroups": ["apps.example.com"], "resources": ["*"]},
        {"verbs": ["GET", "read", ""], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["/api/v1/*", "/apis/*", "*x"]}]);
    allow(server, "wrong-rules", None, &wrong);
    let impersonate = json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["nothing"]}]);
    allow(server, "impersonator", None, &impersonate);
    let grants = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["events"]},
        {"verbs": ["get", "create", "update", "patch", "delete"], "apiGroups": ["rbac.authorization.k8s.io"],
         "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]}]);
    allow(server, "grantor", None, &grants);
}

impl Vault {
    pub(crate) fn start() -> Result<Self, Box<dyn std::error::Error>> {
        let clock = ManualClock::new();
        let mut builder = ApiServer::builder()
            .clock(clock.clone())
            // Nothing but requests changes the store.
            .compaction_interval(None)
            .authorization_mode(AuthorizationMode::Rbac)
            .user("admin", User::new("root", ["system:masters"]));
        for name in crate::users::NAMES {
            builder = builder.user(*name, User::new(*name, ["devs"]));
        }
        let server = builder.start()?;
        let other = ApiServer::builder().clock(clock.clone()).start()?;
        for name in [NAMESPACE, "other"] {
            post(
                &server,
                "/api/v1/namespaces",
                &json!({"metadata": {"name": name}}),
            );
        }
        post(
            &other,
            "/api/v1/namespaces",
            &json!({"metadata": {"name": NAMESPACE}}),
        );
        let (expired, deleted) = (token(&server, "expired"), token(&server, "deleted"));
        let foreign = token(&other, "expired");
        let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"});
        bind(&server, "accounts", "cluster-admin", &group);
        objects(&server);
        rights(&server);
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}");
        let status = |token: &str| {
            let fields = format!("Authorization: Bearer {token}\r\n");
            exchange(server.endpoint(), "GET", &secret, &fields, "").0
        };
        // Until now these tokens are valid.
        assert_eq!((status(&expired), status(&deleted)), (200, 200));
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/deleted");
        assert_eq!(exchange(server.endpoint(), "DELETE", &path, "", "").0, 200);
        clock.advance(Duration::from_secs(3600));
        Ok(Self {
            server,
            expired,
            deleted,
            foreign,
        })
    }
}
