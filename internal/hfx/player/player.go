// Package player carries the smallest player of linked recordings (replay/tiny) inside hfreplay, and makes executables
// of it.
//
// The Makefile builds it into lib/ before it builds the binary. A binary built without it still compiles; [Pack] then
// says what to do.
package player

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/internal/hfx"
	"holdfast/internal/newfile"
)

//go:embed lib
var lib embed.FS

// ErrNotBuilt is returned when the binary was built without the player.
var ErrNotBuilt = errors.New("this binary was built without the player: build it with make")

// Binary is the player's executable file.
func Binary() ([]byte, error) {
	b, err := lib.ReadFile("lib/player")
	if err != nil {
		return nil, ErrNotBuilt
	}
	return b, nil
}

// Pack makes an executable file at to that plays the linked recording at from, which is checked first. The recording
// stands behind the player in the same file, at the next page, or beside it as TO.hfx.
func Pack(binary []byte, from, to string, beside bool) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	f, err := hfx.Open(in, st.Size())
	if err == nil {
		err = f.Verify()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if !beside {
		return write(to, 0o777, func(out io.Writer) error { return join(out, binary, in, st.Size()) })
	}
	if same, err := os.Stat(to + ".hfx"); err != nil || !os.SameFile(st, same) {
		if err := write(to+".hfx", 0o666, func(out io.Writer) error { return all(out, in, st.Size()) }); err != nil {
			return err
		}
	}
	return write(to, 0o777, func(out io.Writer) error { _, err := out.Write(binary); return err })
}

// join puts a linked recording behind a player.
func join(out io.Writer, player []byte, in io.ReaderAt, size int64) error {
	base := (int64(len(player)) + hfx.Page - 1) / hfx.Page * hfx.Page
	if _, err := out.Write(append(player, make([]byte, base-int64(len(player)))...)); err != nil {
		return err
	}
	if err := all(out, in, size); err != nil {
		return err
	}
	_, err := out.Write(binary.LittleEndian.AppendUint64([]byte(hfx.Trailer), uint64(base)))
	return err
}

func all(out io.Writer, in io.ReaderAt, size int64) error {
	n, err := io.Copy(out, io.NewSectionReader(in, 0, size))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// write makes a file that appears when it is complete.
func write(path string, mode os.FileMode, fill func(io.Writer) error) error {
	f, err := newfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(f); err != nil {
		return err
	}
	return f.Finish(mode)
}
