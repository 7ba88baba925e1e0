package summarise

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/internal/footprint"
)

// Random kernels that keep values and addresses in local memory, and call functions: the statements
// of random_test.go, and these, whose registers hold 32 bits and whose local memory is localBytes bytes, 0 at first.
// A slot is named by its offset; a dynamic one by (a & mask)*4 more.
//
//	lst  k: local[k + dyn] = reg b, of w bytes          lld  reg d = local[k + dyn], of w bytes
//	lpst: the same through an address that is kept at the end of local memory itself
//	ltab: an access to buffer b at reg a, through a pointer that is kept in local memory
//	call: reg d = pick(reg a, reg b), which branches
//	bump: local[k] = 3*local[k] + reg a, in a function that is given the address
//	put, get: an access to buffer b at reg a, in a function

const (
	localBytes  = 64
	localTable  = 64 // two pointers
	localPlace  = 80 // an address of local memory
	localFrame  = 88
	maxDynamic  = 7
	localStmts  = 8
	localHeader = `.func (.param .b32 ret) pick(.param .b32 x, .param .b32 y)
{
	.local .align 4 .b8 own[8];
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<3>;
	mov.u64 %rd1, own;
	cvta.local.u64 %rd2, %rd1;
	ld.param.u32 %r1, [x];
	ld.param.u32 %r2, [y];
	st.u32 [%rd2+4], %r2;
	setp.lt.s32 %p1, %r1, %r2;
	@%p1 bra LESS;
	st.param.b32 [ret], %r1;
	ret;
LESS:
	ld.u32 %r3, [%rd2+4];
	sub.s32 %r3, %r3, %r1;
	st.param.b32 [ret], %r3;
	ret;
}
.func bump(.param .b64 at, .param .b32 by)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [at];
	ld.param.u32 %r1, [by];
	ld.u32 %r2, [%rd1];
	mad.lo.s32 %r3, %r2, 3, %r1;
	st.u32 [%rd1], %r3;
}
.func put(.param .b64 p, .param .b32 i, .param .b32 v)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [i];
	ld.param.u32 %r2, [v];
	mul.wide.s32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.u32 [%rd3], %r2;
	ret;
}
.func (.param .b32 ret) get(.param .b64 p, .param .b32 i)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [i];
	mul.wide.s32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.u32 %r2, [%rd3];
	st.param.b32 [ret], %r2;
	ret;
}
`
)

func (g *generator) local() stmt {
	s := stmt{a: g.any(), b: g.any()}
	if g.r.IntN(2) == 0 {
		s.b = g.r.IntN(regFirst) // small
	}
	slots := []uint32{0, 4, 4, 8, 16, 16, 20, 24}
	s.k = slots[g.r.IntN(len(slots))]
	s.w = 4
	switch k := g.r.IntN(localStmts + 4); k {
	case 0, 1, 2, 8:
		s.op = "lst"
	case 3, 4, 5:
		s.op = "lld"
	case 6:
		s.op = "lpst"
	case 7:
		s.op, s.b = "ltab", g.r.IntN(2)
		s.store = g.r.IntN(2) == 0
		return s
	case 9:
		s.op, s.d = "call", g.fresh()
		return s
	case 10:
		s.op = "bump"
		s.k = slots[g.r.IntN(4)]
		return s
	default:
		s.op, s.b = []string{"put", "get"}[g.r.IntN(2)], g.r.IntN(2)
		return s
	}
	if g.r.IntN(6) == 0 {
		s.w = []int{1, 2, 8}[g.r.IntN(3)]
		if s.w == 8 {
			s.k &^= 7
		}
	}
	if g.dynamic && s.op != "lpst" && g.r.IntN(3) == 0 {
		s.mask = []uint32{1, 3, maxDynamic}[g.r.IntN(3)]
		s.k = min(s.k, localBytes-4*(s.mask+1)) &^ 7
		s.w = 4
	}
	if s.op == "lld" {
		s.d = g.fresh()
	}
	return s
}

// local writes a statement as PTX.
func (t *text) local(s *stmt) {
	base := "%rd9" // the generic address
	space := ""
	if s.k%8 == 0 {
		base, space = "%rd8", ".local"
	}
	at := fmt.Sprintf("[%s+%d]", base, s.k)
	if s.mask > 0 {
		t.line("and.b32 %%r%d, %%r%d, %d", t.scratch, s.a, s.mask)
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", t.scratch)
		t.line("add.s64 %%rd4, %s, %%rd3", base)
		at = fmt.Sprintf("[%%rd4+%d]", s.k)
	}
	call := func(ret string, args ...string) {
		fmt.Fprintf(t, "\t{\n")
		for i, a := range args[1:] {
			bits := "b32"
			if strings.HasPrefix(a, "%rd") {
				bits = "b64"
			}
			t.line(".param .%s p%d", bits, i)
			t.line("st.param.%s [p%d+0], %s", bits, i, a)
		}
		var list []string
		for i := range args[1:] {
			list = append(list, fmt.Sprint("p", i))
		}
		if ret == "" {
			t.line("call.uni %s, (%s)", args[0], strings.Join(list, ", "))
		} else {
			t.line(".param .b32 ret")
			t.line("call.uni (ret), %s, (%s)", args[0], strings.Join(list, ", "))
			t.line("ld.param.b32 %s, [ret+0]", ret)
		}
		fmt.Fprintf(t, "\t}\n")
	}
	switch s.op {
	case "lst", "lpst":
		if s.op == "lpst" {
			t.line("add.s64 %%rd4, %%rd9, %d", s.k)
			t.line("st.u64 [%%rd9+%d], %%rd4", localPlace)
			t.line("ld.u64 %%rd3, [%%rd9+%d]", localPlace)
			at, space = "[%rd3]", ""
		}
		if s.w == 8 {
			t.line("cvt.u64.u32 %%rd10, %%r%d", s.b)
			t.line("st%s.u64 %s, %%rd10", space, at)
			return
		}
		t.line("st%s.b%d %s, %%r%d", space, 8*s.w, at, s.b)
	case "lld":
		if s.w == 8 {
			t.line("ld%s.u64 %%rd10, %s", space, at)
			t.line("cvt.u32.u64 %%r%d, %%rd10", s.d)
			return
		}
		t.line("ld%s.u%d %%r%d, %s", space, 8*s.w, s.d, at)
	case "ltab":
		t.line("ld.u64 %%rd4, [%%rd9+%d]", localTable+8*s.b)
		t.line("mul.wide.s32 %%rd3, %%r%d, 4", s.a)
		t.line("add.s64 %%rd4, %%rd4, %%rd3")
		if s.store {
			t.line("st.u32 [%%rd4], %%r%d", regN)
		} else {
			t.line("ld.global.u32 %%r0, [%%rd4]")
		}
	case "call":
		call(fmt.Sprintf("%%r%d", s.d), "pick", fmt.Sprintf("%%r%d", s.a), fmt.Sprintf("%%r%d", s.b))
	case "bump":
		t.line("add.s64 %%rd4, %%rd9, %d", s.k)
		call("", "bump", "%rd4", fmt.Sprintf("%%r%d", s.a))
	case "put":
		call("", "put", fmt.Sprintf("%%rd%d", 1+s.b), fmt.Sprintf("%%r%d", s.a), fmt.Sprintf("%%r%d", regN))
	case "get":
		call(fmt.Sprintf("%%r%d", t.scratch), "get", fmt.Sprintf("%%rd%d", 1+s.b), fmt.Sprintf("%%r%d", s.a))
	}
}

// local executes a statement.
func (x *lane) local(s *stmt) {
	at := int(s.k)
	if s.mask > 0 {
		at += int(x.regs[s.a]&s.mask) * 4
	}
	switch s.op {
	case "lst", "lpst":
		for i := range s.w {
			x.mem[at+i] = byte(uint64(x.regs[s.b]) >> (8 * i))
		}
	case "lld":
		x.regs[s.d] = 0
		for i := range min(s.w, 4) {
			x.regs[s.d] |= uint32(x.mem[at+i]) << (8 * i)
		}
	case "call":
		x.regs[s.d] = x.regs[s.a]
		if int32(x.regs[s.a]) < int32(x.regs[s.b]) {
			x.regs[s.d] = x.regs[s.b] - x.regs[s.a]
		}
	case "bump":
		v := 3*x.local32(at) + x.regs[s.a]
		for i := range 4 {
			x.mem[at+i] = byte(v >> (8 * i))
		}
	case "put":
		x.touch(s.b, x.regs[s.a], true)
	case "get":
		x.touch(s.b, x.regs[s.a], false)
	case "ltab":
		x.touch(s.b, x.regs[s.a], s.store)
	}
}

func (x *lane) local32(at int) uint32 {
	v := uint32(0)
	for i := range 4 {
		v |= uint32(x.mem[at+i]) << (8 * i)
	}
	return v
}

// localText is the text of a kernel with local memory.
func localText(list []stmt, regs int) string {
	src := kernelTextOf(list, regs, true)
	var b strings.Builder
	fmt.Fprintf(&b, "\t.local .align 8 .b8 frame[%d];\n", localFrame)
	setup := &text{}
	setup.line("mov.u64 %%rd8, frame")
	setup.line("cvta.local.u64 %%rd9, %%rd8")
	for at := 0; at < localBytes; at += 4 {
		setup.line("st.local.u32 [%%rd8+%d], 0", at)
	}
	setup.line("st.u64 [%%rd9+%d], %%rd1", localTable)
	setup.line("st.u64 [%%rd9+%d], %%rd2", localTable+8)
	src = strings.Replace(src, "\t.reg .pred", b.String()+"\t.reg .pred", 1)
	src = strings.Replace(src, "\tld.param.u64 %rd2, [b];\n", "\tld.param.u64 %rd2, [b];\n"+setup.String(), 1)
	return strings.Replace(src, ".visible .entry", localHeader+".visible .entry", 1)
}

func TestRandomLocal(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 300
	}
	counts := map[footprint.Verdict]int{}
	bounded := 0
	var in footprint.Instance
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 7))
		g := &generator{r: r, regs: regFirst,
			known:  []int{regTid, regTid, regTidY, regCta, regCta, regNtid, regN, regM},
			memory: true, dynamic: seed%3 == 0}
		list := g.block(2)
		src := localText(list, g.regs)
		s := summarised(t, fmt.Sprintf("seed %d", seed), src)
		for range 4 {
			l, x := randomLaunch(r, list, g.regs)
			if x == nil {
				continue
			}
			s.Evaluate(l, &in)
			if in.Cause == footprint.UnknownCall {
				t.Fatalf("seed %d: a call is left\n%s", seed, src)
			}
			counts[in.Verdict]++
			if !in.ReadsUnknown && !in.WritesUnknown {
				bounded++
			}
			mustAgree(t, seed, src, s, l, &in, x)
		}
	}
	t.Logf("%v, %d with all bounds", counts, bounded)
	if counts[footprint.Idempotent] < n/8 || counts[footprint.NotIdempotent] < n/16 || bounded < n/2 {
		t.Errorf("%v, %d with all bounds: the test has become weak", counts, bounded)
	}
}
