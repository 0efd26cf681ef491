package main

import (
	stdjson "encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// write is one write of a sequence to one object.
type write struct {
	// Verb is "apply", "update", or "patch", which replaces some fields of the spec.
	Verb, Manager, Subresource, Version string
	Force                               bool
	Object                              stdjson.RawMessage
}

// outcome is the object after a write, or its error.
type outcome struct {
	Object map[string]any `json:"object,omitempty"`
	Error  string         `json:"error,omitempty"`
}

// objects knows the schema of all objects, and converts between versions that do not differ.
type objects struct {
	parser *typed.Parser
}

func (o objects) ObjectToTyped(object runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	content := object.(*unstructured.Unstructured).UnstructuredContent()
	return o.parser.Type("resource").FromUnstructured(content, opts...)
}

func (o objects) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return &unstructured.Unstructured{Object: value.AsValue().Unstructured().(map[string]any)}, nil
}

func (o objects) Convert(in, out, context any) error { panic("not used") }

func (o objects) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	object := in.(*unstructured.Unstructured).DeepCopy()
	if object.GetAPIVersion() != "" {
		object.SetAPIVersion(to.(schema.GroupVersion).String())
	}
	return object, nil
}

func (o objects) ConvertFieldLabel(kind schema.GroupVersionKind, label, value string) (string, string, error) {
	panic("not used")
}

func (o objects) Default(object runtime.Object) {}

func (o objects) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object, nil
}

// manage makes a sequence of writes to one object, and returns what came of each.
func manage(sequence []byte) ([]byte, error) {
	var writes []write
	if err := stdjson.Unmarshal(sequence, &writes); err != nil {
		panic(err)
	}
	parser, err := typed.NewParser(fields)
	if err != nil {
		panic(err)
	}
	var live *unstructured.Unstructured
	var outcomes []outcome
	for _, w := range writes {
		object, err := w.make(objects{parser}, live)
		if err != nil {
			outcomes = append(outcomes, outcome{Error: err.Error()})
			continue
		}
		live = object
		live.SetUID("u")
		outcomes = append(outcomes, outcome{Object: live.DeepCopy().Object})
	}
	return stdjson.Marshal(outcomes)
}

func (w write) make(o objects, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	version := schema.GroupVersion{Group: "example.com", Version: w.Version}
	kind := version.WithKind("Widget")
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range []string{"example.com/v1", "example.com/v2"} {
		if w.Subresource == "" {
			reset[fieldpath.APIVersion(version)] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		} else {
			reset[fieldpath.APIVersion(version)] = fieldpath.NewSet(
				fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels"))
		}
	}
	filters := fieldpath.NewExcludeFilterSetMap(reset)
	manager, err := managedfields.NewDefaultCRDFieldManager(o, o, o, o, kind, version, w.Subresource, filters)
	if err != nil {
		panic(err)
	}
	var content any
	if err := json.UnmarshalCaseSensitivePreserveInts(w.Object, &content); err != nil {
		panic(err)
	}
	sent := &unstructured.Unstructured{Object: content.(map[string]any)}
	before, _ := o.New(kind)
	if live != nil {
		before = live.DeepCopy()
		before.(*unstructured.Unstructured).SetAPIVersion(version.String())
	}
	if w.Verb == "apply" {
		after, err := manager.Apply(before, sent, w.Manager, w.Force)
		if err != nil {
			return nil, err
		}
		return after.(*unstructured.Unstructured), nil
	}
	if w.Verb == "patch" && live != nil {
		spec, _ := sent.Object["spec"].(map[string]any)
		patched := live.DeepCopy()
		patched.SetAPIVersion(version.String())
		old, _ := patched.Object["spec"].(map[string]any)
		if old == nil {
			old = map[string]any{}
		}
		for name, value := range spec {
			old[name] = value
		}
		patched.Object["spec"] = old
		sent = patched
	} else if live != nil {
		sent.SetUID(live.GetUID())
	}
	name := strings.SplitN(w.Manager, "/", 2)[0]
	return manager.UpdateNoErrors(before, sent, name).(*unstructured.Unstructured), nil
}
