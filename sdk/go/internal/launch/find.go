package launch

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"revstore.invalid/revstoretest/internal/bundle"
)

// Program is one of the servers.
type Program struct {
	// Name is the name of its file.
	Name string
	// Variable is the environment variable with its path.
	Variable string
}

// find returns the path of a program: the explicit one, that of the variable, that of the bundle, or the first in PATH.
func (p Program) find(explicit string) (string, error) {
	if explicit != "" {
		return explicit, executable(explicit, "Options.Binary")
	}
	if path := os.Getenv(p.Variable); path != "" {
		return path, executable(path, p.Variable)
	}
	if path, err := bundle.Extract(p.Name); path != "" || err != nil {
		return path, err
	}
	if path, err := exec.LookPath(p.Name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s was not found: Options.Binary is empty, %s is not set, this module was packed without it, "+
		"and it is not in PATH (%s)", p.Name, p.Variable, strings.Join(pathDirectories(), ", "))
}

func pathDirectories() []string {
	return strings.Split(os.Getenv("PATH"), string(os.PathListSeparator))
}

// executable checks a path that was given, so that the error says by what.
func executable(path, source string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", source, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s: %s is not an executable file", source, path)
	}
	return nil
}
