package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// must returns the result of a call, or ends the test on an error.
func must[T any](result T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, name string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func equalSlices[T comparable](t *testing.T, name string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// pairs formats key-value pairs as "key=value".
func pairs(kvs []*mvccpb.KeyValue) []string {
	shown := make([]string, 0, len(kvs))
	for _, kv := range kvs {
		shown = append(shown, fmt.Sprintf("%s=%s", kv.Key, kv.Value))
	}
	return shown
}

// show formats an event as "PUT key=value@revision".
func show(event *clientv3.Event) string {
	return fmt.Sprintf("%s %s=%s@%d", event.Type, event.Kv.Key, event.Kv.Value, event.Kv.ModRevision)
}

// next waits for the next response of a watch.
func next(t *testing.T, watch clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case response, open := <-watch:
		if !open {
			t.Fatal("the watch has ended")
		}
		return response
	case <-time.After(limit):
		t.Fatal("no response on the watch")
	}
	return clientv3.WatchResponse{}
}

// events waits for count events of a watch, in any number of responses.
func events(t *testing.T, watch clientv3.WatchChan, count int) []string {
	t.Helper()
	var seen []string
	for len(seen) < count {
		response := next(t, watch)
		mustDo(t, response.Err())
		for _, event := range response.Events {
			seen = append(seen, show(event))
		}
	}
	return seen
}

// put writes a key and returns the revision of the write.
func put(t *testing.T, kv clientv3.KV, key, value string, options ...clientv3.OpOption) int64 {
	t.Helper()
	return must(kv.Put(bounded(t), key, value, options...))(t).Header.Revision
}

// created starts a watch and waits until the server has confirmed it.
func created(
	t *testing.T, ctx context.Context, watcher clientv3.Watcher, key string, options ...clientv3.OpOption,
) clientv3.WatchChan {
	t.Helper()
	watch := watcher.Watch(ctx, key, append(options, clientv3.WithCreatedNotify())...)
	response := next(t, watch)
	mustDo(t, response.Err())
	if !response.Created {
		t.Fatalf("the first response of the watch: %+v", response)
	}
	return watch
}
