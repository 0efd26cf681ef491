// Package kubernetes runs client-go against the server under test.
package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The time limit of a wait, after which the test fails. It is long enough for busy machines.
const limit = 120 * time.Second

const namespace = "default"

// server is a process of the server under test, which ends with the test.
type server struct {
	config *rest.Config
	// The URL of the store over etcd's API.
	etcd string
	// What the clients send and get.
	traffic *traffic
}

func start(t *testing.T, flags ...string) *server {
	t.Helper()
	flags = append([]string{"--secure-port=0", "--controllers=none", "--etcd-listen-url=http://127.0.0.1:0"}, flags...)
	command := exec.Command(os.Getenv("APISERVER"), flags...)
	errors, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	s := &server{traffic: &traffic{}}
	lines := bufio.NewScanner(errors)
	for s.etcd == "" && lines.Scan() {
		_, s.etcd, _ = strings.Cut(lines.Text(), "etcd's API on ")
	}
	go func() { _, _ = io.Copy(io.Discard, errors) }()
	ready := bufio.NewScanner(output)
	ready.Scan()
	words := strings.Fields(ready.Text())
	if len(words) != 4 {
		t.Fatalf("the server did not start: %q", ready.Text())
	}
	s.config, err = clientcmd.BuildConfigFromFlags("", words[3])
	if err != nil {
		t.Fatal(err)
	}
	// No limits by the client.
	s.config.QPS = -1
	s.config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return &recorder{inner: inner, traffic: s.traffic}
	})
	return s
}

func (s *server) clientset(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return must(kubernetes.NewForConfig(s.config))(t)
}

// compact removes the history of the store before the current revision, which it returns.
func (s *server) compact(t *testing.T) string {
	t.Helper()
	var found struct{ Header struct{ Revision string } }
	s.call(t, "/v3/kv/range", map[string]any{"key": "YQ=="}, &found)
	revision := found.Header.Revision
	s.call(t, "/v3/kv/compaction", map[string]any{"revision": revision, "physical": true}, nil)
	return revision
}

func (s *server) call(t *testing.T, path string, body any, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(s.etcd+path, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", path, response.Status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}

// must returns a function that fails the test if there is an error.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// within returns a context that ends with the test, or after the time limit.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("no end after %v", limit))
	t.Cleanup(cancel)
	return ctx
}
