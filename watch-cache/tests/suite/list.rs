//! T-08 to T-21, T-49, T-52: lists.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use revstore_watch_cache::api::ContinueToken;
use revstore_watch_cache::encode::{Attributes, DecodeError, Form, Kind};
use revstore_watch_cache::selector::FieldSelector;
use revstore_watch_cache::source::{
    BatchStream, ConditionalWrite, ListPage, ListRequest, RawStore, Source, SourceError,
    WatchRequest, WriteOutcome,
};
use revstore_watch_cache::status::Reason;
use revstore_watch_cache::{
    GetOptions, ListOptions, RequestError, ResourceConfig, Revision, Scope, Selector,
};

use crate::support::{
    Fixture, Page, Side, after, at, config, exact, namespace, object, on_both, pod, selector,
};

/// Writes pods in three namespaces, updates one and deletes one. Returns the revisions.
fn fill(fixture: &Fixture) -> Vec<i64> {
    let revisions = vec![
        fixture.put_pod("ns1/a"),
        fixture.put("ns1/b", pod("ns1/b", "web", "n1")),
        fixture.put("ns2/a", pod("ns2/a", "web", "n2")),
        fixture.put_pod("ns3/x"),
        fixture.put("ns1/a", pod("ns1/a", "db", "n1")),
        fixture.delete("ns3/x"),
    ];
    fixture.wait_until_fresh();
    revisions
}

fn with_limit(limit: i64, options: ListOptions) -> ListOptions {
    options.limit(limit)
}

fn not_older(version: impl ToString) -> ListOptions {
    at(version).resource_version_match("NotOlderThan")
}

// Shows WC-103, WC-220, WC-221 and WC-235 (lists).
#[test]
fn t_08_each_row_of_the_list_table_returns_its_state_and_version() {
    on_both(|fixture, store, side| {
        let made = fill(fixture);
        let (current, mid) = (*made.last().unwrap(), made[3]);
        let new = [
            format!("ns1/a@{}", made[4]),
            format!("ns1/b@{}", made[1]),
            format!("ns2/a@{}", made[2]),
        ];
        let old = [
            format!("ns1/a@{}", made[0]),
            format!("ns1/b@{}", made[1]),
            format!("ns2/a@{}", made[2]),
            format!("ns3/x@{}", made[3]),
        ];
        let check = |row: &str, options: ListOptions, items: &[String], revision, more| {
            let page = fixture.list(store, &Scope::All, &options).unwrap();
            assert_eq!(page.items, items, "{row}");
            assert_eq!(page.revision, revision, "{row}");
            assert_eq!(page.token.is_some(), more, "{row}");
            assert_eq!(page.remaining.is_some(), more, "{row}: no selector");
        };
        check("L1", at(""), &new, current, false);
        check("L1 limit", with_limit(2, at("")), &new[..2], current, true);
        check("L4", at("0"), &new, current, false);
        let ignored = side == Side::Cached;
        let l5 = if ignored { &new[..] } else { &new[..2] };
        check("L5", with_limit(2, at("0")), l5, current, !ignored);
        check("L7", at(mid), &new, current, false);
        check("L8", with_limit(2, at(mid)), &old[..2], mid, true);
        check(
            "L8 current",
            with_limit(3, at(current)),
            &new,
            current,
            false,
        );
        check("L10", not_older(mid), &new, current, false);
        check(
            "L10 limit",
            with_limit(1, not_older(mid)),
            &new[..1],
            current,
            true,
        );
        check("L11", not_older("0"), &new, current, false);
        check("L12", exact(mid), &old, mid, false);
        check("L12 limit", with_limit(3, exact(mid)), &old[..3], mid, true);

        let first = fixture
            .list(store, &Scope::All, &with_limit(1, exact(mid)))
            .unwrap();
        assert_eq!(first.remaining, Some(3));
        let token = first.token.unwrap();
        let next = |version: &str, limit| at(version).continue_token(token.clone()).limit(limit);
        check("L2", next("", 0), &old[1..], mid, false);
        check("L2 limit", next("", 2), &old[1..3], mid, true);
        check("L6", next("0", 0), &old[1..], mid, false);
        let inconsistent = ContinueToken {
            revision: None,
            start: "ns1/a\0".into(),
        };
        let l3 = with_limit(1, at("")).continue_token(inconsistent.encode());
        check("L3", l3.clone(), &new[1..2], current, true);
        let pinned = fixture
            .list(store, &Scope::All, &l3)
            .unwrap()
            .token
            .unwrap();
        assert_eq!(
            ContinueToken::decode(&pinned).unwrap(),
            ContinueToken {
                revision: Some(Revision(current)),
                start: "ns1/b\0".into()
            }
        );
        let l9 = fixture
            .list(store, &Scope::All, &next(&mid.to_string(), 0))
            .unwrap_err();
        assert_eq!(
            (l9.code(), l9.to_string().as_str()),
            (
                400,
                "specifying resource version is not allowed when using continue"
            )
        );
        for invalid in ["abc", "-1", "99999999999999999999"] {
            let l18 = fixture.list(store, &Scope::All, &at(invalid)).unwrap_err();
            let start =
                format!("invalid resource version: resourceVersion: Invalid value: \"{invalid}\"");
            assert!(
                l18.code() == 400 && l18.to_string().starts_with(&start),
                "{l18}"
            );
        }
    });
}

// Shows WC-354.
#[test]
fn t_08_lists_contain_the_objects_of_the_scope_that_match_the_selector() {
    on_both(|fixture, store, _| {
        fill(fixture);
        let keys = |scope: &Scope, labels: &str, fields: &str| {
            let options = ListOptions::default().selector(selector(labels, fields));
            let page = fixture.list(store, scope, &options).unwrap();
            let key = |item: &String| item.split('@').next().unwrap().to_owned();
            page.items.iter().map(key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&namespace("ns1"), "", ""), ["ns1/a", "ns1/b"]);
        assert_eq!(keys(&Scope::All, "app=web", ""), ["ns1/b", "ns2/a"]);
        assert_eq!(keys(&namespace("ns1"), "app=web", ""), ["ns1/b"]);
        assert_eq!(keys(&Scope::All, "", "metadata.name=a"), ["ns1/a", "ns2/a"]);
        let unsupported = ListOptions::default().selector(selector("", "spec.color=red"));
        let error = fixture.list(store, &Scope::All, &unsupported).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (400, "field label not supported: spec.color")
        );
    });
}

// Shows WC-134: the raw store lists in key order.
#[test]
fn t_09_and_t_10_exact_lists_return_the_state_at_each_revision() {
    on_both(|fixture, store, _| {
        let first = fixture.put_pod("ns/a");
        fixture.put_pod("ns/b");
        let elsewhere = fixture.put_elsewhere();
        fixture.put_pod("ns/c");
        fixture.delete("ns/a");
        let states = [
            (first, vec!["ns/a"]),
            (first + 1, vec!["ns/a", "ns/b"]),
            // T-10: no pod changed at this revision, and the list has the requested revision.
            (elsewhere, vec!["ns/a", "ns/b"]),
            (elsewhere + 1, vec!["ns/a", "ns/b", "ns/c"]),
            (elsewhere + 2, vec!["ns/b", "ns/c"]),
        ];
        for (revision, expected) in states {
            for limit in [0, 1, 2, 5] {
                let mut keys = Vec::new();
                let mut options = with_limit(limit, exact(revision));
                loop {
                    let page = fixture.list(store, &Scope::All, &options).unwrap();
                    assert_eq!(page.revision, revision);
                    let names = page
                        .items
                        .iter()
                        .map(|item| item.split('@').next().unwrap());
                    keys.extend(names.map(str::to_owned));
                    let Some(token) = page.token else { break };
                    options = ListOptions::default().limit(limit).continue_token(token);
                }
                assert_eq!(keys, expected, "at {revision} in pages of {limit}");
            }
        }
    });
}

#[test]
fn t_11_exact_lists_at_future_revisions_are_504() {
    on_both(|fixture, store, _| {
        let current = fixture.put_pod("ns/a");
        for ahead in [1, 1000] {
            let error = fixture
                .list(store, &Scope::All, &exact(current + ahead))
                .unwrap_err();
            let (requested, current) = (Revision(current + ahead), Revision(current));
            assert_eq!(error, RequestError::TooLarge { requested, current });
        }
    });
}

#[test]
fn t_11_a_list_not_older_than_a_future_revision_is_504_after_3_seconds() {
    let fixture = Fixture::new();
    let current = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let (scope, options) = (Scope::All, at(current + 1));
    let mut list = Box::pin(fixture.pods.list(&scope, &options));
    assert!(crate::support::poll_once(&mut list).is_pending());
    fixture.clock.advance(Duration::from_millis(2999));
    assert!(crate::support::poll_once(&mut list).is_pending());
    let error = after(&fixture.clock, Duration::from_millis(1), list).unwrap_err();
    assert_eq!(error.code(), 504);
}

// Shows WC-231.
#[test]
fn t_12_and_t_21_exact_lists_below_the_compacted_revision_are_410() {
    on_both(|fixture, store, _| {
        let before = fixture.current();
        let made = fill(fixture);
        let first = fixture.list(store, &Scope::All, &exact(before)).unwrap();
        assert_eq!((first.revision, first.items.len()), (before, 0), "WC-133");
        fixture.compact(made[3]);
        let error = fixture
            .list(store, &Scope::All, &exact(made[2]))
            .unwrap_err();
        assert_eq!(
            (
                error.status().code,
                error.status().reason,
                error.to_string().as_str()
            ),
            (
                410,
                Some(Reason::Expired),
                "The resourceVersion for the provided list is too old."
            )
        );
        let at_compacted = fixture.list(store, &Scope::All, &exact(made[3])).unwrap();
        assert_eq!(
            at_compacted.items.len(),
            4,
            "the compacted revision itself can be read"
        );
        // WC-110: the window still contains the revision, but exact lists fail as those of the
        // source do.
        assert!(
            fixture.list(store, &Scope::All, &at(made[0])).is_ok(),
            "not older than"
        );
    });
}

#[test]
fn t_13_invalid_tokens_return_400() {
    on_both(|fixture, store, _| {
        fill(fixture);
        let token = |revision: Option<i64>, start: &str| {
            let token = ContinueToken {
                revision: revision.map(Revision),
                start: start.into(),
            };
            token.encode()
        };
        for invalid in [
            "!".into(),
            token(Some(0), "a"),
            token(None, "../secrets/s"),
            token(None, ""),
        ] {
            let options = ListOptions::default().continue_token(invalid);
            let error = fixture.list(store, &Scope::All, &options).unwrap_err();
            assert_eq!(error.code(), 400);
            assert!(
                error.to_string().starts_with("invalid continue token: "),
                "{error}"
            );
        }
        let future = ListOptions::default().continue_token(token(Some(1000), "ns1/a"));
        assert_eq!(
            fixture
                .list(store, &Scope::All, &future)
                .unwrap_err()
                .code(),
            504
        );
        let last = ListOptions::default().continue_token(token(None, "zzz"));
        assert!(
            fixture
                .list(store, &Scope::All, &last)
                .unwrap()
                .items
                .is_empty()
        );
        // WC-229: a token with a start key in another namespace returns no objects of that namespace.
        let wide = ListOptions::default().continue_token(token(None, "\0"));
        let page = fixture.list(store, &namespace("ns2"), &wide).unwrap();
        assert_eq!(page.items.len(), 1);
    });
}

/// Lists all pages by following continue tokens.
fn pages(
    fixture: &Fixture,
    store: &dyn revstore_watch_cache::api::Storage,
    first: ListOptions,
    mut between: impl FnMut(usize),
) -> Vec<Page> {
    let (limit, selector) = (first.limit, first.selector.clone());
    let mut options = first;
    let mut pages = Vec::new();
    loop {
        let page = fixture.list(store, &Scope::All, &options).unwrap();
        let token = page.token.clone();
        pages.push(page);
        let Some(token) = token else { return pages };
        between(pages.len());
        options = ListOptions::default()
            .limit(limit)
            .continue_token(token)
            .selector(selector.clone());
    }
}

// Shows WC-225.
#[test]
fn t_14_a_chain_of_pages_is_the_state_of_its_first_page() {
    on_both(|fixture, store, _| {
        for name in 0..9 {
            fixture.put_pod(&format!("ns/p{name}"));
        }
        let whole = fixture.list(store, &Scope::All, &at("")).unwrap();
        let chain = pages(fixture, store, with_limit(2, at("")), |page| {
            fixture.put_pod(&format!("ns/new{page}"));
            fixture.delete(&format!("ns/p{page}"));
        });
        assert_eq!(chain.len(), 5);
        assert!(chain.iter().all(|page| page.revision == whole.revision));
        let remaining: Vec<_> = chain.iter().map(|page| page.remaining).collect();
        assert_eq!(remaining, [Some(7), Some(5), Some(3), Some(1), None]);
        let union: Vec<_> = chain.into_iter().flat_map(|page| page.items).collect();
        assert_eq!(union, whole.items);
    });
}

// Shows WC-234.
#[test]
fn t_15_a_compaction_between_pages_offers_an_inconsistent_token() {
    on_both(|fixture, store, _| {
        for name in ["a", "b", "c", "d"] {
            fixture.put_pod(&format!("ns/{name}"));
        }
        let first = fixture
            .list(store, &Scope::All, &with_limit(2, at("")))
            .unwrap();
        let newest = fixture.put_pod("ns/e");
        fixture.compact(newest);
        let next = |token: String| ListOptions::default().limit(2).continue_token(token);
        let error = fixture
            .list(store, &Scope::All, &next(first.token.unwrap()))
            .unwrap_err();
        let status = error.status();
        assert_eq!((status.code, status.reason), (410, Some(Reason::Expired)));
        assert!(status.message.ends_with(
            "objects that were created, modified, or deleted between the time the first chunk \
             was returned and now may show up in the list."
        ));
        let token = status.continue_token.unwrap();
        let decoded = ContinueToken::decode(&token).unwrap();
        assert_eq!(
            decoded,
            ContinueToken {
                revision: None,
                start: "ns/b\0".into()
            }
        );
        let second = fixture.list(store, &Scope::All, &next(token)).unwrap();
        assert_eq!(second.revision, newest);
        let pinned = ContinueToken::decode(&second.token.clone().unwrap()).unwrap();
        assert_eq!(pinned.revision, Some(Revision(newest)));
        let third = fixture
            .list(store, &Scope::All, &next(second.token.unwrap()))
            .unwrap();
        let keys = [second.items, third.items].concat();
        assert_eq!(keys.len(), 3, "{keys:?}");
    });
}

#[test]
fn t_16_pages_with_a_selector_contain_matches_and_the_last_page_may_be_empty() {
    on_both(|fixture, store, _| {
        for number in 0..20 {
            let (key, app) = (
                format!("ns/p{number:02}"),
                if number == 7 { "rare" } else { "" },
            );
            fixture.put(
                &key,
                pod(&key, app, if number % 2 == 0 { "n1" } else { "n2" }),
            );
        }
        let select = |limit, labels: &str, fields: &str| {
            ListOptions::default()
                .limit(limit)
                .selector(selector(labels, fields))
        };
        let rare = pages(fixture, store, select(1, "app=rare", ""), |_| {});
        let sizes: Vec<_> = rare.iter().map(|page| page.items.len()).collect();
        assert_eq!(
            sizes,
            [1, 0],
            "unexamined keys remain after the match (WC-222)"
        );
        assert_eq!(rare[0].remaining, None, "WC-223");
        let half = pages(fixture, store, select(4, "", "spec.nodeName=n1"), |_| {});
        let sizes: Vec<_> = half.iter().map(|page| page.items.len()).collect();
        assert_eq!(sizes, [4, 4, 2]);
    });
}

/// A source that records the limit of each list.
#[derive(Debug)]
struct LimitRecorder {
    inner: Arc<dyn Source>,
    limits: Mutex<Vec<Option<usize>>>,
}

impl Source for LimitRecorder {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        self.inner.current_revision()
    }
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        self.limits.lock().unwrap().push(request.limit);
        self.inner.list(request)
    }
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        self.inner.watch(request)
    }
    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        self.inner.write(write)
    }
}

#[test]
fn t_16_a_page_with_one_rare_match_reads_few_pages_and_few_unneeded_keys() {
    let fixture = Fixture::new();
    for number in 0..1000 {
        let key = format!("ns/p{number:04}");
        let app = if number == 600 { "rare" } else { "" };
        fixture.put(&key, pod(&key, app, ""));
    }
    let source = Arc::new(LimitRecorder {
        inner: fixture.source.clone(),
        limits: Mutex::default(),
    });
    let raw = RawStore::new(source.clone(), config(), Arc::new(fixture.clock.clone()));
    let options = ListOptions::default()
        .limit(1)
        .selector(selector("app=rare", ""));
    let page = fixture.list(&raw, &Scope::All, &options).unwrap();
    assert_eq!(page.items.len(), 1);
    let limits = std::mem::take(&mut *source.limits.lock().unwrap());
    assert!(limits.len() <= 10, "{limits:?}");
    let read: Option<usize> = limits.into_iter().sum();
    assert!(
        read.unwrap() <= 2 * 601,
        "{read:?} keys were read to examine 601 keys"
    );
}

// Shows WC-132 and WC-201.
#[test]
fn t_17_a_consistent_list_has_the_revision_of_earlier_writes_of_other_resources() {
    on_both(|fixture, store, _| {
        fixture.put_pod("ns/a");
        let elsewhere = fixture.put_elsewhere();
        let latest = fixture.list(store, &Scope::All, &at("")).unwrap();
        assert!(latest.revision >= elsewhere);
        let any = fixture.list(store, &Scope::All, &at("0")).unwrap();
        assert!(
            any.revision >= latest.revision,
            "the revision must not decrease"
        );
    });
}

#[test]
fn t_18_a_list_of_one_object_has_one_item_or_none() {
    on_both(|fixture, store, _| {
        let made = fill(fixture);
        let one = |key: &str, options: &ListOptions| {
            let scope = Scope::Object(object(key));
            fixture.list(store, &scope, options).unwrap().items
        };
        for options in [at(""), at("0"), at(made[0]), exact(made[5])] {
            assert_eq!(one("ns1/a", &options), [format!("ns1/a@{}", made[4])]);
            assert!(
                one("ns1/zz", &options).is_empty(),
                "a missing object is not an error (WC-227)"
            );
        }
        assert_eq!(
            one("ns1/a", &exact(made[1])),
            [format!("ns1/a@{}", made[0])]
        );
        assert_eq!(one("ns3/x", &exact(made[3])).len(), 1);
        assert!(one("ns3/x", &at("")).is_empty());
    });
}

#[test]
fn t_19_namespaces_are_path_segments() {
    on_both(|fixture, store, _| {
        fixture.put_pod("ns/a");
        fixture.put_pod("ns2/b");
        let keys = |scope: &Scope| fixture.list(store, scope, &at("")).unwrap().items.len();
        assert_eq!(keys(&namespace("ns")), 1);
        assert_eq!(keys(&namespace("ns2")), 1);
        assert_eq!(keys(&namespace("n")), 0);
        assert_eq!(keys(&Scope::All), 2);
    });
}

#[test]
fn t_20_lists_are_the_same_with_and_without_an_index() {
    let plain = Fixture::with(
        ResourceConfig::namespaced(
            revstore_watch_cache::JsonKind::new("v1", "Pod")
                .with_fields(["spec.nodeName", "status.phase"]),
            "pods",
            crate::support::PODS,
        ),
        |builder| builder,
    );
    let indexed = Fixture::with(config(), |builder| builder);
    for fixture in [&plain, &indexed] {
        fill(fixture);
        fixture.put("ns2/c", pod("ns2/c", "", "n1"));
        fixture.put("ns2/d", pod("ns2/d", "", "n1"));
        fixture.put("ns2/d", pod("ns2/d", "", "n2"));
        fixture.wait_until_fresh();
    }
    let scopes = [
        Scope::All,
        namespace("ns1"),
        namespace("ns2"),
        Scope::Object(object("ns1/a")),
    ];
    let fields = [
        "",
        "metadata.namespace=ns1",
        "metadata.namespace=ns2",
        "metadata.name=a",
        "spec.nodeName=n1",
        "spec.nodeName!=n1",
        "spec.nodeName=",
        "spec.nodeName=n1,metadata.namespace=ns1",
        "metadata.name=a,metadata.name=b",
        "metadata.namespace=ns1,metadata.name=a,spec.nodeName=n2",
    ];
    for scope in &scopes {
        for fields in fields {
            for options in [at(""), at("0"), with_limit(1, at(""))] {
                let options = options.selector(selector("", fields));
                let whole = plain.list(&plain.pods, scope, &options).unwrap();
                let page = indexed.list(&indexed.pods, scope, &options).unwrap();
                assert_eq!(page, whole, "{scope:?} {fields} {options:?}");
                if options.limit == 0 {
                    let raw = plain.list(&plain.raw, scope, &options).unwrap();
                    assert_eq!(page.items, raw.items, "{scope:?} {fields}");
                }
            }
        }
    }
}

// Shows WC-101.
#[test]
fn t_49_lists_without_a_selector_are_served_from_the_cache() {
    let fixture = Fixture::new();
    fill(&fixture);
    let before = fixture.pods.metrics();
    let first = with_limit(2, at(""));
    let token = fixture
        .list(&fixture.pods, &Scope::All, &first)
        .unwrap()
        .token
        .unwrap();
    let next = ListOptions::default().continue_token(token);
    // T-49: no list reads the objects from the source.
    for options in [
        at(""),
        at("0"),
        at(2),
        not_older(2),
        exact(3),
        with_limit(1, at(4)),
        next,
    ] {
        fixture.list(&fixture.pods, &Scope::All, &options).unwrap();
    }
    let after = fixture.pods.metrics();
    assert_eq!(after.lists - before.lists, 8);
    assert_eq!(after.lists_from_source, 0);
    assert_eq!(after.consistent_reads - before.consistent_reads, 2);
    assert_eq!(after.consistent_read_fallbacks, 0);
}

// Shows WC-130.
#[test]
fn t_52_each_list_is_the_state_of_one_revision_during_concurrent_writes() {
    let fixture = Fixture::new();
    // One transaction updates both pods; a list of mixed revisions would contain two numbers.
    let engine = fixture.engine().clone();
    let writer = std::thread::spawn(move || {
        for number in 0..500 {
            let put = |name: &str| {
                let value = format!("{{\"metadata\":{{\"labels\":{{\"n\":\"{number}\"}}}}}}");
                let key = format!("{}/ns/{name}", crate::support::PODS);
                revstore_engine::Op::Put(revstore_engine::Put::new(key, value))
            };
            let success = vec![put("a"), put("b")];
            let txn = revstore_engine::Txn::new().and_then(success);
            engine.txn(&txn).unwrap();
        }
    });
    let mut seen = 0;
    while !writer.is_finished() {
        let any = ListOptions::default().resource_version("0");
        let list = fixture.wait(fixture.pods.list(&Scope::All, &any)).unwrap();
        let revision = list.revision;
        let objects = list.into_objects().unwrap();
        let numbers: Vec<_> = objects.iter().map(|pod| pod.label("n").unwrap()).collect();
        assert!(
            numbers.windows(2).all(|pair| pair[0] == pair[1]),
            "{numbers:?}"
        );
        assert!(objects.iter().all(|pod| pod.revision() <= revision));
        seen += 1;
    }
    writer.join().unwrap();
    assert!(seen > 0);
}

#[test]
fn wc_224_limits_at_version_0_can_be_honored() {
    let fixture = Fixture::with(config(), |builder| builder.honor_limit_at_rv0(true));
    fill(&fixture);
    let page = fixture
        .list(&fixture.pods, &Scope::All, &with_limit(1, at("0")))
        .unwrap();
    assert_eq!((page.items.len(), page.remaining), (1, Some(2)));
}

#[test]
fn wc_227_required_names_and_namespaces_narrow_the_first_page_only() {
    on_both(|fixture, store, _| {
        fill(fixture);
        let options = ListOptions::default().limit(1).selector(Selector {
            fields: FieldSelector::equals("metadata.namespace", "ns1"),
            ..Selector::default()
        });
        let chain = pages(fixture, store, options, |_| {});
        let keys: Vec<_> = chain.iter().flat_map(|page| &page.items).collect();
        assert_eq!(keys.len(), 2, "{keys:?}");
    });
}

/// A kind that counts decoded objects.
#[derive(Debug)]
pub(crate) struct CountingKind {
    pub(crate) inner: revstore_watch_cache::JsonKind,
    pub(crate) decoded: Arc<AtomicU64>,
}

impl Kind for CountingKind {
    fn api_version(&self) -> &str {
        self.inner.api_version()
    }
    fn kind(&self) -> &str {
        self.inner.kind()
    }
    fn extract(&self, value: &[u8]) -> Result<Attributes, DecodeError> {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        self.inner.extract(value)
    }
    fn form(&self) -> Arc<dyn Form> {
        self.inner.form()
    }
}

// Shows WC-141.
#[test]
fn t_09_exact_lists_within_the_window_decode_nothing() {
    let decoded = Arc::new(AtomicU64::new(0));
    let kind = CountingKind {
        inner: revstore_watch_cache::JsonKind::new("v1", "Pod"),
        decoded: decoded.clone(),
    };
    let config = ResourceConfig::namespaced(kind, "pods", crate::support::PODS)
        .window(crate::support::short_window(40));
    let fixture = Fixture::with(config, |builder| builder);
    let mut random = fastrand::Rng::with_seed(9);
    let first = fixture.current();
    for _ in 0..100 {
        let key = format!("ns{}/p{}", random.u64(..2), random.u64(..12));
        let (pod, latest) = (object(&key), GetOptions::default());
        let known = fixture.wait(fixture.pods.get(&pod, &latest)).unwrap();
        match (known, random.u64(..3)) {
            (Some(_), 0) => fixture.delete(&key),
            _ => fixture.put_pod(&key),
        };
    }
    fixture.wait_until_fresh();
    let last = fixture.current();
    let (mut from_window, mut from_source) = (0, 0);
    for revision in first..=last {
        for limit in [0, 3] {
            let options = with_limit(limit, exact(revision));
            let expected = fixture.list(&fixture.raw, &Scope::All, &options).unwrap();
            let (decoded_before, from_source_before) = (
                decoded.load(Ordering::Relaxed),
                fixture.pods.metrics().lists_from_source,
            );
            let page = fixture.list(&fixture.pods, &Scope::All, &options).unwrap();
            assert_eq!(page, expected, "at {revision}");
            let is_from_source = fixture.pods.metrics().lists_from_source > from_source_before;
            let has_decoded = decoded.load(Ordering::Relaxed) > decoded_before;
            assert_eq!(is_from_source, revision < last - 40, "at {revision}");
            assert!(is_from_source || !has_decoded, "at {revision}");
            if is_from_source {
                from_source += 1;
            } else {
                from_window += 1;
            }
        }
    }
    assert_eq!((from_window, from_source), (82, 120));
}
