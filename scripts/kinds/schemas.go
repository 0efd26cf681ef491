package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// schema is what the table takes from a schema in an OpenAPI v3 document.
type schema struct {
	Properties map[string]schema
	Required   []string
	Default    json.RawMessage
	Items      *schema
	ListType   string   `json:"x-kubernetes-list-type"`
	ListKeys   []string `json:"x-kubernetes-list-map-keys"`
	MapType    string   `json:"x-kubernetes-map-type"`
	Unions     []union  `json:"x-kubernetes-unions"`
}

type union struct {
	Discriminator string
	Fields        map[string]string `json:"fields-to-discriminateBy"`
}

func (u union) String() string {
	var fields []string
	for name, value := range u.Fields {
		fields = append(fields, name+":"+value)
	}
	slices.Sort(fields)
	return u.Discriminator + ";" + strings.Join(fields, ",")
}

// readSchemas reads the schemas of all OpenAPI v3 documents by their names.
func readSchemas(kubernetes string) map[string]schema {
	files, _ := filepath.Glob(filepath.Join(kubernetes, "api/openapi-spec/v3/*.json"))
	if len(files) == 0 {
		fatal("%s has no OpenAPI documents", kubernetes)
	}
	schemas := map[string]schema{}
	for _, file := range files {
		var document struct {
			Components struct{ Schemas map[string]schema }
		}
		readJSON(file, &document)
		for name, schema := range document.Components.Schemas {
			schemas[name] = schema
		}
	}
	return schemas
}
