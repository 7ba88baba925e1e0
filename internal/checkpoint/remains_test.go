package checkpoint

import (
	"bufio"
	"encoding/hex"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/process"
)

const (
	holderVariable = "HOLDFAST_TEST_TOKEN"
	lateVariable   = "HOLDFAST_TEST_TOKEN_LATE" // it says that it is ready before it has the token
)

// TestTokenHolder is no test but a process that looks like a held program: it has the shim mapped, and a token in
// memory.
func TestTokenHolder(t *testing.T) {
	text := os.Getenv(holderVariable)
	if text == "" {
		t.Skip("it is a child of TestEndUnnoticedRestore")
	}
	token, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	const size = 2 << 20 // the shim's variables are as large when CRIU has just put them in place
	name := filepath.Join(t.TempDir(), "libholdfast.so")
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	variables, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(lateVariable) != "" {
		os.Stdout.WriteString("ready\n")
		time.Sleep(100 * time.Millisecond)
	}
	copy(variables[size-100:], token)
	os.Stdout.WriteString("ready\n")
	io.Copy(io.Discard, os.Stdin)
}

// A restore may have made its process just before its daemon died, which could not note it any more. The process is
// known by the token of the program, and ended; one that is not the program's is left alone.
func TestEndUnnoticedRestore(t *testing.T) {
	token := [16]byte{1, 2, 3, 0xfe, 4, 5, 6, 7, 0xdc, 8, 9, 10, 0xba, 11, 12, 13}
	other := token
	other[15]++
	begun := ticks()
	log := slog.New(slog.DiscardHandler)
	record := func(pid int, token [16]byte) *Record {
		return &Record{Identity: process.Identity{PID: pid, Token: token}, Root: pid, Begun: begun}
	}
	pid := holder(t, token)
	start, err := process.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	earlier, unknown, elsewhere := record(pid, token), record(pid, token), record(pid, token)
	earlier.Begun, unknown.Begun, elsewhere.Identity.PID = start+1, 0, pid+1
	var others sync.WaitGroup // each is looked at for some seconds
	for name, r := range map[string]*Record{"another program": record(pid, other), "no token": record(pid, [16]byte{}),
		"it is older than the restore": earlier, "a record of an older daemon": unknown,
		"the program has another number": elsewhere, "a process without a shim": record(sleeper(t, nil), token)} {
		others.Go(func() {
			if err := endRestore(r, log); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !process.Alive(r.Root, 0) {
				t.Errorf("%s: the process was ended", name)
			}
		})
	}
	others.Wait()
	if err := endRestore(record(pid, token), log); err != nil {
		t.Error(err)
	}
	if process.Alive(pid, start) {
		t.Error("the process of the restore lives")
	}

	// Also when its daemon dies in the moment in which the process has no memory of its own yet.
	t.Setenv(lateVariable, "1")
	late := holder(t, token)
	if err := endRestore(record(late, token), log); err != nil {
		t.Error(err)
	}
	if process.Alive(late, 0) {
		t.Error("the process that was looked at early lives")
	}
}

// holder starts a process that has the token.
func holder(t *testing.T, token [16]byte) (pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTokenHolder$")
	cmd.Env = append(os.Environ(), holderVariable+"="+hex.EncodeToString(token[:]))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if s := bufio.NewScanner(out); !s.Scan() || s.Text() != "ready" {
		t.Fatalf("it says %q", s.Text())
	}
	return cmd.Process.Pid
}
