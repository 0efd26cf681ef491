package revstoretest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"revstore.invalid/revstoretest"
)

// refused checks the parts of the error of a server that does not start.
func refused(t *testing.T, options revstoretest.Options, parts ...string) {
	t.Helper()
	server, err := revstoretest.New(options)
	if err == nil {
		server.Close()
		t.Fatal("the server has started")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

// script writes a program.
func script(t *testing.T, directory, text string) string {
	t.Helper()
	path := filepath.Join(directory, "revstore")
	check(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	return path
}

func TestAMissingBinaryIsAnErrorThatNamesAllPlaces(t *testing.T) {
	t.Setenv("REVSTORE_BIN", "")
	t.Setenv("PATH", "/nowhere:/else")
	refused(t, revstoretest.Options{}, "Options.Binary", "REVSTORE_BIN", "module", "PATH (/nowhere, /else)")
	refused(t, revstoretest.Options{Binary: "/none"}, "Options.Binary", "/none")
	t.Setenv("REVSTORE_BIN", "/etc/passwd")
	refused(t, revstoretest.Options{}, "REVSTORE_BIN", "/etc/passwd is not an executable file")
}

func TestTheExplicitPathIsFirstThenTheVariableThenPATH(t *testing.T) {
	path := script(t, t.TempDir(), "echo in PATH; exit 1")
	t.Setenv("PATH", filepath.Dir(path)+":"+os.Getenv("PATH"))
	t.Setenv("REVSTORE_BIN", "")
	refused(t, revstoretest.Options{}, "in PATH")
	t.Setenv("REVSTORE_BIN", script(t, t.TempDir(), "echo in the variable; exit 1"))
	refused(t, revstoretest.Options{}, "in the variable")
	refused(t, revstoretest.Options{Binary: script(t, t.TempDir(), "echo explicit; exit 1")}, "explicit")
}

func TestAStartThatFailsShowsTheOutput(t *testing.T) {
	t.Parallel()
	refused(t, revstoretest.Options{Flags: []string{"--nonsense"}}, "ended before it was ready", "-nonsense", "exit status 2")
}

func TestAServerThatIsNeverReadyIsKilled(t *testing.T) {
	t.Parallel()
	path := script(t, t.TempDir(), "echo started; sleep 20")
	refused(t, revstoretest.Options{Binary: path, StartTimeout: 300 * time.Millisecond}, "not ready within 300ms", "started")
}
