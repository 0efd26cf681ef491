package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// The labels that kinds without a function of their own have.
var defaultLabels = []string{"metadata.name", "metadata.namespace"}

// A label that no kind has.
const unknownLabel = "no.such.label"

// The form of a label.
var labelForm = regexp.MustCompile(`^[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)*$`)

// writeFields writes the labels of all kinds that have others than the default ones. The functions that check labels
// cannot be asked for a list, so all constants in the sources and all paths of the types are tried.
func writeFields(out *bufio.Writer, kinds []kind, sources ...string) {
	candidates := map[string]bool{}
	for _, source := range sources {
		addConstants(candidates, source)
	}
	for _, one := range kinds {
		scheme, ok := known(one)
		if !ok || !one.listed {
			continue
		}
		all := map[string]bool{}
		for label := range candidates {
			all[label] = true
		}
		addPaths(all, "", scheme.AllKnownTypes()[one.GroupVersionKind], 4)
		var labels []string
		for label := range all {
			stands, _, err := scheme.ConvertFieldLabel(one.GroupVersionKind, label, "")
			if err != nil {
				continue
			}
			if stands != label {
				label += "=" + stands
			}
			labels = append(labels, label)
		}
		sort.Strings(labels)
		if reflect.DeepEqual(labels, defaultLabels) {
			continue
		}
		_, _, err := scheme.ConvertFieldLabel(one.GroupVersionKind, unknownLabel, "")
		if err == nil {
			fatal("%v has all labels", one.GroupVersionKind)
		}
		text := strings.NewReplacer(strconv.Quote(unknownLabel), "%q", unknownLabel, "%s").Replace(err.Error())
		fmt.Fprintf(out, "%s %s %s %s [%s]\n", one.dashed(), one.Version, one.Kind, strings.Join(labels, " "), text)
	}
}

// addConstants adds the constants in Go files of a folder that can be labels.
func addConstants(candidates map[string]bool, folder string) {
	visit := func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			strings.HasPrefix(name, "zz_generated") || strings.HasPrefix(name, "generated") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && labelForm.MatchString(text) {
					candidates[text] = true
				}
			}
			return true
		})
		return nil
	}
	if err := filepath.WalkDir(folder, visit); err != nil {
		fatal("%v", err)
	}
}

// addPaths adds the paths of the fields of a type, to a depth.
func addPaths(candidates map[string]bool, prefix string, ty reflect.Type, depth int) {
	for ty != nil && (ty.Kind() == reflect.Pointer || ty.Kind() == reflect.Slice) {
		ty = ty.Elem()
	}
	if ty == nil || ty.Kind() != reflect.Struct || depth == 0 {
		return
	}
	for index := range ty.NumField() {
		field := ty.Field(index)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			addPaths(candidates, prefix, field.Type, depth)
			continue
		}
		candidates[prefix+name] = true
		addPaths(candidates, prefix+name+".", field.Type, depth-1)
	}
}
