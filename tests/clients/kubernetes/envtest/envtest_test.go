// Package envtest starts the server under test in the place of kube-apiserver and of etcd, with the envtest package of
// controller-runtime.
package envtest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const limit = 60 * time.Second

// TestMain makes a directory with the programs that envtest starts, the server under test among them.
func TestMain(m *testing.M) {
	os.Exit(runWithAssets(m))
}

func runWithAssets(m *testing.M) int {
	directory, err := os.MkdirTemp("", "revstore-assets-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(directory)
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := os.Symlink(os.Getenv("APISERVER"), filepath.Join(directory, name)); err != nil {
			panic(err)
		}
	}
	if err := os.Setenv("KUBEBUILDER_ASSETS", directory); err != nil {
		panic(err)
	}
	return m.Run()
}

func environment(t *testing.T) *envtest.Environment {
	t.Helper()
	return &envtest.Environment{
		ControlPlaneStartTimeout: limit,
		ControlPlaneStopTimeout:  limit,
	}
}

// start starts an environment, which stops with the test.
func start(t *testing.T, environment *envtest.Environment) client.Client {
	t.Helper()
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	connection, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				},
			}},
		},
	}
}

// envtest passes `--insecure-port` if the output of `--help` contains it.
func TestHelp(t *testing.T) {
	help, err := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver"), "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^\s*--insecure-port\b`).Match(help) {
		t.Errorf("in the help:\n%s", help)
	}
}

func TestObjectsDefinitionsAndUsers(t *testing.T) {
	ctx := t.Context()
	e := environment(t)
	e.CRDs = []*apiextensionsv1.CustomResourceDefinition{definition()}
	admin := start(t, e)
	if err := admin.Create(ctx, configMap("a")); err != nil {
		t.Fatal(err)
	}
	widget := &unstructured.Unstructured{}
	widget.SetAPIVersion("example.com/v1")
	widget.SetKind("Widget")
	widget.SetNamespace("default")
	widget.SetName("w")
	if err := admin.Create(ctx, widget); err != nil {
		t.Fatal(err)
	}
	// A user with a certificate has the rights of the roles only.
	user, err := e.AddUser(envtest.User{Name: "ann", Groups: []string{"devs"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := client.New(user.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Get(ctx, client.ObjectKeyFromObject(configMap("a")), configMap("a")); !apierrors.IsForbidden(err) {
		t.Errorf("the user may read: %v", err)
	}
}

// The flags of the user, also those that no version has.
func TestFlagsOfTheUser(t *testing.T) {
	e := environment(t)
	e.ControlPlane.GetAPIServer().Configure().
		Append("feature-gates", "Some=true").
		Append("no-such-flag", "1").
		Append("v", "4").
		Set("service-cluster-ip-range", "10.96.0.0/16").
		Disable("service-account-issuer")
	connection := start(t, e)
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: "default", Name: "kubernetes"}
	if err := connection.Get(t.Context(), key, service); err != nil {
		t.Fatal(err)
	}
	if service.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("the address of the service: %s", service.Spec.ClusterIP)
	}
}

// A stopped server leaves its port at once, and another one may have it.
func TestThePortIsFreeAfterTheStop(t *testing.T) {
	e := environment(t)
	config, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	server := e.ControlPlane.GetAPIServer()
	address := net.JoinHostPort(server.SecureServing.Address, server.SecureServing.Port)
	// A watch that is open does not hold the server.
	watcher, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := watcher.Watch(t.Context(), &corev1.ConfigMapList{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	if connection, err := net.Dial("tcp", address); err == nil {
		_ = connection.Close()
		t.Fatal("the stopped server still listens")
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}
