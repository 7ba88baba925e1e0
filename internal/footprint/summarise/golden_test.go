package summarise

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"holdfast/internal/footprint"
	"holdfast/ptx"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Golden files hold a kernel (kernel.ptx), launches (launches: one a line), and what is said of
// them (want).
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var src, launches, want string
	at := -1
	for i, f := range a.Files {
		switch f.Name {
		case "kernel.ptx":
			src = string(f.Data)
		case "launches":
			launches = string(f.Data)
		case "want":
			want, at = string(f.Data), i
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
	if got.String() == want {
		return
	}
	if *update && at >= 0 {
		a.Files[at].Data = []byte(got.String())
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("got\n%s\nwant\n%s", got.String(), want)
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
