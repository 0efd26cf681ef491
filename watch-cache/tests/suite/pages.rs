//! Exact lists and further pages from checkpoints (WC-136).

use std::time::Duration;

use pollster::block_on;
use revstore_engine::Revision;
use revstore_watch_cache::api::{ContinueToken, Expired};
use revstore_watch_cache::{ListOptions, RequestError, ResourceCache, Scope};

use crate::load::GatedCache;
use crate::support::{Fixture, Page, at, exact, namespace};

fn next(token: &str, limit: i64) -> ListOptions {
    ListOptions::default().limit(limit).continue_token(token)
}

#[test]
fn wc_136_pages_of_a_list_come_from_the_cache_whatever_is_written_meanwhile() {
    let fixture = Fixture::new();
    for number in 0..400 {
        fixture.put_pod(&format!("ns/p{number:03}"));
    }
    fixture.wait_until_fresh();
    let first = fixture
        .list(&fixture.pods, &Scope::All, &at("").limit(20))
        .unwrap();
    let (mut items, mut token) = (first.items, first.token);
    let mut number = 0;
    while let Some(start) = &token {
        for _ in 0..250 {
            number += 1;
            match number % 3 {
                0 => drop(
                    fixture
                        .engine()
                        .delete(&revstore_engine::KeyRange::one(format!(
                            "{}/ns/p{:03}",
                            crate::support::PODS,
                            number % 400
                        ))),
                ),
                _ => drop(fixture.put_pod(&format!("ns/p{:03}", number % 450))),
            }
        }
        fixture.wait_until_fresh();
        let page = fixture
            .list(&fixture.pods, &Scope::All, &next(start, 20))
            .unwrap();
        items.extend(page.items);
        token = page.token;
    }
    assert!(number > 4000);
    let expected = fixture
        .list(&fixture.raw, &Scope::All, &exact(first.revision))
        .unwrap();
    assert_eq!(items, expected.items);
    let metrics = fixture.pods.metrics();
    assert_eq!(metrics.lists_from_source, 0);
    assert!(metrics.checkpoints >= 10, "{}", metrics.checkpoints);
}

/// Lists at random revisions of a store that changes and is compacted. Each page is that of the store
/// at its revision, with the same token, count or error.
#[test]
fn wc_136_pages_at_any_revision_are_those_of_the_store() {
    let mut from_cache = 0;
    for seed in 0..6 {
        // Printed if the test fails.
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let fixture = Fixture::new();
        let first = fixture.current();
        let mut compacted = first;
        let mut chain: Option<(String, Scope, i64)> = None;
        for _ in 0..2500 {
            let key = format!("ns{}/p{:03}", random.u32(..3), random.u32(..120));
            let key = format!("{}/{key}", crate::support::PODS);
            if random.u32(..3) > 0 {
                let value = "{\"metadata\":{}}";
                fixture.engine().put(key, value).unwrap();
            } else {
                let key = revstore_engine::KeyRange::one(key);
                fixture.engine().delete(&key).unwrap();
            }
            if random.u32(..400) == 0 {
                let current = fixture.current();
                compacted = random.i64(compacted..=current);
                fixture.compact(compacted);
                compacted += 1;
            }
            if random.u32(..8) > 0 {
                continue;
            }
            fixture.wait_until_fresh();
            let (scope, options) = if let Some((token, scope, limit)) = chain.take() {
                (scope, next(&token, limit))
            } else {
                let scopes = [Scope::All, namespace("ns1"), namespace("ns9")];
                let revision = random.i64(first..=fixture.current());
                let scope = scopes[random.usize(..3)].clone();
                let limit = [0, 1, 7, 500][random.usize(..4)];
                (scope, exact(revision).limit(limit))
            };
            let page = fixture.list(&fixture.pods, &scope, &options);
            let expected = fixture.list(&fixture.raw, &scope, &options);
            assert_eq!(page, expected, "{scope:?} {options:?}");
            if let Ok(Page {
                token: Some(token), ..
            }) = page
            {
                chain = Some((token, scope, random.i64(1..50)));
            }
        }
        let metrics = fixture.pods.metrics();
        assert_eq!(metrics.lists_from_source, 0, "the window has all revisions");
        from_cache += metrics.lists;
    }
    assert!(from_cache > 1000, "{from_cache} lists");
}

fn page(pods: &ResourceCache, options: &ListOptions) -> Result<Option<String>, RequestError> {
    let list = block_on(pods.list(&Scope::All, options))?;
    Ok(list.continue_token)
}

// Shows WC-110 and WC-234.
#[test]
fn wc_136_compaction_is_noticed_within_15_seconds_and_not_looked_up_for_each_page() {
    let mut cache = GatedCache::new();
    let pods = cache.add("pods");
    cache.fill("pods", 100);
    cache.run();
    let mut token = page(&pods, &at("").limit(10)).unwrap().unwrap();
    let newest = cache.put("pods/ns/x");
    cache.run();
    let lists = cache.source.lists();
    for _ in 0..3 {
        token = page(&pods, &next(&token, 10)).unwrap().unwrap();
    }
    assert_eq!(cache.source.lists(), lists + 1, "the source is asked once");
    let compaction = cache.engine.compact(Revision(newest)).unwrap();
    compaction.run();
    cache.clock.advance(Duration::from_millis(14_999));
    token = page(&pods, &next(&token, 10)).unwrap().unwrap();
    // An earlier revision is looked up.
    let revision = ContinueToken::decode(&token).unwrap().revision.unwrap();
    let error = page(&pods, &exact(revision.0 - 1)).unwrap_err();
    assert_eq!(error, RequestError::Expired(Expired::List));
    cache.clock.advance(Duration::from_millis(1));
    let error = page(&pods, &next(&token, 10)).unwrap_err();
    let RequestError::Expired(Expired::Continue { token: Some(token) }) = error else {
        panic!("expected an expired token, got {error}");
    };
    assert!(page(&pods, &next(&token, 10)).is_ok());
}
