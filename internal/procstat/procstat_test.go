package procstat

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	s, err := Read(os.Getpid())
	if err != nil || s.PID != os.Getpid() || s.Parent != os.Getppid() || s.Start == 0 || s.Ended() {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Read(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is not there: %v", err)
	}
}

func TestParse(t *testing.T) {
	behind := " 7 8 9 " + strings.Repeat("0 ", 15) + "4711 0\n"
	for _, name := range []string{"sh", "a b", "x) Z 1 (y", "", ")"} {
		s, err := parse("5 (" + name + ") S" + behind)
		want := Stat{PID: 5, Parent: 7, Group: 8, Session: 9, State: 'S', Start: 4711, Name: name}
		if err != nil || s != want {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
	}
	if s, err := parse("5 (a) Z" + behind); err != nil || !s.Ended() {
		t.Errorf("a zombie: %+v, %v", s, err)
	}
	for _, bad := range []string{"", "5", "5 (a", "5 (a)", "5 (a) S 1 2", "(a) S" + behind, "5 )a( S" + behind} {
		if s, err := parse(bad); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

func TestResident(t *testing.T) {
	before := Resident()
	b := make([]byte, 64<<20)
	for i := range b {
		b[i] = 1
	}
	if grown := Resident() - before; before <= 0 || grown < 32<<20 || grown > 1<<30 {
		t.Errorf("%d bytes at first, %d more with 64 MiB", before, grown)
	}
	runtime.KeepAlive(b)
}
