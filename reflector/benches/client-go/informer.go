package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
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
	objects     = 100_000
	events      = 10_000
	eventRounds = 10
	relists     = 3
)

func pod(number int, revision int64) []byte {
	padding := strings.Repeat("x", 800)
	return fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%06d","namespace":"ns-%d","uid":"uid-%d","resourceVersion":"%d","labels":{"app":"a%d"}},"spec":{"nodeName":"n%d","padding":"%s"}}`,
		number, number%100, number, revision, number%1000, number%5000, padding)
}

// byKey returns the numbers of pods in the order of their keys, in which API servers list them.
func byKey(count int) []int {
	numbers, keys := make([]int, count), make([]string, count)
	for number := range numbers {
		numbers[number] = number
		keys[number] = fmt.Sprintf("ns-%d/pod-%06d", number%100, number)
	}
	sort.Slice(numbers, func(a, b int) bool { return keys[numbers[a]] < keys[numbers[b]] })
	return numbers
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
	listed  time.Time
	watcher chan watch.Event
}

type channelWatch struct{ events chan watch.Event }

func (c channelWatch) Stop()                          {}
func (c channelWatch) ResultChan() <-chan watch.Event { return c.events }

func (s *source) lister() cache.ListerWatcher {
	list := func(ctx context.Context, options metav1.ListOptions) (apiruntime.Object, error) {
		s.lock.Lock()
		s.listed = time.Now()
		s.lock.Unlock()
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

func runInformer() {
	numbers := byKey(objects)
	before := heap()
	s := &source{items: make([]unstructured.Unstructured, objects)}
	for index, number := range numbers {
		s.items[index] = *decode(pod(number, 1))
	}
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
	started := time.Now()
	go informer.Run(stop)
	wait(objects)
	fmt.Println("first_list_ms", time.Since(started).Seconds()*1000)
	stored := heap()
	fmt.Println("object_bytes", (created-before)/objects)
	fmt.Println("store_bytes", (stored-created)/objects)

	changes := make([]*unstructured.Unstructured, events)
	for index, number := range numbers[:events] {
		changes[index] = decode(pod(number, 2))
	}
	watcher := s.current()
	runtime.GC()
	started, cpu := time.Now(), cpuTime()
	for range eventRounds {
		target := calls.Load() + events
		for _, change := range changes {
			watcher <- watch.Event{Type: watch.Modified, Object: change}
		}
		wait(target)
	}
	count := events * eventRounds
	fmt.Println("changes", float64(count)/time.Since(started).Seconds())
	fmt.Println("change_cpu_ns", int(cpuTime()-cpu)/count)

	// A relist: the watch ends with 410, and a list follows after a pause, which takes no CPU time.
	runtime.GC()
	var times []time.Duration
	cpu = cpuTime()
	for range relists {
		target := calls.Load() + objects
		watcher := s.current()
		s.lock.Lock()
		s.watcher = nil
		s.lock.Unlock()
		expired := apierrors.NewResourceExpired("old").Status()
		watcher <- watch.Event{Type: watch.Error, Object: &expired}
		wait(target)
		s.lock.Lock()
		times = append(times, time.Since(s.listed))
		s.lock.Unlock()
	}
	// What is collected later belongs to the relists as well.
	runtime.GC()
	fmt.Println("relist_cpu_ms", (cpuTime()-cpu).Seconds()*1000/relists)
	slices.Sort(times)
	fmt.Println("relist_ms", times[relists/2].Seconds()*1000)
	close(stop)
}
