//! Snapshots in etcd's format. Those of a real etcd are imported in `tests/tests/import.rs`.

use std::io::Read;

use flate2::read::GzDecoder;
use revstore_engine::{Engine, KeyRange, Range, Revision};
use revstore_grpc::{Damage, Image, ImageError, Services};
use revstore_proto::etcdserverpb::auth_client::AuthClient;
use revstore_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use revstore_proto::etcdserverpb::{AuthenticateRequest, SnapshotRequest};
use sha2::{Digest, Sha256};
use tokio_stream::StreamExt;

use super::bolt::{self, Element, PAGE, Pairs};
use super::{Random, builder, filled, save, services};

async fn snapshot(services: &Services) -> Vec<u8> {
    let mut client = MaintenanceClient::new(services.clone());
    let mut request = tonic::Request::new(SnapshotRequest {});
    if services.is_auth_enabled() {
        let authenticate = AuthenticateRequest {
            name: "root".into(),
            password: "root".into(),
        };
        let mut auth = AuthClient::new(services.clone());
        let token = auth
            .authenticate(authenticate)
            .await
            .unwrap()
            .into_inner()
            .token;
        request
            .metadata_mut()
            .insert("token", token.parse().unwrap());
    }
    let stream = client.snapshot(request).await.unwrap();
    let mut stream = stream.into_inner();
    let mut file = Vec::new();
    while let Some(chunk) = stream.next().await {
        file.extend_from_slice(&chunk.unwrap().blob);
    }
    file
}

pub(crate) fn import(file: &[u8]) -> Result<Image, ImageError> {
    let dir = tempfile::tempdir().unwrap();
    Image::import(&save(dir.path(), file), builder())
}

fn assert_same_reads(found: &Engine, expected: &Engine) {
    assert_eq!(found.current_revision(), expected.current_revision());
    assert_eq!(found.compacted_revision(), expected.compacted_revision());
    let history = |engine: &Engine| engine.full_history(None).unwrap().versions;
    assert_eq!(history(found), history(expected));
    let oldest = expected.compacted_revision().map_or(1, |at| at.0.max(1));
    for at in oldest..=expected.current_revision().0 {
        let read = |engine: &Engine| {
            let found = engine
                .range(&Range::of(KeyRange::all()).at(Revision(at)))
                .unwrap();
            (found.kvs, found.count)
        };
        assert_eq!(read(found), read(expected), "at {at}");
    }
    let leases = |engine: &Engine| {
        let mut ids = engine.leases();
        ids.sort();
        let leases = ids.into_iter().map(|id| engine.lease(id, true).unwrap());
        leases
            .map(|it| (it.granted_ttl, it.keys))
            .collect::<Vec<_>>()
    };
    assert_eq!(leases(found), leases(expected));
}

#[tokio::test]
async fn our_own_snapshot_imports_to_an_equal_store() {
    let engine = filled();
    let services = services(&engine).await;
    let file = snapshot(&services).await;
    let imported = import(&file).unwrap();
    assert_same_reads(&imported.engine, &engine);
    // Members are those of the cluster that imports.
    assert_eq!(imported.state.alarms(), services.state().alarms());
    assert!(imported.state.is_auth_enabled());
    let copy = Services::builder(imported.engine)
        .state(imported.state)
        .build();
    assert_eq!(copy.auth_revision(), services.auth_revision());
    assert_eq!(copy.raft_index(), services.raft_index());
    assert_eq!(copy.members().len(), 1);
    // Stores that were never compacted, are empty, or have a compaction that was not finished.
    let empty = builder().build();
    let services = Services::builder(empty.clone()).build();
    assert_same_reads(&import(&snapshot(&services).await).unwrap().engine, &empty);
    for number in 0..10 {
        empty.put(format!("k{}", number % 3), "").unwrap();
    }
    assert_same_reads(&import(&snapshot(&services).await).unwrap().engine, &empty);
    empty.delete(&KeyRange::all()).unwrap();
    let unfinished = empty.compact(empty.current_revision()).unwrap();
    let file = snapshot(&services).await;
    unfinished.run();
    assert_same_reads(&import(&file).unwrap().engine, &empty);
}

/// Replaces the hash at the end by that of the damaged file, and adapts the length.
fn sign(database: &mut Vec<u8>) {
    let whole = database.len() / 512 * 512;
    database.truncate(whole);
    let hash = Sha256::digest(&database[..]);
    database.extend(&hash[..]);
}

#[tokio::test]
async fn ten_thousand_damaged_snapshots_are_refused_or_are_stores() {
    let engine = builder().build();
    for number in 0..200 {
        engine
            .put(format!("k{:02}", number % 40), number.to_string())
            .unwrap();
    }
    engine.compact(Revision(90)).unwrap().run();
    let services = services(&engine).await;
    let file = snapshot(&services).await;
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(3);
    let (mut refused, mut accepted) = (0, 0);
    for round in 0..10_000 {
        let mut damaged = file[..file.len() - 32].to_vec();
        match round % 3 {
            0 => random.damage(&mut damaged),
            // The headers and the elements of pages, where the numbers are.
            kind => {
                for _ in 0..=random.below(4) {
                    let page = random.below(damaged.len() / 4096) * 4096;
                    let at = page + random.below(if kind == 1 { 16 } else { 256 });
                    damaged[at] = [0, 1, 2, 0x10, 0xff, 0x7f][random.below(6)];
                }
            }
        }
        sign(&mut damaged);
        match Image::import(&save(dir.path(), &damaged), builder()) {
            Ok(image) => {
                accepted += 1;
                let history = image.engine.full_history(None).unwrap();
                assert!(history.versions.len() <= 240);
            }
            Err(ImageError::Io { source, .. }) => panic!("{source}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 3_000 && accepted > 100, "{refused} {accepted}");
    // With the hash, nothing that is damaged is accepted.
    for _ in 0..500 {
        let mut damaged = file.clone();
        random.damage(&mut damaged);
        if damaged != file {
            let error = Image::import(&save(dir.path(), &damaged), builder()).unwrap_err();
            let is_whole = matches!(
                &error,
                ImageError::Whole {
                    damage: Damage::Hash | Damage::NoHash,
                    ..
                }
            );
            assert!(is_whole, "{error}");
        }
    }
}

/// Returns the error of a file of several pages, in which some bytes are replaced at a distance from the first
/// branch page.
async fn damaged(change: impl FnOnce(&mut [u8], usize)) -> String {
    let engine = builder().build();
    for number in 0..300 {
        engine.put(format!("k{number:03}"), "value").unwrap();
    }
    // So that the file is read as a whole before the first version is added.
    engine.compact(Revision(2)).unwrap().run();
    let services = Services::builder(engine).build();
    let mut file = snapshot(&services).await;
    file.truncate(file.len() - 32);
    let pages = (0..file.len()).step_by(4096);
    let branch = pages
        .rev()
        .find(|at| file[at + 8..at + 10] == [1, 0])
        .unwrap();
    change(&mut file, branch);
    sign(&mut file);
    let error = import(&file).unwrap_err().to_string();
    error.split_once(": ").unwrap().1.to_owned()
}

#[tokio::test]
async fn errors_of_pages_say_what_is_wrong() {
    // The child of an element is eight bytes behind its begin, and elements are behind the header.
    let child = |nth: usize| 16 + nth * 16 + 8;
    let own = |file: &[u8], at: usize| file[at..at + 8].to_vec();
    let cyclic = damaged(|file, at| {
        let page = own(file, at);
        file[at + child(0)..][..8].copy_from_slice(&page);
    });
    assert!(cyclic.await.ends_with("a page is used twice"));
    let twice = damaged(|file, at| {
        let first = own(file, at + child(0));
        file[at + child(1)..][..8].copy_from_slice(&first);
    });
    assert!(twice.await.ends_with("a page is used twice"));
    let order = damaged(|file, at| {
        let (first, second) = (own(file, at + child(0)), own(file, at + child(1)));
        file[at + child(0)..][..8].copy_from_slice(&second);
        file[at + child(1)..][..8].copy_from_slice(&first);
    });
    assert!(
        order
            .await
            .ends_with("the keys of a bucket are out of order")
    );
    let outside = damaged(|file, at| file[at + child(0) + 6] = 0xff);
    let outside = outside.await;
    assert!(outside.ends_with("a page that is referred to is outside of the file"));
    assert!(!outside.starts_with("offset 0:"), "{outside}");
    let other = damaged(|file, at| file[at] ^= 1);
    assert!(
        other
            .await
            .ends_with("a page has the number of another one")
    );
    let count = damaged(|file, at| file[at + 10..at + 12].fill(0xff));
    assert!(
        count
            .await
            .ends_with("a page has more elements than it has room for")
    );
    let empty = damaged(|file, at| file[at + 10..at + 12].fill(0));
    assert!(empty.await.ends_with("a branch page is empty"));
    let overflow = damaged(|file, at| file[at + 12..at + 16].fill(0xff));
    assert!(
        overflow
            .await
            .ends_with("a page is longer than the file, or too long")
    );
    let overlap = damaged(|file, at| {
        let first = usize::from(file[at + child(0)]) * 4096;
        file[first + 12] = 1;
    });
    assert!(overlap.await.ends_with("a page is used twice"));
    let kind = damaged(|file, at| file[at + 8] = 0x10);
    assert!(kind.await.ends_with("a page of a tree has another type"));
    let pair = damaged(|file, at| {
        let first = usize::from(file[at + child(0)]) * 4096;
        file[first + 16 + 15] = 0xff;
    });
    assert!(pair.await.ends_with("a pair is outside of its page"));
    let overlap = "a pair overlaps with the one before it, or with the elements";
    // The second pair of the page begins one byte earlier, and the first one in its own element.
    let second = damaged(|file, at| {
        let first = usize::from(file[at + child(0)]) * 4096;
        file[first + 16 + 16 + 4] -= 1;
    });
    assert!(second.await.ends_with(overlap));
    let first = damaged(|file, at| {
        let first = usize::from(file[at + child(0)]) * 4096;
        file[first + 16 + 4..first + 16 + 8].fill(0);
    });
    assert!(first.await.ends_with(overlap));
    // Both meta pages are needed only if the newer one is damaged.
    let metas = damaged(|file, _| {
        file[16..32].fill(0);
        file[4096 + 16..4096 + 32].fill(0);
    });
    assert!(metas.await.contains("there is no valid meta page"));
    let shorter = damaged(|file, at| {
        let _ = at;
        let len = file.len() as u64 / 4096 + 1;
        for meta in [16, 4096 + 16] {
            file[meta + 40..meta + 48].copy_from_slice(&len.to_le_bytes());
            let sum = fnv_1a(&file[meta..meta + 56]);
            file[meta + 56..meta + 64].copy_from_slice(&sum.to_le_bytes());
        }
    });
    assert!(
        shorter
            .await
            .ends_with("the file is shorter than its meta page says")
    );
}

#[tokio::test]
async fn one_valid_meta_page_suffices() {
    let engine = filled();
    let services = Services::builder(engine.clone()).build();
    for damaged in [16, 4096 + 16] {
        let mut file = snapshot(&services).await;
        file.truncate(file.len() - 32);
        file[damaged] ^= 1;
        sign(&mut file);
        assert_same_reads(&import(&file).unwrap().engine, &engine);
    }
}

pub(crate) fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Snapshots that `etcdctl snapshot save` of other versions of etcd has written. Each store has 60 puts of
/// `key/0` to `key/16`, a deletion of those from `key/1` on, `big`, `leased`, a deletion of `key/3` and a put of
/// it, and was compacted at revision 30. `etcdutl snapshot restore --bump-revision 1000 --mark-compacted` of etcd 3.6
/// has raised the last one, which got one more put.
#[tokio::test]
async fn snapshots_of_other_versions_of_etcd_are_imported() {
    for (file, compacted, current, versions) in [
        (&include_bytes!("files/etcd-3.4.db.gz")[..], 30, 66, 60),
        (include_bytes!("files/etcd-3.6.db.gz"), 30, 66, 60),
        (
            include_bytes!("files/etcd-3.6-bumped.db.gz"),
            1_066,
            1_067,
            12,
        ),
    ] {
        let mut snapshot = Vec::new();
        GzDecoder::new(file).read_to_end(&mut snapshot).unwrap();
        let image = import(&snapshot).unwrap();
        let engine = &image.engine;
        assert_eq!(engine.compacted_revision(), Some(Revision(compacted)));
        assert_eq!(engine.current_revision(), Revision(current));
        let history = engine.full_history(None).unwrap();
        assert_eq!(history.versions.len(), versions);
        let again = engine.get("key/3").unwrap();
        assert_eq!((again.value(), again.version()), (&b"again"[..], 1));
        assert_eq!(again.mod_revision(), Revision(66));
        assert!(engine.get("key/12").is_none());
        assert_eq!(engine.get("big").unwrap().value().len(), 20_000);
        let [lease] = engine.leases()[..] else {
            panic!()
        };
        let lease = engine.lease(lease, true).unwrap();
        assert_eq!(
            (lease.granted_ttl.as_secs(), &lease.keys[..]),
            (100_000, &["leased".into()][..])
        );
        let at = engine.get_at("key/5", Revision(compacted)).unwrap();
        assert_eq!(at.unwrap().version(), if compacted == 30 { 2 } else { 4 });
        let services = Services::builder(image.engine).state(image.state).build();
        let root = AuthenticateRequest {
            name: "root".into(),
            password: "r".into(),
        };
        let mut auth = AuthClient::new(services.clone());
        auth.authenticate(root).await.unwrap();
        assert_eq!(services.auth_revision(), 8);
    }
}

#[test]
fn other_files_are_refused() {
    let whole = |file: &[u8]| match import(file).unwrap_err() {
        ImageError::Whole { damage, .. } => damage,
        error => panic!("{error:?}"),
    };
    assert_eq!(whole(b""), Damage::NoHash);
    assert_eq!(whole(&[0; 512]), Damage::NoHash);
    assert_eq!(whole(&[0; 512 + 32]), Damage::Hash);
    let mut zeros = vec![0; 8192];
    sign(&mut zeros);
    let error = import(&zeros).unwrap_err().to_string();
    assert!(
        error.ends_with("offset 0: there is no valid meta page: this is no database of etcd"),
        "{error}"
    );
    // A file of a single hash: nothing before it.
    let mut nothing = Vec::new();
    sign(&mut nothing);
    import(&nothing).unwrap_err();
}

/// Returns the error of a file of single pages.
fn refused(buckets: Pairs<'_>, pages: &[Vec<u8>]) -> String {
    let error = import(&bolt::file(buckets, pages)).unwrap_err().to_string();
    error.split_once(": ").unwrap().1.to_owned()
}

/// A page with elements whose keys and values overlap: each value ends with the page.
fn sharing(id: u64, count: usize, len: usize) -> Vec<u8> {
    let begin = 16 + 16 * count;
    let elements = (0..count).map(|number| {
        let start = begin + 8 * number;
        Element {
            is_bucket: false,
            start,
            key_len: 8,
            value_len: len - start - 8,
        }
    });
    let elements: Vec<_> = elements.collect();
    let mut contents: Vec<_> = (1..=count as u64).flat_map(u64::to_be_bytes).collect();
    contents.resize(len - begin, 1);
    bolt::leaf_of(id, &elements, &contents)
}

#[test]
fn pairs_of_an_import_are_not_longer_than_its_file() {
    let (key, other) = (bolt::root(3), bolt::root(4));
    let buckets = |meta| [(&b"key"[..], &key[..]), (b"meta", meta)];
    let empty = bolt::leaf(3, &[], false);
    let overlap = "a pair overlaps with the one before it, or with the elements";
    // 3 MiB, which were 1.2 GiB.
    let page = sharing(4, 400, 3 << 20);
    assert_eq!(
        refused(&buckets(&other), &[empty.clone(), page]),
        format!("offset {}: {overlap}", 4 * PAGE)
    );
    let page = bolt::inline(&sharing(0, 100, PAGE));
    assert!(refused(&buckets(&page), std::slice::from_ref(&empty)).ends_with(overlap));
    // Two buckets of the same page, with and without a compaction.
    let twice = format!("offset {}: a page is used twice", 3 * PAGE);
    assert_eq!(refused(&buckets(&key), std::slice::from_ref(&empty)), twice);
    let position = [&5_i64.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat();
    let compacted: Pairs<'_> = &[(b"finishedCompactRev", &position)];
    let shared = [(&b"alarm"[..], &key[..]), (b"key", &key), (b"meta", &other)];
    let pages = [empty.clone(), bolt::leaf(4, compacted, false)];
    assert_eq!(refused(&shared, &pages), twice);
    import(&bolt::file(&shared[1..], &pages)).unwrap();
    // A bucket in an inline bucket, and a page that is no leaf.
    let nested = bolt::inline(&bolt::leaf(0, &[(b"inner", &key)], true));
    assert!(
        refused(&buckets(&nested), std::slice::from_ref(&empty))
            .ends_with("there is a bucket in a bucket, or a pair outside of all")
    );
    let branch = bolt::inline(&bolt::branch(0, &[3, 4]));
    assert!(
        refused(&buckets(&branch), std::slice::from_ref(&empty))
            .ends_with("an inline bucket is no leaf page")
    );
}

#[test]
fn a_page_outside_of_the_file_is_named_by_what_refers_to_it() {
    let outside = "a page that is referred to is outside of the file";
    let (key, far) = (bolt::root(3), bolt::root(77));
    // Behind the header of the page and one element.
    let offset = 2 * PAGE + 32;
    let pages = [bolt::leaf(3, &[], false)];
    assert_eq!(
        refused(&[(b"key", &far)], &pages),
        format!("offset {offset}: {outside}")
    );
    assert_eq!(
        refused(&[(b"key", &key)], &[bolt::branch(3, &[u64::MAX, 4])]),
        format!("offset {}: {outside}", 3 * PAGE)
    );
}

#[test]
fn versions_that_no_store_has_are_named_by_their_offset() {
    let position = |revision: i64| [&revision.to_be_bytes()[..], b"_", &[0; 8]].concat();
    let error = |revision: i64, value: &[u8]| {
        let page = bolt::leaf(3, &[(&position(revision), value)], false);
        refused(&[(b"key", &bolt::root(3))], &[page])
    };
    // Behind the header of the page and one element.
    let offset = 3 * PAGE + 32;
    assert_eq!(
        error(i64::MAX, b""),
        format!("offset {offset}: revision {} follows revision 1", i64::MAX)
    );
    let key = "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02_\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00";
    assert_eq!(
        error(2, b"\x18\x03"),
        format!("offset {offset}: bucket \"key\", key \"{key}\": version 2.0 has revision 3")
    );
}
