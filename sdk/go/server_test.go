package revstoretest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"revstore.invalid/revstoretest"
	"revstore.invalid/revstoretest/control"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, client *clientv3.Client, key string) []string {
	t.Helper()
	response, err := client.Get(t.Context(), key)
	check(t, err)
	var values []string
	for _, kv := range response.Kvs {
		values = append(values, string(kv.Value))
	}
	return values
}

func TestALeaseExpiresWhenTheTestAdvancesTheTime(t *testing.T) {
	t.Parallel()
	server := revstoretest.Start(t, revstoretest.Options{Clock: control.Manual})
	client := server.Client(t)
	lease, err := client.Grant(t.Context(), 3600)
	check(t, err)
	_, err = client.Put(t.Context(), "session", "mine", clientv3.WithLease(lease.ID))
	check(t, err)
	pending, err := server.Control.Pending(t.Context())
	check(t, err)
	if len(pending) == 0 || pending[0].Due.Duration > time.Hour {
		t.Fatal(pending)
	}
	clock, err := server.Control.Advance(t.Context(), time.Hour)
	check(t, err)
	if clock.Now.Duration != time.Hour || clock.Mode != control.Manual {
		t.Fatal(clock)
	}
	if values := get(t, client, "session"); values != nil {
		t.Fatal(values)
	}
}

func TestALostAnswerIsFollowedByACorrectRetry(t *testing.T) {
	t.Parallel()
	server := revstoretest.Start(t)
	client := server.Client(t)
	fault, err := server.Control.AddFault(t.Context(), control.Fault{
		Methods: []string{"Txn"}, Next: 1, ErrorAfter: "DATA_LOSS:the answer is lost",
	})
	check(t, err)
	// The write says under which conditions it may be repeated.
	create := func() (*clientv3.TxnResponse, error) {
		return client.Txn(t.Context()).
			If(clientv3.Compare(clientv3.CreateRevision("order"), "=", 0)).
			Then(clientv3.OpPut("order", "one")).
			Else(clientv3.OpGet("order")).Commit()
	}
	if _, err = create(); err == nil || !strings.Contains(err.Error(), "the answer is lost") {
		t.Fatal(err)
	}
	again, err := create()
	check(t, err)
	if again.Succeeded || string(again.Responses[0].GetResponseRange().Kvs[0].Value) != "one" {
		t.Fatal("the first request was not executed")
	}
	faults, err := server.Control.Faults(t.Context())
	check(t, err)
	if len(faults) != 1 || faults[0].ID != fault || faults[0].Fired != 1 {
		t.Fatal(faults)
	}
	check(t, server.Control.ClearFaults(t.Context()))
}

func TestAWatchThatIsCanceledAsCompactedRecovers(t *testing.T) {
	t.Parallel()
	server := revstoretest.Start(t)
	client := server.Client(t)
	watch := client.Watch(t.Context(), "key", clientv3.WithCreatedNotify())
	if created := <-watch; !created.Created {
		t.Fatal(created)
	}
	_, err := server.Control.WaitWatchers(t.Context(), 1, time.Minute)
	check(t, err)
	canceled, err := server.Control.CancelWatchCompacted(t.Context(), control.AllWatches)
	check(t, err)
	if canceled != 1 {
		t.Fatal(canceled)
	}
	response := <-watch
	if !errors.Is(response.Err(), rpctypes.ErrCompacted) {
		t.Fatal(response.Err())
	}
	// As after a real compaction: read, and watch from the revision of the read.
	state, err := client.Get(t.Context(), "key")
	check(t, err)
	watch = client.Watch(t.Context(), "key", clientv3.WithRev(state.Header.Revision+1))
	_, err = client.Put(t.Context(), "key", "after")
	check(t, err)
	if event := (<-watch).Events[0]; string(event.Kv.Value) != "after" {
		t.Fatal(event)
	}
}

func TestFiftyTestsHaveAForkEach(t *testing.T) {
	server := revstoretest.Start(t)
	client := server.Client(t)
	_, err := client.Put(t.Context(), "fixture", "shared")
	check(t, err)
	t.Run("forks", func(t *testing.T) {
		for number := range 50 {
			t.Run(fmt.Sprint(number), func(t *testing.T) {
				t.Parallel()
				client := server.Fork(t).Client(t)
				own := fmt.Sprint(number)
				_, err := client.Put(t.Context(), "own", own)
				check(t, err)
				if values := append(get(t, client, "fixture"), get(t, client, "own")...); fmt.Sprint(values) != "[shared "+own+"]" {
					t.Error(values)
				}
			})
		}
	})
	if values := get(t, client, "own"); values != nil {
		t.Fatal("a fork has written to its parent: ", values)
	}
	forks, err := server.Control.Forks(t.Context())
	check(t, err)
	if len(forks) != 0 {
		t.Fatal(forks)
	}
}

func TestTheJournalHasTheRequests(t *testing.T) {
	t.Parallel()
	server := revstoretest.Start(t)
	_, err := server.Client(t).Put(t.Context(), "key", "value")
	check(t, err)
	var records []control.Record
	for record, err := range server.Control.Journal(t.Context(), control.JournalFilter{Methods: []string{"Put"}}) {
		check(t, err)
		records = append(records, record)
	}
	if len(records) != 1 || records[0].Revision != 2 || string(records[0].Keys[0].Key) != "key" {
		t.Fatal(records)
	}
}

func TestTermsBegin(t *testing.T) {
	t.Parallel()
	server := revstoretest.Start(t)
	one, err := server.Control.NewTerm(t.Context())
	check(t, err)
	two, err := server.Control.NewTerm(t.Context())
	check(t, err)
	if two != one+1 {
		t.Fatal(one, two)
	}
}

func TestADumpReplacesTheStoreOfAnotherServer(t *testing.T) {
	t.Parallel()
	first, second := revstoretest.Start(t), revstoretest.Start(t)
	_, err := first.Client(t).Put(t.Context(), "key", "value")
	check(t, err)
	var dump bytes.Buffer
	check(t, first.Control.Dump(t.Context(), &dump))
	point, err := second.Control.Load(t.Context(), &dump)
	check(t, err)
	if values := get(t, second.Client(t), "key"); len(values) != 1 || point.Revision != 2 {
		t.Fatal(values, point)
	}
	var refused *control.Error
	_, err = second.Control.Import(t.Context(), strings.NewReader("no snapshot"))
	if !errors.As(err, &refused) || refused.Code != control.InvalidArgument {
		t.Fatal(err)
	}
}

func TestRefusedRequestsAreErrorsWithCodeAndText(t *testing.T) {
	t.Parallel()
	server := revstoretest.Start(t)
	_, err := server.Control.RestoreCheckpoint(t.Context(), "none", control.Restore{})
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.NotFound || refused.Text == "" {
		t.Fatal(err)
	}
	_, err = server.Control.AddFault(t.Context(), control.Fault{Preset: "nonsense"})
	if !errors.As(err, &refused) || refused.Code != control.InvalidArgument {
		t.Fatal(err)
	}
	_, err = server.Control.WaitRevision(t.Context(), 100, time.Millisecond)
	if !errors.As(err, &refused) || refused.Code != control.DeadlineExceeded {
		t.Fatal(err)
	}
}

func TestAServerWithoutControlHasNone(t *testing.T) {
	t.Parallel()
	server := revstoretest.Start(t, revstoretest.Options{WithoutControl: true})
	_, err := server.Client(t).Put(t.Context(), "key", "value")
	check(t, err)
	if _, err = server.Control.Advance(t.Context(), time.Second); err == nil || !strings.Contains(err.Error(), "without control") {
		t.Fatal(err)
	}
}

// failedTest is a test that has failed, as far as servers see it.
type failedTest struct {
	testing.TB
	cleanups []func()
	log      strings.Builder
}

func (f *failedTest) Failed() bool           { return true }
func (f *failedTest) Cleanup(cleanup func()) { f.cleanups = append(f.cleanups, cleanup) }
func (f *failedTest) Log(values ...any)      { fmt.Fprintln(&f.log, values...) }

func TestAFailedTestLeavesItsFiles(t *testing.T) {
	t.Parallel()
	artifacts := t.TempDir()
	failed := &failedTest{TB: t}
	server := revstoretest.Start(failed, revstoretest.Options{Artifacts: artifacts})
	_, err := server.Client(t).Put(t.Context(), "key", "value")
	check(t, err)
	for _, cleanup := range failed.cleanups {
		cleanup()
	}
	if !strings.Contains(failed.log.String(), artifacts) {
		t.Fatal(failed.log.String())
	}
	for name, text := range map[string]string{
		"server.log": "ready to serve", "journal.jsonl": `"request":{"body":"CgNrZXkSBXZhbHVl"`, "dump.txt": `{"put":{"key":"key","value":"value"`,
	} {
		paths, err := filepath.Glob(filepath.Join(artifacts, "*", name))
		check(t, err)
		if len(paths) != 1 {
			t.Fatal(name, paths)
		}
		content, err := os.ReadFile(paths[0])
		check(t, err)
		if !strings.Contains(string(content), text) {
			t.Errorf("%s: %s", name, content)
		}
	}
}
