package shim

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"holdfast/internal/wire"
)

// pythonEnv names a Python that has PyTorch with CUDA; TestTorch needs one, and a GPU.
const pythonEnv = "HOLDFAST_TEST_PYTHON"

// TestTorch lets go of all memory of stock PyTorch in the middle of training, with each of its allocators, and
// compares the losses with those of a run that nobody held.
func TestTorch(t *testing.T) {
	python, lib := os.Getenv(pythonEnv), os.Getenv(driverEnv)
	if python == "" || lib == "" {
		t.Skipf("%s and %s do not name a PyTorch and a driver", pythonEnv, driverEnv)
	}
	dir := build(t)
	script, err := filepath.Abs(filepath.Join("testdata", "torch_steps.py"))
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 4
	for name, conf := range map[string]string{
		"native": "", "expandable": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
		"async": "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
	} {
		t.Run(name, func(t *testing.T) {
			env := []string{"CUBLAS_WORKSPACE_CONFIG=:4096:8", "LD_LIBRARY_PATH=" + lib}
			if conf != "" {
				env = append(env, conf)
			}
			free := run(t, exec.Command(python, script), append(env, "LD_PRELOAD="))
			var want []string
			for free.Line() != "ready" {
			}
			began := time.Now()
			for range rounds {
				free.Send("steps 20")
				want = append(want, free.Line())
			}
			t.Logf("unheld: %v a round", time.Since(began)/rounds)
			free.Quit()

			d := listen(t, t.TempDir())
			p := run(t, exec.Command(python, script), append(env, "LD_PRELOAD="+filepath.Join(dir, "libholdfast.so"),
				"HOLDFAST_DIR="+d.dir))
			h := d.take()
			for p.Line() != "ready" {
			}
			for round := range rounds {
				began := time.Now()
				p.Send("steps 20")
				if got := p.Line(); got != want[round] {
					t.Errorf("round %d: got %s\nwant %s", round, got, want[round])
				}
				took := time.Since(began)
				f := must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
				must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
				for _, c := range h.caveats {
					t.Logf("caveat: %s", c.Text)
				}
				h.letGo()
				c := h.page.Read()
				t.Logf("round %d: %v; gate %d µs, sync %d µs; %d allocations, %d MiB; %+v", round, took,
					f.GateNanos/1000, f.SyncNanos/1000,
					len(h.allocs), c.Bytes>>20, c)
				t.Logf("round %d: %s", round, h.driverCheckpoint(filepath.Join(dir, "ckpt"), env))
				h = d.giveBack(h)
				must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
			}
			p.Quit()
		})
	}
}
