package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/fatbin"
	"holdfast/internal/trace"
)

// fatBinary is a fat binary with one PTX image.
func fatBinary(text string) []byte {
	le := binary.LittleEndian
	payload := []byte(text)
	payload = append(payload, make([]byte, 8-len(payload)%8)...)
	entry := make([]byte, 64)
	le.PutUint16(entry, uint16(fatbin.PTX))
	le.PutUint16(entry[2:], 0x101)
	le.PutUint32(entry[4:], 64)
	le.PutUint64(entry[8:], uint64(len(payload)))
	le.PutUint32(entry[28:], 90)
	body := append(entry, payload...)
	out := le.AppendUint32(nil, fatbin.MagicContainer)
	out = le.AppendUint16(out, 1)
	out = le.AppendUint16(out, fatbin.HeaderSize)
	out = le.AppendUint64(out, uint64(len(body)))
	return append(out, body...)
}

// traceOf is a trace of a program that loaded a PTX text and has two kernels of it.
func traceOf(t *testing.T, text string) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := trace.NewWriter(&file, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.WriteText(1, []byte(text))
	errs := []error{err,
		w.Write(1, &trace.Image{ID: 1, Kind: trace.CodePTX, Digest: d, Texts: []trace.TextRef{{Arch: 90, Digest: d}}}),
		w.Write(1, &trace.Kernel{ID: 1, Module: 1, Name: "nothing"}),
		w.Write(1, &trace.Kernel{ID: 2, Module: 1, Name: "nothing"}),
		w.Write(1, &trace.Kernel{ID: 3, Name: "secret", Params: []trace.Param{{Offset: 0, Size: 8}}}),
		w.Finish()}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// Images in containers, and what is wrong with those that are damaged or hostile: each gets an error with
// a place, soon, and without much memory.
func TestAnalyzeImages(t *testing.T) {
	const empty = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n"
	good := fatBinary(empty)
	damaged := bytes.Replace(good, []byte("ret;"), []byte("ret?"), 1)
	for _, c := range []struct {
		name string
		b    []byte
		size int64  // of the file, if it goes on with zeros
		want string // in the output, or in the error
		ok   bool
	}{
		{"fat binary", good, 0, "nothing  sm_90   always", true},
		{"trace", traceOf(t, empty), 0, "nothing  sm_90   always\nsecret           unknown  there is no PTX of it",
			true},
		{"two fat binaries", append(bytes.Clone(good), good...), 0, "nothing", true},
		{"cut short", good[:len(good)-1], 0, "offset 0x0: fat binary claims", false},
		{"cut in the header", good[:20], 0, "offset 0x0: ", false},
		{"PTX that is none", damaged, 0, "@0x10:6:5: ", false},
		{"cubin cut short", []byte("\x7fELF\x02\x01\x01\x08\x08\x00\x00\x00\x00\x00\x00\x00\x02\x00\xbe\x00"), 0,
			"offset 0", false},
		{"ELF cut short", []byte("\x7fELF\x02\x01\x01\x00"), 0, "ELF", false},
		{"trace cut short", []byte("HFTRACE\n\x01"), 0, "ended early", false},
		{"a gigabyte of nothing", nil, 1 << 30, "offset 0: ", false},
		{"a gigabyte of PTX", []byte("// "), 1 << 30, ":1:1: source has ", false},
		{"a gigabyte of fat binary", good, 1 << 30, "nothing", true},
		{"deep nesting", []byte(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() " + strings.Repeat("{",
			1<<20)), 0, ".ptx:4:", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x")
			if bytes.HasPrefix(c.b, []byte(".version")) {
				file += ".ptx"
			}
			if err := os.WriteFile(file, c.b, 0o600); err != nil {
				t.Fatal(err)
			}
			if c.size > 0 {
				if err := os.Truncate(file, c.size); err != nil {
					t.Fatal(err)
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := computed(t)
			var stdout, stderr bytes.Buffer
			status := run([]string{"analyze", file}, nil, &stdout, &stderr)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 1<<30 {
				t.Errorf("%d bytes were allocated", got)
			}
			if d := computed(t) - begun; d > time.Minute {
				t.Errorf("it computed for %v", d)
			}
			out := stderr.String()
			if c.ok {
				out = stdout.String()
			}
			if (status == exitOK) != c.ok || !strings.Contains(out, c.want) {
				t.Errorf("status %d\n%s%s; want %q", status, stdout.String(), stderr.String(), c.want)
			}
		})
	}
}

// computed is the processor time that the tests have had, which does not depend on what else runs.
func computed(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}
