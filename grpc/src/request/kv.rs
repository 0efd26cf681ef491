//! Range, Put and `DeleteRange`: validation and conversion.

use std::mem;

use bytes::Bytes;
use revstore_engine::{KeyRange, LeaseId, Put, PutLease, Range, Revision, SortBy, SortOrder};
use revstore_proto::etcdserverpb::range_request::{SortOrder as WireOrder, SortTarget};
use revstore_proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest};

use crate::node::admission::Limits;
use crate::status::EtcdError;

/// The range end of a range without an end: all keys from the start on (RG-3).
pub(crate) const FROM_KEY_END: &[u8] = &[0];

/// RG-6, RG-44, RG-45.
pub(crate) fn validate_range(request: &RangeRequest, _: &Limits) -> Result<(), EtcdError> {
    validate_key(&request.key)?;
    if WireOrder::try_from(request.sort_order).is_err()
        || SortTarget::try_from(request.sort_target).is_err()
    {
        return Err(EtcdError::InvalidSortOption);
    }
    Ok(())
}

/// RG-65: the chunks of a stream are in key order and not filtered.
pub(crate) fn validate_range_stream(
    request: &RangeRequest,
    limits: &Limits,
) -> Result<(), EtcdError> {
    validate_range(request, limits)?;
    let in_key_order = match request.sort_order() {
        WireOrder::None => true,
        WireOrder::Ascend => request.sort_target() == SortTarget::Key,
        WireOrder::Descend => false,
    };
    if !in_key_order {
        return Err(EtcdError::StreamSortUnsupported);
    }
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if filters != [0; 4] {
        return Err(EtcdError::StreamFilterUnsupported);
    }
    Ok(())
}

/// PUT-1, PUT-3.
pub(crate) fn validate_put(request: &PutRequest, _: &Limits) -> Result<(), EtcdError> {
    validate_key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(EtcdError::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(EtcdError::LeaseProvided);
    }
    Ok(())
}

/// RG-6.
pub(crate) fn validate_delete_range(
    request: &DeleteRangeRequest,
    _: &Limits,
) -> Result<(), EtcdError> {
    validate_key(&request.key)
}

pub(super) fn validate_key(key: &[u8]) -> Result<(), EtcdError> {
    if key.is_empty() {
        return Err(EtcdError::EmptyKey);
    }
    Ok(())
}

/// Converts a range outside of a transaction.
pub(crate) fn convert_range(request: &mut RangeRequest) -> Range {
    // RG-10
    let at = (request.revision > 0).then_some(Revision(request.revision));
    convert_range_at(request, at)
}

/// Converts all fields of a range except its revision.
pub(super) fn convert_range_at(request: &mut RangeRequest, at: Option<Revision>) -> Range {
    let sort = convert_sort(request);
    let mut range = Range::of(convert_keys(&mut request.key, &mut request.range_end));
    range.at = at;
    // RG-20
    range.limit = usize::try_from(request.limit)
        .ok()
        .filter(|limit| *limit > 0);
    range.count_only = request.count_only;
    // With a target but no order, the limit applies before the sort (RG-41, RG-42).
    range.limit_first = sort.is_some() && request.sort_order() == WireOrder::None;
    range.sort = sort;
    range.filter.min_mod_revision = convert_bound(request.min_mod_revision);
    range.filter.max_mod_revision = convert_bound(request.max_mod_revision);
    range.filter.min_create_revision = convert_bound(request.min_create_revision);
    range.filter.max_create_revision = convert_bound(request.max_create_revision);
    range
}

pub(crate) fn convert_put(request: &mut PutRequest) -> Put {
    let key = mem::take(&mut request.key);
    let put = if request.ignore_value {
        Put::keeping_value(key)
    } else {
        Put::new(key, mem::take(&mut request.value))
    };
    put.with_lease(match LeaseId::new(request.lease) {
        _ if request.ignore_lease => PutLease::Keep,
        Some(lease) => PutLease::Attach(lease),
        None => PutLease::Detach,
    })
}

pub(crate) fn convert_delete_range(request: &mut DeleteRangeRequest) -> KeyRange {
    convert_keys(&mut request.key, &mut request.range_end)
}

/// Converts the key and the range end of a request (RG-1 to RG-3). A range whose end is before its
/// start contains no key (RG-5).
pub(crate) fn convert_keys(key: &mut Bytes, range_end: &mut Bytes) -> KeyRange {
    let start = mem::take(key);
    match &**range_end {
        [] => KeyRange::One(start),
        FROM_KEY_END => KeyRange::From(start),
        _ => KeyRange::Within {
            start,
            end: mem::take(range_end),
        },
    }
}

/// RG-30: zero means that there is no bound.
fn convert_bound(revision: i64) -> Option<Revision> {
    (revision != 0).then_some(Revision(revision))
}

fn convert_sort(request: &RangeRequest) -> Option<(SortBy, SortOrder)> {
    let by = match request.sort_target() {
        SortTarget::Key => SortBy::Key,
        SortTarget::Version => SortBy::Version,
        SortTarget::Create => SortBy::CreateRevision,
        SortTarget::Mod => SortBy::ModRevision,
        SortTarget::Value => SortBy::Value,
    };
    let order = match request.sort_order() {
        WireOrder::None if by == SortBy::Key => return None,
        // RG-41
        WireOrder::None | WireOrder::Ascend => SortOrder::Ascending,
        WireOrder::Descend => SortOrder::Descending,
    };
    Some((by, order))
}

#[cfg(test)]
mod tests {
    use revstore_engine::Filter;

    use super::*;

    fn bytes(text: &'static [u8]) -> Bytes {
        Bytes::from_static(text)
    }

    #[test]
    fn rg_1_to_5_a_range_has_three_forms() {
        let check = |key: &'static [u8], end: &'static [u8], expected| {
            assert_eq!(convert_keys(&mut bytes(key), &mut bytes(end)), expected);
        };
        check(b"a", b"", KeyRange::one("a"));
        check(b"a", b"c", KeyRange::within("a", "c"));
        check(b"c", b"a", KeyRange::within("c", "a"));
        check(b"a", b"\0", KeyRange::From(bytes(b"a")));
        check(b"\0", b"\0", KeyRange::From(bytes(b"\0")));
        check(b"\0", b"\0\0", KeyRange::within(&b"\0"[..], &b"\0\0"[..]));
    }

    #[test]
    fn rg_10_rg_20_rg_30_zero_means_absent() {
        let mut request = RangeRequest {
            key: "k".into(),
            revision: -7,
            limit: i64::MIN,
            ..RangeRequest::default()
        };
        assert_eq!(
            convert_range(&mut request.clone()),
            Range::of(KeyRange::one("k"))
        );
        request.limit = i64::MAX;
        request.max_mod_revision = -1;
        request.min_create_revision = i64::MAX;
        let filter = Filter::default()
            .max_mod_revision(Revision(-1))
            .min_create_revision(Revision(i64::MAX));
        let limit = usize::try_from(i64::MAX).unwrap();
        assert_eq!(
            convert_range(&mut request),
            Range::of(KeyRange::one("k")).limit(limit).filtered(filter)
        );
    }

    #[test]
    fn rg_41_a_sort_target_without_an_order_sorts_ascending() {
        let check = |target: SortTarget, order: WireOrder, expected| {
            let request = RangeRequest {
                sort_target: target.into(),
                sort_order: order.into(),
                ..RangeRequest::default()
            };
            assert_eq!(convert_sort(&request), expected);
        };
        check(SortTarget::Key, WireOrder::None, None);
        check(
            SortTarget::Mod,
            WireOrder::None,
            Some((SortBy::ModRevision, SortOrder::Ascending)),
        );
        check(
            SortTarget::Key,
            WireOrder::Descend,
            Some((SortBy::Key, SortOrder::Descending)),
        );
    }

    #[test]
    fn put_5_ignored_fields_keep_their_values() {
        let mut request = PutRequest {
            key: "k".into(),
            ignore_value: true,
            ignore_lease: true,
            ..PutRequest::default()
        };
        let put = convert_put(&mut request);
        assert_eq!((put.value, put.lease), (None, PutLease::Keep));
        request.ignore_lease = false;
        assert_eq!(convert_put(&mut request).lease, PutLease::Detach);
        request.lease = -5;
        let lease = LeaseId::new(-5).unwrap();
        assert_eq!(convert_put(&mut request).lease, PutLease::Attach(lease));
    }

    #[test]
    fn rg_44_rg_45_unknown_sort_options_are_rejected() {
        for (order, target) in [(3, 0), (0, 5), (-1, 0), (0, i32::MIN)] {
            let request = RangeRequest {
                key: "k".into(),
                sort_order: order,
                sort_target: target,
                ..RangeRequest::default()
            };
            assert_eq!(
                validate_range(&request, &Limits::default()),
                Err(EtcdError::InvalidSortOption)
            );
        }
    }

    #[test]
    fn rg_65_streams_are_in_key_order_and_unfiltered() {
        let request = |sort_order, sort_target, max_mod_revision| RangeRequest {
            key: "k".into(),
            sort_order,
            sort_target,
            max_mod_revision,
            ..RangeRequest::default()
        };
        assert_eq!(
            validate_range_stream(&request(0, 0, 0), &Limits::default()),
            Ok(())
        );
        assert_eq!(
            validate_range_stream(&request(1, 0, 0), &Limits::default()),
            Ok(())
        );
        assert_eq!(
            validate_range_stream(&request(0, 4, 0), &Limits::default()),
            Ok(())
        );
        for (order, target) in [(1, 1), (2, 0), (2, 3)] {
            assert_eq!(
                validate_range_stream(&request(order, target, 0), &Limits::default()),
                Err(EtcdError::StreamSortUnsupported)
            );
        }
        assert_eq!(
            validate_range_stream(&request(0, 0, -1), &Limits::default()),
            Err(EtcdError::StreamFilterUnsupported)
        );
    }

    #[test]
    fn put_3_an_ignored_field_must_be_empty() {
        let request = |value: &'static str, ignore_value, lease, ignore_lease| PutRequest {
            key: "k".into(),
            value: value.into(),
            lease,
            ignore_value,
            ignore_lease,
            ..PutRequest::default()
        };
        assert_eq!(
            validate_put(&request("", true, 0, true), &Limits::default()),
            Ok(())
        );
        assert_eq!(
            validate_put(&request("v", true, 1, true), &Limits::default()),
            Err(EtcdError::ValueProvided)
        );
        assert_eq!(
            validate_put(&request("v", false, -1, true), &Limits::default()),
            Err(EtcdError::LeaseProvided)
        );
    }
}
