// Runs the strategies of kube-apiserver on objects: what they make of them before they are stored, and what is wrong with
// them.
//
//	go run ./strategies prepared CASES >CASES.new
//	go run ./strategies causes CASES >CASES.new
//	go run ./strategies warnings CASES >CASES.new
//
// CASES is a list in JSON of cases with the members id, verb (create, update or status), body and, for an update, old. They
// are written again with the member expect, the object without what the store sets, or causes: the reason, the field and the
// message of each, or warnings: what a client is warned of. Cases of other kinds than those below stay as they are. The tests of apiserver/src/builtin/gates.rs read
// prepared objects from apiserver/tests/data/prepared.json. The causes of the cases flow-* and level-* of validation.json come
// from this program, too; those of other updates also have the resource version, which the store checks.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
)

// The part of a strategy that updates use.
type updates interface {
	PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
}

// The part of a strategy that creates and updates use.
type strategy interface {
	updates
	PrepareForCreate(ctx context.Context, obj runtime.Object)
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
}

// The strategies of a kind; status may be nil.
type strategies struct {
	main   strategy
	status updates
}

var kinds = map[string]strategies{
	"CSIDriver":                  {csidriver.Strategy, nil},
	"CronJob":                    {cronjob.Strategy, cronjob.StatusStrategy},
	"DaemonSet":                  {daemonset.Strategy, daemonset.StatusStrategy},
	"Deployment":                 {deployment.Strategy, deployment.StatusStrategy},
	"Event":                      {event.Strategy, nil},
	"FlowSchema":                 {flowschema.Strategy, flowschema.StatusStrategy},
	"Job":                        {job.Strategy, job.StatusStrategy},
	"Lease":                      {lease.Strategy, nil},
	"PersistentVolumeClaim":      {persistentvolumeclaim.Strategy, persistentvolumeclaim.StatusStrategy},
	"Node":                       {node.Strategy, node.StatusStrategy},
	"Pod":                        {pod.Strategy, pod.StatusStrategy},
	"PodTemplate":                {podtemplate.Strategy, nil},
	"PriorityLevelConfiguration": {prioritylevelconfiguration.Strategy, prioritylevelconfiguration.StatusStrategy},
	"ReplicaSet":                 {replicaset.Strategy, replicaset.StatusStrategy},
	"ReplicationController":      {replicationcontroller.Strategy, replicationcontroller.StatusStrategy},
	"ResourceSlice":              {resourceslice.Strategy, nil},
	"StatefulSet":                {statefulset.Strategy, statefulset.StatusStrategy},
}

type testCase struct {
	ID     string          `json:"id"`
	Verb   string          `json:"verb"`
	Old    json.RawMessage `json:"old,omitempty"`
	Body   json.RawMessage `json:"body"`
	Expect map[string]any  `json:"expect,omitempty"`
	Causes *[][3]string    `json:"causes,omitempty"`
	Warned *[]string       `json:"warnings,omitempty"`
}

func main() {
	if len(os.Args) != 3 || !slices.Contains([]string{"prepared", "causes", "warnings"}, os.Args[1]) {
		fatal("usage: strategies prepared|causes|warnings CASES")
	}
	text, err := os.ReadFile(os.Args[2])
	check(err)
	var cases []testCase
	check(json.Unmarshal(text, &cases))
	if len(cases) == 0 {
		fatal("there are no cases")
	}
	for index := range cases {
		one := &cases[index]
		if os.Args[1] == "warnings" {
			texts := one.warnings()
			one.Warned = &texts
			continue
		}
		object, errors, ok := one.run()
		if !ok {
			continue
		}
		one.Expect, one.Causes = nil, nil
		if os.Args[1] == "prepared" {
			one.Expect = shown(object)
		} else {
			one.Causes = causes(errors)
		}
	}
	// One case in each line.
	for index, one := range cases {
		start := ",\n"
		if index == 0 {
			start = "[\n"
		}
		var line bytes.Buffer
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		check(encoder.Encode(one))
		fmt.Printf("%s%s", start, bytes.TrimSpace(line.Bytes()))
	}
	fmt.Println("\n]")
}

// run returns the prepared object and what is wrong with it. It does nothing with an object of another kind.
func (c *testCase) run() (runtime.Object, field.ErrorList, bool) {
	var named struct {
		Kind string `json:"kind"`
	}
	check(json.Unmarshal(c.Body, &named))
	of, ok := kinds[named.Kind]
	if !ok {
		return nil, nil, false
	}
	object := decode(c.Body)
	kind := object.GetObjectKind().GroupVersionKind()
	ctx := genericrequest.WithRequestInfo(context.Background(), &genericrequest.RequestInfo{
		APIGroup: kind.Group, APIVersion: kind.Version,
	})
	internal := toInternal(object)
	switch c.Verb {
	case "create":
		of.main.PrepareForCreate(ctx, internal)
		return toVersion(internal, kind), of.main.Validate(ctx, internal), true
	case "update", "status":
		old := toInternal(decode(c.Old))
		var rules updates = of.main
		if c.Verb == "status" {
			rules = of.status
		}
		// What the store does before.
		accessor, err := meta.Accessor(internal)
		check(err)
		before, err := meta.Accessor(old)
		check(err)
		accessor.SetGeneration(before.GetGeneration())
		rules.PrepareForUpdate(ctx, internal, old)
		return toVersion(internal, kind), rules.ValidateUpdate(ctx, internal, old), true
	default:
		fatal("%s: unknown verb %s", c.ID, c.Verb)
		return nil, nil, false
	}
}

// decode reads an object with its defaults.
func decode(text []byte) runtime.Object {
	decoder := legacyscheme.Codecs.UniversalDeserializer()
	object, kind, err := decoder.Decode(text, nil, nil)
	check(err)
	legacyscheme.Scheme.Default(object)
	object.GetObjectKind().SetGroupVersionKind(*kind)
	accessor, err := meta.Accessor(object)
	check(err)
	accessor.SetUID("00000000-0000-4000-8000-000000000001")
	return object
}

func toInternal(object runtime.Object) runtime.Object {
	kind := object.GetObjectKind().GroupVersionKind()
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{
		Group: kind.Group, Version: runtime.APIVersionInternal,
	})
	check(err)
	return internal
}

func toVersion(internal runtime.Object, kind schema.GroupVersionKind) runtime.Object {
	object, err := legacyscheme.Scheme.ConvertToVersion(internal, kind.GroupVersion())
	check(err)
	return object
}

// shown returns an object as JSON, of whose metadata only the generation is of interest.
func shown(object runtime.Object) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	check(err)
	metadata := map[string]any{}
	if all, ok := content["metadata"].(map[string]any); ok {
		if generation, ok := all["generation"]; ok {
			metadata["generation"] = generation
		}
	}
	content["metadata"] = metadata
	return content
}

// A value in the form of an internal type.
var internalValue = regexp.MustCompile(`^(Invalid value|Duplicate value|Unsupported value): [{\[].*[}\]]: `)

func causes(errors field.ErrorList) *[][3]string {
	list := [][3]string{}
	for _, one := range errors {
		message := internalValue.ReplaceAllString(one.ErrorBody(), "$1: <any>: ")
		list = append(list, [3]string{string(one.Type), one.Field, message})
	}
	return &list
}

func check(err error) {
	if err != nil {
		fatal("%v", err)
	}
}

func fatal(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
