package envtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The README of the server shows the part between these two lines.
// begin
func TestGreeter(t *testing.T) {
	environment := &envtest.Environment{}
	config, err := environment.Start()
	check(t, err)
	defer environment.Stop()
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	check(t, err)
	check(t, ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(&Greeter{manager.GetClient()}))
	go manager.Start(t.Context())
	user, err := client.NewWithWatch(config, client.Options{})
	check(t, err)
	events, err := user.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"))
	check(t, err)
	check(t, user.Create(t.Context(), configMap("a")))
	for event := range events.ResultChan() {
		if object, ok := event.Object.(*corev1.ConfigMap); ok && object.Data["greeting"] == "hello" {
			return
		}
	}
	t.Fatal("the watch has ended")
}

// Greeter writes a greeting into each ConfigMap.
type Greeter struct{ client.Client }

func (g *Greeter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var object corev1.ConfigMap
	if err := g.Get(ctx, request.NamespacedName, &object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	object.Data = map[string]string{"greeting": "hello"}
	return ctrl.Result{}, g.Update(ctx, &object)
}

// end

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What the README shows is what runs here.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("controller_test.go")
	check(t, err)
	_, shown, _ := strings.Cut(string(source), "\n// begin\n")
	shown, _, _ = strings.Cut(shown, "\n// end\n")
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "apiserver", "README.md"))
	check(t, err)
	if !strings.Contains(string(readme), "```go\n"+strings.TrimSpace(shown)+"\n```\n") {
		t.Errorf("apiserver/README.md does not have this block:\n%s", shown)
	}
}
