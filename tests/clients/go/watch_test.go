package clients

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	put(t, client, "k/a", "1")

	watch := created(t, ctx, client, "k/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	put(t, client, "k/a", "2")
	put(t, client, "other", "x")
	must(client.Txn(ctx).Then(clientv3.OpPut("k/b", "1"), clientv3.OpDelete("k/a")).Commit())(t)

	one := next(t, watch)
	equal(t, "modification", show(one.Events[0]), "PUT k/a=2@3")
	equal(t, "is a modification", one.Events[0].IsModify(), true)
	equal(t, "previous value", string(one.Events[0].PrevKv.Value), "1")
	// The events of a revision are in one response (WA-31).
	two := next(t, watch)
	equal(t, "events of a revision", len(two.Events), 2)
	equal(t, "creation", show(two.Events[0]), "PUT k/b=1@5")
	equal(t, "is a creation", two.Events[0].IsCreate(), true)
	equal(t, "deletion", show(two.Events[1]), "DELETE k/a=@5")
	equal(t, "previous value of a deletion", string(two.Events[1].PrevKv.Value), "2")
}

func TestWatchOfPastEvents(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	var want []string
	// More revisions than etcd reads in one step (WA-34).
	for i := range 1200 {
		revision := put(t, client, "k", fmt.Sprint(i))
		want = append(want, fmt.Sprintf("PUT k=%d@%d", i, revision))
	}
	watch := client.Watch(ctx, "k", clientv3.WithRev(2))
	last := put(t, client, "k", "new")
	want = append(want, fmt.Sprintf("PUT k=new@%d", last))
	equalSlices(t, "past and new events", events(t, watch, len(want)), want)
}

func TestWatchFilters(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	deletes := created(t, ctx, client, "k", clientv3.WithFilterPut())
	puts := created(t, ctx, client, "k", clientv3.WithFilterDelete())
	put(t, client, "k", "1")
	must(client.Delete(ctx, "k"))(t)
	put(t, client, "k", "2")
	must(client.Delete(ctx, "k"))(t)
	equalSlices(t, "deletes", events(t, deletes, 2), []string{"DELETE k=@3", "DELETE k=@5"})
	equalSlices(t, "puts", events(t, puts, 2), []string{"PUT k=1@2", "PUT k=2@4"})
}

// The client assembles fragmented responses.
func TestWatchFragments(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	watch := created(t, ctx, client, "k", clientv3.WithPrefix(), clientv3.WithFragment())
	var puts []clientv3.Op
	for i := range 10 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("k%d", i), strings.Repeat("v", 100_000)))
	}
	must(client.Txn(ctx).Then(puts...).Commit())(t)
	must(client.Txn(ctx).Then(puts...).Commit())(t)
	// Both revisions together exceed the size limit of a message.
	past := client.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithFragment(), clientv3.WithRev(2))
	for name, watch := range map[string]clientv3.WatchChan{"new events": watch, "past events": past} {
		equal(t, name, len(events(t, watch, 20)), 20)
	}
}

func TestManyWatchesOnOneStream(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	var watches []clientv3.WatchChan
	for i := range 200 {
		watches = append(watches, created(t, ctx, client, fmt.Sprintf("k%d", i)))
	}
	all := created(t, ctx, client, "k", clientv3.WithPrefix())
	for i := range watches {
		put(t, client, fmt.Sprintf("k%d", i), "v")
	}
	for i, watch := range watches {
		equalSlices(t, "one", events(t, watch, 1), []string{fmt.Sprintf("PUT k%d=v@%d", i, i+2)})
	}
	equal(t, "all", len(events(t, all, len(watches))), len(watches))
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx, cancel := context.WithCancel(bounded(t))
	ending := created(t, ctx, client, "k")
	other := created(t, bounded(t), client, "k")
	cancel()
	for range ending {
		// Discards queued responses. The client closes the channel after the last one.
	}
	put(t, client, "k", "v")
	equalSlices(t, "the other", events(t, other, 1), []string{"PUT k=v@2"})
}

func TestWatchProgressOnRequest(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	// Only watches on the same stream receive the notification; calls with equal metadata share a stream.
	ctx := bounded(t)
	watch := created(t, ctx, client, "k")
	revision := put(t, client, "other", "v")
	mustDo(t, client.RequestProgress(ctx))
	response := next(t, watch)
	equal(t, "is a notification", response.IsProgressNotify(), true)
	equal(t, "revision", response.Header.Revision, revision)
}

func TestWatchProgressAtIntervals(t *testing.T) {
	t.Parallel()
	client := start(t, "--experimental-watch-progress-notify-interval=100ms").client()
	ctx := bounded(t)
	watch := created(t, ctx, client, "k", clientv3.WithProgressNotify())
	quiet := created(t, ctx, client, "k")
	revision := put(t, client, "other", "v")
	for {
		response := next(t, watch)
		if !response.IsProgressNotify() {
			t.Fatalf("not a notification: %+v", response)
		}
		if response.Header.Revision == revision {
			break
		}
	}
	put(t, client, "k", "v")
	equalSlices(t, "a watch without the option receives events only", events(t, quiet, 1), []string{"PUT k=v@3"})
}

func TestWatchOfACompactedRevision(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	ctx := bounded(t)
	for range 3 {
		put(t, client, "k", "v")
	}
	must(client.Compact(ctx, 3))(t)
	response := next(t, client.Watch(ctx, "k", clientv3.WithRev(2)))
	fails(t, response.Err(), rpctypes.ErrCompacted)
	equal(t, "compacted at", response.CompactRevision, 3)
	equal(t, "is canceled", response.Canceled, true)
}

// Events during a closed connection are delivered after it, once and in order.
func TestWatchResumesAfterAClosedConnection(t *testing.T) {
	t.Parallel()
	server := start(t)
	direct := server.client()
	between := newProxy(t, server.address())
	watching := connect(t, clientv3.Config{Endpoints: []string{between.address()}})
	ctx := bounded(t)

	watch := created(t, ctx, watching, "k", clientv3.WithPrefix())
	idle := created(t, ctx, watching, "idle", clientv3.WithProgressNotify())
	var want []string
	write := func() {
		revision := put(t, direct, "k", fmt.Sprint(len(want)))
		want = append(want, fmt.Sprintf("PUT k=%d@%d", len(want), revision))
	}
	for range 3 {
		write()
		equalSlices(t, "before", events(t, watch, 1), want[len(want)-1:])
		between.disconnect()
		write()
		write()
		between.reconnect()
		equalSlices(t, "after", events(t, watch, 2), want[len(want)-2:])
	}
	revision := put(t, direct, "idle", "v")
	equalSlices(t, "idle", events(t, idle, 1), []string{fmt.Sprintf("PUT idle=v@%d", revision)})
}

func TestWatchCannotResumeFromACompactedRevision(t *testing.T) {
	t.Parallel()
	server := start(t)
	direct := server.client()
	between := newProxy(t, server.address())
	watching := connect(t, clientv3.Config{Endpoints: []string{between.address()}})

	watch := created(t, bounded(t), watching, "k")
	put(t, direct, "k", "1")
	equalSlices(t, "before", events(t, watch, 1), []string{"PUT k=1@2"})
	between.disconnect()
	put(t, direct, "k", "2")
	last := put(t, direct, "k", "3")
	must(direct.Compact(bounded(t), last))(t)
	between.reconnect()
	response := next(t, watch)
	fails(t, response.Err(), rpctypes.ErrCompacted)
	equal(t, "compacted at", response.CompactRevision, last)
}

// A client and its watch continue after a restart of the server. A server that keeps its data delivers
// the next events. A server in memory starts at a revision above all earlier ones and cancels the watch
// because its start revision is compacted (FL-17). The client then lists and starts a new watch.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			server := start(t)
			client := server.client()
			ctx := bounded(t)
			watch := created(t, ctx, client, "k")
			put(t, client, "k", "1")
			equalSlices(t, "before", events(t, watch, 1), []string{"PUT k=1@2"})

			server.end(signal)
			inMemory := server.has("--start-revision")
			if inMemory {
				server.resume("--start-revision=1000")
			} else {
				server.resume()
			}
			// The client retries reads until the server responds.
			got := must(client.Get(ctx, "k"))(t)
			revision := put(t, client, "k", "2")
			equal(t, "one more", revision, got.Header.Revision+1)

			if inMemory {
				response := next(t, watch)
				fails(t, response.Err(), rpctypes.ErrCompacted)
				watch = created(t, ctx, client, "k", clientv3.WithRev(got.Header.Revision+1))
			}
			equalSlices(t, "after", events(t, watch, 1), []string{fmt.Sprintf("PUT k=2@%d", revision)})
		})
	}
}

// If the store starts at revision 1 again, a watch that resumes at a later revision receives no event until
// the store reaches that revision (FL-17, WA-6).
func TestRestartWithAnEmptyStore(t *testing.T) {
	t.Parallel()
	server := start(t)
	client := server.client()
	watch := created(t, bounded(t), client, "k")
	for range 3 {
		put(t, client, "k", "old")
	}
	equal(t, "before", len(events(t, watch, 3)), 3)

	server.end(syscall.SIGKILL)
	server.data += "-empty"
	server.resume()
	must(client.Get(bounded(t), "k"))(t)
	for revision := int64(2); revision <= 5; revision++ {
		equal(t, "revision", put(t, client, "k", "new"), revision)
	}
	equalSlices(t, "after", events(t, watch, 1), []string{"PUT k=new@5"})
}
