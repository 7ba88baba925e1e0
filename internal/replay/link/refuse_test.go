package link

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/engine/raw"
	"holdfast/internal/engine/raw/rawtest"
	"holdfast/internal/hfx"
	"holdfast/internal/hfx/player"
	"holdfast/internal/npy"
	"holdfast/internal/recording"
	"holdfast/internal/rm"
	"holdfast/internal/rm/rmtest"
	"holdfast/internal/trace"
)

func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func array(t *testing.T, dtype string, shape []int, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.npy")
	if err := npy.WriteFile(path, &npy.Array{DType: dtype, Shape: shape, Data: b}); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the command line gets wrong is said before a device is opened.
func TestUsage(t *testing.T) {
	model, _ := linked(t, recorded(t))
	x := pattern(inBytes, 1)
	head, _, err := npy.Head("float32", []int{5, 50_000})
	if err != nil {
		t.Fatal(err)
	}
	fortran := bytes.Replace(head, []byte("False"), []byte("True "), 1)
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--nonsense"}, 2, "no such option"},
		{[]string{"--in"}, 2, "value is missing"},
		{[]string{"-n", "0"}, 2, "at least 1"},
		{[]string{"-n", "1x"}, 2, "want a number"},
		{[]string{"--gpu", "99"}, 2, "at most 31"},
		{[]string{"--in", "x"}, 2, "want NAME=FILE"},
		{[]string{"--in", "a=b"}, 2, "x (float32 [5 50000])"},
		{[]string{"--out", "x=b"}, 2, "there is no such"},
		{[]string{"--in", "x=a", "--in", "x=b"}, 2, "given twice"},
		{[]string{"--in", "x=/nowhere"}, 1, "no such file"},
		{[]string{"--in", "x=" + write(t, "short", x[1:])}, 1, "input x has 1000000"},
		{[]string{"--in", "x=" + write(t, "a.npy", x)}, 1, "no .npy file"},
		{[]string{"--in", "x=" + write(t, "a.npy", head[:9])}, 1, "no .npy file"},
		{[]string{"--in", "x=" + write(t, "a.npy", head)}, 1, "0 bytes of data"},
		{[]string{"--in", "x=" + write(t, "a.npy", append(fortran, x...))}, 1, "another type or shape"},
		{[]string{"--in", "x=" + array(t, "float32", []int{50_000, 5}, x)}, 1, "another type or shape"},
		{[]string{"--in", "x=" + array(t, "int32", []int{5, 50_000}, x)}, 1, "another type or shape"},
		{[]string{"--help"}, 0, "Exit status"},
	} {
		d := play(t, "580.159.04")
		status, said := run(t, d, append([]string{"--model", model}, c.args...)...)
		if status != c.status || !strings.Contains(said, c.says) || strings.Count(said, "\n") != 1 && status != 0 {
			t.Errorf("%q: %d, %q; want %d and %q", c.args, status, said, c.status, c.says)
		}
		if len(d.Calls) > 0 {
			t.Errorf("%q: %q was asked", c.args, d.Calls)
		}
	}
}

// An input without a type takes an .npy file of any, if it has as many bytes.
func TestUntyped(t *testing.T) {
	model, _ := linked(t, recorded(t))
	flag := array(t, "uint16", []int{2, 2}, []byte{9, 8, 7, 6, 5, 4, 3, 2})
	z := filepath.Join(t.TempDir(), "z.npy")
	status, said := run(t, play(t, "580.159.04"), "--model", model, "--in", "flag="+flag, "--out", "z="+z)
	a, err := npy.ReadFile(z, 64)
	if status != 0 || err != nil || a.DType != "uint16" || le.Uint32(a.Data) != 0x06070809*3+4 {
		t.Errorf("%d, %q, %v, %+v", status, said, err, a)
	}
}

// What the machine is not is said, and where a driver or a GPU is not known nothing is made.
func TestRefused(t *testing.T) {
	file := recorded(t)
	model, _ := linked(t, file)
	other := filepath.Join(t.TempDir(), "other.hfx")
	g, err := GPU("sm_90:8,9,2,64,57")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := linkFile(t, file, other, g); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		change func(d *rmtest.Driver)
		says   string
	}{
		{"--model " + model, func(d *rmtest.Driver) { d.Version = "590.48.01" },
			"driver 590.48.01: its interface is not known"},
		{"--model " + model, func(d *rmtest.Driver) { d.Version = "nonsense" }, "driver nonsense"},
		{"--model " + model + " --gpu 1", func(*rmtest.Driver) {}, "no GPU 1: the machine has 1"},
		{"--model " + model, func(d *rmtest.Driver) { d.Classes = []uint32{rm.AMPERE_COMPUTE_A} },
			"linked for NVIDIA H200 (sm_90), this is Played GPU"},
		{"--model " + other, func(*rmtest.Driver) {}, "linked for sm_90:8,9,2,64,57, this is Played GPU"},
	} {
		d := play(t, "580.159.04")
		c.change(d)
		status, said := run(t, d, strings.Fields(c.args)...)
		if status != 1 || !strings.Contains(said, c.says) {
			t.Errorf("%d, %q; want %q", status, said, c.says)
		}
		if slices.Contains(d.Calls, fmt.Sprintf("alloc %#x", rm.FERMI_VASPACE_A)) {
			t.Errorf("%s: an address space was made", c.says)
		}
	}
}

// Work that fails, or that does not end, ends the player with a reason, and no output is written.
func TestFault(t *testing.T) {
	model, _ := linked(t, recorded(t))
	for _, c := range []struct {
		change func(d *rmtest.Driver)
		args   []string
		says   string
	}{
		{func(d *rmtest.Driver) {
			d.Kernel = func(m *rmtest.Memory, at uint64) error { return rawtest.Play(m, at, nil, nil) } // moves alone
		}, nil, "channel error 13 at word 1"},
		{func(d *rmtest.Driver) { d.Hang = 3 }, []string{"--timeout", "0"}, "not complete in time, at word"},
	} {
		d := play(t, "580.159.04")
		c.change(d)
		y := filepath.Join(t.TempDir(), "y")
		status, said := run(t, d, append(c.args, "--model", model, "--out", "y="+y)...)
		if _, err := os.Stat(y); status != 1 || !strings.Contains(said, c.says) || err == nil {
			t.Errorf("%d, %q, %v; want %q", status, said, err, c.says)
		}
	}
}

// Code that would have to be compiled on the GPU's machine cannot be linked, and nothing is left of the attempt.
func TestNoMachineCode(t *testing.T) {
	from := filepath.Join(t.TempDir(), "ptx.hfr")
	w, err := recording.Create(from)
	if err != nil {
		t.Fatal(err)
	}
	code := w.Put([]byte(".version 8.0"))
	work, err := trace.Append(nil, &trace.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Cluster: [3]uint32{1, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(&recording.Manifest{Arch: 90, Program: []string{}, Warnings: []string{},
		Code:    []recording.Code{{Images: []recording.Image{{Arch: 90, Kind: recording.PTX, Contents: code}}}},
		Kernels: []recording.Kernel{{Name: "k", Params: []recording.Param{}}}, Memory: []recording.Region{},
		Staging: recording.Span{Addr: stagingAt}, Variables: []recording.Variable{},
		Entries: []recording.Entry{{Name: "e", Launches: 1, Inputs: []recording.Port{}, Outputs: []recording.Port{},
			Work: w.Put(work)}}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err = linkFile(t, from, filepath.Join(dir, "m.hfx"), raw.Known["h200"])
	if err == nil || !strings.Contains(err.Error(), "the recording has [ptx for sm_90]") {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A packed player finds its recording in its own file, or beside it.
func TestPack(t *testing.T) {
	model, _ := linked(t, recorded(t))
	code, err := os.ReadFile(executable(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	want, out := expected(t, recorded(t), "580.159.04", nil, 1)
	if len(want.Errs) > 0 {
		t.Fatal(want.Errs)
	}
	for _, beside := range []bool{false, true} {
		to := filepath.Join(dir, fmt.Sprint("model-", beside))
		if err := player.Pack(code, model, to, beside); err != nil {
			t.Fatal(err)
		}
		z := filepath.Join(dir, "z")
		status, said := runFile(t, to, play(t, "580.159.04"), "--out", "z="+z)
		if b, err := os.ReadFile(z); status != 0 || said != "" || err != nil || !bytes.Equal(b, out["z"]) {
			t.Errorf("beside %v: %d, %q, %v", beside, status, said, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "model-true.hfx")); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(filepath.Join(dir, "model-true"), "--verify").CombinedOutput(); err == nil ||
		!strings.Contains(string(b), "belongs beside") {
		t.Errorf("%q, %v", b, err)
	}
	packed, err := os.ReadFile(filepath.Join(dir, "model-false"))
	if err != nil {
		t.Fatal(err)
	}
	packed[len(packed)-2] ^= 0x40 // of where the recording begins
	if b, err := exec.Command(write(t, "bad", packed), "--verify").CombinedOutput(); err == nil ||
		!strings.Contains(string(b), "behind its end") {
		t.Errorf("%q, %v", b, err)
	}
	err = player.Pack(code, write(t, "m.hfx", code), filepath.Join(dir, "x"), false)
	if !errors.Is(err, hfx.ErrMalformed) {
		t.Error(err)
	}
}

// Player and package agree on which files are good: random changes, of the bytes alone and with sums that fit.
func TestSameJudgement(t *testing.T) {
	model, f := linked(t, recorded(t))
	good, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	code := executable(t)
	random := rand.New(rand.NewPCG(1, 2))
	count := map[bool]int{}
	path := filepath.Join(t.TempDir(), "m.hfx")
	for i := range 300 {
		bad := bytes.Clone(good)
		if i > 0 {
			change(random, bad, f)
		}
		h, err := hfx.Open(bytes.NewReader(bad), int64(len(bad)))
		if err == nil {
			err = h.Verify()
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		said, status := exec.Command(code, "--verify", "--model", path).CombinedOutput()
		var exit *exec.ExitError
		if (err == nil) != (status == nil) || status != nil && (!errors.As(status, &exit) || exit.ExitCode() != 1 ||
			!bytes.Contains(said, []byte("malformed"))) {
			t.Errorf("change %d: package: %v; player: %v, %s", i, err, status, said)
		}
		count[err == nil]++
	}
	if count[true] < 15 || count[false] < 150 {
		t.Errorf("%d files are good, %d are not: too few of one kind", count[true], count[false])
	}
}

// change changes something of a linked recording, mostly of its tables, and mostly with sums that fit.
func change(random *rand.Rand, b []byte, f *hfx.File) {
	at := random.IntN(hfx.HeaderSize-16) + 16
	switch random.IntN(4) {
	case 0:
		at = random.IntN(len(b))
	case 1, 2:
		at = int(f.Header.Tables) + random.IntN(len(b)-int(f.Header.Tables))
	}
	switch at &^= 3; random.IntN(4) {
	case 0:
		le.PutUint32(b[min(at, len(b)-4):], random.Uint32())
	case 1:
		le.PutUint32(b[min(at, len(b)-4):], uint32(random.IntN(5)))
	case 2:
		b[at] ^= 1 << random.IntN(8)
	default:
		le.PutUint32(b[min(at, len(b)-4):], le.Uint32(b[min(at, len(b)-4):])+uint32(random.IntN(3))-1)
	}
	if random.IntN(10) == 0 {
		return
	}
	if t, n := le.Uint64(b[24:]), le.Uint64(b[32:]); t <= uint64(len(b)) && n <= uint64(len(b))-t {
		le.PutUint32(b[40:], hfx.Sum(b[t:][:n]))
	}
	le.PutUint32(b[12:], hfx.Sum(b[16:hfx.HeaderSize]))
}
