package digest

import (
	"strconv"
	"strings"
	"testing"

	"holdfast/ptx"
)

// TestPTXIsWhatLaunchesRelyOn holds the kernels' names, parameters and block size.
func TestPTXIsWhatLaunchesRelyOn(t *testing.T) {
	m, err := ptx.Parse("digest.ptx", PTX)
	if err != nil {
		t.Fatal(err)
	}
	kernels := map[string]string{}
	for _, d := range m.Decls {
		f, ok := d.(*ptx.Func)
		if !ok || !f.Entry {
			continue
		}
		var params []string
		for _, p := range f.Params {
			params = append(params, p.Name+" "+p.Type.String())
		}
		kernels[f.Name] = strings.Join(params, ", ")
	}
	want := map[string]string{
		Kernel:     "sources u64, digests u64",
		CopyKernel: "sources u64, destinations u64, digests u64",
	}
	for name, params := range want {
		if kernels[name] != params {
			t.Errorf("kernel %s (%s), want (%s)", name, kernels[name], params)
		}
	}
	if len(kernels) != len(want) {
		t.Errorf("kernels %v", kernels)
	}
}

// TestPTXRepeatsTheConstants: each constant of the function stands in the kernels as often as there are kernels (the
// last two twice as often, for both words are mixed).
func TestPTXRepeatsTheConstants(t *testing.T) {
	for c, n := range map[uint64]int{
		seedMulA: 2, seedXorA: 2, seedMulB: 2, seedXorB: 2, joinX: 2, joinY: 2, closeX: 2, closeY: 2,
		mixMul1: 4, mixMul2: 4,
	} {
		text := "0x" + strings.Repeat("0", 16-len(strconv.FormatUint(c, 16))) + strconv.FormatUint(c, 16)
		if got := strings.Count(string(PTX), text); got != n {
			t.Errorf("%s stands %d times in digest.ptx, want %d", text, got, n)
		}
	}
}
