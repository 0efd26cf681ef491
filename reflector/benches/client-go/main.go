// The same work as benches/reflector.rs with client-go's informer: pods of 1 KiB in memory, an index, one handler.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	objects = 100_000
	events  = 10_000
)

func pod(number int, revision int64) []byte {
	padding := strings.Repeat("x", 800)
	return fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%06d","namespace":"ns-%d","uid":"uid-%d","resourceVersion":"%d","labels":{"app":"a%d"}},"spec":{"nodeName":"n%d","padding":"%s"}}`,
		number, number%100, number, revision, number%1000, number%5000, padding)
}

func decode(text []byte) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		panic(err)
	}
	return object
}

// heap returns the live bytes after a collection.
func heap() uint64 {
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// source lists objects in memory; its watch is a channel that the program fills.
type source struct {
	lock    sync.Mutex
	items   []unstructured.Unstructured
	watcher chan watch.Event
}

type channelWatch struct{ events chan watch.Event }

func (c channelWatch) Stop()                          {}
func (c channelWatch) ResultChan() <-chan watch.Event { return c.events }

func (s *source) lister() cache.ListerWatcher {
	list := func(ctx context.Context, options metav1.ListOptions) (apiruntime.Object, error) {
		list := &unstructured.UnstructuredList{Object: map[string]interface{}{"kind": "PodList", "apiVersion": "v1"}}
		list.SetResourceVersion("1")
		list.Items = s.items
		return list, nil
	}
	start := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		if options.SendInitialEvents != nil && *options.SendInitialEvents {
			return nil, apierrors.NewBadRequest("not supported")
		}
		s.lock.Lock()
		defer s.lock.Unlock()
		s.watcher = make(chan watch.Event, 100)
		return channelWatch{s.watcher}, nil
	}
	return &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: start}
}

func (s *source) current() chan watch.Event {
	for {
		s.lock.Lock()
		watcher := s.watcher
		s.lock.Unlock()
		if watcher != nil {
			return watcher
		}
		time.Sleep(time.Millisecond)
	}
}

func report(name string, count int, elapsed time.Duration) {
	fmt.Printf("%-24s %8.1f ms  %9.0f /s\n", name, elapsed.Seconds()*1000, float64(count)/elapsed.Seconds())
}

func main() {
	rounds := 10
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	texts := make([][]byte, objects)
	for number := range texts {
		texts[number] = pod(number, 1)
	}
	before := heap()
	s := &source{items: make([]unstructured.Unstructured, objects)}
	started := time.Now()
	for number, text := range texts {
		s.items[number] = *decode(text)
	}
	report("decode", objects, time.Since(started))
	created := heap()

	informer := cache.NewSharedIndexInformer(s.lister(), &unstructured.Unstructured{}, 0, cache.Indexers{
		"app": func(object interface{}) ([]string, error) {
			return []string{object.(*unstructured.Unstructured).GetLabels()["app"]}, nil
		},
	})
	var calls atomic.Int64
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(interface{}) { calls.Add(1) },
		UpdateFunc: func(_, _ interface{}) { calls.Add(1) },
		DeleteFunc: func(interface{}) { calls.Add(1) },
	})
	wait := func(count int64) {
		for calls.Load() < count {
			time.Sleep(100 * time.Microsecond)
		}
	}
	stop := make(chan struct{})
	started = time.Now()
	go informer.Run(stop)
	wait(objects)
	report("first list", objects, time.Since(started))
	stored := heap()

	changes := make([]*unstructured.Unstructured, events)
	for number := range changes {
		changes[number] = decode(pod(number, 2))
	}
	watcher := s.current()
	var total time.Duration
	for range rounds {
		target := calls.Load() + events
		started = time.Now()
		for _, change := range changes {
			watcher <- watch.Event{Type: watch.Modified, Object: change}
		}
		wait(target)
		total += time.Since(started)
	}
	report("events", events*rounds, total)

	// A relist: the watch ends with 410. The pause before the list is measured and subtracted by the handler's
	// first call.
	s.lock.Lock()
	s.watcher = nil
	s.lock.Unlock()
	target := calls.Load()
	expired := apierrors.NewResourceExpired("old").Status()
	watcher <- watch.Event{Type: watch.Error, Object: &expired}
	for calls.Load() == target {
		time.Sleep(10 * time.Microsecond)
	}
	first := time.Now()
	wait(target + objects)
	report("handlers of a relist", objects, time.Since(first))
	fmt.Printf("memory of an object with %d bytes of JSON: %d bytes, in the store and an index %d more\n",
		len(texts[1]), (created-before)/objects, (stored-created)/objects)
	close(stop)
}
