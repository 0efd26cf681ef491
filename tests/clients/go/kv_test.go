package clients

import (
	"context"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestPutGetDelete(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)

	equal(t, "revision of the first put", put(t, client, "a", "1"), 2)
	second := must(client.Put(ctx, "a", "2", clientv3.WithPrevKV()))(t)
	equal(t, "previous value", string(second.PrevKv.Value), "1")

	got := must(client.Get(ctx, "a"))(t)
	kv := got.Kvs[0]
	equal(t, "value", string(kv.Value), "2")
	equal(t, "create revision", kv.CreateRevision, 2)
	equal(t, "mod revision", kv.ModRevision, 3)
	equal(t, "version", kv.Version, 2)

	old := must(client.Get(ctx, "a", clientv3.WithRev(2), clientv3.WithSerializable()))(t)
	equalSlices(t, "at revision 2", pairs(old.Kvs), []string{"a=1"})

	deleted := must(client.Delete(ctx, "a", clientv3.WithPrevKV()))(t)
	equal(t, "deleted", deleted.Deleted, 1)
	equalSlices(t, "deleted", pairs(deleted.PrevKvs), []string{"a=2"})
	equal(t, "count after", must(client.Get(ctx, "a"))(t).Count, 0)
	again := must(client.Delete(ctx, "a"))(t)
	equal(t, "deleted again", again.Deleted, 0)
	equal(t, "revision of a delete without a match", again.Header.Revision, 4)
}

func TestRangeOptions(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	for _, pair := range []string{"k/a=3", "k/b=1", "k/c=2", "l=4"} {
		key, value, _ := strings.Cut(pair, "=")
		put(t, client, key, value)
	}

	check := func(name, key string, want []string, count int64, more bool, options ...clientv3.OpOption) {
		t.Helper()
		got := must(client.Get(ctx, key, options...))(t)
		equalSlices(t, name, pairs(got.Kvs), want)
		equal(t, name+": count", got.Count, count)
		equal(t, name+": more", got.More, more)
	}
	prefix := clientv3.WithPrefix()
	check("prefix", "k/", []string{"k/a=3", "k/b=1", "k/c=2"}, 3, false, prefix)
	check("range", "k/b", []string{"k/b=1", "k/c=2"}, 2, false, clientv3.WithRange("l"))
	check("from key", "k/c", []string{"k/c=2", "l=4"}, 2, false, clientv3.WithFromKey())
	check("all", "", []string{"k/a=3", "k/b=1", "k/c=2", "l=4"}, 4, false, prefix)
	check("limit", "k/", []string{"k/a=3", "k/b=1"}, 3, true, prefix, clientv3.WithLimit(2))
	check("keys only", "k/", []string{"k/a="}, 3, true, prefix, clientv3.WithLimit(1), clientv3.WithKeysOnly())
	check("count only", "k/", nil, 3, false, prefix, clientv3.WithCountOnly())
	check("by value", "k/", []string{"k/b=1", "k/c=2", "k/a=3"}, 3, false, prefix,
		clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend))
	check("last by key", "k/", []string{"k/c=2"}, 3, true, clientv3.WithLastKey()...)
	check("first created", "k/", []string{"k/a=3"}, 3, true, clientv3.WithFirstCreate()...)
	check("last modified", "k/", []string{"k/c=2"}, 3, true, clientv3.WithLastRev()...)
	check("min mod", "k/", []string{"k/b=1", "k/c=2"}, 3, false, prefix, clientv3.WithMinModRev(3))
	check("max mod", "k/", []string{"k/a=3"}, 3, false, prefix, clientv3.WithMaxModRev(2))
	check("min create", "k/", []string{"k/c=2"}, 3, false, prefix, clientv3.WithMinCreateRev(4))
	check("max create", "k/", []string{"k/a=3", "k/b=1"}, 3, false, prefix, clientv3.WithMaxCreateRev(3))
	check("at revision 2", "k/", []string{"k/a=3"}, 1, false, prefix, clientv3.WithRev(2))
}

func TestPutOptions(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)

	lease := must(client.Grant(ctx, 60))(t).ID
	put(t, client, "k", "1", clientv3.WithLease(lease))
	put(t, client, "k", "2", clientv3.WithIgnoreLease())
	kv := must(client.Get(ctx, "k"))(t).Kvs[0]
	equal(t, "lease kept", clientv3.LeaseID(kv.Lease), lease)
	put(t, client, "k", "", clientv3.WithIgnoreValue())
	kv = must(client.Get(ctx, "k"))(t).Kvs[0]
	equal(t, "value kept", string(kv.Value), "2")
	equal(t, "lease dropped", kv.Lease, 0)
	equal(t, "version", kv.Version, 3)
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	for _, value := range []string{"1", "2", "3"} {
		put(t, client, "k", value)
	}

	must(client.Compact(ctx, 3, clientv3.WithCompactPhysical()))(t)
	_, err := client.Get(ctx, "k", clientv3.WithRev(2))
	fails(t, err, rpctypes.ErrCompacted)
	compacted := must(client.Get(ctx, "k", clientv3.WithRev(3)))(t)
	equalSlices(t, "at the compacted revision", pairs(compacted.Kvs), []string{"k=2"})
	_, err = client.Compact(ctx, 3)
	fails(t, err, rpctypes.ErrCompacted)
	_, err = client.Compact(ctx, 9)
	fails(t, err, rpctypes.ErrFutureRev)
}

// The client maps the text of a status to an error, so this test compares each text.
func TestErrors(t *testing.T) {
	t.Parallel()
	client := start(t, "--max-txn-ops=2", "--max-request-bytes=1000").client()
	ctx := bounded(t)

	_, err := client.Put(ctx, "", "v")
	fails(t, err, rpctypes.ErrEmptyKey)
	_, err = client.Get(ctx, "k", clientv3.WithRev(9))
	fails(t, err, rpctypes.ErrFutureRev)
	_, err = client.Put(ctx, "k", "", clientv3.WithIgnoreValue())
	fails(t, err, rpctypes.ErrKeyNotFound)
	_, err = client.Put(ctx, "k", "v", clientv3.WithIgnoreValue())
	fails(t, err, rpctypes.ErrValueProvided)
	_, err = client.Put(ctx, "k", "v", clientv3.WithLease(99))
	fails(t, err, rpctypes.ErrLeaseNotFound)
	_, err = client.Put(ctx, "k", strings.Repeat("v", 1000))
	fails(t, err, rpctypes.ErrRequestTooLarge)
	twice := clientv3.OpPut("k", "v")
	_, err = client.Txn(ctx).Then(twice, twice).Commit()
	fails(t, err, rpctypes.ErrDuplicateKey)
	_, err = client.Txn(ctx).Then(clientv3.OpGet("a"), clientv3.OpGet("b"), clientv3.OpGet("c")).Commit()
	fails(t, err, rpctypes.ErrTooManyOps)
	_, err = client.Grant(ctx, 9_000_000_001)
	fails(t, err, rpctypes.ErrLeaseTTLTooLarge)
	_, err = client.MemberRemove(ctx, 99)
	fails(t, err, rpctypes.ErrMemberNotFound)
	equal(t, "revision after failures only", must(client.Get(ctx, "k"))(t).Header.Revision, 1)
}

func TestTxn(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)

	create := func() *clientv3.TxnResponse {
		return must(client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision("k"), "=", 0)).
			Then(clientv3.OpPut("k", "1"), clientv3.OpPut("k2", "1"), clientv3.OpGet("k")).
			Else(clientv3.OpGet("k"), clientv3.OpDelete("k2", clientv3.WithPrevKV())).
			Commit())(t)
	}
	first := create()
	equal(t, "first", first.Succeeded, true)
	equalSlices(t, "reads its own write", pairs(first.Responses[2].GetResponseRange().Kvs), []string{"k=1"})
	equal(t, "one revision", first.Header.Revision, 2)
	second := create()
	equal(t, "second", second.Succeeded, false)
	equalSlices(t, "else", pairs(second.Responses[0].GetResponseRange().Kvs), []string{"k=1"})
	equalSlices(t, "deleted", pairs(second.Responses[1].GetResponseDeleteRange().PrevKvs), []string{"k2=1"})

	compare := func(want bool, cmps ...clientv3.Cmp) {
		t.Helper()
		got := must(client.Txn(ctx).If(cmps...).Commit())(t)
		equal(t, "compare", got.Succeeded, want)
	}
	put(t, client, "k/a", "1")
	put(t, client, "k/b", "2")
	compare(true, clientv3.Compare(clientv3.Value("k"), "=", "1"), clientv3.Compare(clientv3.Version("k"), "<", 2))
	compare(true, clientv3.Compare(clientv3.ModRevision("k"), "=", 2), clientv3.Compare(clientv3.LeaseValue("k"), "=", 0))
	compare(false, clientv3.Compare(clientv3.Value("k"), "!=", "1"))
	compare(true, clientv3.Compare(clientv3.Value("k/"), "<", "3").WithPrefix())
	compare(false, clientv3.Compare(clientv3.Value("k/"), ">", "1").WithPrefix())
	compare(false, clientv3.Compare(clientv3.Value("missing"), "!=", "1"))

	nested := must(client.Do(ctx, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.Value("k"), "=", "1")},
		[]clientv3.Op{
			clientv3.OpPut("outer", "x"),
			clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.Version("outer"), "=", 0)},
				[]clientv3.Op{clientv3.OpPut("inner", "before")},
				[]clientv3.Op{clientv3.OpPut("inner", "after")},
			),
		},
		nil,
	)))(t)
	inner := nested.Txn().Responses[1].GetResponseTxn()
	equal(t, "compares read the state before the transaction", inner.Succeeded, true)
	equalSlices(t, "inner", pairs(must(client.Get(ctx, "inner"))(t).Kvs), []string{"inner=before"})
}

// A cancelled call returns the error of its context, and the client remains usable.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx, cancel := context.WithCancel(bounded(t))
	cancel()
	_, err := client.Get(ctx, "k")
	fails(t, err, context.Canceled)
	put(t, client, "k", "v")
}

// The client accepts responses above 4 MiB, the default limit of gRPC libraries.
func TestLargeReply(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	value := strings.Repeat("v", 1<<20)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		put(t, client, key, value)
	}
	got := must(client.Get(bounded(t), "", clientv3.WithPrefix()))(t)
	equal(t, "keys", len(got.Kvs), 6)
	for _, kv := range got.Kvs {
		equal(t, "size", len(kv.Value), 1<<20)
	}
}
