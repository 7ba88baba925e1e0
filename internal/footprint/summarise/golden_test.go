package summarise

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"holdfast/internal/footprint"
	"holdfast/ptx"
	"holdfast/test/golden"
)

// Golden files hold a kernel (kernel.ptx), launches (launches: one a line), and what is said of
// them (want).
func TestGolden(t *testing.T) {
	golden.Archives(t, "testdata/*.txtar", func(t *testing.T, _ string, a *txtar.Archive) { judged(t, a) })
}

// judged puts into an archive what is said of its kernel.
func judged(t *testing.T, a *txtar.Archive) {
	var src, launches string
	at := -1
	for i, f := range a.Files {
		switch f.Name {
		case "kernel.ptx":
			src = string(f.Data)
		case "launches":
			launches = string(f.Data)
		case "want":
			at = i
		}
	}
	m, err := ptx.Parse("kernel.ptx", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	list, err := Module(m)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d kernels, %v", len(list), err)
	}
	var got strings.Builder
	fmt.Fprintf(&got, "%v: %s\n", list[0].Class, list[0].Condition())
	for _, line := range strings.Split(strings.TrimSpace(launches), "\n") {
		fmt.Fprintf(&got, "\n# %s\n", line)
		explain := strings.HasPrefix(line, "explain ")
		l := launchOf(t, strings.TrimPrefix(line, "explain "))
		var in footprint.Instance
		list[0].Evaluate(l, &in)
		fmt.Fprintf(&got, "%v: %s\n", in.Verdict, in.Reason())
		fmt.Fprintf(&got, "reads %s, writes %s\n", rangesText(in.Reads, in.ReadsUnknown),
			rangesText(in.Writes, in.WritesUnknown))
		if explain {
			if err := list[0].Explain(l, &got); err != nil {
				t.Fatal(err)
			}
		}
	}
	if at < 0 {
		t.Fatal("it wants nothing")
	}
	a.Files[at].Data = []byte(got.String())
}

func rangesText(list []footprint.Range, unknown bool) string {
	s := make([]string, len(list))
	for i, r := range list {
		s[i] = fmt.Sprintf("%x-%x", r.Lo, r.Hi)
	}
	out := "[" + strings.Join(s, " ") + "]"
	if unknown {
		out += " and more"
	}
	return out
}

// launchOf reads "grid 2,1,1 block 64 alloc 1000+200 p 1000 u32 7 hex 00ff": p is a pointer.
func launchOf(t *testing.T, line string) *footprint.Launch {
	l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}
	w := strings.Fields(line)
	number := func(s string, base int) uint64 {
		n, err := strconv.ParseUint(s, base, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := 0; i+1 < len(w); i += 2 {
		switch v := w[i+1]; w[i] {
		case "grid", "block":
			for j, s := range strings.Split(v, ",") {
				if w[i] == "grid" {
					l.Grid[j] = uint32(number(s, 10))
				} else {
					l.Block[j] = uint32(number(s, 10))
				}
			}
		case "alloc":
			lo, n, _ := strings.Cut(v, "+")
			l.Allocs = append(l.Allocs, footprint.Range{Lo: number(lo, 16), Hi: number(lo, 16) + number(n, 16)})
		case "global":
			lo, n, _ := strings.Cut(v, "+")
			l.Globals = append(l.Globals, footprint.Range{Lo: number(lo, 16), Hi: number(lo, 16) + number(n, 16)})
		case "contained":
			l.Contained = true
			i--
		case "p":
			for len(l.Params)%8 != 0 {
				l.Params = append(l.Params, 0)
			}
			l.Params = appendUint(l.Params, number(v, 16), 8)
		case "s32":
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			l.Params = appendUint(l.Params, uint64(n), 4)
		case "hex":
			b, err := hex.DecodeString(v)
			if err != nil {
				t.Fatal(err)
			}
			l.Params = append(l.Params, b...)
		default:
			t.Fatalf("%s: what is %s?", line, w[i])
		}
	}
	return l
}
