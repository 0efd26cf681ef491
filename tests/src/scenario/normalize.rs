//! Normalization of messages: replaces the parts that may differ between two correct responses.
//!
//! | Part of a message | Replaced by | Clause |
//! |---|---|---|
//! | the id of a lease that the server chose | `$1`, `$2`, in the order of the grants | LE-3 |
//! | the id of an added member | as above | CL-3 |
//! | members, which are sorted by id | the same, this server first | CL-3 |
//! | the remaining time of a lease, if at most two seconds have passed | `TTL: $left` | LE-10 |
//! | the keys of a lease | the same, sorted | LE-10 |
//! | `hash_revision` of a hash | nothing | HK-6 |
//! | `version`, the sizes and the fields of etcd 3.6 in a status | nothing | MT-1, MT-2 |
//! | messages of different watches of a stream after one step | the same, sorted by watch (stable) | WA-37 |
//!
//! Everything else is compared without changes: headers, texts, and the batches of events.

use bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage as _, Value};

use crate::scenario::target::MEMBER_ID;

/// The maximum time since the grant of a lease, in seconds, for which the remaining time is normalized.
const PASSED_MAX: i64 = 2;

/// The fields of a status that describe the server and not its content.
const STATUS_IGNORED: [&str; 6] = [
    "version",
    "dbSize",
    "dbSizeInUse",
    "storageVersion",
    "dbSizeQuota",
    "downgradeInfo",
];

/// The names of the leases and members whose ids a server chose.
#[derive(Clone, Debug, Default)]
pub struct LeaseNames(Vec<u64>);

impl LeaseNames {
    /// Names the lease of a response, if the request left the choice of the id to the server, or the added member.
    pub fn learn(&mut self, request: &DynamicMessage, response: &DynamicMessage) {
        let id = |message: &DynamicMessage| message.get_field_by_name("ID")?.as_i64();
        match request.descriptor().name() {
            "LeaseGrantRequest" if id(request) == Some(0) => {
                self.0.extend(id(response).map(i64::cast_unsigned));
            }
            "MemberAddRequest" => {
                let member = response.get_field_by_name("member");
                self.0.extend(member.and_then(|member| member_id(&member)));
            }
            _ => {}
        }
    }

    /// Returns the name of the lease or the member whose id the field holds, if it has a name.
    pub fn of(&self, field: &FieldDescriptor, number: u64) -> Option<String> {
        if number == REMAINING.cast_unsigned() && field.name() == "TTL" {
            return Some("$left".to_owned());
        }
        let at = self.0.iter().position(|id| *id == number)?;
        matches!(field.name(), "ID" | "lease").then(|| format!("${}", at + 1))
    }

    /// Replaces the names in a text by ids.
    ///
    /// # Errors
    /// If a name belongs to no id.
    pub fn resolve(&self, text: &str) -> Result<String, String> {
        let mut resolved = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            resolved.push_str(before);
            let end = after
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let at = name
                .parse::<usize>()
                .ok()
                .and_then(|name| name.checked_sub(1));
            let id = at.and_then(|at| self.0.get(at));
            let granted = self.0.len();
            let id = id.ok_or_else(|| format!("unknown id ${name}: {granted} ids have names"))?;
            resolved.push_str(&id.to_string());
            rest = after;
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}

/// The value of a normalized remaining time. No server sends it.
const REMAINING: i64 = i64::MIN;

/// Normalizes a message.
pub fn normalize(message: &mut DynamicMessage) {
    normalize_after(message, PASSED_MAX);
}

/// Normalizes a message. The remaining time of a lease is normalized up to `passed_max` seconds after its
/// grant.
pub fn normalize_after(message: &mut DynamicMessage, passed_max: i64) {
    match message.descriptor().name() {
        "LeaseTimeToLiveResponse" => time_to_live(message, passed_max),
        "HashKVResponse" => message.clear_field_by_name("hash_revision"),
        "StatusResponse" => {
            for field in STATUS_IGNORED {
                message.clear_field_by_name(field);
            }
        }
        _ => {
            if let Some(Value::List(members)) = message.get_field_by_name_mut("members") {
                members.sort_by_key(|member| member_id(member) != Some(MEMBER_ID));
            }
        }
    }
}

fn member_id(member: &Value) -> Option<u64> {
    member.as_message()?.get_field_by_name("ID")?.as_u64()
}

fn time_to_live(message: &mut DynamicMessage, passed_max: i64) {
    let number = |name| {
        message
            .get_field_by_name(name)
            .and_then(|value| value.as_i64())
    };
    if let (Some(remaining), Some(granted)) = (number("TTL"), number("grantedTTL"))
        && remaining >= 0
        && (0..=passed_max).contains(&(granted - remaining))
    {
        message.set_field_by_name("TTL", Value::I64(REMAINING));
    }
    if let Some(Value::List(keys)) = message.get_field_by_name_mut("keys") {
        keys.sort_by(|one, other| bytes(one).cmp(&bytes(other)));
    }
}

fn bytes(value: &Value) -> Option<&Bytes> {
    value.as_bytes()
}

/// Returns the id of the watch that a message concerns, 0 for messages of other streams.
pub fn watch_of(message: &DynamicMessage) -> i64 {
    let id = message.get_field_by_name("watch_id");
    id.and_then(|id| id.as_i64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::message::{line, lines, parse};
    use crate::scenario::wire::Method;

    fn response(method: &str, text: &str) -> DynamicMessage {
        let output = Method::of_name(method).unwrap().output();
        parse(&output, text, &LeaseNames::default()).unwrap()
    }

    fn check(method: &str, text: &str, expected: &str) {
        let mut message = response(method, text);
        normalize(&mut message);
        assert_eq!(line(&message), expected);
    }

    #[test]
    fn le_10_only_a_plausible_remaining_time_is_normalized() {
        check(
            "LeaseTimeToLive",
            "TTL: 9 grantedTTL: 10",
            "TTL: $left grantedTTL: 10",
        );
        check(
            "LeaseTimeToLive",
            "TTL: 10 grantedTTL: 10",
            "TTL: $left grantedTTL: 10",
        );
        check(
            "LeaseTimeToLive",
            "TTL: 11 grantedTTL: 10",
            "TTL: 11 grantedTTL: 10",
        );
        check(
            "LeaseTimeToLive",
            "TTL: 5 grantedTTL: 10",
            "TTL: 5 grantedTTL: 10",
        );
        check("LeaseTimeToLive", "TTL: -1", "TTL: -1");
        check(
            "LeaseTimeToLive",
            "TTL: -1 keys: 'b' keys: 'a'",
            r#"TTL: -1 keys: "a" keys: "b""#,
        );
    }

    #[test]
    fn hk_6_hash_revision_is_removed() {
        check("HashKV", "hash: 1 hash_revision: 7", "hash: 1");
    }

    #[test]
    fn le_3_leases_whose_ids_the_server_chose_have_names() {
        let grant = Method::of_name("LeaseGrant").unwrap();
        let request = |text| parse(&grant.input(), text, &LeaseNames::default()).unwrap();
        let granted = response("LeaseGrant", "ID: 4711 TTL: 10");
        let mut names = LeaseNames::default();
        names.learn(&request("TTL: 10"), &granted);
        names.learn(&request("TTL: 10 ID: 5"), &response("LeaseGrant", "ID: 5"));
        assert_eq!(lines(&granted, &names), ["ID: $1", "TTL: 10"]);
        assert_eq!(
            names.resolve("lease: $1 ID: 2").unwrap(),
            "lease: 4711 ID: 2"
        );
        assert!(names.resolve("lease: $2").is_err());
        assert!(names.resolve("lease: $0").is_err());
    }
}
