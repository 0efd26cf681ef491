// Package kube starts a revstore-apiserver for a test: a Kubernetes API server without a cluster.
package kube

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"revstore.invalid/revstoretest/control"
	"revstore.invalid/revstoretest/internal/launch"
)

// Options are the options of a server.
type Options = launch.Options

var program = launch.Program{Name: "revstore-apiserver", Variable: "REVSTORE_APISERVER_BIN"}

// Server is a running API server.
type Server struct {
	// URL is that of plain HTTP, whose requests are those of an administrator.
	URL string
	// Kubeconfig is the path of a kubeconfig with the credentials of an administrator. The file ends with the server.
	Kubeconfig string
	// Control controls the server; nil with Options.WithoutControl.
	Control *control.Client

	process *launch.Process
	options Options
}

// Start starts a server that stops with the test. If the test fails, the store, the journal and the log are saved in a
// directory that is logged.
func Start(t testing.TB, options ...Options) *Server {
	t.Helper()
	server, err := New(options...)
	if err != nil {
		t.Fatal("revstoretest: ", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			directory, err := launch.Save(server.options, t.Name(), server.Control, server.process.Output())
			t.Log("revstoretest: saved in ", directory, "; errors: ", err)
		}
		server.Close()
	})
	return server
}

// New starts a server without a test. Close stops it.
func New(options ...Options) (*Server, error) {
	given := launch.First(options)
	process, err := launch.Start(program, given, "--secure-port=0", "--listen-http=127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &Server{process: process, options: given}
	url, rest, _ := strings.Cut(process.Ready, " ")
	server.URL, server.Kubeconfig = url, rest
	if at := strings.LastIndex(rest, " http://"); at >= 0 && !given.WithoutControl {
		server.Kubeconfig, server.Control = rest[:at], control.New(rest[at+1:])
	}
	return server, nil
}

// Close stops the server.
func (s *Server) Close() {
	if s.Control != nil {
		s.Control.Close()
	}
	s.process.Stop()
}

// RESTConfig returns the configuration of a Kubernetes client.
func (s *Server) RESTConfig() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
}
