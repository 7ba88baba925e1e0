package isa

import (
	"errors"
	"strings"
	"testing"

	"holdfast/ptx"
)

func parseInst(t *testing.T, text string) *ptx.Inst {
	t.Helper()
	m, err := ptx.Parse("t.ptx", []byte(".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"+text+
		"\nL: ret;\n}\n"))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, d := range m.Decls {
		if f, ok := d.(*ptx.Func); ok {
			for _, s := range f.Body.Stmts {
				if in, ok := s.(*ptx.Inst); ok {
					return in
				}
			}
		}
	}
	t.Fatalf("%s: no instruction", text)
	return nil
}

func TestTableParses(t *testing.T) {
	fs := Forms()
	if len(fs) < 200 {
		t.Fatalf("%d forms", len(fs))
	}
	for _, f := range fs {
		for _, s := range f.slots {
			for _, a := range s.alts {
				switch s.name {
				case "t", "u", "v", "w":
					if _, ok := typeOf[a]; !ok {
						t.Errorf("%s: %q is no type", f.Line, a)
					}
				case "":
					if len(s.alts) > 1 {
						t.Errorf("%s: flag with alternatives", f.Line)
					}
				case "shape", "num", "la", "lb", "to", "rnd", "cmp", "bool", "fn", "mode", "mode2", "ss", "vec", "sem",
					"sem2", "scope", "cache", "flag":
				default:
					t.Errorf("%s: slot %q", f.Line, s.name)
				}
				if strings.Contains(a, "$") {
					t.Errorf("%s: macro %q", f.Line, a)
				}
			}
		}
	}
}

// Spellings that compilers emit, and what they mean.
func TestDecode(t *testing.T) {
	for _, c := range []struct {
		text string
		want func(in *Inst) bool
	}{
		{"add.rn.ftz.sat.f32 %f1, %f2, %f3;", func(in *Inst) bool {
			return in.T == ptx.F32 && in.Rnd == "rn" && in.Has(Ftz|Sat)
		}},
		{"ld.global.nc.L1::no_allocate.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];", func(in *Inst) bool {
			return in.Vec == 4 && in.Space == "global" && in.Has(Nc)
		}},
		{"ld.acquire.gpu.global.u32 %r1, [%rd1];", func(in *Inst) bool {
			return in.Sem == "acquire" && in.Scope == "gpu"
		}},
		{"ld.global.L1::evict_last.L2::cache_hint.b32 %r1, [%rd1], %rd2;", func(in *Inst) bool {
			return len(in.Args) == 3
		}},
		{"atom.global.gpu.acq_rel.add.u32 %r1, [%rd1], %r2;", func(in *Inst) bool {
			return in.Fn == "add" && in.Sem == "acq_rel" && in.Scope == "gpu"
		}},
		{"atom.add.release.gpu.u32 %r1, [%rd1], %r2;", func(in *Inst) bool {
			return in.Fn == "add" && in.Sem == "release"
		}},
		{"atom.shared.cas.b64 %rd1, [%r1], %rd2, %rd3;", func(in *Inst) bool {
			return in.Fn == "cas" && in.T == ptx.B64 && len(in.Args) == 4
		}},
		{"cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;", func(in *Inst) bool {
			return in.T == ptx.E4M3x2 && in.U == ptx.F32
		}},
		{"cvt.rzi.ftz.s32.f32 %r1, %f1;", func(in *Inst) bool {
			return in.T == ptx.S32 && in.U == ptx.F32 && in.Rnd == "rzi"
		}},
		{"setp.lt.or.s32 %p1|%p2, %r1, %r2, !%p3;", func(in *Inst) bool {
			return in.Cmp == "lt" && in.Bool == "or" && in.Args[3].Type == ptx.Pred
		}},
		{"shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;", func(in *Inst) bool {
			return in.Op == "shfl.sync" && in.Mode == "bfly" && len(in.Args) == 5
		}},
		{"bar.red.popc.u32 %r1, 0, %p1;", func(in *Inst) bool {
			return len(in.Args) == 3 && in.Args[2].Type == ptx.Pred
		}},
		{"bar.red.popc.u32 %r1, 0, 64, %p1;", func(in *Inst) bool {
			return len(in.Args) == 4 && in.Args[2].Type == ptx.U32
		}},
		{"barrier.cta.sync.aligned 1, 64;", func(in *Inst) bool { return in.Mode == "sync" && in.Has(Aligned) }},
		{"mul.wide.s32 %rd1, %r1, 4;", func(in *Inst) bool { return in.Mode == "wide" && in.T == ptx.S32 }},
		{"lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x96, %p2;", func(in *Inst) bool {
			return in.Bool == "or" && len(in.Args) == 6
		}},
		{"dp4a.u32.s32 %r1, %r2, %r3, %r4;", func(in *Inst) bool { return in.T == ptx.U32 && in.U == ptx.S32 }},
		{"fence.proxy.async.shared::cta;", func(in *Inst) bool { return in.Op == "fence.proxy" }},
		{"membar.gl;", func(in *Inst) bool { return in.Class == Fence }},
		{"st.relaxed.sys.global.v2.b64 [%rd1], {%rd2, %rd3};", func(in *Inst) bool {
			return in.Vec == 2 && in.Sem == "relaxed"
		}},
		{"min.NaN.xorsign.abs.f16x2 %r1, %r2, %r3;", func(in *Inst) bool { return in.Has(NaN | XorSign | Abs) }},
		{"bar.warp.sync -1;", func(in *Inst) bool { return in.Op == "bar.warp" }},
		{"cp.async.cg.shared.global [%r1], [%rd1], 16;", func(in *Inst) bool { return in.Op == "cp.async" }},
		{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2};", func(in *Inst) bool {
			return in.Shape == "m16n8k16" && in.LA == "row" && in.LB == "col" && in.T == ptx.F32 && in.U == ptx.F16 &&
				in.V == ptx.F16 && in.W == ptx.F32
		}},
		{"mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p0, [%r0], %r1, 100;", func(in *Inst) bool {
			return in.Op == "mbarrier.try_wait.parity" && len(in.Args) == 4
		}},
		{"wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0,%r1},{%r0},{%r1},{%r0,%r1};",
			func(in *Inst) bool {
				return in.Fn == "and" && in.U == ptx.B1
			}},
		{"cp.async.wait_group 0;", func(in *Inst) bool { return in.Op == "cp.async.wait_group" }},
	} {
		in, err := Decode(parseInst(t, c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if !c.want(in) {
			t.Errorf("%s: decoded as %+v", c.text, in)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"mma.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2};":               "none of the",
		"mma.sp.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2}, %r3, 0;":    "none of the",
		"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, %r0, 0;": "none of the",
		"tcgen05.fence::before_thread_sync;":                                                          "matrix",
		"cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, " +
			"%r3}], [%r4], {%h5};": "none of the",
		"mbarrier.init.shared.b32 [%r1], 1;":                                     "modifier",
		"tex.base.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2,%r3,%r4}];": "none of the",
		"frobnicate.u32 %r1, %r2;":                                               "no such instruction",
		"add.sat.u32 %r1, %r2, %r3;":                                             "none of the",
		"add.f32 %f1, %f2;":                                                      "none of the",
		"ld.global.f16.u32 %r1, [%rd1];":                                         "modifier",
		"popc.b16 %r1, %r2;":                                                     "modifier",
		"st.global.u32 %r1, [%rd1];":                                             "operand",
		"clusterlaunchcontrol.try_cancel.async.b128 [%r1], [%r2];":               "asynchronous",
	} {
		src := parseInst(t, text)
		_, err := Decode(src)
		var ue *UnsupportedError
		if !errors.As(err, &ue) {
			t.Errorf("%s: error %v", text, err)
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), Text(src)) {
			t.Errorf("%s: error %q does not say %q and the instruction", text, err, want)
		}
	}
}
