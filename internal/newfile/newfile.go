// Package newfile makes files that appear under their name when they are complete, with the permissions that the umask
// gives.
package newfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// A File is one that is being written. It stands beside the one that it becomes, as .NAME.*.partial.
type File struct {
	*os.File
	path string
}

// Create begins the file that is to stand at path.
func Create(path string) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.partial")
	if err != nil {
		return nil, err
	}
	return &File{f, path}, nil
}

// Finish gives the file its name, in place of what had it, and of mode what the umask leaves; and closes it.
func (f *File) Finish(mode os.FileMode) error {
	if err := errors.Join(f.Chmod(mode&^umask()), f.Sync(), os.Rename(f.Name(), f.path)); err != nil {
		return err
	}
	return f.Close()
}

// Abort removes the file, unless it was finished.
func (f *File) Abort() {
	if f.Close() == nil {
		os.Remove(f.Name())
	}
}

// umask is that of the process. /proc tells it without changing it.
func umask() os.FileMode {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0o077
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Umask:")); ok {
			if v, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 8, 32); err == nil {
				return os.FileMode(v)
			}
		}
	}
	return 0o077
}
