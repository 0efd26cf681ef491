package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// seen collects the notifications of an informer.
type seen struct {
	mutex   sync.Mutex
	changed *sync.Cond
	lines   []string
}

func newSeen() *seen {
	s := &seen{}
	s.changed = sync.NewCond(&s.mutex)
	return s
}

func (s *seen) add(format string, values ...any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, values...))
	s.changed.Broadcast()
}

func (s *seen) count(line string) int {
	count := 0
	for _, found := range s.lines {
		if found == line {
			count++
		}
	}
	return count
}

// wait waits until a notification was seen, and returns how often.
func (s *seen) wait(ctx context.Context, t *testing.T, line string) int {
	t.Helper()
	stop := context.AfterFunc(ctx, func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.count(line) == 0 {
		if ctx.Err() != nil {
			t.Fatalf("not seen: %s; seen: %v", line, s.lines)
		}
		s.changed.Wait()
	}
	return s.count(line)
}

func (s *seen) handler() cache.ResourceEventHandler {
	object := func(object any) metav1.Object {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		return object.(metav1.Object)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(new any) { s.add("added %s", object(new).GetName()) },
		UpdateFunc: func(old, new any) {
			if object(old).GetResourceVersion() == object(new).GetResourceVersion() {
				s.add("again %s", object(new).GetName())
			} else {
				s.add("changed %s", object(new).GetName())
			}
		},
		DeleteFunc: func(old any) { s.add("deleted %s", object(old).GetName()) },
	}
}

func TestInformerOverDisturbedWatches(t *testing.T) {
	s := start(t)
	ctx := within(t)
	maps := s.clientset(t).CoreV1().ConfigMaps(namespace)
	must(maps.Create(ctx, configMap("first"), metav1.CreateOptions{}))(t)

	factory := informers.NewSharedInformerFactoryWithOptions(s.clientset(t), time.Second, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps()
	notes := newSeen()
	registration := must(informer.Informer().AddEventHandler(notes.handler()))(t)
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		t.Fatal("the informer has not loaded")
	}
	notes.wait(ctx, t, "added first")
	// A resync shows all objects again.
	notes.wait(ctx, t, "again first")

	// The watch resumes where it was cut.
	s.traffic.cut(true)
	created := must(maps.Create(ctx, configMap("second"), metav1.CreateOptions{}))(t)
	notes.wait(ctx, t, "added second")
	created.Data["color"] = "green"
	must(maps.Update(ctx, created, metav1.UpdateOptions{}))(t)
	notes.wait(ctx, t, "changed second")

	// The deletion happens while there is no watch.
	s.traffic.cut(true)
	if err := maps.Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	notes.wait(ctx, t, "deleted first")

	all := must(informer.Lister().ConfigMaps(namespace).List(labels.Everything()))(t)
	if len(all) != 1 {
		t.Errorf("%d objects at the end", len(all))
	}
	for _, name := range []string{"first", "second"} {
		if count := notes.wait(ctx, t, "added "+name); count != 1 {
			t.Errorf("%s was added %d times", name, count)
		}
	}
}

// A watch whose version is compacted gets 410, and the informer lists again: also where it has loaded by a watch.
func TestInformerAfterACompaction(t *testing.T) {
	s := start(t)
	ctx := within(t)
	maps := s.clientset(t).CoreV1().ConfigMaps(namespace)
	for number := range 5 {
		must(maps.Create(ctx, configMap(fmt.Sprint("m", number)), metav1.CreateOptions{}))(t)
	}
	s.compact(t)
	// The history of this resource begins after the compaction.
	widgets := define(t, ctx, s)
	must(widgets.Create(ctx, widget("first"), metav1.CreateOptions{}))(t)

	client := must(dynamic.NewForConfig(s.config))(t)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	informer := factory.ForResource(widgetResource)
	notes := newSeen()
	registration := must(informer.Informer().AddEventHandler(notes.handler()))(t)
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		t.Fatal("the informer has not loaded")
	}
	notes.wait(ctx, t, "added first")
	// client-go does not resume a watch that was short and has shown nothing.
	must(widgets.Create(ctx, widget("shown"), metav1.CreateOptions{}))(t)
	notes.wait(ctx, t, "added shown")
	s.traffic.outdate("1")
	s.traffic.cut(false)
	must(widgets.Create(ctx, widget("second"), metav1.CreateOptions{}))(t)
	notes.wait(ctx, t, "added second")
	if !s.traffic.hasExpired() {
		t.Error("no watch has got 410")
	}
	if err := widgets.Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	notes.wait(ctx, t, "deleted first")
	if count := notes.wait(ctx, t, "added first"); count != 1 {
		t.Errorf("the first object was added %d times", count)
	}
}
