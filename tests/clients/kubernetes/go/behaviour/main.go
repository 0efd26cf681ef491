// Command behaviour is the driver of client-go for docs/client-behaviour.md: it executes the commands that it reads
// from standard input, and prints what the client does. ../../../behaviour/README.md has both forms.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

const namespace = "default"

// command is a line of standard input.
type command struct {
	ID         int    `json:"id"`
	Op         string `json:"op"`
	Kubeconfig string `json:"kubeconfig"`
	Key        string `json:"key"`
	Value      string `json:"value"`
	Helper     bool   `json:"helper"`
}

// event is a line of standard output.
type event struct {
	ID      int               `json:"id"`
	Event   string            `json:"event"`
	Text    string            `json:"text,omitempty"`
	Kind    string            `json:"kind,omitempty"`
	Key     string            `json:"key,omitempty"`
	Value   string            `json:"value,omitempty"`
	Objects map[string]string `json:"objects,omitempty"`
}

var output sync.Mutex

func tell(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	// An error means that the runner has ended.
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func main() {
	klog.InitFlags(nil)
	if err := flag.Set("logtostderr", "false"); err != nil {
		panic(err)
	}
	klog.SetOutput(io.Discard)

	var client *kubernetes.Clientset
	var informer cache.SharedIndexInformer
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		switch c.Op {
		case "connect":
			var err error
			client, err = connect(c)
			answer(c.ID, "", err)
		case "informer":
			informer = start(client, c)
		case "store":
			tell(event{ID: c.ID, Event: "returned", Objects: contents(informer)})
		default:
			go execute(client, c)
		}
	}
}

func connect(c command) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// answer tells how a call has ended.
func answer(id int, value string, err error) {
	if err != nil {
		tell(event{ID: id, Event: "failed", Text: err.Error()})
		return
	}
	tell(event{ID: id, Event: "returned", Value: value})
}

// start runs an informer, and tells what its handler and its handler of errors get.
func start(client *kubernetes.Clientset, c command) cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	item := func(kind string, object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		configMap := object.(*corev1.ConfigMap)
		tell(event{ID: c.ID, Event: "item", Kind: kind, Key: configMap.Name, Value: configMap.Data["value"]})
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(new any) { item("applied", new) },
		UpdateFunc: func(_, new any) { item("applied", new) },
		DeleteFunc: func(old any) { item("deleted", old) },
	})
	if err != nil {
		panic(err)
	}
	err = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		tell(event{ID: c.ID, Event: "failed", Text: err.Error()})
	})
	if err != nil {
		panic(err)
	}
	factory.Start(context.Background().Done())
	go func() {
		cache.WaitForCacheSync(context.Background().Done(), registration.HasSynced)
		tell(event{ID: c.ID, Event: "synced"})
	}()
	return informer
}

// contents returns the names and values in the store of an informer.
func contents(informer cache.SharedIndexInformer) map[string]string {
	objects := map[string]string{}
	for _, object := range informer.GetStore().List() {
		configMap := object.(*corev1.ConfigMap)
		objects[configMap.Name] = configMap.Data["value"]
	}
	return objects
}

func execute(client *kubernetes.Clientset, c command) {
	ctx := context.Background()
	maps := client.CoreV1().ConfigMaps(namespace)
	switch c.Op {
	case "get":
		found, err := maps.Get(ctx, c.Key, metav1.GetOptions{})
		value := ""
		if err == nil {
			value = found.Data["value"]
		}
		answer(c.ID, value, err)
	case "create":
		created, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: c.Key},
			Data:       map[string]string{"value": c.Value},
		}, metav1.CreateOptions{})
		name := ""
		if err == nil {
			name = created.Name
		}
		answer(c.ID, name, err)
	case "update":
		update := func() error {
			found, err := maps.Get(ctx, c.Key, metav1.GetOptions{})
			if err != nil {
				return err
			}
			found.Data = map[string]string{"value": c.Value}
			_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
			return err
		}
		if c.Helper {
			answer(c.ID, "", retry.RetryOnConflict(retry.DefaultRetry, update))
		} else {
			answer(c.ID, "", update())
		}
	default:
		panic("unknown op " + c.Op)
	}
}
