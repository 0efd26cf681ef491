// Command informers runs shared informers of config maps and services in a namespace, and prints what they do, a JSON
// object a line: each notification of their handlers, each list that they get, and, for each line of standard input,
// the contents of their stores. ../../../../kubernetes/fronts.py checks it.
//
// usage: informers URL TOKEN
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const namespace = "default"

// line is a line of standard output.
type line struct {
	// added, changed, deleted, list, synced or store.
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	Name     string `json:"name,omitempty"`
	// The resource versions before and after a change.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// The text "n" of a config map.
	N string `json:"n,omitempty"`
	// The names and resource versions of all objects.
	Objects map[string]string `json:"objects,omitempty"`
}

var output sync.Mutex

func tell(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	// An error means that the test has ended.
	_, _ = os.Stdout.Write(append(text, '\n'))
}

// requests tells of the lists that informers get, also of those by a watch, before their objects.
type requests struct{ inner http.RoundTripper }

func (r requests) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.inner.RoundTrip(request)
	query := request.URL.Query()
	isList := query.Get("watch") == "" || query.Get("sendInitialEvents") == "true"
	if isList && err == nil && response.StatusCode == http.StatusOK {
		tell(line{Kind: "list", Resource: path.Base(request.URL.Path)})
	}
	return response, err
}

func main() {
	klog.InitFlags(nil)
	if err := flag.Set("logtostderr", "false"); err != nil {
		panic(err)
	}
	klog.SetOutput(io.Discard)

	config := &rest.Config{
		Host:            os.Args[1],
		BearerToken:     os.Args[2],
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS:             -1,
	}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return requests{inner} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	stores := map[string]cache.SharedIndexInformer{
		"configmaps": factory.Core().V1().ConfigMaps().Informer(),
		"services":   factory.Core().V1().Services().Informer(),
	}
	for resource, informer := range stores {
		registration, err := informer.AddEventHandler(handler(resource))
		if err != nil {
			panic(err)
		}
		go func() {
			cache.WaitForCacheSync(context.Background().Done(), registration.HasSynced)
			tell(line{Kind: "synced", Resource: resource})
		}()
	}
	factory.Start(context.Background().Done())

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		for resource, informer := range stores {
			objects := map[string]string{}
			for _, object := range informer.GetStore().List() {
				objects[object.(metav1.Object).GetName()] = object.(metav1.Object).GetResourceVersion()
			}
			tell(line{Kind: "store", Resource: resource, Objects: objects})
		}
	}
}

func handler(resource string) cache.ResourceEventHandler {
	item := func(kind string, old, new any) {
		l := line{Kind: kind, Resource: resource}
		if gone, ok := old.(cache.DeletedFinalStateUnknown); ok {
			old = gone.Obj
		}
		if old != nil {
			l.Name, l.Old = old.(metav1.Object).GetName(), old.(metav1.Object).GetResourceVersion()
		}
		if new != nil {
			l.Name, l.New = new.(metav1.Object).GetName(), new.(metav1.Object).GetResourceVersion()
		}
		if configMap, ok := new.(*corev1.ConfigMap); ok {
			l.N = configMap.Data["n"]
		}
		tell(l)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(new any) { item("added", nil, new) },
		UpdateFunc: func(old, new any) { item("changed", old, new) },
		DeleteFunc: func(old any) { item("deleted", old, nil) },
	}
}
