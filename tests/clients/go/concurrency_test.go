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

func TestMutexExcludes(t *testing.T) {
	t.Parallel()
	server := start(t)
	ctx := bounded(t)
	const workers, rounds = 4, 10
	inside := 0
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
				// The race detector is not needed to see two inside: the reads would repeat.
				before := inside
				if _, err := s.Client().Get(ctx, mutex.Key()); err != nil {
					t.Error(err)
				}
				inside = before + 1
				if err := mutex.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	equal(t, "rounds", inside, workers*rounds)
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

// Who waits for a lock gets it when the session of the holder ends.
func TestMutexPassesOnWithTheSession(t *testing.T) {
	t.Parallel()
	server := start(t)
	ctx := bounded(t)
	one, two := session(t, server.client()), session(t, server.client())
	held, wanted := concurrency.NewMutex(one, "/lock"), concurrency.NewMutex(two, "/lock")
	mustDo(t, held.Lock(ctx))

	queue := created(t, ctx, two.Client(), "/lock/", clientv3.WithPrefix())
	got := make(chan error, 1)
	go func() { got <- wanted.Lock(ctx) }()
	// It is in the queue once its key is there.
	events(t, queue, 1)
	mustDo(t, one.Close())
	mustDo(t, <-got)
	select {
	case <-one.Done():
	default:
		t.Error("the session is not over")
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

	// Whoever knows key and revision of a leader can go on in its place.
	resumed := concurrency.ResumeElection(two, "/election", second.Key(), second.Rev())
	mustDo(t, resumed.Proclaim(ctx, "resumed"))
	observe(second.Key() + "=resumed")
}

// Money moves between accounts by many hands, and none is made or lost.
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
			const accounts, hands, moves = 3, 4, 20
			account := func(i int) string { return fmt.Sprintf("account/%d", i%accounts) }
			for i := range accounts {
				put(t, client, account(i), "100")
			}
			var done sync.WaitGroup
			for hand := range hands {
				done.Go(func() {
					for move := range moves {
						from, to := account(hand+move), account(hand+move+1)
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
			equal(t, "writes", versions, accounts+2*hands*moves)
		})
	}
}
