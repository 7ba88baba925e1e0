package ir

import "testing"

// Every word means one thing, so that text reads back.
func TestAttributeWords(t *testing.T) {
	seen := map[string]bool{}
	for _, list := range [][]string{logicNames[1:], roundingNames[1:], variantNames[:], updateNames[1:],
		orderNames[1:], scopeNames[1:],
		groupNames[1:], meetingNames[:], reachNames[1:]} {
		for _, w := range list {
			if w == "" || seen[w] {
				t.Errorf("%q is there twice", w)
			}
			seen[w] = true
			in := &Inst{}
			if !in.setAttribute(w) {
				t.Errorf("%q is not read", w)
			}
			if got := in.attributes(); len(got) != 1 || got[0] != w {
				t.Errorf("%q reads back as %q", w, got)
			}
		}
	}
	if (&Inst{}).setAttribute("frobnicated") || (&Inst{}).setAttribute("") {
		t.Error("a word that is none is read")
	}
}

// All that an instruction may have is printed and read.
func TestAttributesReadBack(t *testing.T) {
	const text = `kernel k
special tid.x:u32 threadindex 0 thread fixed launch max 1023
special clock:u32 thread machine
register v0:b32 r
register v1:b32 q
register v2:pred p
register v3:b64 a
b0:
  v0 = compute $clock
  v2 = compare.eq:f32 (flushes unordered) v0, v1
  v2 = comparewith.lt:s32 (onlyone) v0, v1, v2
  v0 = fma:f32 (nearest) v0, v1, v0
  v0, v2 = addcarry:u32 v0, v1
  v0, v2 = subborrow:u32 v0, v1, v2
  v0 = insert:b32 v0, v1, 3, 5
  v0 = funnelleft:b32 (wraps) v0, v1, $tid.x
  v0 = max:f32 (keepsnan magnitudes signxor) v0, v1
  v0 = atomic:u32 (least relaxed insystem) v1 rw global[v3+0]*4 {orders}
  barrier (ofblock arrives waits counted) 0, 64 {orders}
  copy 16 w shared[v3+0]*16 later r global[v3+8]*16 later partly
  other v0, 16 r global[v3+0]*0 tile 16*32 step 1*2
  other (tensormaps) v3 {anyread anywrite}
  return
end
`
	f, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(Format(f, false)); got != text[:9]+got[9:] || len(got) != len(text) {
		t.Errorf("reads back as\n%s", got)
	}
	roundTrip(t, f)
}

// A module reads back, with what its functions know together.
func TestModuleReadsBack(t *testing.T) {
	const text = `module
global counter
global table
shadowed table
noreturn fail
function f
b0:
  return
end
kernel k
limits threads 255 0 0 cluster 2 1 1
line 7
b0:
  call &f {orders anyread anywrite} at 9
  return
end
`
	m, err := ReadModule([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(FormatModule(m)); got != text {
		t.Errorf("reads back as\n%s", got)
	}
	if k := m.Funcs[1]; k.Limits.MaxThread[0] != 255 || k.Limits.Cluster[0] != 2 || k.Pos != 7 || !m.NoReturn["fail"] {
		t.Errorf("%+v", k)
	}
	for _, bad := range []string{"", "kernel k\nb0:\n return\nend\n", "module\nfrobnicate x\n",
		"module\nkernel k\nb0:\n return\n"} {
		if _, err := ReadModule([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
