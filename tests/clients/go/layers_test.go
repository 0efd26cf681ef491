package clients

import (
	"fmt"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/ordering"
	"go.uber.org/zap"
)

func TestNamespace(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	kv := namespace.NewKV(client, "ns/")
	watch := created(t, ctx, namespace.NewWatcher(client, "ns/"), "", clientv3.WithPrefix())
	leases := namespace.NewLease(client, "ns/")

	put(t, client, "a", "outside")
	lease := must(leases.Grant(ctx, 60))(t)
	put(t, kv, "a", "inside", clientv3.WithLease(lease.ID))
	equalSlices(t, "inside", pairs(must(kv.Get(ctx, "", clientv3.WithPrefix()))(t).Kvs), []string{"a=inside"})
	equalSlices(t, "outside", pairs(must(client.Get(ctx, "ns/a"))(t).Kvs), []string{"ns/a=inside"})
	remaining := must(leases.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()))(t)
	equal(t, "keys of the lease", fmt.Sprintf("%s", remaining.Keys), "[a]")
	txn := must(kv.Txn(ctx).
		If(clientv3.Compare(clientv3.Value("a"), "=", "inside")).
		Then(clientv3.OpDelete("a", clientv3.WithPrevKV())).
		Commit())(t)
	equalSlices(t, "deleted", pairs(txn.Responses[0].GetResponseDeleteRange().PrevKvs), []string{"a=inside"})
	equalSlices(t, "watched", events(t, watch, 2), []string{"PUT a=inside@3", "DELETE a=@4"})
}

// The mirror reads a prefix in pages at one revision, then watches it after that revision.
func TestMirror(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	// More keys than a page of the mirror.
	const batches, batch = 10, 125
	for i := range batches {
		var puts []clientv3.Op
		for j := range batch {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("k/%04d", i*batch+j), "v"))
		}
		must(client.Txn(ctx).Then(puts...).Commit())(t)
	}
	put(t, client, "other", "v")

	syncer := mirror.NewSyncer(client, "k/", 0)
	pages, failed := syncer.SyncBase(ctx)
	copied := 0
	for page := range pages {
		if copied == 0 {
			// Written after the base revision, so no later page contains it.
			put(t, client, "k/9999", "new")
		}
		for _, kv := range page.Kvs {
			equal(t, "key", string(kv.Key), fmt.Sprintf("k/%04d", copied))
			copied++
		}
	}
	for err := range failed {
		t.Fatal(err)
	}
	equal(t, "copied", copied, batches*batch)
	updates := syncer.SyncUpdates(ctx)
	equalSlices(t, "update", events(t, updates, 1), []string{fmt.Sprintf("PUT k/9999=new@%d", batches+3)})
}

// The ordering wrapper rejects a response with an older revision than the previous response. A server with
// an empty store sends such a response.
func TestOrdering(t *testing.T) {
	t.Parallel()
	server := start(t)
	client := server.client()
	ctx := bounded(t)
	kv := ordering.NewKV(client, ordering.NewOrderViolationSwitchEndpointClosure(client))
	for i := range 20 {
		value := fmt.Sprint(i)
		must(kv.Txn(ctx).Then(clientv3.OpPut("k", value)).Commit())(t)
		got := must(kv.Get(ctx, "k", clientv3.WithSerializable()))(t)
		equalSlices(t, "read after write", pairs(got.Kvs), []string{"k=" + value})
	}
	server.end(syscall.SIGKILL)
	server.data += "-empty"
	server.resume()
	_, err := kv.Get(ctx, "k", clientv3.WithSerializable())
	fails(t, err, ordering.ErrNoGreaterRev)
}

// Two leasing caches read each other's writes.
func TestLeasing(t *testing.T) {
	t.Parallel()
	server := start(t)
	ctx := bounded(t)
	cache := func() clientv3.KV {
		kv, shut, err := leasing.NewKV(server.client(), "leasing/")
		mustDo(t, err)
		t.Cleanup(shut)
		return kv
	}
	one, two := cache(), cache()
	put(t, one, "k", "0")
	for i := range 5 {
		caches := []clientv3.KV{one, two}
		for writer, kv := range caches {
			value := fmt.Sprintf("%d by %d", i, writer)
			put(t, kv, "k", value)
			for _, reader := range caches {
				equalSlices(t, "read", pairs(must(reader.Get(ctx, "k"))(t).Kvs), []string{"k=" + value})
			}
		}
	}
	swapped := must(two.Txn(ctx).
		If(clientv3.Compare(clientv3.Value("k"), "=", "4 by 1")).
		Then(clientv3.OpPut("k", "swapped"), clientv3.OpPut("k2", "v")).
		Commit())(t)
	equal(t, "swapped", swapped.Succeeded, true)
	equalSlices(t, "swapped", pairs(must(one.Get(ctx, "k"))(t).Kvs), []string{"k=swapped"})
	must(one.Delete(ctx, "k", clientv3.WithPrefix()))(t)
	equal(t, "deleted", must(two.Get(ctx, "k"))(t).Count, 0)
}

func TestEndpointsOfAService(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	manager := must(endpoints.NewManager(client, "service"))(t)
	mustDo(t, manager.AddEndpoint(ctx, "service/a", endpoints.Endpoint{Addr: "10.0.0.1:1"}))
	watch := must(manager.NewWatchChannel(ctx))(t)
	equal(t, "known", (<-watch)[0].Endpoint.Addr, "10.0.0.1:1")
	mustDo(t, manager.AddEndpoint(ctx, "service/b", endpoints.Endpoint{Addr: "10.0.0.2:2"}))
	added := (<-watch)[0]
	equal(t, "added", added.Op, endpoints.Add)
	equal(t, "added", added.Endpoint.Addr, "10.0.0.2:2")
	mustDo(t, manager.DeleteEndpoint(ctx, "service/a"))
	equal(t, "deleted", (<-watch)[0].Op, endpoints.Delete)
	equal(t, "remaining", len(must(manager.List(ctx))(t)), 1)
}

// Tests the calls that kube-apiserver sends.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	server := start(t)
	client := must(kubernetes.New(clientv3.Config{
		Endpoints: []string{server.address()}, Logger: zap.NewNop(), DialTimeout: limit,
	}))(t)
	t.Cleanup(func() { _ = client.Close() })
	ctx := bounded(t)
	api := client.Kubernetes

	var last int64
	for _, key := range []string{"pods/a", "pods/b", "pods/c"} {
		put := must(api.OptimisticPut(ctx, key, []byte("1"), 0, kubernetes.PutOptions{}))(t)
		equal(t, "created", put.Succeeded, true)
		last = put.Revision
	}
	again := must(api.OptimisticPut(ctx, "pods/a", []byte("2"), 0, kubernetes.PutOptions{GetOnFailure: true}))(t)
	equal(t, "created twice", again.Succeeded, false)
	equal(t, "present value", string(again.KV.Value), "1")
	updated := must(api.OptimisticPut(ctx, "pods/a", []byte("2"), again.KV.ModRevision, kubernetes.PutOptions{}))(t)
	equal(t, "updated", updated.Succeeded, true)

	page := must(api.List(ctx, "pods/", kubernetes.ListOptions{Limit: 2, Revision: last}))(t)
	equalSlices(t, "page", pairs(page.Kvs), []string{"pods/a=1", "pods/b=1"})
	equal(t, "count of all pages", page.Count, 3)
	rest := must(api.List(ctx, "pods/", kubernetes.ListOptions{
		Limit: 2, Revision: last, Continue: "pods/b\x00",
	}))(t)
	equalSlices(t, "rest", pairs(rest.Kvs), []string{"pods/c=1"})
	equal(t, "count", must(api.Count(ctx, "pods/", kubernetes.CountOptions{}))(t), 3)

	stale := must(api.OptimisticDelete(ctx, "pods/a", again.KV.ModRevision, kubernetes.DeleteOptions{GetOnFailure: true}))(t)
	equal(t, "stale", stale.Succeeded, false)
	deleted := must(api.OptimisticDelete(ctx, "pods/a", stale.KV.ModRevision, kubernetes.DeleteOptions{}))(t)
	equal(t, "deleted", deleted.Succeeded, true)
	deletedPod := must(api.Get(ctx, "pods/a", kubernetes.GetOptions{}))(t)
	if deletedPod.KV != nil {
		t.Errorf("not deleted: %v", deletedPod.KV)
	}
}
