package main

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/engine/raw"
	"holdfast/internal/hfx/player"
	"holdfast/internal/recording"
	"holdfast/internal/recording/signature"
	"holdfast/internal/replay/link"
	"holdfast/internal/trace"
)

// A packed recording is one executable, which knows its recording.
func TestPack(t *testing.T) {
	dir := t.TempDir()
	linked, to := filepath.Join(dir, "set.hfx"), filepath.Join(dir, "set")
	f, err := recording.Open(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := link.File(f, linked, "", raw.Known["h200"]); err != nil {
		t.Fatal(err)
	}
	_, built := player.Binary()
	for _, x := range []struct {
		args   string
		status int
		says   string
	}{
		{"pack " + linked, 2, "-o FILE"},
		{"pack -o " + to, 2, "one linked recording"},
		{"pack --nonsense", 2, "not defined"},
		{"pack --help", 0, "--beside"},
		{"pack nothing.hfx -o " + to, 1, "no such file"},
		{"pack " + recorded(t) + " -o " + to, 1, "malformed linked recording"},
		{"pack " + linked + " -o " + to, 0, "the player"},
		{"pack " + linked + " --beside -o " + to, 0, "the player"},
	} {
		var out, errs bytes.Buffer
		if status := run(strings.Fields(x.args), &out, &errs); built != nil && status == 1 {
			if !strings.Contains(errs.String(), "build it with make") {
				t.Errorf("%q: %q", x.args, &errs)
			}
		} else if status != x.status || !strings.Contains(errs.String(), x.says) || out.Len() > 0 {
			t.Errorf("%q: %d, %q, %q; want %d and %q", x.args, status, &errs, &out, x.status, x.says)
		} else if status == 0 && !strings.Contains(x.args, "--help") {
			if said, err := exec.Command(to, "--verify").CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("%q: %q, %v", x.args, said, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	file := recorded(t)
	damaged := filepath.Join(t.TempDir(), "damaged.hfr")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, b[:len(b)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key.pub")
	if err := os.WriteFile(key, signature.EncodePublic(make([]byte, ed25519.PublicKeySize)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args   string
		status int
		says   string
	}{
		{"", 2, "0 recordings are named"},
		{"a b", 2, "2 recordings are named"},
		{"--nonsense a", 2, "flag provided but not defined"},
		{"--help", 0, "Exit status"},
		{"nothing.hfr", 1, "no such file"},
		{damaged, 1, damaged},
		{file, 1, "hfreplay: "}, // no device here
		{file + " -n 0", 2, "at least 1"},
		{"--in a=b " + file, 2, "no \"a\""},
		{"--entry other " + file, 1, "other"},
		{"--trust-key none.pub " + file, 1, "key none.pub: "},
		{"--trust-key " + key + " " + file, 1, "no signature"},
		{"--trust-key " + key + " --signature " + damaged + " " + file, 1, "the signature is damaged"},
		{"--signature x " + file, 2, "--trust-key is missing"},
	} {
		var out, errs bytes.Buffer
		status := run(strings.Fields(x.args), &out, &errs)
		if status != x.status || !strings.Contains(errs.String(), x.says) || out.Len() > 0 {
			t.Errorf("%q: %d, %q, %q; want %d and %q", x.args, status, &errs, &out, x.status, x.says)
		}
	}
}

// recorded is a recording of one set.
func recorded(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "set.hfr")
	w, err := recording.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	work, err := trace.Append(nil, &trace.Copy{Flags: trace.Set, Dst: 1 << 30, Src: 7, SrcPitch: 1, Width: 64,
		Height: 1, Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	zero := w.Put(make([]byte, 4096))
	if _, err := w.Finish(&recording.Manifest{
		Arch: 90, Program: []string{}, Warnings: []string{}, Variables: []recording.Variable{},
		Code: []recording.Code{}, Kernels: []recording.Kernel{},
		Memory:  []recording.Region{{Addr: 1 << 30, Bytes: 4096, Class: recording.Live, Contents: &zero}},
		Staging: recording.Span{Addr: 1<<30 + 1<<22},
		Entries: []recording.Entry{{Name: "e", Sets: 1, Inputs: []recording.Port{}, Outputs: []recording.Port{},
			Work: w.Put(work)}},
	}); err != nil {
		t.Fatal(err)
	}
	return name
}
