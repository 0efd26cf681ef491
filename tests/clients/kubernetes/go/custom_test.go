package kubernetes

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

var (
	widgetVersion     = schema.GroupVersion{Group: "example.com", Version: "v1"}
	widgetResource    = widgetVersion.WithResource("widgets")
	definitionVersion = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
)

type object = map[string]any

func definition() *unstructured.Unstructured {
	integer := object{"type": "integer"}
	return &unstructured.Unstructured{Object: object{
		"apiVersion": definitionVersion.String(),
		"kind":       "CustomResourceDefinition",
		"metadata":   object{"name": "widgets.example.com"},
		"spec": object{
			"group": "example.com",
			"scope": "Namespaced",
			"names": object{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{object{
				"name": "v1", "served": true, "storage": true,
				"schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{
					"spec": object{"type": "object", "properties": object{
						"size":     object{"type": "integer", "minimum": int64(1), "default": int64(3)},
						"replicas": integer,
					}},
					"status": object{"type": "object", "properties": object{"replicas": integer}},
				}}},
				"subresources": object{
					"status": object{},
					"scale":  object{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
				},
			}},
		},
	}}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": widgetVersion.String(), "kind": "Widget",
		"metadata": object{"name": name}, "spec": object{"replicas": int64(1)},
	}}
}

// define creates the definition of widgets, and waits until it is established.
func define(t *testing.T, ctx context.Context, s *server) dynamic.ResourceInterface {
	t.Helper()
	client := must(dynamic.NewForConfig(s.config))(t)
	definitions := client.Resource(definitionVersion.WithResource("customresourcedefinitions"))
	must(definitions.Create(ctx, definition(), metav1.CreateOptions{}))(t)
	established := func(event watch.Event) (bool, error) {
		found, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		// They are null at first, which is an error here.
		conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
		for _, condition := range conditions {
			condition := condition.(object)
			if condition["type"] == "Established" && condition["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	}
	lists := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return definitions.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return definitions.Watch(ctx, options)
		},
	}, client)
	if _, err := watchtools.UntilWithSync(ctx, lists, &unstructured.Unstructured{}, nil, established); err != nil {
		t.Fatal(err)
	}
	return client.Resource(widgetResource).Namespace(namespace)
}

func TestDynamicObjects(t *testing.T) {
	s := start(t)
	ctx := within(t)
	widgets := define(t, ctx, s)
	created := must(widgets.Create(ctx, widget("a"), metav1.CreateOptions{}))(t)
	if size, _, _ := unstructured.NestedInt64(created.Object, "spec", "size"); size != 3 {
		t.Errorf("the default: %v", created)
	}
	patch := []byte(`{"spec":{"size":0}}`)
	if _, err := widgets.Patch(ctx, "a", types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a value that the schema refuses: %v", err)
	}
	if err := unstructured.SetNestedField(created.Object, int64(4), "status", "replicas"); err != nil {
		t.Fatal(err)
	}
	updated := must(widgets.UpdateStatus(ctx, created, metav1.UpdateOptions{}))(t)
	if replicas, _, _ := unstructured.NestedInt64(updated.Object, "status", "replicas"); replicas != 4 {
		t.Errorf("status: %v", updated)
	}

	// What is found by discovery, and scaled by it.
	client := must(discovery.NewDiscoveryClientForConfig(s.config))(t)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	mapping := must(mapper.RESTMapping(widgetVersion.WithKind("Widget").GroupKind()))(t)
	if mapping.Resource != widgetResource {
		t.Errorf("mapping: %v", mapping.Resource)
	}
	scales := must(scale.NewForConfig(s.config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client)))(t)
	found := must(scales.Scales(namespace).Get(ctx, widgetResource.GroupResource(), "a", metav1.GetOptions{}))(t)
	if found.Spec.Replicas != 1 || found.Status.Replicas != 4 {
		t.Errorf("scale: %v", found)
	}
	found.Spec.Replicas = 7
	found = must(scales.Scales(namespace).Update(ctx, widgetResource.GroupResource(), found, metav1.UpdateOptions{}))(t)
	if found.Spec.Replicas != 7 {
		t.Errorf("scale: %v", found)
	}
}

// Widget is the type of a generated client.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size     int64 `json:"size,omitempty"`
		Replicas int64 `json:"replicas,omitempty"`
	} `json:"spec"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	copied := *w
	copied.ObjectMeta = *w.ObjectMeta.DeepCopy()
	return &copied
}

func TestTypedCustomObjects(t *testing.T) {
	s := start(t)
	ctx := within(t)
	define(t, ctx, s)
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(widgetVersion, &Widget{})
	metav1.AddToGroupVersion(scheme, widgetVersion)
	config := rest.CopyConfig(s.config)
	config.GroupVersion, config.APIPath = &widgetVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client := must(rest.RESTClientFor(config))(t)
	created, widget := &Widget{}, &Widget{ObjectMeta: metav1.ObjectMeta{GenerateName: "w-"}}
	err := client.Post().Namespace(namespace).Resource("widgets").Body(widget).Do(ctx).Into(created)
	if err != nil || created.Name == "" || created.Spec.Size != 3 {
		t.Errorf("created %v: %v", created, err)
	}
}
