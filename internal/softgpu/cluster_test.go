package softgpu

import (
	"strings"
	"testing"
)

const clusterHead = header + `.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<8>;
	.shared .align 16 .b8 s[1024];
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, s;
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %cluster_ctarank;
	mov.u32 %r4, %cluster_nctarank;
	mov.u32 %r5, %ctaid.x;
`

// Each block reads a word that its neighbour in the cluster wrote to its own shared memory, and adds
// to a counter in block 0's.
const clusterExchange = clusterHead + `
	setp.ne.u32 %p1, %r2, 0;
	@%p1 bra MEET;
	add.u32 %r6, %r5, 100;
	st.shared.u32 [s], %r6;
MEET:
	barrier.cluster.arrive.release.aligned;
	barrier.cluster.wait.acquire.aligned;
	add.u32 %r7, %r3, 1;
	rem.u32 %r7, %r7, %r4;
	mapa.shared::cluster.u32 %r8, %r1, %r7;
	ld.shared::cluster.u32 %r9, [%r8];
	mov.u64 %rd2, s;
	cvta.shared.u64 %rd2, %rd2;
	mapa.u64 %rd3, %rd2, %r7;
	ld.u32 %r10, [%rd3];
	getctarank.shared::cluster.u32 %r11, %r8;
	getctarank.u64 %r12, %rd3;
	mapa.shared::cluster.u32 %r13, %r1, 0;
	atom.shared::cluster.add.u32 %r14, [%r13+4], 1;
	isspacep.shared::cluster %p2, %rd3;
	isspacep.shared::cta %p3, %rd3;
	isspacep.global %p4, %rd3;
	selp.u32 %r15, 1, 0, %p2;
	selp.u32 %r16, 2, 0, %p3;
	selp.u32 %r17, 4, 0, %p4;
	or.b32 %r15, %r15, %r16;
	or.b32 %r15, %r15, %r17;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	ld.shared::cluster.u32 %r18, [%r13+4];
	@%p1 ret;
	mul.wide.u32 %rd4, %r5, 32;
	add.u64 %rd1, %rd1, %rd4;
	st.global.v4.u32 [%rd1], {%r9, %r10, %r11, %r12};
	st.global.v2.u32 [%rd1+16], {%r18, %r15};
	mov.u32 %r20, %clusterid.x;
	mov.u32 %r21, %cluster_ctaid.x;
	st.global.v2.u32 [%rd1+24], {%r20, %r21};
	ret;
}
`

func TestClusterSharedMemory(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(clusterExchange)
	for _, size := range []uint32{1, 2, 4, 8, 16} {
		for _, workers := range []int{1, 3} {
			const grid, threads = 32, 40
			p := d.alloc(32 * grid)
			d.run(in, "k", LaunchConfig{Grid: dims(grid), Block: dims(threads), Cluster: dims(size), Params: params(p),
				Workers: workers, MaxInstructions: 1e7})
			out := view[uint32](d, p, 8*grid)
			for b := range uint32(grid) {
				first, next := b/size*size, b/size*size+(b%size+1)%size
				space := uint32(1)
				if size == 1 {
					space = 3 // mapa of the block itself is its own window
				}
				want := [8]uint32{100 + next, 100 + next, next - first, next - first, size * threads,
					space, b / size, b % size}
				if got := [8]uint32(out[8*b : 8*b+8]); got != want {
					t.Fatalf("cluster of %d, block %d: %v, want %v", size, b, got, want)
				}
			}
		}
	}
}

// Block indices and ranks of a cluster in three dimensions.
func TestClusterIndices(t *testing.T) {
	src := clusterHead + `
	mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.z;
	mov.u32 %r13, %nctaid.x; mov.u32 %r14, %nctaid.y;
	mad.lo.u32 %r15, %r12, %r14, %r11;
	mad.lo.u32 %r15, %r15, %r13, %r10;
	mul.wide.u32 %rd2, %r15, 32;
	add.u64 %rd1, %rd1, %rd2;
	mov.u32 %r16, %clusterid.y; mov.u32 %r17, %cluster_ctaid.y; mov.u32 %r18, %nclusterid.y; mov.u32 %r19, %cluster_nctaid.y;
	st.global.v4.u32 [%rd1], {%r3, %r4, %r16, %r17};
	mov.pred %p1, %is_explicit_cluster;
	selp.u32 %r20, 1, 0, %p1;
	st.global.v4.u32 [%rd1+16], {%r18, %r19, %r20, %r12};
	ret;
}
`
	d := newDevice(t, 4)
	in := d.load(strings.Replace(src, "(.param .u64 p)\n", "(.param .u64 p)\n.reqnctapercluster 2, 3, 1\n", 1))
	p := d.alloc(4 * 6 * 2 * 32)
	d.run(in, "k", LaunchConfig{Grid: dims(4, 6, 2), Block: dims(1), Params: params(p)})
	out := view[uint32](d, p, 4*6*2*8)
	for z := range uint32(2) {
		for y := range uint32(6) {
			for x := range uint32(4) {
				want := [8]uint32{x%2 + 2*(y%3), 6, y / 3, y % 3, 2, 3, 1, z}
				at := 8 * (x + 4*(y+6*z))
				if got := [8]uint32(out[at : at+8]); got != want {
					t.Fatalf("block %d,%d,%d: %v, want %v", x, y, z, got, want)
				}
			}
		}
	}
	for _, bad := range []LaunchConfig{
		{Grid: dims(4, 6), Block: dims(1), Cluster: dims(2, 2)}, {Grid: dims(5, 6), Block: dims(1)},
	} {
		bad.Params = params(p)
		if _, err := in.Launch("k", bad); err == nil {
			t.Errorf("%v %v was launched", bad.Grid, bad.Cluster)
		}
	}
	if _, err := d.load(src).Launch("k",
		LaunchConfig{Grid: dims(34), Block: dims(1), Cluster: dims(17), Params: params(p)}); err == nil {
		t.Error("a cluster of 17 was launched")
	}
}

// Blocks wait for one another through mbarriers; threads that exit count as arrived.
func TestClusterMbarrier(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(clusterHead + `
	setp.ne.u32 %p1, %r2, 0;
	@%p1 bra MEET;
	mbarrier.init.shared.b64 [s], 2;
	fence.mbarrier_init.release.cluster;
MEET:
	barrier.cluster.arrive;
	barrier.cluster.wait;
	@%p1 exit;
	mov.u32 %r6, 0;
	mov.u32 %r9, 0;
LOOP: // add to both blocks' counters, tell both, wait for both
	mapa.shared::cluster.u32 %r7, %r1, %r9;
	atom.shared::cluster.add.u32 %r8, [%r7+8], 1;
	mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
	xor.b32 %r9, %r9, 1;
	setp.ne.u32 %p2, %r9, 0;
	@%p2 bra LOOP;
	and.b32 %r10, %r6, 1;
WAIT:
	mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [s], %r10;
	@!%p3 bra WAIT;
	add.u32 %r6, %r6, 1;
	setp.lt.u32 %p4, %r6, 20;
	@%p4 bra LOOP;
	ld.shared.u32 %r11, [s+8];
	mul.wide.u32 %rd2, %r5, 4;
	add.u64 %rd2, %rd2, %rd1;
	st.global.u32 [%rd2], %r11;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	ret;
}
`)
	p := d.alloc(64)
	d.run(in, "k",
		LaunchConfig{Grid: dims(8), Block: dims(64), Cluster: dims(2), Params: params(p), MaxInstructions: 1e7})
	for b, got := range view[uint32](d, p, 8) {
		if got != 40 {
			t.Errorf("block %d: %d, want 40", b, got)
		}
	}
}

func TestClusterFaults(t *testing.T) {
	d := newDevice(t, 4)
	for body, want := range map[string]string{
		"barrier.cluster.wait;\n":                            "without barrier.cluster.arrive",
		"barrier.cluster.arrive;\nbarrier.cluster.arrive;\n": "twice",
		"setp.lt.u32 %p1, %r2, 32;\n@%p1 bar.sync 1, 64;\nbarrier.cluster.arrive;\n" +
			"barrier.cluster.wait;\n": "every thread",
		"mapa.shared::cluster.u32 %r8, %r1, 2;\n" +
			"ld.shared::cluster.u32 %r9, [%r8];\n": "shared memory",
		"mapa.shared::cluster.u32 %r8, %r1, 1;\n" +
			"ld.shared::cluster.u32 %r9, [%r8+1024];\n": "shared memory",
	} {
		in := d.load(clusterHead + body + "ret;\n}\n")
		_, err := in.Launch("k", LaunchConfig{Grid: dims(2), Block: dims(64), Cluster: dims(2),
			Params: params(d.alloc(64)), MaxInstructions: 1e6})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", body, err, want)
		}
	}
}
