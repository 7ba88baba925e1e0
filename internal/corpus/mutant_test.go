package corpus

import (
	"errors"
	"slices"
	"testing"

	"holdfast/internal/softgpu"
)

// The mutants of a copy: every overlap is found, and the truth of each follows from its shift.
func TestMutants(t *testing.T) {
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a := application(t, copyBody, nil)
	l := &a.Launches[0]
	f, err := m.Judge(a, l, JudgeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Truth{
		"argument 1 +0 bytes from argument 0":                    Undecided,
		"argument 1 +4 bytes from argument 0":                    NotIdempotent,
		"argument 1 -4 bytes from argument 0":                    NotIdempotent,
		"argument 1 +16 bytes from argument 0":                   NotIdempotent,
		"argument 1 -256 bytes from argument 0":                  NotIdempotent,
		"argument 1 +512 bytes from argument 0":                  NotIdempotent,
		"argument 2 is 0":                                        Idempotent,
		"argument 2 is 1":                                        Idempotent,
		"argument 2 is 199":                                      Idempotent,
		"argument 2 is 199, argument 1 -4 bytes from argument 0": NotIdempotent,
	}
	keys := map[string]string{a.Key(l, ""): "the launch itself"}
	for _, x := range Mutants(a, l, f) {
		key := x.Key(x.Launch(), "")
		if keys[key] != "" {
			t.Errorf("%s is %s", x.How, keys[key])
		}
		keys[key] = x.How
		f, err := m.Judge(x.Application, x.Launch(), JudgeOptions{Prefixes: 2})
		if err != nil {
			t.Errorf("%s: %v", x.How, err)
			continue
		}
		if len(f.Stray) > 0 {
			t.Errorf("%s: stray accesses %x", x.How, f.Stray)
		}
		if w, ok := want[x.How]; ok && f.Truth != w {
			t.Errorf("%s: %v, %s; want %v", x.How, f.Truth, f.Why, w)
		}
		delete(want, x.How)
	}
	for how := range want {
		t.Errorf("not made: %s", how)
	}
}

func TestPrime(t *testing.T) {
	for n, want := range map[uint64]uint64{0: 0, 1: 0, 2: 2, 3: 3, 4: 3, 100: 97, 1<<31 - 1: 1<<31 - 1} {
		if got := prime(n); got != want {
			t.Errorf("prime(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestScaled(t *testing.T) {
	for _, c := range []struct {
		grid, cluster [3]uint32
		threads       uint64
		want          [3]uint32
	}{
		{[3]uint32{1000, 1, 1}, [3]uint32{}, 4096, [3]uint32{31, 1, 1}},
		{[3]uint32{10, 20, 3}, [3]uint32{}, 10 * 128, [3]uint32{2, 2, 1}},
		{[3]uint32{64, 1, 1}, [3]uint32{8, 1, 1}, 1024, [3]uint32{8, 1, 1}},
		{[3]uint32{4, 1, 1}, [3]uint32{}, 4096, [3]uint32{4, 1, 1}},
	} {
		l := &Launch{Grid: c.grid, Cluster: c.cluster, Block: [3]uint32{128, 1, 1}}
		s, ok := Scaled(l, c.threads)
		if !ok || s.Grid != c.want || s.Threads() > c.threads {
			t.Errorf("%v: %v, %v, want %v", c.grid, s, ok, c.want)
		}
	}
	if _, ok := Scaled(&Launch{Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{128, 1, 1}}, 100); ok {
		t.Error("a block was cut up")
	}
}

// A launch that goes on for ever ends at its limit.
func TestLimit(t *testing.T) {
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a := application(t, "L: bra L;", nil)
	_, err = m.Judge(a, &a.Launches[0], JudgeOptions{MaxInstructions: 1e6})
	if f, ok := errors.AsType[*softgpu.Fault](err); !ok || f.Kind != softgpu.FaultLimit {
		t.Errorf("error %v", err)
	}
}

func TestRanges(t *testing.T) {
	a := []Range{{10, 20}, {30, 40}}
	if got := union(a, []Range{{20, 25}, {5, 6}, {39, 50}, {7, 7}}); !slices.Equal(got,
		[]Range{{5, 6}, {10, 25}, {30, 50}}) {
		t.Errorf("union %v", got)
	}
	if got := intersect(a, []Range{{0, 12}, {15, 35}}); !slices.Equal(got, []Range{{10, 12}, {15, 20}, {30, 35}}) {
		t.Errorf("intersect %v", got)
	}
	if got := (Range{5, 50}).Without(a); !slices.Equal(got, []Range{{5, 10}, {20, 30}, {40, 50}}) {
		t.Errorf("without %v", got)
	}
	if got := split(Range{5, 35}, a); !slices.Equal(got, []Range{{5, 10}, {10, 20}, {20, 30}, {30, 35}}) {
		t.Errorf("split %v", got)
	}
}
