package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// podsOf lists and watches the pods of one node.
func podsOf(client dynamic.Interface, node int) cache.ListerWatcher {
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	selector := fmt.Sprintf("spec.nodeName=node-%d", node)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return pods.Watch(ctx, options)
		},
	}
}

// runReflectors runs an informer for the pods of each node until standard input ends.
func runReflectors(url, count string) {
	nodes, err := strconv.Atoi(count)
	if err != nil {
		panic(err)
	}
	// No limit on requests: the pauses are those of the reflectors.
	client, err := dynamic.NewForConfig(&rest.Config{Host: url, QPS: -1})
	if err != nil {
		panic(err)
	}
	stop := make(chan struct{})
	for node := range nodes {
		informer := cache.NewSharedIndexInformer(podsOf(client, node), &unstructured.Unstructured{}, 0, cache.Indexers{})
		go informer.Run(stop)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(stop)
}
