// Program oracle decodes and patches with kube-apiserver's libraries. It reads a request per line and writes a
// response per line, both in JSON. The test `go_oracle` runs it.
package main

import (
	"bufio"
	stdjson "encoding/json"
	"fmt"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"
)

// maxLine bounds a request.
const maxLine = 64 << 20

// kinds has an object of each kind that requests name.
var kinds = map[string]any{
	"Deployment": &appsv1.Deployment{},
	"Node":       &corev1.Node{},
	"Pod":        &corev1.Pod{},
	"Service":    &corev1.Service{},
}

type request struct {
	// Op is "json", "merge", "strategic", "difference", "compare", "manage", "yaml" or "decode".
	Op   string
	Kind string
	// Object is the object that is patched or, for "manage", the list of writes.
	Object stdjson.RawMessage
	// Patch is the patch or, for "difference" and "compare", another object.
	Patch stdjson.RawMessage
	// Text is what is decoded.
	Text string
}

type response struct {
	Result stdjson.RawMessage `json:"result,omitempty"`
	// Patch is the computed patch.
	Patch stdjson.RawMessage `json:"patch,omitempty"`
	// Strict has the errors of strict decoding.
	Strict []string `json:"strict,omitempty"`
	Error  string   `json:"error,omitempty"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, maxLine)
	out := bufio.NewWriter(os.Stdout)
	for in.Scan() {
		line, err := stdjson.Marshal(answer(in.Bytes()))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%s\n", line)
	}
	if err := in.Err(); err != nil {
		panic(err)
	}
	if err := out.Flush(); err != nil {
		panic(err)
	}
}

func answer(line []byte) (r response) {
	// kube-apiserver recovers from panics of these libraries and answers 500.
	defer func() {
		if p := recover(); p != nil {
			r = response{Error: fmt.Sprint("panic: ", p)}
		}
	}()
	var q request
	if err := stdjson.Unmarshal(line, &q); err != nil {
		panic(err)
	}
	r, err := apply(q)
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func apply(q request) (r response, err error) {
	switch q.Op {
	case "json":
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(q.Patch); err == nil {
			r.Result, err = patch.Apply(q.Object)
		}
	case "merge":
		r.Result, err = jsonpatch.MergePatch(q.Object, q.Patch)
	case "strategic":
		r.Result, err = strategic(q.Kind, q.Object, q.Patch)
	case "difference":
		r.Patch, err = strategicpatch.CreateTwoWayMergePatch(q.Object, q.Patch, kinds[q.Kind])
		if err == nil {
			r.Result, err = strategic(q.Kind, q.Object, r.Patch)
		}
	case "manage":
		r.Result, err = manage(q.Object)
	case "compare":
		r.Result, err = compare(q.Object, q.Patch)
	case "yaml":
		if r.Result, err = yaml.YAMLToJSON([]byte(q.Text)); err == nil {
			if _, strict := yaml.YAMLToJSONStrict([]byte(q.Text)); strict != nil {
				r.Strict = []string{strict.Error()}
			}
		}
	case "decode":
		var value any
		var strict []error
		if strict, err = json.UnmarshalStrict([]byte(q.Text), &value); err == nil {
			for _, e := range strict {
				r.Strict = append(r.Strict, e.Error())
			}
			r.Result, err = stdjson.Marshal(value)
		}
	default:
		panic("unknown operation " + q.Op)
	}
	return r, err
}

func strategic(kind string, object, patch []byte) ([]byte, error) {
	var maps [2]map[string]any
	for i, data := range [][]byte{object, patch} {
		if err := json.UnmarshalCaseSensitivePreserveInts(data, &maps[i]); err != nil {
			return nil, err
		}
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(maps[0], maps[1], kinds[kind])
	if err != nil {
		return nil, err
	}
	return stdjson.Marshal(merged)
}

// fields is the schema of the objects that are compared. The test has the same one.
const fields = `types:
- name: resource
  map:
    fields:
    - name: apiVersion
      type:
        scalar: string
    - name: kind
      type:
        scalar: string
    - name: metadata
      type:
        namedType: metadata
    - name: spec
      type:
        namedType: root
    - name: status
      type:
        namedType: root
- name: metadata
  map:
    fields:
    - name: name
      type:
        scalar: string
    - name: uid
      type:
        scalar: string
    - name: managedFields
      type:
        list:
          elementType:
            namedType: __untyped_deduced_
          elementRelationship: atomic
    - name: labels
      type:
        map:
          elementType:
            scalar: string
    - name: annotations
      type:
        map:
          elementType:
            scalar: string
- name: root
  map:
    fields:
    - name: scalar
      type:
        scalar: untyped
    - name: object
      type:
        namedType: root
    - name: atomic
      type:
        map:
          elementType:
            namedType: __untyped_deduced_
          elementRelationship: atomic
    - name: map
      type:
        map:
          elementType:
            scalar: untyped
    - name: list
      type:
        list:
          elementType:
            namedType: __untyped_deduced_
          elementRelationship: atomic
    - name: set
      type:
        list:
          elementType:
            scalar: untyped
          elementRelationship: associative
    - name: keyed
      type:
        list:
          elementType:
            namedType: item
          elementRelationship: associative
          keys:
          - name
          - port
    - name: any
      type:
        namedType: __untyped_deduced_
- name: item
  map:
    fields:
    - name: name
      type:
        scalar: string
    - name: port
      type:
        scalar: numeric
      default: 1
    - name: object
      type:
        namedType: root
- name: __untyped_deduced_
  scalar: untyped
  list:
    elementType:
      namedType: __untyped_deduced_
    elementRelationship: atomic
  map:
    elementType:
      namedType: __untyped_deduced_
    elementRelationship: separable
`

func compare(from, to []byte) ([]byte, error) {
	parser, err := typed.NewParser(fields)
	if err != nil {
		panic(err)
	}
	var values [2]*typed.TypedValue
	for i, data := range [][]byte{from, to} {
		var object any
		if err := json.UnmarshalCaseSensitivePreserveInts(data, &object); err != nil {
			return nil, err
		}
		if values[i], err = parser.Type("root").FromUnstructured(object, typed.AllowDuplicates); err != nil {
			return nil, err
		}
	}
	comparison, err := values[0].Compare(values[1])
	if err != nil {
		return nil, err
	}
	var sets []stdjson.RawMessage
	for _, set := range []*fieldpath.Set{comparison.Removed, comparison.Modified, comparison.Added} {
		data, err := set.ToJSON()
		if err != nil {
			return nil, err
		}
		sets = append(sets, data)
	}
	return stdjson.Marshal(sets)
}
