// Package launch starts servers as child processes and saves what is left of them when a test fails.
package launch

import "time"

// StartTimeout is the default of Options.StartTimeout.
const StartTimeout = 30 * time.Second

// Options are the options of a server. The zero value is a server with control whose clock follows the system.
type Options struct {
	// Binary is the path of the server; without it REVSTORE_BIN (REVSTORE_APISERVER_BIN for the Kubernetes front), the
	// package and PATH are searched.
	Binary string
	// Clock is the mode of the clock at the start: control.System, control.Manual or control.Auto.
	Clock string
	// Flags are further flags of the server.
	Flags []string
	// WithoutControl starts the server as it is in production. Its Control is nil.
	WithoutControl bool
	// StartTimeout is the time in which the server must be ready; 0 for 30 s.
	StartTimeout time.Duration
	// Artifacts is the directory for the files of failed tests. Without it that is REVSTORE_ARTIFACTS, or else
	// revstore-artifacts in the directory for temporary files.
	Artifacts string
}

// First returns the only options of a variadic parameter, or the zero value.
func First(options []Options) Options {
	switch len(options) {
	case 0:
		return Options{}
	case 1:
		return options[0]
	}
	panic("revstoretest: more than one Options")
}

// controlFlags returns the flags that turn on control.
func (o Options) controlFlags() []string {
	if o.WithoutControl {
		return nil
	}
	flags := []string{"--control-listen-url=http://127.0.0.1:0"}
	if o.Clock != "" {
		flags = append(flags, "--control-clock="+o.Clock)
	}
	return flags
}
