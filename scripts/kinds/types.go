package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
)

// special are types whose JSON is not that of their fields: the table names their codecs.
var special = map[string]string{
	"resource.Quantity":                             "quantity",
	"intstr.IntOrString":                            "int-or-string",
	"meta.v1.Time":                                  "time",
	"meta.v1.MicroTime":                             "micro-time",
	"meta.v1.Duration":                              "duration",
	"meta.v1.FieldsV1":                              "fields",
	"runtime.RawExtension":                          "raw",
	"apiextensions.v1.JSON":                         "json",
	"apiextensions.v1.JSONSchemaPropsOrArray":       "schema-or-array",
	"apiextensions.v1.JSONSchemaPropsOrBool":        "schema-or-bool",
	"apiextensions.v1.JSONSchemaPropsOrStringArray": "schema-or-strings",
}

// types are the types to write, by their short names, such as `core.v1.PodSpec`.
type types struct {
	schemas map[string]schema
	found   map[string]reflect.Type
	groups  map[string]gvk.GroupVersion
	// repeated are the named slices that are no messages in protobuf.
	repeated map[string]bool
}

func newTypes(schemas map[string]schema) *types {
	return &types{schemas, map[string]reflect.Type{}, map[string]gvk.GroupVersion{}, map[string]bool{}}
}

func (t *types) addKind(scheme *runtime.Scheme, group, version, kind string) {
	goType := scheme.AllKnownTypes()[gvk.GroupVersionKind{Group: group, Version: version, Kind: kind}]
	if goType == nil {
		fatal("no Go type for %s/%s %s", group, version, kind)
	}
	alias, _ := names(goType)
	pkg := alias[:strings.LastIndex(alias, ".")]
	if pkg != "meta.v1" {
		t.groups[pkg] = gvk.GroupVersion{Group: group, Version: version}
	}
	t.add(goType)
}

// addOthers adds the types of requests and answers that are no resources.
func (t *types) addOthers() {
	for _, value := range []any{
		metav1.APIGroup{}, metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{},
		metav1.CreateOptions{}, metav1.DeleteOptions{}, metav1.GetOptions{}, metav1.ListOptions{}, metav1.PatchOptions{},
		metav1.UpdateOptions{}, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{}, metav1.Status{},
		metav1.WatchEvent{}, metav1.List{},
		// The allocators of a kube-apiserver store it.
		corev1.RangeAllocation{},
	} {
		t.add(reflect.TypeOf(value))
	}
}

// add adds a type and those of its fields.
func (t *types) add(goType reflect.Type) {
	if goType.PkgPath() != "" {
		name, _ := names(goType)
		if _, ok := t.found[name]; ok {
			return
		}
		t.found[name] = goType
		if special[name] != "" && !strings.HasPrefix(special[name], "schema-") {
			return
		}
	}
	switch goType.Kind() {
	case reflect.Pointer, reflect.Slice:
		t.add(goType.Elem())
	case reflect.Map:
		t.add(goType.Key())
		t.add(goType.Elem())
	case reflect.Struct:
		for i := range goType.NumField() {
			field := goType.Field(i)
			if field.IsExported() {
				if !inlined(field) {
					t.add(field.Type)
				} else {
					t.addInlined(field.Type)
				}
			}
		}
	}
}

func (t *types) addInlined(goType reflect.Type) {
	for i := range goType.NumField() {
		if field := goType.Field(i); inlined(field) {
			t.addInlined(field.Type)
		} else {
			t.add(field.Type)
		}
	}
}

func inlined(field reflect.StructField) bool {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return field.Anonymous && name == ""
}

// names returns the short name of a type, and the prefix of OpenAPI names of its package.
func names(goType reflect.Type) (string, string) {
	path := goType.PkgPath()
	short := path
	for _, prefix := range []string{
		"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apimachinery/pkg/api/", "k8s.io/apimachinery/pkg/util/",
		"k8s.io/apimachinery/pkg/", "k8s.io/apiextensions-apiserver/pkg/apis/", "k8s.io/kube-aggregator/pkg/apis/",
	} {
		if strings.HasPrefix(path, prefix) {
			short = strings.TrimPrefix(path, prefix)
			break
		}
	}
	short = strings.ReplaceAll(short, "/", ".")
	return short + "." + goType.Name(), "io." + strings.ReplaceAll(strings.Replace(path, "k8s.io", "k8s", 1), "/", ".")
}

func (t *types) write(out io.Writer) {
	short := make([]string, 0, len(t.found))
	for name := range t.found {
		short = append(short, name)
	}
	slices.Sort(short)
	for _, name := range short {
		if hasFields(name, t.found[name]) {
			t.fields(t.found[name], nil, special[name] != "")
		}
	}
	last := ""
	for _, name := range short {
		goType := t.found[name]
		_, path := names(goType)
		if path != last {
			last = path
			pkg := name[:strings.LastIndex(name, ".")]
			line := fmt.Sprintf("package %s %s", pkg, path)
			if group, ok := t.groups[pkg]; ok {
				line += fmt.Sprintf(" %s %s", orDash(group.Group), group.Version)
			}
			fmt.Fprintln(out, line)
		}
		openapi := t.schemas[path+"."+goType.Name()]
		line := "type " + name
		if codec := special[name]; codec != "" {
			line += " " + codec
		} else if goType.Kind() != reflect.Struct {
			line += " " + t.expression(goType, true)
			// In protobuf a named slice is a message with a field for its elements, or just a repeated field.
			if goType.Kind() == reflect.Slice && !t.repeated[name] {
				line += " message"
			}
		} else {
			line += " struct"
		}
		if openapi.MapType != "" {
			line += " map=" + openapi.MapType
		}
		for _, union := range openapi.Unions {
			line += " union=" + union.String()
		}
		fmt.Fprintln(out, line+lifecycle(goType))
		if hasFields(name, goType) {
			fields := t.fields(goType, nil, special[name] != "")
			slices.SortStableFunc(fields, func(a, b field) int { return slices.Compare(a.numbers, b.numbers) })
			for _, field := range fields {
				t.writeField(out, field, openapi)
			}
		}
	}
}

// lifecycle says since which version a kind is deprecated, and what replaces it.
func lifecycle(goType reflect.Type) string {
	value := reflect.New(goType).Interface()
	deprecated, ok := value.(interface{ APILifecycleDeprecated() (int, int) })
	if !ok {
		return ""
	}
	major, minor := deprecated.APILifecycleDeprecated()
	line := fmt.Sprintf(" deprecated=%d.%d", major, minor)
	if removed, ok := value.(interface{ APILifecycleRemoved() (int, int) }); ok {
		major, minor := removed.APILifecycleRemoved()
		line += fmt.Sprintf(" removed=%d.%d", major, minor)
	}
	if replaced, ok := value.(interface {
		APILifecycleReplacement() gvk.GroupVersionKind
	}); ok {
		by := replaced.APILifecycleReplacement()
		line += fmt.Sprintf(" replaced=%s/%s/%s", by.Group, by.Version, by.Kind)
	}
	return line
}

func hasFields(name string, goType reflect.Type) bool {
	return goType.Kind() == reflect.Struct && (special[name] == "" || strings.HasPrefix(special[name], "schema-"))
}

// field is a field of a struct, or of one that is embedded in it.
type field struct {
	name    string
	goType  reflect.Type
	tag     reflect.StructTag
	flags   string
	numbers []int
}

// fields returns the fields as JSON has them. In protobuf an embedded struct is a message of its own: its number comes
// before that of the field. Special types have names for protobuf only.
func (t *types) fields(goType reflect.Type, outer []int, special bool) []field {
	var result []field
	for i := range goType.NumField() {
		goField := goType.Field(i)
		name, options, _ := strings.Cut(goField.Tag.Get("json"), ",")
		numbers := outer
		if tag := goField.Tag.Get("protobuf"); tag != "" {
			number, err := strconv.Atoi(strings.Split(tag, ",")[1])
			if err != nil {
				fatal("%s: %s", goType, tag)
			}
			numbers = append(slices.Clone(outer), number)
			if len(numbers) > 3 || number > 255 {
				fatal("%s.%s: the table has no room for %v", goType, goField.Name, numbers)
			}
		} else if outer != nil {
			fatal("%s.%s has no protobuf number", goType, goField.Name)
		}
		switch {
		case !goField.IsExported() || name == "-":
			if goField.IsExported() {
				fatal("%s.%s has no name in JSON", goType, goField.Name)
			}
			continue
		case inlined(goField):
			embedded := t.fields(goField.Type, numbers, special)
			if goField.Tag.Get("protobuf") == "" {
				// TypeMeta, which the envelope contains.
				for i := range embedded {
					embedded[i].numbers = nil
				}
			}
			result = append(result, embedded...)
			continue
		}
		if special {
			name = goField.Name
		}
		if name == "" {
			fatal("%s.%s has no name in JSON", goType, goField.Name)
		}
		flags := ""
		for _, option := range strings.Split(options, ",") {
			switch option {
			case "omitempty":
				flags += "o"
			case "omitzero":
				flags += "z"
			case "", "inline":
			default:
				fatal("%s.%s: unknown option %s", goType, goField.Name, option)
			}
		}
		tag := goField.Tag.Get("protobuf")
		if goField.Type.Kind() == reflect.Slice && goField.Type.PkgPath() != "" && strings.Contains(tag, ",rep,") {
			name, _ := names(goField.Type)
			t.repeated[name] = true
		}
		checkWire(goType, goField, tag)
		result = append(result, field{name, goField.Type, goField.Tag, flags, numbers})
	}
	return result
}

// checkWire stops if the protobuf encoding of a field does not follow from its Go type. The wire types in some tags
// are wrong; the generated code does not use them.
func checkWire(goType reflect.Type, field reflect.StructField, tag string) {
	wire, _, _ := strings.Cut(tag, ",")
	isFloat := field.Type.Kind() == reflect.Float64 ||
		field.Type.Kind() == reflect.Pointer && field.Type.Elem().Kind() == reflect.Float64
	if tag != "" && wire != "bytes" && wire != "varint" && !(isFloat && wire == "fixed64") {
		fatal("%s.%s: unexpected %s", goType, field.Name, tag)
	}
}

// expression writes a type: `*` pointer, `[]` list, `{KEY}` map. `expand` writes what a named type stands for.
func (t *types) expression(goType reflect.Type, expand bool) string {
	if goType.PkgPath() != "" && !expand {
		name, _ := names(goType)
		return name
	}
	switch goType.Kind() {
	case reflect.Pointer:
		return "*" + t.expression(goType.Elem(), false)
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + t.expression(goType.Elem(), false)
	case reflect.Map:
		key := t.expression(goType.Key(), false)
		if key == "string" {
			key = ""
		}
		return "{" + key + "}" + t.expression(goType.Elem(), false)
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		return goType.Kind().String()
	}
	fatal("%s has no expression", goType)
	return ""
}

func (t *types) writeField(out io.Writer, f field, parent schema) {
	var numbers []string
	for _, number := range f.numbers {
		numbers = append(numbers, strconv.Itoa(number))
	}
	flags := f.flags
	if slices.Contains(parent.Required, f.name) {
		flags += "r"
	}
	line := fmt.Sprintf(" %s %s %s %s", f.name, t.expression(f.goType, false), orDash(strings.Join(numbers, ".")), orDash(flags))
	openapi, ok := parent.Properties[f.name]
	if openapi.ListType != "" {
		line += " list=" + openapi.ListType
		if len(openapi.ListKeys) > 0 {
			line += ":" + strings.Join(openapi.ListKeys, ",")
		}
	}
	if strategy := f.tag.Get("patchStrategy"); strategy != "" {
		line += " patch=" + strategy
	}
	if key := f.tag.Get("patchMergeKey"); key != "" {
		line += " key=" + key
	}
	if openapi.MapType != "" {
		line += " map=" + openapi.MapType
	}
	if standard := t.standardDefault(f); ok && standard != string(openapi.Default) {
		if strings.Contains(string(openapi.Default), " ") {
			fatal("%s: a default with spaces", f.name)
		}
		line += " default=" + string(openapi.Default)
	}
	fmt.Fprintln(out, line)
}

// standardDefault is the default in OpenAPI of fields that have no marker for one.
func (t *types) standardDefault(f field) string {
	omitted := strings.ContainsAny(f.flags, "oz")
	switch f.goType.Kind() {
	case reflect.Struct:
		if name, _ := names(f.goType); special[name] != "" {
			return ""
		}
		return "{}"
	case reflect.String:
		if !omitted {
			return `""`
		}
	case reflect.Bool:
		if !omitted {
			return "false"
		}
	case reflect.Int32, reflect.Int64, reflect.Float64:
		if !omitted {
			return "0"
		}
	}
	return ""
}
