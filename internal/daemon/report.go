package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"holdfast/internal/daemon/api"
)

// report writes the one line that the log has of an operation: at its end, who asked for what, and what came of it. A
// failure is an error; a refusal, which has touched nothing, is a warning.
func (d *Daemon) report(ctx context.Context, req, res any, took time.Duration, err error) {
	what, target, attrs := describe(req)
	if what == "" {
		return // nothing is done to a program
	}
	if r, ok := res.(*api.CheckpointResult); ok && r != nil { // it may be gone by now
		attrs = append(attrs, slog.Int("pid", r.PID), slog.String("name", r.Name))
	} else if p, bad := d.find(target); target != "" && bad == nil {
		attrs = append(attrs, slog.Int("pid", p.Identity().PID), slog.String("name", p.Identity().Name))
	}
	if c := callerOf(ctx); c != nil {
		attrs = append(attrs, slog.Int("client", int(c.cred.Pid)), slog.Int("uid", int(c.cred.Uid)))
	}
	attrs = append(attrs, slog.Duration("took", took.Round(time.Millisecond)))
	if err == nil {
		attrs = append(attrs, slog.String("outcome", "done"))
		d.log.LogAttrs(ctx, slog.LevelInfo, what, append(attrs, outcome(res)...)...)
		return
	}
	level, e := slog.LevelError, asError(err)
	if e.Code != "failed" {
		level = slog.LevelWarn
	}
	attrs = append(attrs, slog.String("outcome", e.Code), slog.String("err", e.Message))
	d.log.LogAttrs(ctx, level, what, attrs...)
}

// describe says what a request asks for, and of which program.
func describe(req any) (what, target string, attrs []slog.Attr) {
	dir := func(d string) slog.Attr { return slog.String("dir", d) }
	switch r := req.(type) {
	case api.CheckpointRequest:
		return "checkpoint", r.Target, []slog.Attr{slog.String("target", r.Target), dir(r.Dir), slog.Bool("gpu_only",
			r.GPUOnly), slog.Bool("leave_running", r.LeaveRunning)}
	case api.RestoreRequest:
		return "restore", "", []slog.Attr{dir(r.Dir), slog.Bool("on_demand", r.OnDemand)}
	case api.RollbackRequest:
		return "rollback", r.Target, []slog.Attr{slog.String("target", r.Target), dir(r.Dir)}
	case api.SuspendRequest:
		attrs = []slog.Attr{slog.String("target", r.Target), slog.String("to", cmp.Or(r.To, "host"))}
		if r.Dir != "" {
			attrs = append(attrs, dir(r.Dir))
		}
		return "suspend", r.Target, attrs
	case api.ResumeRequest:
		return "resume", r.Target, []slog.Attr{slog.String("target", r.Target)}
	}
	return "", "", nil
}

// outcome says what was done.
func outcome(res any) []slog.Attr {
	millis := func(key string, ms float64) slog.Attr {
		return slog.Duration(key, time.Duration(ms*float64(time.Millisecond)).Round(10*time.Microsecond))
	}
	bytes := func(key string, n uint64) slog.Attr { return slog.Uint64(key, n) }
	switch r := res.(type) {
	case *api.CheckpointResult:
		return []slog.Attr{slog.String("kind", r.Kind), slog.String("mode", r.Mode),
			millis("stall", r.StallMS), bytes("bytes", r.Bytes), bytes("new", r.BytesNew), bytes("host_bytes",
				r.HostBytes),
			slog.Int("mispredictions", r.Mispredictions)}
	case *api.RestoreResult:
		return []slog.Attr{slog.Int("pid", r.PID), slog.String("name", r.Name), slog.String("source", r.Source),
			bytes("bytes", r.Bytes),
			bytes("filled", r.BytesFilled), bytes("missing", r.Missing)}
	case *api.RollbackResult:
		return []slog.Attr{millis("stall", r.StallMS), bytes("bytes", r.Bytes), bytes("filled", r.BytesFilled)}
	case *api.SuspendResult:
		return []slog.Attr{bytes("freed", r.BytesFreed)}
	case *api.ResumeResult:
		return []slog.Attr{bytes("bytes", r.Bytes)}
	}
	return nil
}
