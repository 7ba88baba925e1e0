package isa

import (
	"strings"
	"testing"

	"holdfast/ptx"
)

// Every line of the meanings is of an opcode of the table, and every operand in brackets has its word.
func TestMeaningsMatchForms(t *testing.T) {
	used := map[*meaning]bool{}
	for _, f := range Forms() {
		used[f.meaning] = true
		mems := 0
		for _, a := range f.Args {
			if a.Role == Mem {
				mems++
			}
		}
		if x := f.meaning; mems > len(x.memory) && x.beyond != TensorMaps {
			t.Errorf("%s: %d addresses, and words for %d", f.Line, mems, len(x.memory))
		}
	}
	for op, x := range meaningLines() {
		if !used[x] && !strings.HasSuffix(op, ".*") {
			t.Errorf("%s: no form has this opcode", op)
		}
	}
}

// What the class of an instruction leaves out of its meaning is said on purpose: no write is lost.
func TestMeaningsCoverClasses(t *testing.T) {
	for _, f := range Forms() {
		x, effects := f.meaning, f.Class.Effects()
		var reads, writes bool
		for _, a := range x.memory {
			reads, writes = reads || a.read, writes || a.write
		}
		if x.keeps || x.plain || x.inside || x.beyond != Nothing || f.Class == Tensor {
			continue // said on the line
		}
		if writes != (effects&WritesMemory != 0) || reads && effects&ReadsMemory == 0 {
			if f.Op == "st.async" || f.Op == "red.async" || f.Op == "st.bulk" || f.Op == "cp.async" {
				continue
			}
			t.Errorf("%s: the class says %b, the line %+v", f.Line, effects, x.memory)
		}
	}
}

// What instructions mean.
func TestMeans(t *testing.T) {
	access := func(m Meaning, i int) Access {
		if i < len(m.Memory) {
			return m.Memory[i]
		}
		return Access{}
	}
	for _, c := range []struct {
		text string
		want func(m Meaning) bool
	}{
		{"add.s32 %r1, %r2, %r3;", func(m Meaning) bool {
			return m.Operation == Add && !m.Orders &&
				len(m.Memory) == 0
		}},
		{"add.sat.s32 %r1, %r2, %r3;", func(m Meaning) bool { return m.Operation == Unsaid }},
		{"add.f32.f16 %f1, %h2, %f3;", func(m Meaning) bool { return m.Operation == Unsaid }},
		{"max.relu.s32 %r1, %r2, %r3;", func(m Meaning) bool { return m.Operation == Unsaid }},
		{"mul.lo.u32 %r1, %r2, %r3;", func(m Meaning) bool { return m.Operation == Mul }},
		{"mul.hi.u32 %r1, %r2, %r3;", func(m Meaning) bool { return m.Operation == MulHigh }},
		{"mad.lo.u32 %r1, %r2, %r3, %r4;", func(m Meaning) bool { return m.Operation == Mad }},
		{"mad.hi.u32 %r1, %r2, %r3, %r4;", func(m Meaning) bool { return m.Operation == Unsaid }},
		{"mad.rn.f32 %f1, %f2, %f3, %f4;", func(m Meaning) bool { return m.Operation == Unsaid }},
		{"mul24.hi.u32 %r1, %r2, %r3;", func(m Meaning) bool { return m.Operation == Unsaid }},
		{"shf.l.wrap.b32 %r1, %r2, %r3, %r4;", func(m Meaning) bool { return m.Operation == FunnelLeft }},
		{"prmt.b32 %r1, %r2, %r3, %r4;", func(m Meaning) bool { return m.Operation == Permute }},
		{"prmt.b32.f4e %r1, %r2, %r3, %r4;", func(m Meaning) bool { return m.Operation == Unsaid }},
		{"ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];", func(m Meaning) bool {
			return access(m, 0) == Access{Read: true, Space: "global", Bytes: 16} && !m.Orders
		}},
		{"ld.acquire.gpu.u32 %r1, [%rd1];", func(m Meaning) bool { return access(m, 0).Bytes == 4 && m.Orders }},
		{"cp.async.ca.shared.global [%r1], [%rd1], 8, %r2;", func(m Meaning) bool {
			return access(m, 0).Write && access(m, 0).Space == "shared" && access(m, 1) == Access{Read: true,
				Space: "global", Bytes: 8, Later: true, Partly: true}
		}},
		{"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r2];",
			func(m Meaning) bool {
				return access(m, 0).Space == "shared::cluster" && access(m, 1) == Access{Read: true, Space: "global",
					Bytes: 64, Later: true} && access(m, 2).Bytes == 8
			}},
		{"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], %r2;", func(m Meaning) bool {
			return access(m, 0) == Access{Read: true, Write: true, Space: "global", Later: true} && !access(m,
				1).Write && !m.Writes
		}},
		{"cp.async.wait_group 0;", func(m Meaning) bool { return m.Orders && !m.Reads && !m.Writes }},
		{"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0,%r1}, [%rd1], %r2;", func(m Meaning) bool {
			return access(m, 0).Tile != nil && *access(m, 0).Tile == Tile{16, 32, 2} && access(m, 0).Bytes == 0 &&
				m.Threads == Warp
		}},
		{"wmma.load.a.sync.aligned.col.m8n32k16.global.f16 {%r0,%r1}, [%rd1], %r2;",
			func(m Meaning) bool { return *access(m, 0).Tile == Tile{16, 16, 2} }},
		{"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0,%r1}, [%rd1];",
			func(m Meaning) bool { return access(m, 0).Tile == nil && access(m, 0).Read }},
		{"bar.sync 0;", func(m Meaning) bool {
			return m.Threads == Block && m.Barrier == Rendezvous{Arrives: true, Waits: true} && !m.Agrees && m.Orders
		}},
		{"bar.sync 0, 64;", func(m Meaning) bool { return m.Barrier.Counted }},
		{"bar.arrive 0, 64;", func(m Meaning) bool { return m.Barrier == Rendezvous{Arrives: true, Counted: true} }},
		{"bar.red.or.pred %p1, 0, %p2;", func(m Meaning) bool { return m.Agrees }},
		{"bar.red.or.pred %p1, 0, 64, %p2;", func(m Meaning) bool { return !m.Agrees && m.Barrier.Counted }},
		{"barrier.cluster.wait;", func(m Meaning) bool {
			return m.Threads == Cluster &&
				m.Barrier == Rendezvous{Waits: true}
		}},
		{"vote.sync.any.pred %p1, %p2, -1;", func(m Meaning) bool { return m.Agrees }},
		{"vote.sync.any.pred %p1, %p2, 15;", func(m Meaning) bool { return !m.Agrees }},
		{"redux.sync.add.u32 %r1, %r2, 0xffffffff;", func(m Meaning) bool { return m.Agrees }},
		{"discard.global.L2 [%rd1], 128;", func(m Meaning) bool {
			return m.Lost && access(m, 0).Write && access(m,
				0).Bytes == 128
		}},
		{"mbarrier.arrive.b64 %rd2, [%rd1];", func(m Meaning) bool {
			return access(m, 0).Space == "shared" &&
				m.Orders
		}},
		{"mbarrier.pending_count.b64 %r1, %rd1;", func(m Meaning) bool { return !m.Reads && !m.Writes }},
		{"multimem.st.global.u32 [%rd1], %r1;", func(m Meaning) bool { return m.Beyond == Devices && m.Writes }},
		{"griddepcontrol.wait;", func(m Meaning) bool { return m.Beyond == Grids && !m.Writes }},
		{"addc.cc.u32 %r1, %r2, %r3;", func(m Meaning) bool { return m.Operation == AddCarry && m.Carry }},
		{"exit;", func(m Meaning) bool { return m.Leaves == Exits }},
	} {
		in, err := Decode(parseInst(t, c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if m := in.Means(); !c.want(m) {
			t.Errorf("%s: %+v", c.text, m)
		}
	}
}

// Instructions in forms that the table does not have: nothing is said of them but what holds for all forms.
func TestOutlines(t *testing.T) {
	for text, want := range map[string]Outline{
		"wgmma.mma_async.sync.aligned.m64n8k99.f32.f16.f16 {%f1}, %rd1, %rd2;":        {Inside: true},
		"wmma.store.d.sync.aligned.row.m1n1k1.global.f16 [%rd1], {%r1};":              {},
		"cp.async.bulk.global.shared::cta.frobnicate [%rd1], [%r1], 16;":              {},
		"tex.base.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2,%r3,%r4}];":      {Beyond: Textures},
		"cp.async.bulk.tensor.9d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r1];": {Beyond: TensorMaps},
		"tcgen05.fence::before_thread_sync;":                                          {},
		"multimem.frobnicate.u32 [%rd1], %r1;":                                        {Beyond: Devices},
		"mbarrier.arrive.frobnicate.b64 %rd2, [%rd1];":                                {Inside: true},
	} {
		if got := OutlineOf(parseInst(t, text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// The table has the special registers that the parser knows, and no others.
func TestSpecials(t *testing.T) {
	for name, r := range specialTable() {
		base, _, _ := strings.Cut(name, ".")
		if name == "envreg" {
			base = "envreg0"
		}
		if !ptx.SpecialRegister("%" + base) {
			t.Errorf("%s is no special register", name)
		}
		if r.Is < 0 || r.Name != name || Bits(r.Type) == 0 || r.Same == InThread && r.From == TheLaunch && r.Max == 0 &&
			r.Fixed && !strings.HasPrefix(name, "lanemask") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, name := range ptx.SpecialRegisters() {
		name = name[1:]
		if SpecialNamed(name) == nil && SpecialNamed(name+".x") == nil {
			t.Errorf("%s is not in the table", name)
		}
	}
	if r := SpecialNamed("ctaid.y"); r == nil || r.Same != InBlock || !r.Fixed || r.Type != ptx.U32 {
		t.Errorf("ctaid.y: %+v", r)
	}
	if r := SpecialNamed("tid.z"); r == nil || r.Max != 63 || r.Is != ThreadIndex || r.Dim != 2 || r.Same != InThread {
		t.Errorf("tid.z: %+v", r)
	}
	if r := SpecialNamed("envreg17"); r == nil || r.From != TheDriver {
		t.Errorf("envreg17: %+v", r)
	}
	if SpecialNamed("tid") != nil || SpecialNamed("tid.w") != nil {
		t.Error("a vector without a component is no value")
	}
}
