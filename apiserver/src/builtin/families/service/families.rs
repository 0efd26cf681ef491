//! The families of the addresses of a service, and the addresses that it needs.

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use super::validation::check_cluster_ips;
use super::{HEADLESS, agree_cluster_ips, default_service, keep_allocated};
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// The cluster IPs that a new version of a service gets and gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressChanges {
    /// The family of each address to allocate, with its index in `spec.clusterIPs`. The address is that of the list,
    /// or any if that is shorter or the text is empty.
    pub(crate) needed: Vec<(usize, String)>,
    /// The addresses that are free afterwards.
    pub(crate) released: Vec<String>,
}

/// Sets the fields of a service on which allocations depend, and returns which cluster IPs it needs. `configured` are
/// the families of which the cluster has addresses, the default one first.
pub(crate) fn prepare_allocation(
    service: &mut JsonObject,
    old: Option<&JsonObject>,
    configured: &[&str],
) -> Result<AddressChanges, Vec<StatusCause>> {
    default_service(service);
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    agree_cluster_ips(service, old);
    let none = JsonObject::new();
    let old = old.and_then(|old| old.get("spec")?.as_object());
    let Some(spec) = edit::child_mut(service, "spec") else {
        return Ok(AddressChanges::default());
    };
    if edit::text(spec, "type") != "ExternalName" && !stays_preferred(spec, old) {
        set_families(spec, old, configured)?;
    }
    Ok(address_changes(spec, old.unwrap_or(&none)))
}

fn texts(spec: &JsonObject, name: &str) -> Vec<String> {
    let items = Field::root(spec).child(name);
    items.items().map(|item| item.text().to_owned()).collect()
}

fn is_headless(spec: &JsonObject) -> bool {
    texts(spec, "clusterIPs")
        .first()
        .is_some_and(|ip| ip == HEADLESS)
}

/// Returns whether a service that prefers two families keeps what it has, so that it does not change with the families
/// of the cluster.
fn stays_preferred(spec: &JsonObject, old: Option<&JsonObject>) -> bool {
    let Some(old) = old else {
        return false;
    };
    let old_policy = edit::text(old, "ipFamilyPolicy");
    let same = |name: &str| texts(spec, name) == texts(old, name);
    edit::text(spec, "ipFamilyPolicy") == PREFER
        && ["", PREFER].contains(&old_policy)
        && edit::text(spec, "type") == edit::text(old, "type")
        && same("clusterIPs")
        && same("ipFamilies")
}

fn family_of(ip: &str) -> &'static str {
    if ip.contains(':') { "IPv6" } else { "IPv4" }
}

fn set_families(
    spec: &mut JsonObject,
    old: Option<&JsonObject>,
    configured: &[&str],
) -> Result<(), Vec<StatusCause>> {
    let selects = Field::root(spec).child("selector").len() > 0;
    let is_manual = edit::text(spec, "clusterIP") == HEADLESS && !selects;
    let old_policy = old.map_or("", |old| edit::text(old, "ipFamilyPolicy"));
    let policy = match old_policy {
        "" if is_manual => REQUIRE,
        "" => SINGLE,
        kept => kept,
    };
    edit::set_unset(spec, "ipFamilyPolicy", policy);
    let policy = edit::text(spec, "ipFamilyPolicy").to_owned();

    let mut causes = Causes::default();
    let holder: JsonObject = [("spec".to_owned(), Value::Object(spec.clone()))]
        .into_iter()
        .collect();
    let root = Field::root(&holder).child("spec");
    check_cluster_ips(&root, &mut causes);
    refuse(causes)?;

    let mut causes = Causes::default();
    let (mut ips, mut families) = (texts(spec, "clusterIPs"), texts(spec, "ipFamilies"));
    let policy_path = || root.child("ipFamilyPolicy").path();
    if let Some(old) = old {
        let (old_ips, old_families) = (texts(old, "clusterIPs"), texts(old, "ipFamilies"));
        if policy == SINGLE {
            if ips == old_ips {
                ips.truncate(1);
            }
            if families == old_families {
                families.truncate(1);
            }
        } else {
            for (new, old, what) in [
                (&ips, &old_ips, "cluster IP"),
                (&families, &old_families, "IP family"),
            ] {
                if !new.is_empty() && new.len() < old.len() {
                    let detail = format!("must be 'SingleStack' to release the secondary {what}");
                    causes.invalid_at(policy_path(), &*policy, &detail);
                }
            }
        }
    }
    if policy == SINGLE {
        for (list, what) in [(&ips, "cluster IPs"), (&families, "IP families")] {
            if list.len() == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                causes.invalid_at(policy_path(), &*policy, &detail);
            }
        }
    }
    for (index, ip) in ips.iter().enumerate().skip(families.len()) {
        if ip == HEADLESS {
            break;
        }
        let family = family_of(ip);
        if configured.contains(&family) {
            families.push(family.to_owned());
        } else {
            let path = root.child("clusterIPs").path().index(index);
            let detail = format!("{family} is not configured on this cluster");
            causes.invalid_at(path, json!(ips), &detail);
        }
    }
    refuse(causes)?;

    let mut causes = Causes::default();
    if !is_manual {
        if policy == REQUIRE && configured.len() < 2 {
            let detail = "this cluster is not configured for dual-stack services";
            causes.invalid_at(policy_path(), &*policy, detail);
        }
        for (index, family) in families.iter().enumerate() {
            if !configured.contains(&family.as_str()) {
                let path = root.child("ipFamilies").path().index(index);
                causes.invalid_at(path, family.as_str(), "not configured on this cluster");
            }
        }
    }
    refuse(causes)?;
    if families.is_empty() {
        families.extend(configured.first().map(|family| (*family).to_owned()));
    }
    // Whoever manages a headless service without a selector may use families that the cluster does not have.
    if policy != SINGLE && families.len() == 1 && (is_manual || configured.len() == 2) {
        let other = if families[0] == "IPv4" {
            "IPv6"
        } else {
            "IPv4"
        };
        families.push(other.to_owned());
    }
    spec.insert("ipFamilies".to_owned(), json!(families));
    if !ips.is_empty() {
        spec.insert("clusterIPs".to_owned(), json!(ips));
    }
    Ok(())
}

fn refuse(causes: Causes) -> Result<(), Vec<StatusCause>> {
    let causes = causes.into_vec();
    if causes.is_empty() {
        Ok(())
    } else {
        Err(causes)
    }
}

fn address_changes(spec: &JsonObject, old: &JsonObject) -> AddressChanges {
    let is_external = |spec: &JsonObject| ["", "ExternalName"].contains(&edit::text(spec, "type"));
    let families = || texts(spec, "ipFamilies").into_iter().enumerate();
    let old_ips = texts(old, "clusterIPs");
    let mut changes = AddressChanges::default();
    if is_external(old) || old_ips.is_empty() {
        if !is_external(spec) && !is_headless(spec) {
            changes.needed = families().collect();
        }
    } else if is_headless(old) {
        // Its addresses cannot change.
    } else if is_external(spec) {
        changes.released = old_ips;
    } else {
        let (count, old_count) = (families().count(), texts(old, "ipFamilies").len());
        if (old_count, count) == (1, 2) {
            changes.needed = families().skip(1).collect();
        } else if (old_count, count) == (2, 1) {
            changes.released = old_ips.into_iter().skip(1).collect();
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AddressChanges, prepare_allocation};

    fn changes(spec: &Value, old: Option<&Value>, configured: &[&str]) -> (AddressChanges, Value) {
        let object = |spec: &Value| json!({"spec": spec}).as_object().cloned().unwrap();
        let mut new = object(spec);
        let old = old.map(object);
        let changes = prepare_allocation(&mut new, old.as_ref(), configured).unwrap();
        (changes, new["spec"].clone())
    }

    fn refused(spec: &Value, configured: &[&str]) -> Vec<String> {
        let mut new = json!({"spec": spec}).as_object().cloned().unwrap();
        let causes = prepare_allocation(&mut new, None, configured).unwrap_err();
        causes.iter().map(|cause| cause.message.clone()).collect()
    }

    #[test]
    fn needs_follow_the_type() {
        let v4 = ["IPv4"];
        let (needed, spec) = changes(&json!({}), None, &v4);
        assert_eq!(needed.needed, [(0, "IPv4".to_owned())]);
        assert_eq!(spec["ipFamilyPolicy"], "SingleStack");
        let (needed, _) = changes(&json!({"type": "ExternalName"}), None, &v4);
        assert_eq!(needed, AddressChanges::default());
        let (needed, spec) = changes(&json!({"clusterIP": "None"}), None, &v4);
        assert_eq!(needed, AddressChanges::default());
        assert_eq!(spec["ipFamilies"], json!(["IPv4", "IPv6"]));
    }

    #[test]
    fn a_second_family_comes_and_goes() {
        let both = ["IPv4", "IPv6"];
        let (needed, old) = changes(&json!({"ipFamilyPolicy": "PreferDualStack"}), None, &both);
        assert_eq!(needed.needed.len(), 2);
        let mut old = old;
        old["clusterIP"] = json!("10.0.0.9");
        old["clusterIPs"] = json!(["10.0.0.9", "fd00::9"]);
        let mut new = old.clone();
        new["ipFamilyPolicy"] = json!("SingleStack");
        let (needed, single) = changes(&new, Some(&old), &both);
        assert_eq!(needed.released, ["fd00::9"]);
        assert_eq!(single["clusterIPs"], json!(["10.0.0.9"]));
        let mut new = single.clone();
        new["ipFamilyPolicy"] = json!("RequireDualStack");
        let (needed, _) = changes(&new, Some(&single), &both);
        assert_eq!(needed.needed, [(1, "IPv6".to_owned())]);
    }

    #[test]
    fn a_family_must_be_configured() {
        let message = "Invalid value: \"IPv6\": not configured on this cluster";
        assert_eq!(
            refused(&json!({"ipFamilies": ["IPv6"]}), &["IPv4"]),
            [message]
        );
        let message = "Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services";
        let spec = json!({"ipFamilyPolicy": "RequireDualStack"});
        assert_eq!(refused(&spec, &["IPv4"]), [message]);
    }
}
