package softgpu

import (
	"errors"
	"slices"
	"testing"
)

// Each thread adds 1 to its element, then waits for its block, then adds 1 again.
const twice = header + `.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r4, %r2, %r3, %r1;
	mul.wide.u32 %rd2, %r4, 4;
	add.u64 %rd3, %rd1, %rd2;
	ld.global.u32 %r5, [%rd3];
	add.u32 %r5, %r5, 1;
	st.global.u32 [%rd3], %r5;
	bar.sync 0;
	ld.global.u32 %r5, [%rd3];
	add.u32 %r5, %r5, 1;
	st.global.u32 [%rd3], %r5;
	ret;
}
`

func TestPrefix(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(twice)
	const blocks, threads = 13, 96
	buf := upload(d, make([]uint32, blocks*threads))
	mem := view[uint32](d, buf, blocks*threads)
	cfg := LaunchConfig{Grid: dims(blocks), Block: dims(threads), Params: params(buf)}
	whole := d.run(in, "k", cfg).WarpInstructions

	run := func(seed, n uint64) (uint64, bool) {
		clear(mem)
		c := cfg
		c.Prefix = &Prefix{Seed: seed, Instructions: n}
		st, err := in.Launch("k", c)
		if err != nil && !errors.Is(err, ErrPrefix) {
			t.Fatal(err)
		}
		return st.WarpInstructions, err == nil
	}
	if _, done := run(1, 0); done || slices.Max(mem) != 0 {
		t.Error("a prefix of nothing did something")
	}
	seen := map[uint32]bool{}
	starts := map[int]bool{}
	for seed := range uint64(20) {
		n, done := run(seed, whole/2)
		if done || n < whole/2 || n > whole/2+1<<most {
			t.Errorf("seed %d: ran %d of %d instructions, want %d", seed, n, whole, whole/2)
		}
		first := slices.Clone(mem)
		for b := range blocks {
			row := first[b*threads : (b+1)*threads]
			if slices.Max(row) == 2 && slices.Min(row) == 0 {
				t.Errorf("seed %d: block %d passed its barrier before all were there: %v", seed, b, row)
			}
			for _, x := range row {
				seen[x] = true
			}
		}
		starts[slices.IndexFunc(first, func(x uint32) bool { return x > 0 })] = true
		run(seed, whole/2)
		if !slices.Equal(first, mem) {
			t.Errorf("seed %d gives two schedules", seed)
		}
	}
	if !seen[0] || !seen[1] || !seen[2] || len(starts) < 3 {
		t.Errorf("the schedules hardly differ: values %v, first blocks %v", seen, starts)
	}
	// All of it, in a random order: every block runs once.
	if n, done := run(7, 10*whole); !done || n != whole || slices.Min(mem) != 2 || slices.Max(mem) != 2 {
		t.Errorf("a long prefix: done %v, %d of %d instructions, values %d to %d", done, n, whole,
			slices.Min(mem), slices.Max(mem))
	}
}

// Every cluster is started exactly once, whatever their number.
func TestScheduleIsPermutation(t *testing.T) {
	for n := range uint64(70) {
		s := newSchedule(&Prefix{Seed: n}, n+1)
		seen := map[uint64]bool{}
		for i := range n + 1 {
			seen[s.cluster(i)] = true
		}
		if uint64(len(seen)) != n+1 {
			t.Errorf("%d of %d clusters are started", len(seen), n+1)
		}
	}
}
