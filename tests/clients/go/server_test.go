// Package clients tests the Go client clientv3 against the server binary $SERVER.
package clients

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// limit is the time limit of a wait, after which the test fails. It is long enough for busy machines.
const limit = 60 * time.Second

// readyLine is in the log line of a server that accepts requests (FL-13).
const readyLine = "ready to serve client requests"

// portAttempts is the maximum number of starts. A start fails if another process takes the port first.
const portAttempts = 5

// server is a process of the server under test, with its own port and data directory.
type server struct {
	t       *testing.T
	port    int
	data    string
	command *exec.Cmd
	log     *watchedLog
	exited  chan struct{}
}

// start runs a server until the end of the test.
func start(t *testing.T, flags ...string) *server {
	t.Helper()
	s := &server{t: t, data: filepath.Join(t.TempDir(), "data")}
	t.Cleanup(func() {
		if s.command != nil {
			s.end(syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("log of the server:\n%s", s.log)
		}
	})
	for range portAttempts {
		s.port = freePort(t)
		if s.run(flags) {
			return s
		}
		if !strings.Contains(s.log.String(), "address already in use") {
			break
		}
	}
	t.Fatalf("the server did not start:\n%s", s.log)
	return nil
}

// run starts the process and returns whether it accepts requests.
func (s *server) run(flags []string) bool {
	s.t.Helper()
	arguments := append([]string{fmt.Sprint(s.port), s.data}, flags...)
	s.command = exec.Command("../serve", arguments...)
	s.log = newWatchedLog(readyLine)
	s.command.Stderr = s.log
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	s.exited = exited
	go func(command *exec.Cmd) {
		// The process state contains the error.
		_ = command.Wait()
		close(exited)
	}(s.command)
	select {
	case <-s.log.seen:
		return true
	case <-s.exited:
		return false
	case <-time.After(limit):
		return false
	}
}

// end sends a signal and waits until the process has exited.
func (s *server) end(signal syscall.Signal) {
	s.t.Helper()
	// An error means that the process has exited already.
	_ = s.command.Process.Signal(signal)
	select {
	case <-s.exited:
	case <-time.After(limit):
		s.t.Errorf("the server still runs %v after %v", limit, signal)
		_ = s.command.Process.Kill()
		<-s.exited
	}
}

// resume starts the server again on the same port and directory.
func (s *server) resume(flags ...string) {
	s.t.Helper()
	if !s.run(flags) {
		s.t.Fatalf("the server did not start again:\n%s", s.log)
	}
}

// address returns the address for clients.
func (s *server) address() string {
	return fmt.Sprintf("127.0.0.1:%d", s.port)
}

// has returns whether the server under test has a flag.
func (s *server) has(flag string) bool {
	s.t.Helper()
	help, err := exec.Command(os.Getenv("SERVER"), "--help").CombinedOutput()
	if err != nil {
		s.t.Fatalf("--help: %v", err)
	}
	return bytes.Contains(help, []byte(flag))
}

// client returns a client of the server that is closed at the end of the test.
func (s *server) client() *clientv3.Client {
	s.t.Helper()
	return connect(s.t, clientv3.Config{Endpoints: []string{s.address()}})
}

// connect creates a client that logs nothing and is closed at the end of the test.
func connect(t *testing.T, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop()
	config.DialTimeout = limit
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// bounded returns a context that ends with the test or at the limit.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// watchedLog keeps the output of a process and reports when it contains a text.
type watchedLog struct {
	text string
	// Closed when the output contains text.
	seen chan struct{}

	mu    sync.Mutex
	kept  bytes.Buffer
	found bool
}

func newWatchedLog(text string) *watchedLog {
	return &watchedLog{text: text, seen: make(chan struct{})}
}

func (l *watchedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Write(p)
	if !l.found && bytes.Contains(l.kept.Bytes(), []byte(l.text)) {
		l.found = true
		close(l.seen)
	}
	return len(p), nil
}

func (l *watchedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}
