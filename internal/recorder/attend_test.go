package recorder

import (
	"os"
	"runtime"
	"testing"

	"holdfast/internal/tap"
	"holdfast/internal/wire"
	"holdfast/internal/wire/wiretest"
)

type nobody struct{ tap.Handler }

// A program that has said goodbye before the recording is stopped has ended by itself, even if nobody had the time to
// read that yet.
func TestStopAfterBye(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the one who reads comes late
	program, recorder := wiretest.Pair(t)
	hello := &wire.Hello{Proto: wire.Version, Flags: wire.HelloTrace, Name: "p", Exe: "/bin/p"}
	if err := program.Send(0, hello, wiretest.Page(t)); err != nil {
		t.Fatal(err)
	}
	if err := program.Send(0, &wire.Bye{}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	close(stop)
	out, err := attend(recorder, stop, func(_ *wire.Hello, pid int) tap.Handler {
		if pid != os.Getpid() {
			t.Errorf("pid %d", pid)
		}
		return nobody{}
	})
	if err != nil || !out.clean {
		t.Errorf("%+v, %v", out, err)
	}
}
