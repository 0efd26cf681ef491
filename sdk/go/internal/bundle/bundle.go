// Package bundle has the servers that the module was packed with, if any.
package bundle

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed files
var files embed.FS

// Extract writes a program of the bundle to the user's cache, unless it is there, and returns its path; "" if the bundle
// does not have it.
func Extract(name string) (string, error) {
	program, err := files.ReadFile("files/" + name)
	if err != nil {
		return "", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	directory := filepath.Join(cache, "revstoretest", fmt.Sprintf("%x", sha256.Sum256(program))[:16])
	path := filepath.Join(directory, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", err
	}
	// Renamed when it is complete, because other processes may do the same.
	file, err := os.CreateTemp(directory, name+"-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(program)
	if err == nil {
		err = file.Chmod(0o700)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", err
	}
	return path, os.Rename(file.Name(), path)
}
