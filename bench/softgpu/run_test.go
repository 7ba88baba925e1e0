package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/internal/softgpu/device"
)

// The test's own binary plays the jobs.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-worker") {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// The command from end to end, the software GPU's device serving as the GPU through the stub library: both sides agree,
// a flipped bit is found, and a run that the report calls complete is one.
func TestAgainstTheStub(t *testing.T) {
	stub, err := filepath.Abs("../../internal/embedded/lib/libcuda.so.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stub); err != nil {
		t.Skipf("the stub library is not built: %v", err)
	}
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "gpu.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- device.Serve(ctx, l, device.Config{Memory: 4 << 30}) }()
	defer func() {
		stop()
		if err := <-served; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	t.Setenv("HOLDFAST_SOFTGPU_SOCKET", l.Addr().String())
	file := filepath.Join(dir, "results.json")
	var out, progress bytes.Buffer
	if code := run([]string{"-libcuda", stub, "-families", "carry chains,warp: match,control", "-jobs", "2",
		"-memory-mib", "64", "-json", file}, nil, &out, &progress); code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, &out, &progress)
	}
	var r Report
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if !r.Complete || !r.SelfCheck.Caught || r.Totals.Equal < 200 || r.Totals.Equal != r.Totals.Pairs ||
		len(r.Rows) != 4 {
		t.Errorf("%s", text)
	}
}
