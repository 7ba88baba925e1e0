package footprint

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Cache keeps the summaries of modules in a directory, each module's under the digest of its text.
// Several processes may share it.
type Cache struct{ Dir string }

// Summaries gives the summaries of a module of which this is the text, in source order. Those that are not in the
// cache, or cannot be read, are made, and kept.
func (c Cache) Summaries(text []byte, make func() ([]*Summary, error)) ([]*Summary, error) {
	sum := sha256.Sum256(text)
	path := filepath.Join(c.Dir, fmt.Sprintf("%x.v%d", sum, Version))
	if list, err := load(path); err == nil {
		return list, nil
	}
	list, err := make()
	if err != nil {
		return nil, err
	}
	return list, store(path, list)
}

func load(path string) ([]*Summary, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSummary {
		return nil, errors.New("too large")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var parts [][]byte
	c := &codec{in: b, reading: true}
	list(c, &parts, func(p *[]byte) {
		var s string
		c.text(&s)
		*p = []byte(s)
	})
	if c.err != nil || len(c.in) > 0 {
		return nil, errors.New("damaged")
	}
	out := make([]*Summary, len(parts))
	for i, p := range parts {
		out[i] = new(Summary)
		if err := out[i].UnmarshalBinary(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// store writes a file and renames it into place: nobody reads half of one.
func store(path string, summaries []*Summary) error {
	c := &codec{}
	n := len(summaries)
	integer(c, &n)
	for _, s := range summaries {
		b, err := s.MarshalBinary()
		if err != nil {
			return err
		}
		text := string(b)
		c.text(&text)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".summary-*")
	if err != nil {
		return err
	}
	_, err = f.Write(c.out)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if rm := os.Remove(f.Name()); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}
	return err
}
