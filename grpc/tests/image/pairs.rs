//! The state of a node is checked in all forms, and errors name the pair and its place.

use prost::Message;
use revstore_grpc::{Image, ImageError};
use revstore_persist::{Metadata, write_dump};
use revstore_proto::authpb::User;
use revstore_proto::etcdserverpb::AlarmMember;

use super::etcd::import;
use super::{bolt, builder, save};

const FIRST: &str = "{\"dump\":{\"version\":1,\"revision\":1}}\n";

fn load(bytes: &[u8]) -> Result<Image, ImageError> {
    let dir = tempfile::tempdir().unwrap();
    Image::load(&save(dir.path(), bytes), builder())
}

/// Returns what is behind the path.
fn refusal(result: Result<Image, ImageError>) -> String {
    let error = result.unwrap_err().to_string();
    error.split_once(": ").unwrap().1.to_owned()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Loads a pair as text, from a binary dump, and from a snapshot of etcd, which each contain nothing else.
fn check(bucket: &str, key: &[u8], value: &[u8], expected: &str) {
    let shown = format!(
        "bucket \"{bucket}\", key \"{}\": {expected}",
        key.escape_ascii()
    );
    let (key_text, value_text) = (base64(key), base64(value));
    let text = format!(
        "{FIRST}{{\"pair\":{{\"bucket\":\"{bucket}\",\"key\":{{\"base64\":\"{key_text}\"}},\
         \"value\":{{\"base64\":\"{value_text}\"}}}}}}\n{{\"end\":{{}}}}\n"
    );
    assert_eq!(refusal(load(text.as_bytes())), format!("line 2: {shown}"));
    let mut binary = Vec::new();
    let pairs = [(key.to_vec(), value.to_vec())];
    let metadata = Metadata::from([(bucket.to_owned(), pairs.into())]);
    write_dump(&mut binary, &builder().build(), &metadata).unwrap();
    assert_eq!(refusal(load(&binary)), shown);
    // Snapshots have other members and more buckets, which are not imported.
    if bucket.starts_with("members") || bucket == "other" {
        return;
    }
    let (keys, root) = (bolt::root(3), bolt::root(4));
    let mut buckets = [(bucket.as_bytes(), &root[..]), (b"key", &keys)];
    buckets.sort_unstable();
    let pages = [
        bolt::leaf(3, &[], false),
        bolt::leaf(4, &[(key, value)], false),
    ];
    // Behind the header of the page and one element.
    let offset = 4 * bolt::PAGE + 32;
    assert_eq!(
        refusal(import(&bolt::file(&buckets, &pages))),
        format!("offset {offset}: {shown}")
    );
}

#[test]
fn a_pair_that_a_node_would_ignore_is_refused() {
    let name = "a name is empty, no UTF-8, or not that of its key";
    let ann = User {
        name: "ann".into(),
        ..User::default()
    };
    let ann = ann.encode_to_vec();
    check("authUsers", b"bob", &ann, name);
    check("authRoles", b"bob", &ann, name);
    check("authUsers", b"", b"", name);
    let alarm = |alarm| {
        let member_id = 1;
        AlarmMember { member_id, alarm }.encode_to_vec()
    };
    let no_alarm = "the alarm is neither NOSPACE nor CORRUPT";
    for kind in [0, 3] {
        check("alarm", &alarm(kind), b"", no_alarm);
    }
    check("auth", b"authEnabled", b"2", "it is neither 0 nor 1");
    check(
        "auth",
        b"authRevision",
        b"7",
        "a number has 1 bytes instead of 8",
    );
    let max = i64::MAX.unsigned_abs();
    for name in ["term", "consistent_index"] {
        let above = max + 1;
        check(
            "meta",
            name.as_bytes(),
            &above.to_be_bytes(),
            &format!("{above} is above {max}: there must be room for later ones"),
        );
        check(
            "meta",
            name.as_bytes(),
            b"",
            "a number has 0 bytes instead of 8",
        );
    }
    check(
        "members",
        b"8",
        b"{\"id\":9}",
        "the id of the member is not that of its key",
    );
    check("members_removed", b"x", b"", "it is no id of a member");
    let unknown = "there is no such bucket in the state of a node";
    check("other", b"x", b"y", unknown);
}

#[test]
fn a_user_that_is_none_names_the_key() {
    let pair = "{\"pair\":{\"bucket\":\"authUsers\",\"key\":\"root\",\"value\":\"\\n\\t x\"}}";
    let text = format!("{FIRST}{pair}\n{{\"end\":{{}}}}\n");
    let error = refusal(load(text.as_bytes()));
    let start = "line 2: bucket \"authUsers\", key \"root\": failed to decode Protobuf message";
    assert!(error.starts_with(start), "{error}");
    let alarm = "{\"alarm\":{\"name\":\"NONE\",\"member\":1}}";
    let text = format!("{FIRST}{alarm}\n{{\"end\":{{}}}}\n");
    let error = refusal(load(text.as_bytes()));
    assert!(
        error.starts_with("line 2: bucket \"alarm\", key \"\\x08\\x01\": the alarm is neither")
    );
}
