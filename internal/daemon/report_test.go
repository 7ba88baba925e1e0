package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/checkpoint"
	"holdfast/internal/daemon/api"
)

// The log has a line of each operation, of the kind that its outcome deserves.
func TestReport(t *testing.T) {
	ctx := context.WithValue(t.Context(), connKey{}, &caller{cred: &unix.Ucred{Pid: 77, Uid: 5}})
	for _, c := range []struct {
		req, res any
		err      error
		want     []string
	}{
		{
			api.CheckpointRequest{Target: "train", Dir: "/img"}, &api.CheckpointResult{PID: 9, Name: "train",
				Mode: "stage", StallMS: 12.5, Bytes: 1000}, nil,
			[]string{"level=INFO", "msg=checkpoint", "target=train", "dir=/img", "client=77", "uid=5", "took=2s",
				"outcome=done", "pid=9", "name=train", "mode=stage", "stall=12.5ms", "bytes=1000"},
		},
		{
			api.RestoreRequest{Dir: "/img"}, (*api.RestoreResult)(nil), errors.New("no memory"),
			[]string{"level=ERROR", "msg=restore", "dir=/img", "outcome=failed", `err="no memory"`},
		},
		{
			api.SuspendRequest{Target: "train"}, (*api.SuspendResult)(nil), &checkpoint.Refused{Reason: "it cannot"},
			[]string{"level=WARN", "msg=suspend", "to=host", "outcome=refused", `err="it cannot"`},
		},
		{api.ResumeRequest{Target: "train"}, &api.ResumeResult{PID: 9, Bytes: 8}, nil, []string{"level=INFO",
			"msg=resume", "bytes=8"}},
		{api.RollbackRequest{Target: "train", Dir: "/img"}, (*api.RollbackResult)(nil), &api.Error{Code: "busy",
			Message: "later"}, []string{"level=WARN", "msg=rollback", "outcome=busy"}},
		{api.WaitRequest{PID: 9}, &api.WaitResult{}, nil, nil},
	} {
		var text strings.Builder
		d := &Daemon{log: slog.New(slog.NewTextHandler(&text, nil))}
		d.report(ctx, c.req, c.res, 2*time.Second, c.err)
		if c.want == nil && text.Len() > 0 {
			t.Errorf("%T: %s", c.req, text.String())
		}
		for _, want := range c.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%T: no %s in: %s", c.req, want, text.String())
			}
		}
		if n := strings.Count(text.String(), "\n"); c.want != nil && n != 1 {
			t.Errorf("%T: %d lines", c.req, n)
		}
	}
}
