package old

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.etcd.io/etcd/clientv3"
)

// endpoints are the forms of an endpoint. Of the second one, these clients use the whole URL as the authority of calls
// to one endpoint (LI-12).
func endpoints(address string) []string {
	return []string{address, "http://" + address}
}

// forEachEndpoint runs a test with a client for each form of the endpoint of a new server.
func forEachEndpoint(t *testing.T, test func(t *testing.T, client *clientv3.Client, endpoint string)) {
	t.Parallel()
	for _, endpoint := range endpoints(start(t)) {
		t.Run(strings.SplitAfter(endpoint, "//")[0], func(t *testing.T) {
			test(t, connect(t, clientv3.Config{Endpoints: []string{endpoint}}), endpoint)
		})
	}
}

func TestKV(t *testing.T) {
	forEachEndpoint(t, func(t *testing.T, client *clientv3.Client, _ string) {
		ctx := bounded(t)
		must(client.Delete(ctx, "", clientv3.WithPrefix()))(t)
		must(client.Put(ctx, "a", "1"))(t)
		put := must(client.Put(ctx, "b", "2", clientv3.WithPrevKV()))(t)
		got := must(client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortDescend)))(t)
		equal(t, "keys", len(got.Kvs), 2)
		equal(t, "first", string(got.Kvs[0].Key), "b")
		txn := must(client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision("b"), "=", put.Header.Revision)).
			Then(clientv3.OpPut("c", "3"), clientv3.OpGet("c")).
			Else(clientv3.OpDelete("a")).
			Commit())(t)
		equal(t, "succeeded", txn.Succeeded, true)
		equal(t, "value", string(txn.Responses[1].GetResponseRange().Kvs[0].Value), "3")
		deleted := must(client.Delete(ctx, "a"))(t)
		equal(t, "deleted", deleted.Deleted, 1)
		must(client.Compact(ctx, deleted.Header.Revision))(t)
		_, err := client.Get(ctx, "a", clientv3.WithRev(1))
		if err == nil || !strings.Contains(err.Error(), "required revision has been compacted") {
			t.Errorf("a compacted revision: %v", err)
		}
	})
}

func TestWatch(t *testing.T) {
	forEachEndpoint(t, func(t *testing.T, client *clientv3.Client, _ string) {
		ctx := bounded(t)
		first := must(client.Put(ctx, "k/a", "1"))(t).Header.Revision
		watch := client.Watch(ctx, "k/", clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithPrevKV())
		must(client.Put(ctx, "k/a", "2"))(t)
		must(client.Delete(ctx, "k/a"))(t)
		var seen []string
		for len(seen) < 3 {
			response, ok := <-watch
			if !ok || response.Err() != nil {
				t.Fatalf("the watch has ended: %v", response.Err())
			}
			for _, event := range response.Events {
				seen = append(seen, event.Type.String()+string(event.Kv.Value))
			}
		}
		equal(t, "events", strings.Join(seen, " "), "PUT1 PUT2 DELETE")
	})
}

func TestLease(t *testing.T) {
	forEachEndpoint(t, func(t *testing.T, client *clientv3.Client, _ string) {
		ctx := bounded(t)
		lease := must(client.Grant(ctx, 60))(t)
		must(client.Put(ctx, "leased", "v", clientv3.WithLease(lease.ID)))(t)
		alive := must(client.KeepAlive(ctx, lease.ID))(t)
		equal(t, "TTL", (<-alive).TTL, 60)
		equal(t, "TTL once", must(client.KeepAliveOnce(ctx, lease.ID))(t).TTL, 60)
		live := must(client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()))(t)
		equal(t, "keys", string(bytes.Join(live.Keys, nil)), "leased")
		must(client.Revoke(ctx, lease.ID))(t)
		equal(t, "count", must(client.Get(ctx, "leased"))(t).Count, 0)
	})
}

// The calls to one endpoint use a connection of their own (LI-12).
func TestMaintenance(t *testing.T) {
	forEachEndpoint(t, func(t *testing.T, client *clientv3.Client, endpoint string) {
		ctx := bounded(t)
		must(client.Put(ctx, "k", "v"))(t)
		status := must(client.Status(ctx, endpoint))(t)
		equal(t, "leader", status.Leader, status.Header.MemberId)
		hash := must(client.HashKV(ctx, endpoint, 0))(t)
		equal(t, "hash again", must(client.HashKV(ctx, endpoint, 0))(t).Hash, hash.Hash)
		must(client.Defragment(ctx, endpoint))(t)
		equal(t, "alarms", len(must(client.AlarmList(ctx))(t).Alarms), 0)
		equal(t, "members", len(must(client.MemberList(ctx))(t).Members), 1)
		if _, err := client.MoveLeader(ctx, 99); err == nil || !strings.Contains(err.Error(), "bad leader transferee") {
			t.Errorf("MoveLeader: %v", err)
		}
		snapshot := must(client.Snapshot(ctx))(t)
		defer snapshot.Close()
		equal(t, "whole snapshot", len(must(io.ReadAll(snapshot))(t)) > 4096, true)
	})
}

func TestAuth(t *testing.T) {
	t.Parallel()
	for _, endpoint := range endpoints(start(t)) {
		admin := connect(t, clientv3.Config{Endpoints: []string{endpoint}})
		ctx := bounded(t)
		must(admin.UserAdd(ctx, "root", "secret"))(t)
		must(admin.UserGrantRole(ctx, "root", "root"))(t)
		must(admin.AuthEnable(ctx))(t)
		if _, err := admin.Get(ctx, "k"); err == nil || !strings.Contains(err.Error(), "user name is empty") {
			t.Errorf("without a user: %v", err)
		}
		root := connect(t, clientv3.Config{Endpoints: []string{endpoint}, Username: "root", Password: "secret"})
		must(root.Put(ctx, "k", "v"))(t)
		if _, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Username: "root", Password: "wrong", DialTimeout: limit}); err == nil {
			t.Error("a wrong password is accepted")
		}
		must(root.AuthDisable(ctx))(t)
		must(root.UserDelete(ctx, "root"))(t)
	}
}

// Commands of etcdctl 3.4, whose calls to one endpoint have its URL as their authority (LI-12).
func TestEtcdctl(t *testing.T) {
	t.Parallel()
	etcdctl := os.Getenv("ETCDCTL_OLD")
	if etcdctl == "" {
		t.Skip("this version has no etcdctl of its own")
	}
	address := start(t)
	for _, endpoint := range endpoints(address) {
		for _, test := range []struct{ arguments, want string }{
			{"put k v", "OK"},
			{"get k --print-value-only", "v"},
			{"endpoint health", "is healthy"},
			{"endpoint status", ", true, false, "},
			{"endpoint hashkv", endpoint + ", "},
			{"defrag", "Finished defragmenting"},
			{"member list", "started"},
			{"move-leader 1", "bad leader transferee"},
		} {
			command := exec.CommandContext(bounded(t), etcdctl, append(strings.Fields(test.arguments), "--endpoints="+endpoint)...)
			command.Env = []string{"ETCDCTL_API=3"}
			output, _ := command.CombinedOutput()
			if !strings.Contains(string(output), test.want) {
				t.Errorf("etcdctl %s with %s: %s", test.arguments, endpoint, output)
			}
		}
	}
}
