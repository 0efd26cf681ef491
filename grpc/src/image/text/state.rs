//! The lines of the state of a node, and back.
//!
//! The state consists of pairs as etcd stores them. A pair has a line of its own kind if this line becomes the
//! same pair again; otherwise it is written as it is.

use prost::Message;
use revstore_persist::Metadata;
use revstore_proto::authpb::permission::Type;
use revstore_proto::authpb::{Permission, Role, User, UserAddOptions};
use revstore_proto::etcdserverpb::{AlarmMember, AlarmType};

use super::line::{Blob, Grant, Line};
use crate::node::buckets::{
    ALARM, AUTH, AUTH_ENABLED, AUTH_REVISION, META, RAFT_INDEX, RAFT_TERM, ROLES, USERS,
};

/// A pair with the name of its bucket.
type Entry = (String, Vec<u8>, Vec<u8>);

/// Returns the lines of a state.
pub(super) fn lines(state: &Metadata) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut pairs = state.clone();
    for line in [auth_line(state), raft_line(state)].into_iter().flatten() {
        let parts = entries(&line).unwrap_or_default();
        let is_same = parts.iter().all(|(bucket, key, value)| {
            pairs.get(bucket).and_then(|pairs| pairs.get(key)) == Some(value)
        });
        if is_same {
            for (bucket, key, _) in &parts {
                pairs.get_mut(bucket).map(|pairs| pairs.remove(key));
            }
            lines.push(line);
        }
    }
    for (bucket, pairs) in pairs {
        for (key, value) in pairs {
            let line = line_of(&bucket, &key, &value);
            let entry = (bucket.clone(), key, value);
            let is_same = |line: &Line| entries(line).is_ok_and(|it| it == [entry.clone()]);
            lines.push(line.filter(is_same).unwrap_or_else(|| Line::Pair {
                bucket: entry.0.clone(),
                key: Blob(entry.1.clone()),
                value: Blob(entry.2.clone()),
            }));
        }
    }
    lines
}

fn auth_line(state: &Metadata) -> Option<Line> {
    let auth = state.get(AUTH)?;
    let revision = auth.get(AUTH_REVISION.as_bytes())?[..].try_into().ok()?;
    Some(Line::Auth {
        enabled: auth.get(AUTH_ENABLED.as_bytes())?[..] == [1],
        revision: u64::from_be_bytes(revision),
    })
}

fn raft_line(state: &Metadata) -> Option<Line> {
    let number = |name: &str| {
        let bytes = state.get(META)?.get(name.as_bytes())?;
        Some(u64::from_be_bytes(bytes[..].try_into().ok()?))
    };
    Some(Line::Raft {
        term: number(RAFT_TERM)?,
        index: number(RAFT_INDEX)?,
    })
}

fn line_of(bucket: &str, key: &[u8], value: &[u8]) -> Option<Line> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    match bucket {
        ALARM => {
            let member = AlarmMember::decode(key).ok()?;
            Some(Line::Alarm {
                name: member.alarm().as_str_name().to_owned(),
                member: member.member_id,
            })
        }
        USERS => {
            let user = User::decode(value).ok()?;
            let has_password = !user.options.is_some_and(|options| options.no_password);
            Some(Line::User {
                name: text(&user.name)?,
                password_hash: has_password.then(|| text(&user.password)).flatten(),
                roles: user.roles,
            })
        }
        ROLES => {
            let role = Role::decode(value).ok()?;
            let grants = role.key_permission.into_iter().map(|it| Grant {
                kind: it.perm_type().as_str_name().to_owned(),
                key: Blob(it.key.to_vec()),
                range_end: (!it.range_end.is_empty()).then(|| Blob(it.range_end.to_vec())),
            });
            Some(Line::Role {
                name: text(&role.name)?,
                permissions: grants.collect(),
            })
        }
        _ => None,
    }
}

/// Returns the pairs of a line of a state.
pub(super) fn entries(line: &Line) -> Result<Vec<Entry>, String> {
    let entry = |bucket: &str, key: &[u8], value| (bucket.to_owned(), key.to_vec(), value);
    Ok(match line {
        Line::Auth { enabled, revision } => vec![
            entry(AUTH, AUTH_ENABLED.as_bytes(), vec![u8::from(*enabled)]),
            entry(
                AUTH,
                AUTH_REVISION.as_bytes(),
                revision.to_be_bytes().to_vec(),
            ),
        ],
        Line::Raft { term, index } => vec![
            entry(META, RAFT_TERM.as_bytes(), term.to_be_bytes().to_vec()),
            entry(META, RAFT_INDEX.as_bytes(), index.to_be_bytes().to_vec()),
        ],
        Line::Alarm { name, member } => {
            let alarm = AlarmType::from_str_name(name);
            let alarm = alarm.ok_or_else(|| format!("there is no alarm {name:?}"))?;
            let member = AlarmMember {
                member_id: *member,
                alarm: alarm.into(),
            };
            vec![entry(ALARM, &member.encode_to_vec(), Vec::new())]
        }
        Line::User {
            name,
            password_hash,
            roles,
        } => {
            let user = User {
                name: name.clone().into(),
                password: password_hash.clone().unwrap_or_default().into(),
                roles: roles.clone(),
                options: Some(UserAddOptions {
                    no_password: password_hash.is_none(),
                }),
            };
            check_name(name)?;
            vec![entry(USERS, name.as_bytes(), user.encode_to_vec())]
        }
        Line::Role { name, permissions } => {
            check_name(name)?;
            let permissions: Result<_, _> = permissions.iter().map(permission).collect();
            let role = Role {
                name: name.clone().into(),
                key_permission: permissions?,
            };
            vec![entry(ROLES, name.as_bytes(), role.encode_to_vec())]
        }
        Line::Pair { bucket, key, value } => vec![entry(bucket, &key.0, value.0.clone())],
        _ => Vec::new(),
    })
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name is empty".to_owned());
    }
    Ok(())
}

fn permission(grant: &Grant) -> Result<Permission, String> {
    let kind = &grant.kind;
    let kind = Type::from_str_name(kind)
        .ok_or_else(|| format!("{kind:?} is none of READ, WRITE and READWRITE"))?;
    let range_end = grant.range_end.as_ref();
    Ok(Permission {
        perm_type: kind.into(),
        key: grant.key.0.clone().into(),
        range_end: range_end.map_or_else(Vec::new, |end| end.0.clone()).into(),
    })
}
