// Package old tests the clients of etcd 3.3 and 3.4 against the server binary $SERVER.
package old

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/clientv3"
)

// limit is the time limit of a wait, after which the test fails. It is long enough for busy machines.
const limit = 60 * time.Second

// readyLine is in the log line of a server that accepts requests (FL-13).
const readyLine = "ready to serve client requests"

// portAttempts is the maximum number of starts. A start fails if another process takes the port first.
const portAttempts = 5

// start runs a server until the end of the test and returns its address.
func start(t *testing.T, flags ...string) string {
	t.Helper()
	var log []string
	for range portAttempts {
		var port int
		if port, log = run(t, flags); port != 0 {
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
		if !strings.Contains(strings.Join(log, "\n"), "address already in use") {
			break
		}
	}
	t.Fatalf("the server did not start:\n%s", strings.Join(log, "\n"))
	return ""
}

// run starts a process. It returns its port, or 0 and its log.
func run(t *testing.T, flags []string) (int, []string) {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := listener.Addr().(*net.TCPAddr).Port
	mustDo(t, listener.Close())
	arguments := append([]string{fmt.Sprint(port), filepath.Join(t.TempDir(), "data")}, flags...)
	command := exec.Command("../serve", arguments...)
	stderr := must(command.StderrPipe())(t)
	mustDo(t, command.Start())
	lines := bufio.NewScanner(stderr)
	var log []string
	for lines.Scan() {
		log = append(log, lines.Text())
		if strings.Contains(lines.Text(), readyLine) {
			read := make(chan struct{})
			go func() {
				defer close(read)
				for lines.Scan() {
				}
			}()
			t.Cleanup(func() {
				_ = command.Process.Kill()
				<-read
				_ = command.Wait()
			})
			return port, nil
		}
	}
	_ = command.Wait()
	return 0, log
}

// connect creates a client that is closed at the end of the test.
func connect(t *testing.T, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.DialTimeout = limit
	client := must(clientv3.New(config))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// bounded returns a context that ends with the test or at the limit.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// must returns a function that returns the value, or fails the test if there is an error.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		mustDo(t, err)
		return value
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
