package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// usage is what a program has used from its start to its end.
type usage struct {
	Program string  `json:"program"`
	Wall    float64 `json:"wall"`
	CPU     float64 `json:"cpu"`
	Memory  int64   `json:"memory"`
}

// measure runs a program with the signals of this one, and appends what it has used.
func measure(name string, arguments []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	// A link leads to the harness, whose directory does not count.
	directory := filepath.Dir(os.Args[0])
	if !filepath.IsAbs(directory) {
		directory = filepath.Dir(self)
	}
	child := exec.Command(filepath.Join(directory, "measured", name), arguments...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	// It does not outlive this program, which a test may kill. The kernel watches the thread that has started it.
	runtime.LockOSThread()
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	before := time.Now()
	if err := child.Start(); err != nil {
		return 1, err
	}
	go func() {
		for received := range signals {
			_ = child.Process.Signal(received)
		}
	}()
	code, err := status(child.Wait())
	if err != nil {
		return 1, err
	}
	if file := os.Getenv("USAGE"); file != "" && !slices.Contains(arguments, "--help") {
		state := child.ProcessState
		used := usage{Program: name, Wall: time.Since(before).Seconds(), CPU: (state.UserTime() + state.SystemTime()).Seconds()}
		if resources, ok := state.SysUsage().(*syscall.Rusage); ok {
			used.Memory = resources.Maxrss
		}
		if err := appendLine(file, used); err != nil {
			return 1, err
		}
	}
	return code, nil
}

// appendLine appends a value to a file in one write, so that programs can share the file.
func appendLine(path string, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(append(line, '\n'))
	return err
}
