package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A gpuResult is what bench/foresee/gpu.py leaves, of any part.
type gpuResult struct {
	Skipped  string   `json:"skipped"`
	LeftOut  []string `json:"left_out"`
	Programs []struct {
		Program string `json:"program"`

		Plain       float64 `json:"plain_ms"`
		Traced      float64 `json:"traced_ms"`
		Launches    int     `json:"launches"`
		WithPTX     int     `json:"launches_with_ptx"`
		Checkpoints []struct {
			Shot  string  `json:"shot"`
			Mode  string  `json:"mode"`
			Bytes uint64  `json:"bytes"`
			Stall float64 `json:"stall_ms"`
			Seen  struct {
				Step  float64 `json:"step_ms"`
				After float64 `json:"step_after_ms"`
			} `json:"seen"`
		} `json:"checkpoints"`
		Restores []struct {
			Kind   string            `json:"kind"`
			Source string            `json:"source"`
			First  float64           `json:"first_step_ms"`
			Fill   map[string]string `json:"fill"`
		} `json:"restores"`
	} `json:"programs"`
	Launch, Graph struct {
		Plain  float64 `json:"plain_ns"`
		Traced float64 `json:"traced_ns"`
	}
	Verify struct {
		Identical bool `json:"identical"`
		Bytes     int  `json:"result_bytes"`
	} `json:"verify"`
	Idempotence struct {
		Launches int            `json:"launches"`
		Verdicts map[string]int `json:"verdicts"`
	} `json:"idempotence"`
}

// gpuBench runs a part of the bench on the software GPU, with the example as its program.
func (s *site) gpuBench(part, options string, args ...string) gpuResult {
	s.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		s.t.Skip(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range []string{"foresee/gpu.py", "foresee/gpu_report.py", "foresee/launches.c", "hold/hold.py"} {
		// so that a result in go's cache is not one of older scripts
		if _, err := os.ReadFile(filepath.Join(root, "bench", f)); err != nil {
			s.t.Fatal(err)
		}
	}
	command := "train=" + built.train + " --steps {steps} --every 0 --step-log {log} --out {out} " + options
	cmd := exec.Command("python3", append([]string{filepath.Join(root, "bench/foresee/gpu.py"), "--holdfast",
		built.holdfast, "--out", s.path("out"), "--work", s.path("work"),
		"--part", part, "--gpu", "soft", "--stub", filepath.Join(root, "internal/embedded/lib"), "--budget", "80",
		"--program", command, "--warm", "20", "--settle", "5"}, args...)...)
	cmd.Env = append(s.env, "PYTHONDONTWRITEBYTECODE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%v\n%s", err, &out)
	}
	var r gpuResult
	text, err := os.ReadFile(s.path("out/gpu-" + part + ".json"))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		s.t.Fatal(err)
	}
	if r.Skipped != "" || len(r.LeftOut) > 0 || len(r.Programs) != 1 && part != "launches" {
		s.t.Fatalf("%s\n%s", text, &out)
	}
	// It has ended what it started.
	for _, pid := range s.remains() {
		if line, _ := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline")); len(line) > 0 {
			s.t.Errorf("process %d is left: %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	report := exec.Command("python3", filepath.Join(root, "bench/foresee/gpu_report.py"), s.path("out"))
	report.Env = cmd.Env
	page, err := report.CombinedOutput()
	row := map[bool]string{true: "| `cuLaunchKernel` |", false: "| train |"}[part == "launches"]
	if err != nil || !strings.Contains(string(page), row) {
		s.t.Errorf("gpu_report.py: %v\n%s", err, page)
	}
	return r
}

// The scripts that measure on a GPU work: here on the software GPU, whose figures say nothing.
func TestGPUBench(t *testing.T) {
	t.Run("launches", func(t *testing.T) {
		s := newSite(t)
		r := s.gpuBench("launches", "", "--processes", "2")
		if min(r.Launch.Plain, r.Launch.Traced, r.Graph.Plain, r.Graph.Traced) <= 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("traces", func(t *testing.T) {
		s := newSite(t)
		verdicts := s.path("verdicts")
		build := exec.Command("go", "build", "-o", verdicts, "../../bench/foresee/verdicts")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		r := s.gpuBench("traces", "", "--verdicts", verdicts, "--pairs", "2", "--blocks", "2", "--steps", "20")
		p := r.Programs[0]
		if p.Plain <= 0 || p.Traced <= 0 || p.Launches < 7*40 || p.WithPTX != p.Launches ||
			r.Idempotence.Launches != p.Launches || r.Idempotence.Verdicts["idempotent"] == 0 {
			t.Errorf("%+v", r)
		}
		if len(s.read("out/traces-1.tar")) == 0 || len(s.read("out/traces.json")) == 0 {
			t.Error("no archive of traces, or no verdicts")
		}
	})
	t.Run("cow", func(t *testing.T) {
		s := newSite(t)
		r := s.gpuBench("cow", "--pad 8", "--shots", "stop-gpu,cow", "--restores", "1", "--verify-steps", "700")
		p := r.Programs[0]
		if len(p.Checkpoints) != 2 || p.Checkpoints[0].Mode != "stop" || p.Checkpoints[1].Mode != "cow" ||
			p.Checkpoints[1].Bytes < 8<<20 {
			t.Fatalf("%+v", p.Checkpoints)
		}
		for _, c := range p.Checkpoints {
			if c.Stall <= 0 || c.Seen.Step <= 0 || c.Seen.After <= 0 {
				t.Errorf("%+v", c)
			}
		}
		if len(p.Restores) != 2 || !r.Verify.Identical || r.Verify.Bytes == 0 {
			t.Errorf("%+v, verify %+v", p.Restores, r.Verify)
		}
	})
	t.Run("demand", func(t *testing.T) {
		s := newSite(t)
		r := s.gpuBench("demand", "--pad 8", "--restores", "1")
		p := r.Programs[0]
		if len(p.Restores) != 2 || p.Restores[0].Kind != "whole" || p.Restores[1].Kind != "on demand" ||
			p.Restores[1].Fill["bytes"] == "" {
			t.Fatalf("%+v", p.Restores)
		}
		for _, x := range p.Restores {
			if x.Source != "cold" || x.First <= 0 {
				t.Errorf("%+v", x)
			}
		}
	})
}
