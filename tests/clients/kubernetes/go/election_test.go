package kubernetes

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Two candidates, of which one leads until it gives up, and then the other one.
func TestLeaderElection(t *testing.T) {
	s := start(t)
	ctx, client := within(t), s.clientset(t)
	leading := make(chan string)
	stop := map[string]context.CancelFunc{}
	var ended sync.WaitGroup
	defer ended.Wait()
	for _, name := range []string{"one", "two"} {
		running, cancel := context.WithCancel(ctx)
		stop[name] = cancel
		defer cancel()
		config := leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: namespace},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			// Long enough that the second candidate leads because the first one has given up.
			LeaseDuration:   2 * limit,
			RenewDeadline:   limit,
			RetryPeriod:     10 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					select {
					case leading <- name:
					case <-ctx.Done():
					}
				},
				OnStoppedLeading: func() {},
			},
		}
		elector := must(leaderelection.NewLeaderElector(config))(t)
		ended.Go(func() { elector.Run(running) })
	}
	next := func() string {
		select {
		case name := <-leading:
			return name
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
			return ""
		}
	}
	first := next()
	lease := must(client.CoordinationV1().Leases(namespace).Get(ctx, "leader", metav1.GetOptions{}))(t)
	if *lease.Spec.HolderIdentity != first {
		t.Errorf("%s leads, and the lease is that of %s", first, *lease.Spec.HolderIdentity)
	}
	stop[first]()
	if second := next(); second == first {
		t.Errorf("%s leads again", second)
	}
}
