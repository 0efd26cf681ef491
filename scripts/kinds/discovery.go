package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type group struct {
	name     string
	versions []version
}

type version struct {
	name      string
	resources []resource
}

type resource struct {
	plural, singular, kind        string
	namespaced                    bool
	verbs, shortNames, categories []string
	subresources                  []subresource
}

type subresource struct {
	name, group, version, kind string
	verbs                      []string
}

func (r resource) listed() bool { return slices.Contains(r.verbs, "list") }

// Most resources have exactly these verbs; the table has `*` for them.
const allVerbs = "create,delete,deletecollection,get,list,patch,update,watch"

// readDiscovery reads the groups in the order of /apis, the core group first, and their versions in the order of
// preference, without alpha versions.
func readDiscovery(kubernetes string) []group {
	type gvk struct{ Group, Version, Kind string }
	var document struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct {
					Resource, SingularResource, Scope string
					ResponseKind                      gvk
					Verbs, ShortNames, Categories     []string
					Subresources                      []struct {
						Subresource  string
						ResponseKind gvk
						Verbs        []string
					}
				}
			}
		}
	}
	core := readVersion(kubernetes)
	readJSON(filepath.Join(kubernetes, "api/discovery/aggregated_v2.json"), &document)
	groups := []group{core}
	for _, item := range document.Items {
		g := group{name: item.Metadata.Name}
		for _, v := range item.Versions {
			if strings.Contains(v.Version, "alpha") {
				continue
			}
			result := version{name: v.Version}
			for _, r := range v.Resources {
				resource := resource{
					plural: r.Resource, singular: r.SingularResource, kind: r.ResponseKind.Kind,
					namespaced: r.Scope == "Namespaced",
					verbs:      r.Verbs, shortNames: r.ShortNames, categories: r.Categories,
				}
				for _, s := range r.Subresources {
					sub := subresource{s.Subresource, s.ResponseKind.Group, s.ResponseKind.Version, s.ResponseKind.Kind, s.Verbs}
					if sub.version == "" {
						sub.group, sub.version = g.name, v.Version
					}
					resource.subresources = append(resource.subresources, sub)
				}
				result.resources = append(result.resources, resource)
			}
			g.versions = append(g.versions, result)
		}
		if len(g.versions) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// readVersion reads the core group, which the aggregated document of /apis does not contain.
func readVersion(kubernetes string) group {
	var document struct {
		Resources []struct {
			Name, SingularName, Group, Version, Kind string
			Namespaced                               bool
			Verbs, ShortNames, Categories            []string
		}
	}
	readJSON(filepath.Join(kubernetes, "api/discovery/api__v1.json"), &document)
	result := version{name: "v1"}
	for _, r := range document.Resources {
		parent, sub, isSub := strings.Cut(r.Name, "/")
		if !isSub {
			result.resources = append(result.resources, resource{
				plural: r.Name, singular: r.SingularName, kind: r.Kind, namespaced: r.Namespaced,
				verbs: r.Verbs, shortNames: r.ShortNames, categories: r.Categories,
			})
			continue
		}
		index := slices.IndexFunc(result.resources, func(r resource) bool { return r.plural == parent })
		if r.Version == "" {
			r.Version = "v1"
		}
		result.resources[index].subresources = append(result.resources[index].subresources,
			subresource{sub, r.Group, r.Version, r.Kind, r.Verbs})
	}
	return group{versions: []version{result}}
}

func (g group) write(out io.Writer) {
	fmt.Fprintf(out, "group %s\n", orDash(g.name))
	for _, v := range g.versions {
		// Since 1.24, beta versions are off unless --runtime-config names them.
		state := "on"
		if strings.Contains(v.name, "beta") {
			state = "off"
		}
		fmt.Fprintf(out, "version %s %s\n", v.name, state)
		for _, r := range v.resources {
			scope := "cluster"
			if r.namespaced {
				scope = "namespaced"
			}
			fmt.Fprintf(out, "resource %s %s %s %s %s %s %s\n", r.plural, r.singular, r.kind, scope, verbs(r.verbs),
				orDash(strings.Join(r.shortNames, ",")), orDash(strings.Join(r.categories, ",")))
			for _, s := range r.subresources {
				kind := s.kind
				if s.group != g.name || s.version != v.name {
					kind = s.group + "/" + s.version + "/" + s.kind
				}
				fmt.Fprintf(out, "sub %s %s %s\n", s.name, kind, verbs(s.verbs))
			}
		}
	}
}

func verbs(list []string) string {
	joined := strings.Join(list, ",")
	if joined == allVerbs {
		return "*"
	}
	return joined
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func readJSON(path string, target any) {
	bytes, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(bytes, target)
	}
	if err != nil {
		fatal("%s: %v", path, err)
	}
}
