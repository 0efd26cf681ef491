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
	alive := must(client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()))(t)
	equal(t, "granted", alive.GrantedTTL, 60)
	if alive.TTL < 1 || alive.TTL > 60 {
		t.Errorf("TTL %d", alive.TTL)
	}
	// In no order.
	slices.SortFunc(alive.Keys, bytes.Compare)
	equal(t, "keys", fmt.Sprintf("%s", alive.Keys), "[k/a k/b]")
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
	gone := must(client.TimeToLive(ctx, lease.ID))(t)
	equal(t, "time to live of the unknown", gone.TTL, -1)
}

// A lease outlives its time while it is kept alive, and ends after that when it is not.
func TestLeaseKeepAlive(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)

	lease := must(client.Grant(ctx, 2))(t)
	put(t, client, "k", "v", clientv3.WithLease(lease.ID))
	watch := created(t, ctx, client, "k")
	keeping, stop := context.WithCancel(ctx)
	beats := must(client.KeepAlive(keeping, lease.ID))(t)
	began := time.Now()
	for time.Since(began) < 4*time.Second {
		select {
		case beat := <-beats:
			if beat == nil {
				t.Fatal("the lease was lost")
			}
			equal(t, "TTL", beat.TTL, 2)
		case response := <-watch:
			t.Fatalf("the key is gone: %+v", response)
		}
	}
	stop()
	for range beats {
		// Those on their way; the channel is closed once keeping alive has stopped.
	}
	equalSlices(t, "expiry", events(t, watch, 1), []string{"DELETE k=@3"})
	if lived := time.Since(began); lived < 5*time.Second {
		t.Errorf("a lease renewed after more than 3 s ended after %v", lived)
	}
}

func TestKeepAliveEndsWithTheLease(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	lease := must(client.Grant(ctx, 1))(t)
	beats := must(client.KeepAlive(ctx, lease.ID))(t)
	if beat := <-beats; beat == nil || beat.TTL != 1 {
		t.Fatalf("first beat %v", beat)
	}
	must(client.Revoke(ctx, lease.ID))(t)
	for range beats {
		// The server answers the next one with TTL 0 (LE-8), and the client closes the channel.
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
	began := time.Now()
	for time.Since(began) < 5*time.Second {
		for _, beats := range all {
			if beat := <-beats; beat == nil {
				t.Fatal("a lease was lost")
			}
		}
	}
	equal(t, "leases", len(must(client.Leases(ctx))(t).Leases), 100)
}

// Beats go on when a connection is replaced by another.
func TestKeepAliveResumesAfterADrop(t *testing.T) {
	t.Parallel()
	server := start(t)
	between := newProxy(t, server.address())
	client := connect(t, clientv3.Config{Endpoints: []string{between.address()}})
	ctx := bounded(t)
	lease := must(client.Grant(ctx, 5))(t)
	put(t, client, "k", "v", clientv3.WithLease(lease.ID))
	beats := must(client.KeepAlive(ctx, lease.ID))(t)
	for range 3 {
		if beat := <-beats; beat == nil {
			t.Fatal("the lease was lost")
		}
		between.disconnect()
		between.reconnect()
	}
	equal(t, "key", must(client.Get(ctx, "k"))(t).Count, 1)
}
