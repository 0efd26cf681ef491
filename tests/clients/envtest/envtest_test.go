// Package envtest starts the server under test with the envtest package of controller-runtime.
package envtest

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const limit = 60 * time.Second

// FL-5: envtest passes this flag if the output of `--help` contains it.
func TestHelpContainsTheFlagThatEnvtestSearches(t *testing.T) {
	help, err := exec.Command(os.Getenv("SERVER"), "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\s*--unsafe-no-fsync\b`).Match(help) {
		t.Errorf("not in the help:\n%s", help)
	}
}

func TestStartAndStop(t *testing.T) {
	etcd := &envtest.Etcd{Path: os.Getenv("SERVER"), StartTimeout: limit, StopTimeout: limit}
	etcd.Out, etcd.Err = t.Output(), t.Output()
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := etcd.Stop(); err != nil {
			t.Error(err)
		}
	}()
	checkServes(t, etcd)
	data := etcd.DataDir

	address := etcd.URL.Host
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("the stopped server still listens")
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the data directory %s was not removed: %v", data, err)
	}
}

// The user sets a data directory and further flags.
func TestStartWithFlagsAndDirectoryOfTheUser(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	etcd := &envtest.Etcd{
		Path: os.Getenv("SERVER"), DataDir: directory, StartTimeout: limit, StopTimeout: limit,
	}
	etcd.Out, etcd.Err = t.Output(), t.Output()
	etcd.Configure().
		Set("max-txn-ops", "1000").
		Set("auto-compaction-mode", "revision").
		Set("auto-compaction-retention", "1000").
		Append("quota-backend-bytes", "100000000")
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	checkServes(t, etcd)
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(directory); err != nil {
		t.Errorf("the user's directory: %v", err)
	}
}

// If the server exits at the start, envtest reports an error immediately and does not wait for a timeout.
func TestStartWithAnInvalidFlagFailsImmediately(t *testing.T) {
	etcd := &envtest.Etcd{Path: os.Getenv("SERVER"), StartTimeout: limit, StopTimeout: limit}
	etcd.Out, etcd.Err = t.Output(), t.Output()
	etcd.Configure().Set("no-such-flag", "1")
	started := time.Now()
	if err := etcd.Start(); err == nil {
		_ = etcd.Stop()
		t.Fatal("the server started with an unknown flag")
	}
	if took := time.Since(started); took >= limit {
		t.Errorf("the start failed after %v only", took)
	}
}

func checkServes(t *testing.T, etcd *envtest.Etcd) {
	t.Helper()
	var version struct {
		Server string `json:"etcdserver"`
	}
	for path, into := range map[string]any{"/health": &struct{}{}, "/version": &version} {
		response, err := http.Get(etcd.URL.JoinPath(path).String())
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, response.Status)
		}
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		_ = response.Body.Close()
	}
	if version.Server < "3.5" {
		t.Errorf("version %q", version.Server)
	}
}
