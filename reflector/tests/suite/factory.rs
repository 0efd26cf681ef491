//! The factory of informers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollster::block_on;
use revstore_reflector::{
    Collection, Informer, InformerFactory, ListWatch, Reflector, StorageListWatch,
};
use revstore_watch_cache::{RequestError, Scope, Selector};

use crate::support::{Fixture, pod, poll_once};

fn factory(fixture: &Fixture, sources: &Arc<AtomicUsize>) -> InformerFactory {
    let (pods, sources) = (fixture.pods.clone(), sources.clone());
    let clock = Arc::new(fixture.clock.clone());
    InformerFactory::new(move |collection| {
        sources.fetch_add(1, Ordering::Relaxed);
        if collection.resource.plural != "pods" {
            return Err(RequestError::BadRequest("unknown resource".into()));
        }
        let (scope, selector) = (collection.scope.clone(), collection.selector.clone());
        let source = StorageListWatch::new(Arc::new(pods.clone()), scope, selector);
        Ok(Arc::new(source) as Arc<dyn ListWatch>)
    })
    .configure(move |_, source| {
        Informer::builder(Reflector::builder(source).clock(clock.clone()).build())
            .index("all", |_| vec!["yes".into()])
    })
}

#[test]
fn all_who_need_a_collection_share_an_informer() {
    let fixture = Fixture::new();
    fixture.put("ns/a", pod("ns/a", "web", ""));
    fixture.put("ns2/b", pod("ns2/b", "db", ""));
    fixture.wait_until_fresh();
    let sources = Arc::new(AtomicUsize::new(0));
    let factory = factory(&fixture, &sources);
    let pods = Collection::new("", "pods");
    let web = pods
        .clone()
        .selector(Selector::parse("app=web", "").unwrap());
    let ns2 = pods.clone().scope(Scope::Namespace("ns2".into()));
    assert!(
        factory
            .informer(&Collection::new("apps", "deployments"))
            .is_err()
    );
    let (all, same) = (
        factory.informer(&pods).unwrap(),
        factory.informer(&pods).unwrap(),
    );
    let web = factory.informer(&web).unwrap();
    assert_eq!(sources.load(Ordering::Relaxed), 3);
    assert!(poll_once(factory.synced()).is_pending(), "nothing runs yet");
    factory.start();
    assert!(block_on(factory.synced()));
    assert_eq!(all.store().index_keys("all", "yes"), ["ns/a", "ns2/b"]);
    assert_eq!(same.store().len(), 2);
    assert_eq!(web.store().keys(), ["ns/a"]);

    // Later informers run after the next start, here on an executor of the program.
    let later = factory.informer(&ns2).unwrap();
    let mut spawned = Vec::new();
    factory.start_with(|informer| spawned.push(informer));
    assert_eq!(spawned.len(), 1);
    assert!(poll_once(&mut spawned[0]).is_pending());
    assert!(block_on(factory.synced()));
    assert_eq!(later.store().keys(), ["ns2/b"]);

    factory.stop();
    assert!(poll_once(&mut spawned[0]).is_ready());
    assert!(
        all.subscribe().try_next().is_some(),
        "the stores keep their contents"
    );
    let renewed = factory.informer(&pods).unwrap();
    assert!(!renewed.has_synced());
    drop(factory);
    assert!(
        !block_on(renewed.synced()),
        "the factory drops informers that never ran"
    );
}
