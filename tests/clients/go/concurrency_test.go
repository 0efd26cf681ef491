package clients

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func session(t *testing.T, client *clientv3.Client) *concurrency.Session {
	t.Helper()
	s := must(concurrency.NewSession(client, concurrency.WithTTL(30)))(t)
	t.Cleanup(s.Orphan)
	return s
}

func TestMutexIsExclusive(t *testing.T) {
	t.Parallel()
	server := start(t)
	ctx := bounded(t)
	const workers, rounds = 4, 10
	count := 0
	var done sync.WaitGroup
	for range workers {
		s := session(t, server.client())
		done.Go(func() {
			mutex := concurrency.NewMutex(s, "/lock")
			for range rounds {
				if err := mutex.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				// If two workers held the mutex at the same time, one increment would be lost.
				before := count
				if _, err := s.Client().Get(ctx, mutex.Key()); err != nil {
					t.Error(err)
				}
				count = before + 1
				if err := mutex.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	equal(t, "rounds", count, workers*rounds)
}

func TestMutexTryLock(t *testing.T) {
	t.Parallel()
	server := start(t)
	ctx := bounded(t)
	one, two := session(t, server.client()), session(t, server.client())
	held := concurrency.NewMutex(one, "/lock")
	mustDo(t, held.TryLock(ctx))
	wanted := concurrency.NewMutex(two, "/lock")
	fails(t, wanted.TryLock(ctx), concurrency.ErrLocked)

	owner := must(two.Client().Txn(ctx).If(held.IsOwner()).Commit())(t)
	equal(t, "is owner", owner.Succeeded, true)
	mustDo(t, held.Unlock(ctx))
	mustDo(t, wanted.TryLock(ctx))
}

// A waiter gets the lock when the session of the holder ends.
func TestMutexIsReleasedWithTheSession(t *testing.T) {
	t.Parallel()
	server := start(t)
	ctx := bounded(t)
	one, two := session(t, server.client()), session(t, server.client())
	held, wanted := concurrency.NewMutex(one, "/lock"), concurrency.NewMutex(two, "/lock")
	mustDo(t, held.Lock(ctx))

	queue := created(t, ctx, two.Client(), "/lock/", clientv3.WithPrefix())
	got := make(chan error, 1)
	go func() { got <- wanted.Lock(ctx) }()
	// The waiter is in the wait queue once its key exists.
	events(t, queue, 1)
	mustDo(t, one.Close())
	mustDo(t, <-got)
	select {
	case <-one.Done():
	default:
		t.Error("the session has not ended")
	}
}

func TestElection(t *testing.T) {
	t.Parallel()
	server := start(t)
	ctx := bounded(t)
	one, two := session(t, server.client()), session(t, server.client())
	first, second := concurrency.NewElection(one, "/election"), concurrency.NewElection(two, "/election")

	_, err := second.Leader(ctx)
	fails(t, err, concurrency.ErrElectionNoLeader)
	observed := second.Observe(ctx)
	observe := func(want string) {
		t.Helper()
		select {
		case response := <-observed:
			equalSlices(t, "observed", pairs(response.Kvs), []string{want})
		case <-ctx.Done():
			t.Fatal("nothing observed")
		}
	}
	mustDo(t, first.Campaign(ctx, "one"))
	observe(first.Key() + "=one")
	mustDo(t, first.Proclaim(ctx, "still one"))
	observe(first.Key() + "=still one")
	equalSlices(t, "leader", pairs(must(second.Leader(ctx))(t).Kvs), []string{first.Key() + "=still one"})

	queue := created(t, ctx, two.Client(), "/election/", clientv3.WithPrefix())
	elected := make(chan error, 1)
	go func() { elected <- second.Campaign(ctx, "two") }()
	events(t, queue, 1)
	mustDo(t, first.Resign(ctx))
	mustDo(t, <-elected)
	observe(second.Key() + "=two")
	fails(t, first.Proclaim(ctx, "late"), concurrency.ErrElectionNotLeader)

	// A client can resume an election with the key and the revision of the leader.
	resumed := concurrency.ResumeElection(two, "/election", second.Key(), second.Rev())
	mustDo(t, resumed.Proclaim(ctx, "resumed"))
	observe(second.Key() + "=resumed")
}

// Concurrent transfers between accounts keep the sum of all accounts.
func TestSTM(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]concurrency.Isolation{
		"serializable":    concurrency.Serializable,
		"snapshot":        concurrency.SerializableSnapshot,
		"repeatable read": concurrency.RepeatableReads,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			client := server.client()
			ctx := bounded(t)
			const accounts, workers, transfers = 3, 4, 20
			account := func(i int) string { return fmt.Sprintf("account/%d", i%accounts) }
			for i := range accounts {
				put(t, client, account(i), "100")
			}
			var done sync.WaitGroup
			for worker := range workers {
				done.Go(func() {
					for transfer := range transfers {
						from, to := account(worker+transfer), account(worker+transfer+1)
						_, err := concurrency.NewSTM(client, func(stm concurrency.STM) error {
							have, err := strconv.Atoi(stm.Get(from))
							if err != nil {
								return err
							}
							other, err := strconv.Atoi(stm.Get(to))
							if err != nil {
								return err
							}
							stm.Put(from, strconv.Itoa(have-1))
							stm.Put(to, strconv.Itoa(other+1))
							return nil
						}, concurrency.WithIsolation(isolation), concurrency.WithAbortContext(ctx))
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			done.Wait()
			sum, versions := 0, int64(0)
			for _, kv := range must(client.Get(ctx, "account/", clientv3.WithPrefix()))(t).Kvs {
				sum += must(strconv.Atoi(string(kv.Value)))(t)
				versions += kv.Version
			}
			equal(t, "sum", sum, 100*accounts)
			equal(t, "writes", versions, accounts+2*workers*transfers)
		})
	}
}
