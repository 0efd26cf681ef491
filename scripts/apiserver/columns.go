package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

// recorder keeps the columns of each Go type.
type recorder map[reflect.Type][]metav1.TableColumnDefinition

// TableHandler keeps the columns of the type that a function prints.
func (r recorder) TableHandler(columns []metav1.TableColumnDefinition, print any) error {
	r[reflect.TypeOf(print).In(0)] = columns
	return nil
}

// The call with which the storage of a resource chooses the default columns, whatever its type has.
var defaultColumns = regexp.MustCompile(`NewDefaultTableConvertor\(\w+\.Resource\("(\w+)"\)\)`)

// withDefaultColumns returns the plurals of the resources whose storage chooses the default columns.
func withDefaultColumns(kubernetes string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(kubernetes, "pkg/registry/*/*/storage/*.go"))
	if err != nil || len(files) == 0 {
		fatal("%s has no storages", kubernetes)
	}
	plurals := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			fatal("%v", err)
		}
		for _, match := range defaultColumns.FindAllSubmatch(text, -1) {
			plurals[string(match[1])] = true
		}
	}
	return plurals
}

// A column in the storage of a resource without a printer.
var storageColumn = regexp.MustCompile(`\{Name: "([^"]+)", Type: "(\w+)"(?:, Format: "(\w+)")?(?:, Priority: (\d))?,`)

// storageColumns returns the columns in the storage of APIServices.
func storageColumns(aggregator string) []metav1.TableColumnDefinition {
	text, err := os.ReadFile(filepath.Join(aggregator, "pkg/registry/apiservice/etcd/etcd.go"))
	if err != nil {
		fatal("%v", err)
	}
	var columns []metav1.TableColumnDefinition
	for _, match := range storageColumn.FindAllStringSubmatch(string(text), -1) {
		priority, _ := strconv.Atoi(match[4])
		columns = append(columns, metav1.TableColumnDefinition{
			Name: match[1], Type: match[2], Format: match[3], Priority: int32(priority),
		})
	}
	if len(columns) == 0 || len(columns) != strings.Count(string(text), "{Name: ") {
		fatal("the columns of APIService were not read")
	}
	return columns
}

// columnsOf returns the columns of a kind, or nil if it has the default ones.
func (r recorder) columnsOf(one kind, aggregator string) []metav1.TableColumnDefinition {
	if one.Kind == "APIService" {
		return storageColumns(aggregator)
	}
	scheme, ok := known(one)
	if !ok {
		return nil
	}
	object, err := scheme.New(one.GroupKind().WithVersion(runtime.APIVersionInternal))
	if err != nil {
		fatal("%v", err)
	}
	return r[reflect.TypeOf(object)]
}

// writeColumns writes the columns of all kinds that have their own. Versions of a kind share them.
func writeColumns(out *bufio.Writer, kinds []kind, kubernetes, aggregator string) {
	columns := recorder{}
	internalversion.AddHandlers(columns)
	written := map[string]bool{}
	withDefaults := withDefaultColumns(kubernetes)
	for _, one := range kinds {
		name := one.dashed() + " " + one.Kind
		if !one.listed || written[name] || withDefaults[one.plural] {
			continue
		}
		definitions := columns.columnsOf(one, aggregator)
		if definitions == nil {
			continue
		}
		written[name] = true
		fmt.Fprintf(out, "kind %s\n", name)
		for _, definition := range definitions {
			format := definition.Format
			if format == "" {
				format = "-"
			}
			fmt.Fprintf(out, "column %s %s %d %s\n", definition.Type, format, definition.Priority, definition.Name)
		}
	}
}
