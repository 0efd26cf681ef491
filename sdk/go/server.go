// Package revstoretest starts a revstore server for a test: an etcd whose time, faults and history the test controls.
package revstoretest

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"revstore.invalid/revstoretest/control"
	"revstore.invalid/revstoretest/internal/launch"
)

// Options are the options of a server.
type Options = launch.Options

// dialTimeout is that of ClientConfig.
const dialTimeout = 10 * time.Second

var program = launch.Program{Name: "revstore", Variable: "REVSTORE_BIN"}

// Server is a running server, or a fork of one.
type Server struct {
	// Endpoint is the URL for etcd clients.
	Endpoint string
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
		server.save(t)
		server.Close()
	})
	return server
}

// New starts a server without a test, such as for all tests of a package in TestMain. Close stops it.
func New(options ...Options) (*Server, error) {
	given := launch.First(options)
	process, err := launch.Start(program, given,
		"--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:0",
		"--listen-peer-urls=http://127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &Server{process: process, options: given}
	endpoint, url, hasControl := strings.Cut(process.Ready, " ")
	server.Endpoint = endpoint
	if hasControl {
		server.Control = control.New(url)
	}
	return server, nil
}

// Close stops the server. A fork ends with the test that started it.
func (s *Server) Close() {
	if s.Control != nil {
		s.Control.Close()
	}
	if s.process != nil {
		s.process.Stop()
	}
}

// ClientConfig returns the configuration of an etcd client.
func (s *Server) ClientConfig() clientv3.Config {
	return clientv3.Config{Endpoints: []string{s.Endpoint}, DialTimeout: dialTimeout}
}

// Client returns an etcd client that is closed with the test.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(s.ClientConfig())
	if err != nil {
		t.Fatal("revstoretest: ", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Fork starts an independent server with the same history, within milliseconds, which ends with the test. Its clock is its
// own.
func (s *Server) Fork(t testing.TB) *Server {
	t.Helper()
	forked, err := s.Control.Fork(t.Context())
	if err != nil {
		t.Fatal("revstoretest: ", err)
	}
	fork := &Server{Endpoint: forked.Endpoint, Control: control.New(forked.Control), options: s.options}
	t.Cleanup(func() {
		fork.save(t)
		fork.Close()
		// The context of the test has ended.
		if _, err := s.Control.Drop(context.Background(), forked.ID); err != nil {
			t.Error("revstoretest: ", err)
		}
	})
	return fork
}

// save writes the files of a test that has failed.
func (s *Server) save(t testing.TB) {
	if !t.Failed() {
		return
	}
	output := ""
	if s.process != nil {
		output = s.process.Output()
	}
	directory, err := launch.Save(s.options, t.Name(), s.Control, output)
	if directory != "" {
		t.Log("revstoretest: the store, the journal and the log are in ", directory)
	}
	if err != nil {
		t.Log("revstoretest: not everything could be saved: ", err)
	}
}
