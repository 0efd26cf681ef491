package launch

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// stopTimeout is the time for which a server may finish after its standard input has ended. Then it is killed.
const stopTimeout = 5 * time.Second

// outputTimeout is the time to wait for the rest of the output of a server that has ended. A child of it may hold the pipes.
const outputTimeout = time.Second

// Process is a running server. It ends with this process, whose pipe is its standard input.
type Process struct {
	// Ready is the text after "NAME ready ".
	Ready string

	name   string
	input  io.Closer
	output *tail
	kill   func() error
	exited chan struct{}
	stop   sync.Once
}

// Start starts a server and waits until it has printed its ready line.
func Start(program Program, options Options, flags ...string) (*Process, error) {
	path, err := program.find(options.Binary)
	if err != nil {
		return nil, err
	}
	flags = append(append(flags, "--exit-with-stdin"), options.controlFlags()...)
	command := exec.Command(path, append(flags, options.Flags...)...)
	output := &tail{}
	command.WaitDelay = outputTimeout
	command.Stderr = output
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	process := &Process{
		name: program.Name, input: input, output: output,
		kill: command.Process.Kill, exited: make(chan struct{}),
	}
	ready := make(chan string, 1)
	go func() {
		readLines(stdout, program.Name+" ready ", ready, output)
		// The status is part of the output of servers that fail.
		if err := command.Wait(); err != nil {
			fmt.Fprintln(output, err)
		}
		close(process.exited)
	}()
	timeout := options.StartTimeout
	if timeout == 0 {
		timeout = StartTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case process.Ready = <-ready:
		return process, nil
	case <-process.exited:
		// The line may have come before the end.
		return nil, fmt.Errorf("%s ended before it was ready:\n%s", path, output)
	case <-timer.C:
		process.end()
		return nil, fmt.Errorf("%s was not ready within %v:\n%s", path, timeout, output)
	}
}

// readLines sends the rest of the first line with a prefix, and keeps all others.
func readLines(stdout io.Reader, prefix string, ready chan<- string, output io.Writer) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if rest, found := strings.CutPrefix(line, prefix); found && ready != nil {
			ready <- strings.TrimSuffix(rest, "\n")
			ready = nil
		} else {
			_, _ = io.WriteString(output, line)
		}
		if err != nil {
			return
		}
	}
}

// Stop stops the server and waits for its end.
func (p *Process) Stop() {
	p.stop.Do(func() {
		_ = p.input.Close()
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		select {
		case <-p.exited:
		case <-timer.C:
			p.end()
		}
	})
}

// end kills the server.
func (p *Process) end() {
	_ = p.kill()
	select {
	case <-p.exited:
	case <-time.After(outputTimeout):
	}
}

// Exited is closed when the server has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Output returns the end of what the server has written.
func (p *Process) Output() string { return p.output.String() }
