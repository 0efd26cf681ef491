package launch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"revstore.invalid/revstoretest/control"
)

// artifactTimeout is the time for which the files of a failed test may be written.
const artifactTimeout = 10 * time.Second

// Save writes the store, the journal and the output of a server for a test that has failed, and returns the directory. What
// could be written is there also after an error.
func Save(options Options, test string, client *control.Client, output string) (string, error) {
	base := cmp.Or(options.Artifacts, os.Getenv("REVSTORE_ARTIFACTS"), filepath.Join(os.TempDir(), "revstore-artifacts"))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	name := strings.Map(fileNameRune, test)
	directory, err := os.MkdirTemp(base, name[:min(len(name), 100)]+"-*")
	if err != nil {
		return "", err
	}
	failed := []error{write(directory, "server.log", func(file io.Writer) error {
		_, err := io.WriteString(file, output)
		return err
	})}
	if client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), artifactTimeout)
		defer cancel()
		failed = append(failed,
			write(directory, "journal.jsonl", func(file io.Writer) error {
				return client.JournalLines(ctx, file)
			}),
			write(directory, "dump.txt", func(file io.Writer) error { return client.Dump(ctx, file) }))
	}
	return directory, errors.Join(failed...)
}

func fileNameRune(char rune) rune {
	if char < 128 && !strings.ContainsRune(`/\:*?"<>| `, char) {
		return char
	}
	return '_'
}

// write writes a file, or in its place one with the reason why it could not be written.
func write(directory, name string, content func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(directory, name))
	if err != nil {
		return err
	}
	err = content(file)
	return errors.Join(err, file.Close())
}
