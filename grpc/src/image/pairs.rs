//! The checks of the pairs of a state, which a node ignores if they are not valid.

use prost::Message;
use revstore_persist::Metadata;
use revstore_proto::authpb;
use revstore_proto::etcdserverpb::AlarmMember;

use super::error::Damage;
use crate::node::admission::Alarm;
use crate::node::buckets::{
    ALARM, AUTH, AUTH_ENABLED, AUTH_REVISION, MEMBERS, META, RAFT_INDEX, RAFT_TERM, REMOVED, ROLES,
    USERS,
};
use crate::node::durability::RAFT_NUMBER_MAX;
use crate::node::members::{ClusterMember, id_of_key};

/// Checks all pairs of a state.
pub(super) fn check_pairs(state: &Metadata) -> Result<(), Damage> {
    let pairs = |(bucket, pairs)| std::iter::repeat(bucket).zip(pairs);
    let mut all = state.iter().flat_map(pairs);
    all.try_for_each(|(bucket, (key, value))| check_pair(bucket, key, value))
}

/// Checks a pair of a bucket of a state.
pub(super) fn check_pair(bucket: &str, key: &[u8], value: &[u8]) -> Result<(), Damage> {
    let checked = match bucket {
        USERS => authpb::User::decode(value)
            .map_err(|error| error.to_string())
            .and_then(|user| check_name(key, &user.name)),
        ROLES => authpb::Role::decode(value)
            .map_err(|error| error.to_string())
            .and_then(|role| check_name(key, &role.name)),
        ALARM => check_alarm(key),
        AUTH if key == AUTH_REVISION.as_bytes() => number(value).map(drop),
        AUTH if key == AUTH_ENABLED.as_bytes() => match value {
            [0 | 1] => Ok(()),
            _ => Err("it is neither 0 nor 1".to_owned()),
        },
        META if [RAFT_INDEX, RAFT_TERM].map(str::as_bytes).contains(&key) => check_raft(value),
        MEMBERS => check_member(key, value),
        REMOVED => id_of_key(key)
            .map(drop)
            .ok_or_else(|| "it is no id of a member".to_owned()),
        AUTH | META => Ok(()),
        _ => Err("there is no such bucket in the state of a node".to_owned()),
    };
    checked.map_err(|reason| Damage::pair(bucket, key, reason))
}

fn check_name(key: &[u8], name: &[u8]) -> Result<(), String> {
    match std::str::from_utf8(name) {
        Ok(text) if key == name && !text.is_empty() => Ok(()),
        _ => Err("a name is empty, no UTF-8, or not that of its key".to_owned()),
    }
}

fn check_alarm(key: &[u8]) -> Result<(), String> {
    let member = AlarmMember::decode(key).map_err(|error| error.to_string())?;
    match Alarm::of(&member) {
        Some(_) => Ok(()),
        None => Err("the alarm is neither NOSPACE nor CORRUPT".to_owned()),
    }
}

fn check_raft(value: &[u8]) -> Result<(), String> {
    match number(value)? {
        0..=RAFT_NUMBER_MAX => Ok(()),
        number => Err(format!(
            "{number} is above {RAFT_NUMBER_MAX}: there must be room for later ones"
        )),
    }
}

fn check_member(key: &[u8], value: &[u8]) -> Result<(), String> {
    let member: ClusterMember = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if id_of_key(key) != Some(member.id) {
        return Err("the id of the member is not that of its key".to_owned());
    }
    Ok(())
}

fn number(value: &[u8]) -> Result<u64, String> {
    let bytes = value.try_into();
    let bytes = bytes.map_err(|_| format!("a number has {} bytes instead of 8", value.len()))?;
    Ok(u64::from_be_bytes(bytes))
}
