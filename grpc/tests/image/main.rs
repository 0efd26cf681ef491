//! Images: dumps as text and binary, and snapshots of etcd. What is read is what was written, and damaged files are
//! refused.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bolt;
mod etcd;
mod pairs;
mod text;

use std::path::Path;
use std::time::Duration;

use revstore_engine::{Engine, Jump, KeyRange, ManualClock, Op, Put, Revision, Txn};
use revstore_grpc::{Alarm, AlarmKind, AuthOptions, Identity, Image, Services};
use revstore_proto::authpb::Permission;
use revstore_proto::authpb::permission::Type;
use revstore_proto::etcdserverpb::auth_client::AuthClient;
use revstore_proto::etcdserverpb::cluster_client::ClusterClient;
use revstore_proto::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, MemberAddRequest,
};

fn builder() -> revstore_engine::EngineBuilder {
    Engine::builder().clock(ManualClock::new())
}

/// An engine with all that a store may contain, compacted at a revision with several changes.
fn filled() -> Engine {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    for number in 0..60 {
        let key = format!("key/{:02}", number * 7 % 23);
        engine.put(key, format!("value {number}")).unwrap();
    }
    let lease = engine.grant(None, 60).unwrap().id;
    engine.grant(None, 2).unwrap();
    engine
        .put_with(&Put::new("leased", "\u{fc}\n").attached_to(lease))
        .unwrap();
    let several = [
        Op::Delete(KeyRange::within("key/00", "key/03")),
        Op::Put(Put::new("key/01", "again")),
        Op::Put(Put::new(&b"\x00\xff"[..], &b"\xfe"[..])),
    ];
    engine.txn(&Txn::new().and_then(several)).unwrap();
    let compacted = engine.current_revision();
    for number in 0..20 {
        engine.put(format!("key/{number:02}"), "").unwrap();
        engine
            .delete(&KeyRange::one(format!("key/{number:02}")))
            .unwrap();
    }
    engine.put("large", vec![b'x'; 20_000]).unwrap();
    engine.compact(compacted).unwrap().run();
    clock.advance(Duration::from_millis(1_250));
    engine
}

/// Services over an engine, with users, roles, an alarm and a learner.
async fn services(engine: &Engine) -> Services {
    let identity = Identity::new(1, 2).peer_urls(["http://localhost:2380"]);
    let services = Services::builder(engine.clone())
        .identity(identity)
        .auth(AuthOptions::default().bcrypt_cost(4))
        .build();
    let peer_ur_ls = vec!["http://127.0.0.1:2381".into()];
    let learner = MemberAddRequest {
        peer_ur_ls,
        is_learner: true,
    };
    ClusterClient::new(services.clone())
        .member_add(learner)
        .await
        .unwrap();
    let mut auth = AuthClient::new(services.clone());
    for (name, role) in [("root", "root"), ("ann", "writer")] {
        let role_add = AuthRoleAddRequest { name: role.into() };
        auth.role_add(role_add).await.unwrap();
        let user = AuthUserAddRequest {
            name: name.into(),
            password: name.into(),
            ..AuthUserAddRequest::default()
        };
        auth.user_add(user).await.unwrap();
        let (user, role) = (name.into(), role.into());
        auth.user_grant_role(AuthUserGrantRoleRequest { user, role })
            .await
            .unwrap();
    }
    for (key, range_end, kind) in [("a", "", Type::Read), ("b", "c", Type::Readwrite)] {
        let permission = Permission {
            perm_type: kind.into(),
            key: key.into(),
            range_end: range_end.into(),
        };
        let grant = AuthRoleGrantPermissionRequest {
            name: "writer".into(),
            perm: Some(permission),
        };
        auth.role_grant_permission(grant).await.unwrap();
    }
    auth.auth_enable(AuthEnableRequest {}).await.unwrap();
    services.alarms().raise(Alarm {
        kind: AlarmKind::NoSpace,
        member_id: u64::MAX,
    });
    services
}

async fn image() -> Image {
    let engine = filled();
    let state = services(&engine).await.state();
    Image { engine, state }
}

/// Returns an image whose store has skipped revisions.
fn with_gaps(image: &Image) -> Image {
    let jump = |engine: &Engine, by: i64| {
        let current = Revision(engine.current_revision().0 + by);
        let jump = Jump {
            current,
            mark_compacted: false,
        };
        engine.to_builder().fork_at(engine, jump).unwrap()
    };
    let engine = jump(&image.engine, 1_000);
    engine.put("later", "").unwrap();
    Image {
        engine: jump(&engine, 5),
        state: image.state.clone(),
    }
}

fn assert_equal(found: &Image, expected: &Image) {
    let (theirs, ours) = (&found.engine, &expected.engine);
    assert_eq!(theirs.current_revision(), ours.current_revision());
    assert_eq!(theirs.compacted_revision(), ours.compacted_revision());
    let history = |engine: &Engine| engine.full_history(None).unwrap().versions;
    assert_eq!(history(theirs), history(ours));
    let log = |engine: &Engine| engine.dump().history().collect::<Vec<_>>();
    assert_eq!(log(theirs), log(ours));
    assert_eq!(theirs.dump().leases(), ours.dump().leases());
    let keys = |engine: &Engine| {
        let leases = engine.leases().into_iter();
        let keys = leases.map(|id| engine.lease(id, true).unwrap().keys);
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys(theirs), keys(ours));
    assert_eq!(found.state, expected.state);
}

fn save(dir: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join("image");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A sequence of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    /// Damages some bytes, or cuts or repeats a part.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at + 1),
                1 => {
                    let end = (at + 1 + self.below(64)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, part);
                }
                2 => bytes[at] = [0, 0xff, b'0', b'"', b'\n', b'}'][self.below(6)],
                _ => bytes[at] ^= 1 << self.below(8),
            }
        }
    }
}
