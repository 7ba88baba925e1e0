package main

import (
	"io"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"verdicts": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}

// Scripts tell a wrong call from a failure.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"-help"}, 0},
		{[]string{"-corpus", t.TempDir()}, 1},
		{[]string{"-workers", "0"}, 2},
		{[]string{"-no-such-flag"}, 2},
		{[]string{"something"}, 2},
	} {
		if got := run(c.args, io.Discard, io.Discard); got != c.want {
			t.Errorf("%v: %d, want %d", c.args, got, c.want)
		}
	}
}
