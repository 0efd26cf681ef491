// The harness runs programs for tests/clients/kubernetes/suites.
//
//	harness start N           starts and stops an environment of envtest N times, and prints the times in milliseconds
//	harness with COMMAND...   runs a command with the KUBECONFIG of an environment
//
// Under the name kube-apiserver or etcd it runs the program of that name in the directory `measured` beside it, and
// appends what it has used to the file USAGE.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// The time that a server has for its start and for its stop, on a machine that is busy.
const limit = 120 * time.Second

func main() {
	code, err := run(filepath.Base(os.Args[0]), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		code = 1
	}
	os.Exit(code)
}

func run(name string, arguments []string) (int, error) {
	switch {
	case name == "kube-apiserver" || name == "etcd":
		return measure(name, arguments)
	case len(arguments) == 2 && arguments[0] == "start":
		count, err := strconv.Atoi(arguments[1])
		if err != nil {
			return 1, err
		}
		return 0, printStarts(count)
	case len(arguments) > 1 && arguments[0] == "with":
		return with(arguments[1:])
	}
	return 2, errors.New("usage: harness start N | with COMMAND...")
}

// printStarts prints how long environments take until they can be used.
func printStarts(count int) error {
	for range count {
		environment := envtest.Environment{ControlPlaneStartTimeout: limit, ControlPlaneStopTimeout: limit}
		before := time.Now()
		_, err := environment.Start()
		if err != nil {
			return err
		}
		fmt.Printf("%.1f\n", float64(time.Since(before).Microseconds())/1000)
		if err := environment.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// with runs a command as an administrator of a new environment.
func with(command []string) (code int, err error) {
	environment := envtest.Environment{ControlPlaneStartTimeout: limit, ControlPlaneStopTimeout: limit}
	config, err := environment.Start()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	user, err := environment.AddUser(envtest.User{Name: "suites", Groups: []string{"system:masters"}}, config)
	if err != nil {
		return 1, err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return 1, err
	}
	directory, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(directory)
	path := filepath.Join(directory, "kubeconfig")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return 1, err
	}
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), "KUBECONFIG="+path)
	return status(child.Run())
}

// status returns the exit code of a program that has ended.
func status(err error) (int, error) {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return max(ended.ExitCode(), 1), nil
	}
	return 0, err
}
