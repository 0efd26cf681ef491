package clients

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
)

// kept returns a client, and fails the test if its connection ends before the test.
func kept(t *testing.T, s *server) *clientv3.Client {
	t.Helper()
	client := connect(t, clientv3.Config{Endpoints: []string{s.address()}, MaxCallSendMsgSize: 4 << 20})
	put(t, client, "first", "")
	ctx, cancel := context.WithCancel(context.Background())
	changed := make(chan bool)
	go func() {
		changed <- client.ActiveConnection().WaitForStateChange(ctx, connectivity.Ready)
	}()
	t.Cleanup(func() {
		cancel()
		if <-changed {
			t.Error("the connection has ended")
		}
	})
	return client
}

func TestManyStreamsOfOneConnection(t *testing.T) {
	client := kept(t, start(t))
	ctx := bounded(t)
	var watches []clientv3.WatchChan
	for i := range 10_000 {
		// Watches with other metadata have another stream.
		ctx := metadata.AppendToOutgoingContext(ctx, "stream", fmt.Sprint(i))
		watches = append(watches, client.Watch(ctx, "k", clientv3.WithCreatedNotify()))
	}
	for _, watch := range watches {
		equal(t, "created", next(t, watch).Created, true)
	}
	put(t, client, "k", "1")
	for _, watch := range watches {
		equal(t, "events", len(next(t, watch).Events), 1)
	}
}

func TestManyLeasesOfOneConnection(t *testing.T) {
	client := kept(t, start(t))
	ctx := bounded(t)
	var alive []<-chan *clientv3.LeaseKeepAliveResponse
	for range 20_000 {
		lease := must(client.Grant(ctx, 60))(t)
		alive = append(alive, must(client.KeepAlive(ctx, lease.ID))(t))
	}
	for _, responses := range alive {
		if <-responses == nil {
			t.Fatal("a lease is not kept alive")
		}
	}
}

func TestRefusedRequestsOfOneConnection(t *testing.T) {
	client := kept(t, start(t))
	ctx := bounded(t)
	value := strings.Repeat("v", 2_200_000)
	for range 1_500 {
		_, err := client.Put(ctx, "k", value)
		if err == nil || !strings.Contains(err.Error(), codes.ResourceExhausted.String()) {
			t.Fatalf("expected %v, got %v", codes.ResourceExhausted, err)
		}
	}
}
