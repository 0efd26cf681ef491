//! What may differ between two right answers, and how it is made equal.
//!
//! | What | Becomes | Clause |
//! |---|---|---|
//! | the id of a lease that the server picked | `$1`, `$2`, in the order of the grants | LE-3 |
//! | the time left of a lease, if at most two seconds have passed | `TTL: $left` | LE-10 |
//! | the keys of a lease | sorted | LE-10 |
//! | `hash_revision` of a hash | left out | HK-6 |
//! | `version`, sizes and what 3.6 added to a status | left out | MT-1, MT-2 |
//! | what different watches of a stream tell in one step | sorted by watch, stable | WA-37 |
//!
//! Nothing else is: headers, texts and the batches in which events come are compared as they are.

use bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage as _, Value};

/// The time that may have passed since a lease was granted, in seconds.
const PASSED_MAX: i64 = 2;

/// Fields of a status that say what a server is made of and not what it holds.
const STATUS_FREE: [&str; 6] = [
    "version",
    "dbSize",
    "dbSizeInUse",
    "storageVersion",
    "dbSizeQuota",
    "downgradeInfo",
];

/// Names for the leases whose ids a server picked.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<i64>);

impl Names {
    /// Names the lease of a reply to a request that left the choice to the server.
    pub fn learn(&mut self, request: &DynamicMessage, reply: &DynamicMessage) {
        let id = |message: &DynamicMessage| message.get_field_by_name("ID")?.as_i64();
        if request.descriptor().name() != "LeaseGrantRequest" || id(request) != Some(0) {
            return;
        }
        self.0.extend(id(reply));
    }

    /// The name of the lease in this field, if it is one and has one.
    pub fn of(&self, field: &FieldDescriptor, number: i64) -> Option<String> {
        if number == LEFT && field.name() == "TTL" {
            return Some("$left".to_owned());
        }
        let at = self.0.iter().position(|id| *id == number)?;
        matches!(field.name(), "ID" | "lease").then(|| format!("${}", at + 1))
    }

    /// Puts the ids in for the names.
    ///
    /// # Errors
    /// When there is no such lease.
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
            let id = id.ok_or_else(|| format!("${name}: no such lease was granted"))?;
            resolved.push_str(&id.to_string());
            rest = after;
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}

/// Stands for the time left; no server says so by itself.
const LEFT: i64 = i64::MIN;

/// Makes equal what may differ inside one message.
pub fn normalise(message: &mut DynamicMessage) {
    normalise_after(message, PASSED_MAX);
}

/// The same, where a lease may have been granted up to `passed_max` seconds ago.
pub fn normalise_after(message: &mut DynamicMessage, passed_max: i64) {
    match message.descriptor().name() {
        "LeaseTimeToLiveResponse" => time_to_live(message, passed_max),
        "HashKVResponse" => message.clear_field_by_name("hash_revision"),
        "StatusResponse" => {
            for field in STATUS_FREE {
                message.clear_field_by_name(field);
            }
        }
        _ => {}
    }
}

fn time_to_live(message: &mut DynamicMessage, passed_max: i64) {
    let number = |name| {
        message
            .get_field_by_name(name)
            .and_then(|value| value.as_i64())
    };
    if let (Some(left), Some(granted)) = (number("TTL"), number("grantedTTL"))
        && left >= 0
        && (0..=passed_max).contains(&(granted - left))
    {
        message.set_field_by_name("TTL", Value::I64(LEFT));
    }
    if let Some(Value::List(keys)) = message.get_field_by_name_mut("keys") {
        keys.sort_by(|one, other| bytes(one).cmp(&bytes(other)));
    }
}

fn bytes(value: &Value) -> Option<&Bytes> {
    value.as_bytes()
}

/// The watch that a response on a stream is about; zero for other streams.
pub fn watch_of(message: &DynamicMessage) -> i64 {
    let id = message.get_field_by_name("watch_id");
    id.and_then(|id| id.as_i64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::message::{line, lines, parse};
    use crate::scenario::wire::Method;

    fn answer(method: &str, text: &str) -> DynamicMessage {
        let output = Method::of_name(method).unwrap().output();
        parse(&output, text, &Names::default()).unwrap()
    }

    fn check(method: &str, text: &str, expected: &str) {
        let mut message = answer(method, text);
        normalise(&mut message);
        assert_eq!(line(&message), expected);
    }

    #[test]
    fn le_10_only_a_plausible_time_left_is_left_open() {
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
    fn hk_6_hash_revision_is_left_out() {
        check("HashKV", "hash: 1 hash_revision: 7", "hash: 1");
    }

    #[test]
    fn le_3_leases_that_the_server_picked_have_names() {
        let grant = Method::of_name("LeaseGrant").unwrap();
        let request = |text| parse(&grant.input(), text, &Names::default()).unwrap();
        let reply = answer("LeaseGrant", "ID: 4711 TTL: 10");
        let mut names = Names::default();
        names.learn(&request("TTL: 10"), &reply);
        names.learn(&request("TTL: 10 ID: 5"), &answer("LeaseGrant", "ID: 5"));
        assert_eq!(lines(&reply, &names), ["ID: $1", "TTL: 10"]);
        assert_eq!(
            names.resolve("lease: $1 ID: 2").unwrap(),
            "lease: 4711 ID: 2"
        );
        assert!(names.resolve("lease: $2").is_err());
        assert!(names.resolve("lease: $0").is_err());
    }
}
