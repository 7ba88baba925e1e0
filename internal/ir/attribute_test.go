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
