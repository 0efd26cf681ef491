package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// The files with the roles and bindings that kube-apiserver creates.
var policyFiles = []string{
	"cluster-roles",
	"controller-roles",
	"cluster-role-bindings",
	"controller-role-bindings",
	"namespace-roles",
	"namespace-role-bindings",
}

// writePolicy writes the objects of the files, one in each line.
func writePolicy(out io.Writer, kubernetes string) {
	folder := filepath.Join(kubernetes, "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata")
	for _, name := range policyFiles {
		text, err := os.ReadFile(filepath.Join(folder, name+".yaml"))
		if err != nil {
			fatal(err.Error())
		}
		var list struct {
			Items []map[string]any `json:"items"`
		}
		if err := yaml.Unmarshal(text, &list); err != nil {
			fatal(err.Error())
		}
		for _, item := range list.Items {
			delete(item, "apiVersion")
			line, err := json.Marshal(item)
			if err != nil {
				fatal(err.Error())
			}
			fmt.Fprintf(out, "%s\n", line)
		}
	}
}
