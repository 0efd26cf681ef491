package main

import (
	"bufio"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A kind of the table that scripts/generate-kinds.sh has written.
type kind struct {
	schema.GroupVersionKind
	plural string
	// Whether there are lists of it, and so selectors.
	listed bool
}

// dashed returns the name of the group, or "-" for the one without a name.
func (k kind) dashed() string {
	if k.Group == "" {
		return "-"
	}
	return k.Group
}

// readKinds reads the kinds of resources, in the order of the file.
func readKinds(path string) []kind {
	file, err := os.Open(path)
	if err != nil {
		fatal("%v", err)
	}
	defer file.Close()
	var kinds []kind
	var group, version string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// The fields of types are indented.
		words := strings.Split(lines.Text(), " ")
		switch words[0] {
		case "group":
			if group = words[1]; group == "-" {
				group = ""
			}
		case "version":
			version = words[1]
		case "resource":
			verbs := words[5]
			listed := verbs == "*" || strings.Contains(verbs, "list")
			one := schema.GroupVersionKind{Group: group, Version: version, Kind: words[3]}
			kinds = append(kinds, kind{one, words[1], listed})
		}
	}
	if err := lines.Err(); err != nil {
		fatal("%v", err)
	}
	if len(kinds) == 0 {
		fatal("%s has no kinds", path)
	}
	return kinds
}
