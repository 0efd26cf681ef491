//! The requests.

use serde_json::{Value, json};

use crate::setup::{NAME, NAMESPACE};

pub(crate) const JSON: &str = "application/json";
const PATCHES: [(&str, &str); 5] = [
    (
        "application/merge-patch+json",
        r#"{"metadata":{"labels":{"x":"y"}}}"#,
    ),
    (
        "application/strategic-merge-patch+json",
        r#"{"metadata":{"labels":{"x":"y"}}}"#,
    ),
    (
        "application/json-patch+json",
        r#"[{"op":"test","path":"/metadata/name","value":"top"}]"#,
    ),
    ("application/apply-patch+yaml", "metadata: {name: top}"),
    ("application/json", "{}"),
];

/// What must be answered to a user who is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// 403.
    Forbidden,
    /// Any refusal: a path in an odd spelling may be that of nothing.
    Refused,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) media_type: Option<&'static str>,
    pub(crate) fields: &'static str,
    pub(crate) body: String,
    pub(crate) trick: &'static str,
    pub(crate) expected: Expected,
}

impl Case {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            media_type: None,
            fields: "",
            body: String::new(),
            trick: "",
            expected: Expected::Forbidden,
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "most bodies are made for one request"
    )]
    pub(crate) fn body(
        mut self,
        media_type: &'static str,
        body: impl ToString,
        trick: &'static str,
    ) -> Self {
        self.media_type = Some(media_type);
        self.body = body.to_string();
        self.trick = trick;
        self
    }

    pub(crate) fn fields(mut self, fields: &'static str) -> Self {
        self.fields = fields;
        self
    }

    pub(crate) fn refused(mut self) -> Self {
        self.expected = Expected::Refused;
        self
    }

    /// Returns the same request for an object with another name.
    pub(crate) fn renamed(&self, name: &str) -> Self {
        let mut path = self.path.clone();
        for before in ["/", "%3D"] {
            path = path.replace(&format!("{before}{NAME}"), &format!("{before}{name}"));
        }
        Self {
            path,
            ..self.clone()
        }
    }

    /// Returns whether the request is made in the name of another user.
    pub(crate) fn has_own_user(&self) -> bool {
        self.fields.contains("Impersonate")
    }
}

/// The resources: the path of the collection, its path in all namespaces, the kind and the subresources.
fn resources() -> Vec<(
    String,
    Option<String>,
    &'static str,
    &'static [&'static str],
)> {
    let core: [(&str, &str, &'static [&'static str]); 4] = [
        ("secrets", "Secret", &[]),
        ("configmaps", "ConfigMap", &[]),
        ("serviceaccounts", "ServiceAccount", &["token"]),
        (
            "pods",
            "Pod",
            &[
                "status",
                "log",
                "exec",
                "binding",
                "eviction",
                "ephemeralcontainers",
                "resize",
                "proxy",
            ],
        ),
    ];
    let mut all = Vec::new();
    for (plural, kind, subresources) in core {
        let namespaced = format!("/api/v1/namespaces/{NAMESPACE}/{plural}");
        all.push((
            namespaced,
            Some(format!("/api/v1/{plural}")),
            kind,
            subresources,
        ));
    }
    let others: [(&str, &str, &str, &'static [&'static str]); 4] = [
        ("apps/v1", "deployments", "Deployment", &["status", "scale"]),
        ("rbac.authorization.k8s.io/v1", "roles", "Role", &[]),
        (
            "rbac.authorization.k8s.io/v1",
            "rolebindings",
            "RoleBinding",
            &[],
        ),
        ("coordination.k8s.io/v1", "leases", "Lease", &[]),
    ];
    for (version, plural, kind, subresources) in others {
        let namespaced = format!("/apis/{version}/namespaces/{NAMESPACE}/{plural}");
        all.push((
            namespaced,
            Some(format!("/apis/{version}/{plural}")),
            kind,
            subresources,
        ));
    }
    let cluster: [(&str, &str, &'static [&'static str]); 5] = [
        ("/api/v1/nodes", "Node", &["status", "proxy"]),
        ("/api/v1/namespaces", "Namespace", &["status", "finalize"]),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "ClusterRole",
            &[],
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "ClusterRoleBinding",
            &[],
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "CertificateSigningRequest",
            &["approval", "status"],
        ),
    ];
    all.extend(
        cluster.map(|(path, kind, subresources)| (path.to_owned(), None, kind, subresources)),
    );
    all
}

/// Returns the paths without a resource that only some users may read.
const PATHS: [&str; 6] = [
    "/metrics",
    "/",
    "/logs",
    "/debug/pprof/",
    "/unknown/top",
    "/healthz/../metrics",
];

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (collection, everywhere, kind, subresources) in resources() {
        reads(&collection, everywhere.as_deref(), &mut cases);
        creates(&collection, kind, &mut cases);
        changes(&format!("{collection}/{NAME}"), kind, &mut cases);
        deletions(&collection, &mut cases);
        spellings(&collection, &mut cases);
        for subresource in subresources {
            let path = format!("{collection}/{NAME}/{subresource}");
            cases.push(Case::new("GET", &*path));
            cases.push(Case::new("POST", &*path).body(JSON, object(kind), "subresource"));
            changes(&path, kind, &mut cases);
        }
    }
    for path in PATHS {
        for method in ["GET", "POST", "DELETE", "PUT", "PATCH"] {
            cases.push(Case::new(method, path));
        }
    }
    cases
}

fn object(kind: &str) -> Value {
    json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": NAME}})
}

fn reads(collection: &str, everywhere: Option<&str>, cases: &mut Vec<Case>) {
    let item = format!("{collection}/{NAME}");
    let (root, rest) = split(collection);
    let watched = format!("{root}/watch/{rest}");
    for path in [
        collection.to_owned(),
        item.clone(),
        format!("{collection}?limit=1"),
        format!("{collection}?watch=true&timeoutSeconds=1"),
        format!("{collection}?watch=1&resourceVersion=0&timeoutSeconds=1"),
        format!("{collection}?fieldSelector=metadata.name%3D{NAME}"),
        format!("{collection}?labelSelector=app"),
        format!("{collection}?resourceVersion=0&resourceVersionMatch=NotOlderThan"),
        format!("{item}?watch=true&timeoutSeconds=1"),
        format!("{item}?resourceVersion=0"),
        format!("{watched}?timeoutSeconds=1"),
        format!("{watched}/{NAME}?timeoutSeconds=1"),
        format!("{item}/unknown"),
        format!("{item}/status"),
    ] {
        cases.push(Case::new("GET", path));
    }
    cases.push(Case::new("HEAD", &*item));
    cases.extend(everywhere.map(|path| Case::new("GET", path)));
    for fields in [
        "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n",
        "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io\r\n",
        "Accept: application/vnd.kubernetes.protobuf\r\n",
        "Accept: application/yaml\r\n",
        "X-Remote-User: root\r\nX-Remote-Group: system:masters\r\n",
        "X-HTTP-Method-Override: GET\r\n",
        "X-Forwarded-For: 127.0.0.1\r\n",
        "X-Original-URL: /healthz\r\n",
    ] {
        cases.push(Case::new("GET", &*item).fields(fields));
    }
    for fields in [
        "Impersonate-User: root\r\nImpersonate-Group: system:masters\r\n",
        "Impersonate-User: system:serviceaccount:vault:expired\r\n",
        "Impersonate-User: nothing\r\nImpersonate-Group: system:masters\r\n",
        "Impersonate-User: nothing\r\nImpersonate-Uid: 1\r\n",
        "Impersonate-User: nothing\r\nImpersonate-Extra-scopes: all\r\n",
        "Impersonate-Group: system:masters\r\n",
    ] {
        // The headers of two users are an error of their own.
        cases.push(Case::new("GET", &*item).fields(fields).refused());
    }
}

/// Splits a path behind its version.
fn split(path: &str) -> (&str, &str) {
    let depth = if path.starts_with("/api/") { 3 } else { 4 };
    let end = path
        .match_indices('/')
        .nth(depth - 1)
        .map_or(path.len(), |(index, _)| index);
    (&path[..end], &path[end + 1..])
}

fn creates(collection: &str, kind: &str, cases: &mut Vec<Case>) {
    let with = |metadata: Value| json!({"kind": kind, "apiVersion": "v1", "metadata": metadata});
    for (body, trick) in [
        (with(json!({"name": NAME})).to_string(), "create"),
        (with(json!({"name": "new"})).to_string(), "create"),
        (
            with(json!({"name": "mine"})).to_string(),
            "the name of another rule",
        ),
        (
            with(json!({"generateName": "g-"})).to_string(),
            "generated name",
        ),
        (
            with(json!({"name": "new", "namespace": "other"})).to_string(),
            "namespace of the body",
        ),
        (
            with(json!({"name": "new", "namespace": ""})).to_string(),
            "empty namespace",
        ),
        (
            with(json!({"name": NAME, "uid": "x", "resourceVersion": "1"})).to_string(),
            "version",
        ),
        (String::new(), "empty"),
        ("{".to_owned(), "malformed"),
        ("[".repeat(2000), "deep"),
        (
            format!("{{\"data\":{{\"k\":\"{}\"}}}}", "x".repeat(1 << 16)),
            "large",
        ),
    ] {
        cases.push(Case::new("POST", collection).body(JSON, body, trick));
    }
    for query in [
        "?dryRun=All",
        "?dryRun=Some",
        "?fieldValidation=Strict",
        "?fieldManager=m",
        "?pretty=true",
    ] {
        let path = format!("{collection}{query}");
        cases.push(Case::new("POST", path).body(JSON, object(kind), "query"));
    }
    for media_type in [
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "text/html",
        "application/cbor",
    ] {
        cases.push(Case::new("POST", collection).body(media_type, "k8s\0garbage", "media type"));
    }
}

fn changes(path: &str, kind: &str, cases: &mut Vec<Case>) {
    cases.push(Case::new("PUT", path).body(JSON, object(kind), "update"));
    let moved = json!({"kind": kind, "metadata": {"name": "mine", "namespace": "other"}});
    cases.push(Case::new("PUT", path).body(JSON, moved, "another object"));
    let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 9}});
    cases.push(Case::new("PUT", path).body(JSON, scale, "scale"));
    cases.push(Case::new("PUT", format!("{path}?dryRun=All")).body(JSON, object(kind), "dry run"));
    for (media_type, body) in PATCHES {
        let queries = "fieldManager=m&force=true";
        cases.push(
            Case::new("PATCH", format!("{path}?{queries}")).body(media_type, body, media_type),
        );
    }
}

fn deletions(collection: &str, cases: &mut Vec<Case>) {
    let item = format!("{collection}/{NAME}");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Orphan"});
    for path in [
        item.clone(),
        format!("{item}?dryRun=All"),
        format!("{item}?gracePeriodSeconds=0"),
        collection.to_owned(),
        format!("{collection}?labelSelector=app"),
        format!("{collection}?fieldSelector=metadata.name%3D{NAME}"),
        format!("{collection}?dryRun=All"),
    ] {
        cases.push(Case::new("DELETE", &*path));
        cases.push(Case::new("DELETE", path).body(JSON, &options, "options"));
    }
}

/// The same object in other spellings.
fn spellings(collection: &str, cases: &mut Vec<Case>) {
    let item = format!("{collection}/{NAME}");
    let (root, rest) = split(&item);
    for path in [
        format!("/{item}"),
        item.replace('/', "//"),
        format!("{item}/"),
        format!("{collection}//{NAME}"),
        format!("{collection}/./{NAME}"),
        format!("{collection}/x/../{NAME}"),
        format!("/healthz/..{item}"),
        format!("/healthz{item}"),
        format!("{collection}/%74op"),
        format!("{collection}%2F{NAME}"),
        format!("{root}/%2e%2e/v1/{rest}"),
        format!("{root}/%6eamespaces/../{rest}"),
        item.to_uppercase(),
        format!("{item}%00"),
        format!("{item};x=y"),
        format!("{item}%20"),
        format!("{item}?x=%zz"),
        format!("{item}#x"),
        format!("/openapi/v3/..{item}"),
        format!("{root}/namespaces/other/../{NAMESPACE}/secrets/{NAME}"),
    ] {
        for method in ["GET", "DELETE"] {
            cases.push(Case::new(method, &*path).refused());
        }
    }
}
