//! Conversion of requests to create a watcher. They are not validated, as in etcd.

use bytes::Bytes;
use revstore_engine::{Revision, WatchId, WatchOptions};
use revstore_proto::etcdserverpb::WatchCreateRequest;
use revstore_proto::etcdserverpb::watch_create_request::FilterType;

use crate::request::kv::convert_keys;

/// The smallest key. An empty key in a request means this key (WA-9).
pub(crate) const SMALLEST_KEY: &[u8] = &[0];

pub(crate) fn convert_watch_create(mut request: WatchCreateRequest) -> WatchOptions {
    if request.key.is_empty() {
        // WA-9
        request.key = Bytes::from_static(SMALLEST_KEY);
    }
    // WA-35: unknown filters are ignored.
    let has_filter = |filter: FilterType| request.filters.contains(&i32::from(filter));
    let no_put = has_filter(FilterType::Noput);
    let no_delete = has_filter(FilterType::Nodelete);
    let mut options = WatchOptions::of(convert_keys(&mut request.key, &mut request.range_end));
    options.start = (request.start_revision != 0).then_some(Revision(request.start_revision));
    options.no_put = no_put;
    options.no_delete = no_delete;
    options.prev_kv = request.prev_kv;
    options.progress_notify = request.progress_notify;
    // WA-2
    options.id = (request.watch_id != 0).then_some(WatchId(request.watch_id));
    options
}

#[cfg(test)]
mod tests {
    use revstore_engine::KeyRange;

    use super::*;

    #[test]
    fn wa_9_an_empty_key_means_the_smallest_key() {
        let check = |range_end: &'static [u8], expected| {
            let request = WatchCreateRequest {
                range_end: Bytes::from_static(range_end),
                ..WatchCreateRequest::default()
            };
            assert_eq!(convert_watch_create(request), WatchOptions::of(expected));
        };
        let smallest = || Bytes::from_static(b"\0");
        check(b"", KeyRange::One(smallest()));
        check(b"\0", KeyRange::From(smallest()));
        check(b"b", KeyRange::within(&b"\0"[..], &b"b"[..]));
    }

    #[test]
    fn wa_35_unknown_filters_are_ignored() {
        let options = convert_watch_create(WatchCreateRequest {
            key: "k".into(),
            filters: vec![7, FilterType::Nodelete.into(), -1],
            ..WatchCreateRequest::default()
        });
        assert!(options.no_delete && !options.no_put);
    }
}
