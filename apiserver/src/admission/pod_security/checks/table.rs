//! A pod that violates each check, with its message, and one that does not.

use serde_json::{Value, json};

use crate::admission::pod_security::pod::Pod;
use crate::admission::pod_security::policy::{Level, Standard, Version};
use crate::admission::pod_security::registry::{details, violations};

/// Returns a pod without violations of the strictest standard.
fn pod() -> Value {
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let containers = json!([
        {"name": "a", "image": "i", "securityContext": context},
        {"name": "b", "image": "i", "securityContext": context},
    ]);
    json!({
        "metadata": {"name": "p", "annotations": {}},
        "spec": {
            "containers": containers,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    })
}

fn found(level: Level, version: Version, pod: &Value) -> String {
    let standard = Standard { level, version };
    let pod = pod.as_object().unwrap();
    details(&violations(standard, Pod::of(pod)))
}

/// Checks what is found after changes of pointers.
#[track_caller]
fn check(level: Level, version: Version, changes: &[(&str, Value)], expected: &str) {
    let mut pod = pod();
    for (path, value) in changes {
        let (parents, last) = path.rsplit_once('/').unwrap();
        let mut target = &mut pod;
        for name in parents.split('/').skip(1) {
            target = match name.parse::<usize>() {
                Ok(index) => &mut target[index],
                Err(_) => &mut target[name],
            };
        }
        target[last.replace('~', "/")] = value.clone();
    }
    assert_eq!(found(level, version, &pod), expected, "{changes:?}");
}

#[track_caller]
fn baseline(changes: &[(&str, Value)], expected: &str) {
    check(Level::Baseline, Version::Latest, changes, expected);
    check(Level::Privileged, Version::Latest, changes, "");
}

#[track_caller]
fn restricted(changes: &[(&str, Value)], expected: &str) {
    check(Level::Restricted, Version::Latest, changes, expected);
    check(Level::Baseline, Version::Latest, changes, "");
}

const A: &str = "/spec/containers/0/securityContext";
const B: &str = "/spec/containers/1/securityContext";

fn in_a(member: &str) -> String {
    format!("{A}/{member}")
}

fn in_b(member: &str) -> String {
    format!("{B}/{member}")
}

#[test]
fn a_pod_without_rights_is_allowed_by_all_standards() {
    for level in [Level::Baseline, Level::Restricted] {
        for minor in 0..40 {
            check(level, Version::Minor(minor), &[], "");
        }
        check(level, Version::Latest, &[], "");
    }
}

#[test]
fn a_usual_pod_violates_four_checks() {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(
        found(Level::Restricted, Version::Latest, &pod),
        "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
         unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot \
         != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \
         \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    );
    assert_eq!(found(Level::Baseline, Version::Latest, &pod), "");
    // Windows has no such modules.
    let windows = json!({"spec": {"os": {"name": "windows"}, "containers": [{"name": "c"}],
        "securityContext": {"runAsNonRoot": true}}});
    assert_eq!(found(Level::Restricted, Version::Minor(25), &windows), "");
    assert_ne!(found(Level::Restricted, Version::Minor(24), &windows), "");
}

#[test]
fn the_node() {
    let all = [
        ("/spec/hostNetwork", json!(true)),
        ("/spec/hostPID", json!(true)),
        ("/spec/hostIPC", json!(true)),
    ];
    baseline(
        &all,
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    );
    baseline(&[("/spec/hostNetwork", json!(false))], "");
    let ports = json!([{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 80}]);
    baseline(
        &[("/spec/containers/0/ports", ports.clone())],
        "hostPort (container \"a\" uses hostPorts 80, 9)",
    );
    baseline(
        &[
            ("/spec/containers/0/ports", json!([ports[0]])),
            ("/spec/containers/1/ports", json!([ports[0]])),
        ],
        "hostPort (containers \"a\", \"b\" use hostPort 9)",
    );
    let none = json!([{"containerPort": 1, "hostPort": 0}]);
    baseline(&[("/spec/containers/0/ports", none)], "");
    let process = json!({"hostProcess": true});
    baseline(
        &[
            ("/spec/securityContext/windowsOptions", process.clone()),
            (&in_b("windowsOptions"), process),
        ],
        "hostProcess (pod and container \"b\" must not set securityContext.windowsOptions.hostProcess=true)",
    );
    baseline(
        &[(&in_b("windowsOptions"), json!({"hostProcess": false}))],
        "",
    );
}

#[test]
fn hosts_of_probes() {
    let probe = json!({"httpGet": {"host": "y", "port": 1}});
    let hook = json!({"preStop": {"tcpSocket": {"host": "x", "port": 1}}});
    let changes = [
        ("/spec/containers/1/livenessProbe", probe),
        ("/spec/containers/1/lifecycle", hook),
    ];
    let message =
        "probe or lifecycle host (container \"b\" uses probe or lifecycle hosts \"x\", \"y\")";
    baseline(&changes, message);
    check(Level::Baseline, Version::Minor(33), &changes, "");
    let own = json!({"httpGet": {"port": 1}});
    baseline(&[("/spec/containers/1/startupProbe", own)], "");
}

#[test]
fn volumes() {
    let volumes = json!([{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "emptyDir": {}}]);
    let changes = [("/spec/volumes", volumes)];
    baseline(&changes, "hostPath volumes (volume \"v\")");
    let message = "restricted volume types (volume \"v\" uses restricted volume type \"hostPath\")";
    check(Level::Restricted, Version::Latest, &changes, message);
    let volumes = json!([{"name": "v", "nfs": {}}, {"name": "w", "iscsi": {}}, {"name": "x"}]);
    restricted(
        &[("/spec/volumes", volumes)],
        "restricted volume types (volumes \"v\", \"w\", \"x\" use restricted volume types \"iscsi\", \"nfs\", \"unknown\")",
    );
    let allowed =
        json!([{"name": "v", "csi": {}}, {"name": "w", "image": {}}, {"name": "x", "secret": {}}]);
    restricted(&[("/spec/volumes", allowed)], "");
}

#[test]
fn privileges() {
    baseline(
        &[
            (&in_a("privileged"), json!(true)),
            (&in_b("privileged"), json!(true)),
        ],
        "privileged (containers \"a\", \"b\" must not set securityContext.privileged=true)",
    );
    baseline(&[(&in_a("privileged"), json!(false))], "");
    restricted(
        &[(&in_a("allowPrivilegeEscalation"), Value::Null)],
        "allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false)",
    );
    let added = json!({"drop": ["ALL"], "add": ["SYS_TIME", "CHOWN", "NET_RAW"]});
    let changes = [(in_a("capabilities"), added)];
    let changes = changes
        .each_ref()
        .map(|(path, value)| (path.as_str(), value.clone()));
    baseline(
        &changes,
        "non-default capabilities (container \"a\" must not include \"NET_RAW\", \"SYS_TIME\" in \
         securityContext.capabilities.add)",
    );
    check(
        Level::Restricted,
        Version::Latest,
        &changes,
        "unrestricted capabilities (container \"a\" must not include \"CHOWN\", \"NET_RAW\", \"SYS_TIME\" in \
         securityContext.capabilities.add)",
    );
    restricted(
        &[(&in_a("capabilities"), json!({"add": ["CHOWN"]}))],
        "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]; container \
         \"a\" must not include \"CHOWN\" in securityContext.capabilities.add)",
    );
    let port = json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]});
    restricted(&[(&in_a("capabilities"), port)], "");
}

#[test]
fn the_kernel() {
    let mount = (in_a("procMount"), json!("Unmasked"));
    let mount = (mount.0.as_str(), mount.1);
    let message =
        "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")";
    baseline(std::slice::from_ref(&mount), message);
    // Pods with users of their own may see more from 1.35 on.
    let own = [mount, ("/spec/hostUsers", json!(false))];
    restricted(&own, message);
    check(Level::Baseline, Version::Minor(34), &own, message);
    baseline(&[(&in_a("procMount"), json!("Default"))], "");
    let names = [
        "net.ipv4.tcp_rmem",
        "kernel.msgmax",
        "net.ipv4.tcp_syncookies",
    ];
    let sysctls = json!(names.map(|name| json!({"name": name, "value": "1"})));
    let changes = [("/spec/securityContext/sysctls", sysctls)];
    baseline(&changes, "forbidden sysctls (kernel.msgmax)");
    let message = "forbidden sysctls (net.ipv4.tcp_rmem, kernel.msgmax)";
    check(Level::Baseline, Version::Minor(31), &changes, message);
}

#[test]
fn users() {
    restricted(
        &[
            ("/spec/securityContext/runAsNonRoot", json!(false)),
            (&in_b("runAsNonRoot"), json!(false)),
        ],
        "runAsNonRoot != true (pod and container \"b\" must not set securityContext.runAsNonRoot=false)",
    );
    let silent = [("/spec/securityContext/runAsNonRoot", Value::Null)];
    restricted(
        &silent,
        "runAsNonRoot != true (pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true)",
    );
    let root = [(in_a("runAsUser"), json!(0))];
    let root = root
        .each_ref()
        .map(|(path, value)| (path.as_str(), value.clone()));
    restricted(
        &root,
        "runAsUser=0 (container \"a\" must not set runAsUser=0)",
    );
    check(Level::Restricted, Version::Minor(22), &root, "");
    restricted(&[(&in_a("runAsUser"), json!(1))], "");
    let own = ("/spec/hostUsers", json!(false));
    restricted(&[silent[0].clone(), root[0].clone(), own], "");
}

#[test]
fn profiles_of_app_armor() {
    let path = "/metadata/annotations/container.apparmor.security.beta.kubernetes.io~a";
    baseline(
        &[(path, json!("unconfined"))],
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
         \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
    );
    for value in ["", "runtime/default", "localhost/x"] {
        baseline(&[(path, json!(value))], "");
    }
    let profile = json!({"type": "Unconfined"});
    baseline(
        &[
            ("/spec/securityContext/appArmorProfile", profile),
            (&in_a("appArmorProfile"), json!({"type": "Other"})),
        ],
        "forbidden AppArmor profiles (pod and container \"a\" must not set AppArmor profile type to \"Other\", \
         \"Unconfined\")",
    );
    baseline(
        &[(&in_a("appArmorProfile"), json!({"type": "Localhost"}))],
        "",
    );
}

#[test]
fn profiles_of_seccomp() {
    let profile = (in_b("seccompProfile"), json!({"type": "Unconfined"}));
    let changes = [(profile.0.as_str(), profile.1)];
    let message = "seccompProfile (container \"b\" must not set securityContext.seccompProfile.type to \"Unconfined\")";
    baseline(&changes, message);
    check(Level::Restricted, Version::Latest, &changes, message);
    restricted(
        &[
            ("/spec/securityContext/seccompProfile", Value::Null),
            (&in_a("seccompProfile"), json!({"type": "Localhost"})),
        ],
        "seccompProfile (pod or container \"b\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\")",
    );
    let path = "/metadata/annotations/container.seccomp.security.alpha.kubernetes.io~a";
    let annotation = [(path, json!("unconfined"))];
    let message = "seccompProfile (forbidden annotation container.seccomp.security.alpha.kubernetes.io/a=\"unconfined\")";
    check(Level::Restricted, Version::Minor(18), &annotation, message);
    baseline(&annotation, "");
}

#[test]
fn options_of_se_linux() {
    let options = json!({"type": "t", "user": "u", "role": "r"});
    baseline(
        &[
            ("/spec/securityContext/seLinuxOptions", options),
            (&in_a("seLinuxOptions"), json!({"type": "container_t"})),
        ],
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"t\"; user may not be set; role may not \
         be set)",
    );
    let engine = (
        in_a("seLinuxOptions"),
        json!({"type": "container_engine_t"}),
    );
    let engine = [(engine.0.as_str(), engine.1)];
    baseline(&engine, "");
    let message = "seLinuxOptions (container \"a\" set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")";
    check(Level::Baseline, Version::Minor(30), &engine, message);
}

#[test]
fn containers_of_all_lists_count() {
    let container = json!([{"name": "x", "securityContext": {"privileged": true}}]);
    baseline(
        &[
            ("/spec/ephemeralContainers", container.clone()),
            ("/spec/initContainers", container),
        ],
        "privileged (containers \"x\", \"x\" must not set securityContext.privileged=true)",
    );
}
