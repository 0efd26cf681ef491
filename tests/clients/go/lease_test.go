package clients

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestLease(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)

	lease := must(client.Grant(ctx, 60))(t)
	equal(t, "granted", lease.TTL, 60)
	put(t, client, "k/a", "v", clientv3.WithLease(lease.ID))
	put(t, client, "k/b", "v", clientv3.WithLease(lease.ID))
	remaining := must(client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()))(t)
	equal(t, "granted", remaining.GrantedTTL, 60)
	if remaining.TTL < 1 || remaining.TTL > 60 {
		t.Errorf("TTL %d", remaining.TTL)
	}
	// The order of the keys is not specified.
	slices.SortFunc(remaining.Keys, bytes.Compare)
	equal(t, "keys", fmt.Sprintf("%s", remaining.Keys), "[k/a k/b]")
	once := must(client.KeepAliveOnce(ctx, lease.ID))(t)
	equal(t, "renewed", once.TTL, 60)
	all := must(client.Leases(ctx))(t)
	equal(t, "leases", len(all.Leases), 1)
	equal(t, "lease", all.Leases[0].ID, lease.ID)

	watch := created(t, ctx, client, "k", clientv3.WithPrefix())
	must(client.Revoke(ctx, lease.ID))(t)
	equalSlices(t, "all in one revision", events(t, watch, 2), []string{"DELETE k/a=@4", "DELETE k/b=@4"})
	_, err := client.Revoke(ctx, lease.ID)
	fails(t, err, rpctypes.ErrLeaseNotFound)
	_, err = client.KeepAliveOnce(ctx, lease.ID)
	fails(t, err, rpctypes.ErrLeaseNotFound)
	unknown := must(client.TimeToLive(ctx, lease.ID))(t)
	equal(t, "time to live of an unknown lease", unknown.TTL, -1)
}

// A lease does not expire while it is kept alive, and expires after the keep-alives end.
func TestLeaseKeepAlive(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)

	lease := must(client.Grant(ctx, 2))(t)
	put(t, client, "k", "v", clientv3.WithLease(lease.ID))
	watch := created(t, ctx, client, "k")
	keeping, stop := context.WithCancel(ctx)
	renewals := must(client.KeepAlive(keeping, lease.ID))(t)
	started := time.Now()
	for time.Since(started) < 4*time.Second {
		select {
		case renewal := <-renewals:
			if renewal == nil {
				t.Fatal("the lease was lost")
			}
			equal(t, "TTL", renewal.TTL, 2)
		case response := <-watch:
			t.Fatalf("the key is gone: %+v", response)
		}
	}
	stop()
	for range renewals {
		// Discards queued responses. The client closes the channel after the last one.
	}
	equalSlices(t, "expiry", events(t, watch, 1), []string{"DELETE k=@3"})
	if lived := time.Since(started); lived < 5*time.Second {
		t.Errorf("a lease renewed after more than 3 s ended after %v", lived)
	}
}

func TestKeepAliveEndsWithTheLease(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	lease := must(client.Grant(ctx, 1))(t)
	renewals := must(client.KeepAlive(ctx, lease.ID))(t)
	if renewal := <-renewals; renewal == nil || renewal.TTL != 1 {
		t.Fatalf("first renewal: %v", renewal)
	}
	must(client.Revoke(ctx, lease.ID))(t)
	for range renewals {
		// The response to the next keep-alive has TTL 0 (LE-8), and the client closes the channel.
	}
	mustDo(t, ctx.Err())
}

func TestManyLeasesAreKeptAliveOnOneStream(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	var all []<-chan *clientv3.LeaseKeepAliveResponse
	for range 100 {
		lease := must(client.Grant(ctx, 3))(t)
		all = append(all, must(client.KeepAlive(ctx, lease.ID))(t))
	}
	started := time.Now()
	for time.Since(started) < 5*time.Second {
		for _, renewals := range all {
			if renewal := <-renewals; renewal == nil {
				t.Fatal("a lease was lost")
			}
		}
	}
	equal(t, "leases", len(must(client.Leases(ctx))(t).Leases), 100)
}

// Keep-alives continue on a new connection.
func TestKeepAliveResumesAfterAClosedConnection(t *testing.T) {
	t.Parallel()
	server := start(t)
	between := newProxy(t, server.address())
	client := connect(t, clientv3.Config{Endpoints: []string{between.address()}})
	ctx := bounded(t)
	lease := must(client.Grant(ctx, 5))(t)
	put(t, client, "k", "v", clientv3.WithLease(lease.ID))
	renewals := must(client.KeepAlive(ctx, lease.ID))(t)
	for range 3 {
		if renewal := <-renewals; renewal == nil {
			t.Fatal("the lease was lost")
		}
		between.disconnect()
		between.reconnect()
	}
	equal(t, "key", must(client.Get(ctx, "k"))(t).Count, 1)
}
