package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"holdfast/internal/daemon/api"
)

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 1610612736: "1.50 GiB", 150 << 30: "150 GiB", 64 << 20: "64.0 MiB",
		1<<64 - 1: "16.0 EiB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

// What a held program says of itself reaches the terminal, but does not steer it.
func TestPlain(t *testing.T) {
	var out bytes.Buffer
	list := []api.Process{{PID: 7, Name: "a\x1b[2Jb", Command: []string{"x\ny", "\x9b31m"},
		Caveats: []api.Caveat{{Text: "kernel \x1b]0;t\x07"}}}}
	if err := printProcesses(&out, list, time.Now()); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); strings.ContainsAny(s, "\x1b\x07\u009b") || strings.Count(s, "\n") != 3 ||
		!strings.Contains(s, "a?[2Jb") {
		t.Errorf("%q", s)
	}
}

func TestMeter(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	m := &meter{w: &out, now: func() time.Time { return now }}
	m.show(api.Progress{Phase: "drain", Done: 0, Total: 4 << 30})
	now = now.Add(2 * time.Second)
	m.show(api.Progress{Phase: "drain", Done: 1 << 30, Total: 4 << 30})
	lines := strings.Split(out.String(), "\r")
	got := lines[len(lines)-1]
	for _, want := range []string{"drain", " 25% ", "1.00 GiB of 4.00 GiB", "512 MiB/s", "6s left"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not show %q", got, want)
		}
	}
	before := out.Len()
	now = now.Add(time.Millisecond)
	m.show(api.Progress{Phase: "drain", Done: 1<<30 + 1, Total: 4 << 30})
	if out.Len() != before {
		t.Error("shown again after 1 ms")
	}
	m.clear()
	if !strings.HasSuffix(out.String(), "\r") {
		t.Error("clear leaves the line")
	}
}

func TestDriverCheck(t *testing.T) {
	for line, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)":  checkOK,
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023": checkFail,
		"NVRM version: something else": checkWarn,
	} {
		if got := driverCheck("gpu", checkFail, line); got.Status != want {
			t.Errorf("%q: %+v, want %s", line, got, want)
		}
	}
}

func TestRates(t *testing.T) {
	before := []api.Process{{PID: 1, Launches: 100}}
	now := []api.Process{{PID: 1, Launches: 300}, {PID: 2, Launches: 5}}
	rows := rates(before, now, 2*time.Second)
	if rows[0].LaunchesPerSecond != 100 || rows[1].LaunchesPerSecond != 0 {
		t.Errorf("%+v", rows)
	}
}
