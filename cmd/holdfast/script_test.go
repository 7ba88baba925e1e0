package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/client"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"holdfast": main,
	})
}

// TestScripts runs the command line as scripts use it. A script may say "daemon", after
// which a server stands in for the daemon: it answers a request for /v1/NAME with the
// script's file NAME.answer, or with the status and error of NAME.error, and keeps
// the request in NAME.request.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			dir := filepath.Join(env.WorkDir, "r")
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			env.Setenv("HOLDFAST_DIR", dir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"daemon": daemonStandIn,
			"exits":  exits,
		},
	})
}

// exits STATUS COMMAND… runs a command that must end with that status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s ended with %d, not %d", strings.Join(args[1:], " "), got, want)
	}
}

func daemonStandIn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: daemon")
	}
	// A socket's path must be short; that of a test directory may not be.
	dir, err := os.MkdirTemp("", "hf")
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	ts.Setenv("HOLDFAST_DIR", dir)
	l, err := net.Listen("unix", filepath.Join(dir, client.DaemonSocket))
	ts.Check(err)
	work := ts.MkAbs(".")
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Join(work, path.Base(r.URL.Path))
		var body strings.Builder
		if _, err := fmt.Fprintf(&body, "%s ", r.Method); err == nil {
			buf := make([]byte, 64<<10)
			for {
				n, err := r.Body.Read(buf)
				body.Write(buf[:n])
				if err != nil {
					break
				}
			}
		}
		os.WriteFile(name+".request", []byte(body.String()+"\n"), 0o600)
		if e, err := os.ReadFile(name + ".error"); err == nil {
			w.WriteHeader(http.StatusConflict)
			w.Write(e)
			return
		}
		answer, err := os.ReadFile(name + ".answer")
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write(answer)
	})}
	go srv.Serve(l)
	ts.Defer(func() { srv.Close() })
}
