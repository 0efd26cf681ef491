// Answers each line of the input, a JSON object with an expression, with what kube-apiserver finds: the errors of
// the compiler, or the type, the estimated cost, the value or error, and the cost.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

type question struct {
	Expr   string
	Schema *spec.Schema
	Object any
	Limit  uint64
}

type answer struct {
	Check string `json:"check,omitempty"`
	Plan  string `json:"plan,omitempty"`
	Type  string `json:"type,omitempty"`
	Min   uint64 `json:"min"`
	Max   uint64 `json:"max"`
	Value string `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	Cost  uint64 `json:"cost"`
}

type sizes struct{ root *apiservercel.DeclType }

func (s *sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 || s.root == nil {
		return nil
	}
	node := s.root
	for _, name := range path[1:] {
		switch name {
		case "@items", "@values":
			node = node.ElemType
		case "@keys":
			node = node.KeyType
		default:
			field, ok := node.Fields[name]
			if !ok {
				return nil
			}
			node = field.Type
		}
		if node == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(node.MaxElements)}
}

func (s *sizes) EstimateCallCost(_, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	return nil
}

func show(v ref.Val) string {
	switch v := v.(type) {
	case types.String:
		text, _ := json.Marshal(string(v))
		var out string
		_ = json.Unmarshal(text, &out)
		return strconv.QuoteToASCII(out)
	case types.Uint:
		return fmt.Sprintf("%du", uint64(v))
	case types.Bytes:
		return fmt.Sprintf("b%x", []byte(v))
	case types.Double:
		return "f" + strconv.FormatFloat(float64(v), 'g', -1, 64)
	case types.Duration:
		return fmt.Sprintf("duration(%d)", v.Duration.Nanoseconds())
	case types.Timestamp:
		return fmt.Sprintf("timestamp(%d.%d)", v.Time.Unix(), v.Time.Nanosecond())
	case *types.Optional:
		if !v.HasValue() {
			return "none"
		}
		return "optional(" + show(v.GetValue()) + ")"
	case ref.Type:
		return "type(" + v.TypeName() + ")"
	case traits.Lister:
		parts := []string{}
		for i := types.Int(0); i < v.Size().(types.Int); i++ {
			parts = append(parts, show(v.Get(i)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case traits.Mapper:
		parts := []string{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			k := it.Next()
			parts = append(parts, show(k)+": "+show(v.Get(k)))
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case types.Int, types.Bool:
		return fmt.Sprint(v.Value())
	case types.Null:
		return "null"
	}
	switch v := v.(type) {
	case nil:
		return "nil"
	case apiservercel.Quantity:
		return "quantity(" + v.Quantity.AsDec().String() + ")"
	case *apiservercel.Quantity:
		return "quantity(" + v.Quantity.AsDec().String() + ")"
	case apiservercel.IP:
		return "ip(" + v.Addr.String() + ")"
	case apiservercel.CIDR:
		return "cidr(" + v.Prefix.String() + ")"
	case apiservercel.URL:
		return "url(" + v.URL.String() + ")"
	case apiservercel.Semver:
		return "semver(" + v.Version.String() + ")"
	}
	return "other(" + v.Type().TypeName() + ")"
}

func ask(base *environment.EnvSet, q question) (out answer) {
	var root *apiservercel.DeclType
	options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	vars := map[string]any{}
	if q.Schema != nil {
		root = openapi.SchemaDeclType(q.Schema, false).MaybeAssignTypeName("selfType")
		options.DeclTypes = []*apiservercel.DeclType{root}
		options.EnvOptions = []cel.EnvOption{cel.Variable("self", root.CelType())}
		vars["self"] = openapi.UnstructuredToVal(q.Object, q.Schema)
	}
	set, err := base.Extend(options)
	if err != nil {
		out.Plan = "extend: " + err.Error()
		return
	}
	env := set.NewExpressionsEnv()
	ast, issues := env.Compile(q.Expr)
	if issues != nil && issues.Err() != nil {
		out.Check = issues.String()
		return
	}
	out.Type = cel.FormatCELType(ast.OutputType())
	estimator := &library.CostEstimator{SizeEstimator: &sizes{root}}
	limit := q.Limit
	if limit == 0 {
		limit = 1000000
	}
	program, err := env.Program(ast, cel.CostLimit(limit), cel.CostTracking(estimator))
	if err != nil {
		out.Plan = err.Error()
		return
	}
	estimate, err := env.EstimateCost(ast, estimator)
	if err != nil {
		out.Plan = "estimate: " + err.Error()
		return
	}
	out.Min, out.Max = estimate.Min, estimate.Max
	value, details, err := program.Eval(vars)
	if details != nil && details.ActualCost() != nil {
		out.Cost = *details.ActualCost()
	}
	if err != nil {
		out.Error = err.Error()
		return
	}
	out.Value = show(value)
	return
}

// Numbers as kube-apiserver decodes them.
func normalize(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = normalize(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = normalize(v[k])
		}
	}
	return v
}

func main() {
	base := environment.MustBaseEnvSet(version.MajorMinor(1, 36))
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 16<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for scanner.Scan() {
		var q question
		decoder := json.NewDecoder(strings.NewReader(scanner.Text()))
		decoder.UseNumber()
		if err := decoder.Decode(&q); err != nil {
			panic(err)
		}
		q.Object = normalize(q.Object)
		text, _ := json.Marshal(ask(base, q))
		fmt.Fprintln(out, string(text))
	}
}
