package command

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
)

// A run that fails is done again on a backend that is opened anew, and the report says so.
func TestRetries(t *testing.T) {
	file, out := echo(t), filepath.Join(t.TempDir(), "out")
	opened, closed, breaks := 0, 0, 0
	way := func() (engine.Backend, string, error) {
		opened++
		return &plain{mem: map[uint64][]byte{}, closed: &closed, breaks: &breaks}, "plain", nil
	}
	for _, c := range []struct {
		retries, breaks, opened int
		says                    string
	}{{0, 0, 1, ""}, {0, 3, 1, "once"}, {2, 3, 2, "1 retries, 1 runs done again"}, {2, 0, 1, ""}} {
		opened, closed, breaks = 0, 0, c.breaks
		asked := 0
		o := Options{Runs: 5, Same: true, Outs: []string{"out0=" + out}, Timeout: time.Minute}
		o.Retries, o.Carried = c.retries, func(*recording.File) ([]recording.Span, bool, error) {
			asked++
			return nil, true, nil
		}
		r, err := Replay(file, o, way)
		if c.retries == 0 && c.breaks > 0 {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil {
			t.Errorf("%+v: %v", c, err)
		} else {
			var text bytes.Buffer
			if err := r.Print(&text, "replay"); err != nil || !strings.Contains(text.String(), c.says) {
				t.Errorf("%+v: %v\n%s", c, err, &text)
			}
			if (r.Recovery != nil) != (c.retries > 0) || !r.Same || (asked > 0) != (c.retries > 0) {
				t.Errorf("%+v: %+v", c, r)
			}
		}
		if opened != c.opened || closed != opened {
			t.Errorf("%+v: %d opened, %d closed", c, opened, closed)
		}
	}
	opened, breaks = 0, 2
	_, err := Replay(file, Options{Runs: 3, Timeout: time.Minute, Keeping: Keeping{Retries: 3}},
		func() (engine.Backend, string, error) {
			if opened > 0 {
				return nil, "plain", errors.New("gone for good")
			}
			return way()
		})
	if err == nil || !strings.Contains(err.Error(), "gone for good") || !strings.Contains(err.Error(), "3 retries") {
		t.Error(err)
	}
}

// Runs go on from a state that others have left, and count on.
func TestSavedRuns(t *testing.T) {
	file, dir := echo(t), t.TempDir()
	state, in, out := filepath.Join(dir, "s"), filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := 0
	replay := func(o Options) (*Report, error) {
		o.Timeout = time.Minute
		return Replay(file, o, func() (engine.Backend, string, error) {
			return &plain{mem: map[uint64][]byte{}, closed: &closed}, "plain", nil
		})
	}
	r, err := replay(Options{Runs: 7, Ins: []string{"in0=" + in}, Keeping: Keeping{SaveState: state, SaveEvery: 3}})
	if err != nil || r.Saved == nil || r.Saved.Files != 3 || r.Saved.Bytes == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for runs, before := range map[int]uint64{7: 7, 9: 7, 2: 7} {
		for _, retries := range []int{0, 1} {
			r, err = replay(Options{Runs: runs, Outs: []string{"out0=" + out},
				Keeping: Keeping{LoadState: state, Retries: retries}})
			if err != nil || r.Before != before {
				t.Fatalf("%d: %+v, %v", runs, r, err)
			}
			if b, err := os.ReadFile(out); err != nil || string(b) != "mine" {
				t.Errorf("%d: %q, %v", runs, b, err)
			}
			var text bytes.Buffer
			if err := r.Print(&text, "replay"); err != nil || !strings.Contains(text.String(), "7 of the runs") {
				t.Errorf("%v: %s", err, &text)
			}
		}
	}
	for _, c := range []struct {
		want string
		k    Keeping
	}{
		{"count from 0", Keeping{Retries: -1}},
		{"--copy-every is for --retries", Keeping{CopyEvery: 2}},
		{"say --save-state", Keeping{SaveEvery: 2}},
		{"no such file", Keeping{LoadState: filepath.Join(dir, "none")}},
		{"too few", Keeping{LoadState: in}},
	} {
		if _, err := replay(Options{Runs: 1, Keeping: c.k}); err == nil ||
			!strings.Contains(strings.ToLower(err.Error()), c.want) {
			t.Errorf("%+v: %v", c.k, err)
		}
	}
	if _, err := replay(Options{Runs: 1, Reset: true, Keeping: Keeping{LoadState: state}}); err == nil {
		t.Error("--reset with --load-state is taken")
	}
}
