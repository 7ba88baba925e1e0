package measure

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/summarise"
	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

const (
	spaceStart = 0x10_0000_0000
	spaceBytes = 1 << 30
	mapped     = 16 << 20
	memoryAt   = spaceStart + 1<<20 // that a launch is given; it may also touch what is around
	memory     = 256 << 10
)

// TestDifferential executes random kernels on the software GPU and compares what it observes with what is foreseen,
// without and with the contents of their tables: no byte may be missing and no verdict wrong, and an Instance that is
// used again must hold what a new one does. HOLDFAST_DIFFERENTIAL=1000:5000 takes these seeds, the last excluded,
// instead of those of every day.
func TestDifferential(t *testing.T) {
	first, behind, everyDay := uint64(0), uint64(everyDayKernels), true
	if testing.Short() {
		behind = shortKernels
	}
	if seeds := os.Getenv("HOLDFAST_DIFFERENTIAL"); seeds != "" {
		if _, err := fmt.Sscanf(seeds, "%d:%d", &first, &behind); err != nil {
			t.Fatalf("HOLDFAST_DIFFERENTIAL=%s: %v", seeds, err)
		}
		everyDay = false
	}
	d := newDifferential(t)
	for seed := first; seed < behind && !t.Failed(); seed++ {
		d.kernel(seed)
	}
	t.Logf("seeds %d to %d: %+v", first, behind, d.count)
	if kernels := int(behind - first); everyDay && !t.Failed() {
		for _, c := range []struct {
			what         string
			found, least int
		}{
			{"launches executed", d.count.Launches, kernels * 3 / 2},
			{"verdicts idempotent", d.count.Idempotent, kernels / 2},
			{"verdicts not idempotent", d.count.NotIdempotent, kernels / 4},
			{"launches of which all is foreseen", d.count.Bounded, kernels},
			{"launches of which contents tell more", d.count.Sharpened, kernels / 10},
		} {
			if c.found < c.least {
				t.Errorf("%s: %d, at least %d expected of %d kernels", c.what, c.found, c.least, kernels)
			}
		}
	}
}

const (
	everyDayKernels = 500
	shortKernels    = 150
)

// A differential is what the kernels share: a space of the software GPU, and an Instance that is used again and again.
type differential struct {
	t      *testing.T
	space  *softgpu.Space
	memory []byte // at memoryAt
	reused footprint.Instance
	count  struct{ Launches, Faults, Idempotent, NotIdempotent, Unknown, Bounded, Sharpened int }
}

func newDifferential(t *testing.T) *differential {
	t.Helper()
	s, err := softgpu.NewSpace(spaceStart, spaceBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	fd, err := unix.MemfdCreate("holdfast-differential", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, mapped); err != nil {
		t.Fatal(err)
	}
	if err := s.Map(spaceStart, fd, 0, mapped, true); err != nil {
		t.Fatal(err)
	}
	b, err := s.Bytes(memoryAt, memory)
	if err != nil {
		t.Fatal(err)
	}
	return &differential{t: t, space: s, memory: b}
}

// kernel makes the kernel of a seed and three launches of it.
func (d *differential) kernel(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 77))
	text := randomKernel(r)
	m, err := ptx.Parse("k.ptx", []byte(text))
	if err != nil {
		d.t.Fatalf("seed %d: %v\n%s", seed, err, text)
	}
	list, err := summarise.Module(m)
	if err != nil {
		d.t.Fatalf("seed %d: %v\n%s", seed, err, text)
	}
	loaded, err := softgpu.Load(m)
	if err != nil {
		d.t.Fatalf("seed %d: %v\n%s", seed, err, text)
	}
	module, err := loaded.Instantiate(d.space, spaceStart)
	if err != nil {
		d.t.Fatalf("seed %d: %v\n%s", seed, err, text)
	}
	i := slices.IndexFunc(list, func(s *footprint.Summary) bool { return s.Name == "k" })
	for range 3 {
		l, known := d.launch(r)
		if bad := d.compare(module, list[i], l, known); bad != "" {
			var why strings.Builder
			list[i].Explain(l, &why)
			d.t.Errorf("seed %d: %s\n%+v\n%s\n%s", seed, bad, *l, text, why.String())
			return
		}
	}
}

// launch fills the memory and makes a launch, and says what is known of it. Buffers and tables may overlap.
func (d *differential) launch(r *rand.Rand) (*footprint.Launch, []footprint.Known) {
	const start = uint64(memoryAt)
	a, b, table, pointers := start+64<<10, start+128<<10, start+192<<10, start+224<<10
	if r.IntN(4) == 0 {
		b = a + 8*r.Uint64N(16)
	}
	if r.IntN(5) == 0 {
		table = a + 16*r.Uint64N(16)
	}
	for i := 0; i < memory; i += 4 {
		binary.LittleEndian.PutUint32(d.memory[i:], r.Uint32N(12))
	}
	bytes, kind := 64+16*r.Uint64N(10), r.IntN(3)
	for at := table - start; at < table-start+bytes; at += 4 {
		word := r.Uint32N(20)
		switch kind {
		case 1: // also negative ones
			word -= 6
		case 2: // very few
			word = r.Uint32N(2) * 16
		}
		binary.LittleEndian.PutUint32(d.memory[at:], word)
	}
	target := func() uint64 { return []uint64{a, b, a + 512, b + 256}[r.IntN(4)] }
	for i := range uint64(4) {
		binary.LittleEndian.PutUint64(d.memory[pointers-start+8*i:], target())
	}
	var params []byte
	for _, p := range []uint64{a, b, table, pointers} {
		params = binary.LittleEndian.AppendUint64(params, p)
	}
	params = binary.LittleEndian.AppendUint64(params, r.Uint64N(12)) // n, and what aligns the array
	for range 8 {
		params = binary.LittleEndian.AppendUint64(params, target())
	}
	for range 16 {
		params = binary.LittleEndian.AppendUint16(params, uint16(r.IntN(30)-5*r.IntN(2)))
	}
	known := func(at, n uint64) footprint.Known {
		return footprint.Known{Range: footprint.Range{Lo: at, Hi: at + n},
			Contents: footprint.NewContents(d.memory[at-start:at-start+n], n)}
	}
	l := &footprint.Launch{Grid: [3]uint32{1 + r.Uint32N(2), 1, 1},
		Block: [3]uint32{1 + r.Uint32N(6), 1, 1}, Params: params}
	return l, []footprint.Known{known(table, bytes), known(pointers, 32)}
}

// compare executes a launch and says what is wrong with its footprint, if something is. Contents stay in l.Known.
func (d *differential) compare(module *softgpu.Instance, s *footprint.Summary, l *footprint.Launch,
	known []footprint.Known) string {
	seen := &softgpu.Observer{}
	_, err := module.Launch("k", softgpu.LaunchConfig{Grid: l.Grid, Block: l.Block, Params: l.Params,
		Deterministic: true, MaxInstructions: 200_000, Observer: seen})
	if err != nil { // it left its memory, or takes too long
		d.count.Faults++
		return ""
	}
	d.count.Launches++
	var answers []string
	for _, l.Known = range [][]footprint.Known{nil, known} {
		var in footprint.Instance
		s.Evaluate(l, &in)
		if bad := contradiction(&in, seen); bad != "" {
			return fmt.Sprintf("with %d known: %s", len(l.Known), bad)
		}
		s.Evaluate(l, &d.reused)
		if answer(&in) != answer(&d.reused) {
			return fmt.Sprintf("with %d known: an instance that is used again holds %s, a new one %s", len(l.Known),
				answer(&d.reused), answer(&in))
		}
		answers = append(answers, answer(&in))
		d.tally(&in)
	}
	if answers[0] != answers[1] {
		d.count.Sharpened++
	}
	return ""
}

func (d *differential) tally(in *footprint.Instance) {
	switch in.Verdict {
	case footprint.Idempotent:
		d.count.Idempotent++
	case footprint.NotIdempotent:
		d.count.NotIdempotent++
	default:
		d.count.Unknown++
	}
	if !in.ReadsUnknown && !in.WritesUnknown {
		d.count.Bounded++
	}
}

func answer(in *footprint.Instance) string {
	return fmt.Sprintf("%v, reads %x (unknown: %t), writes %x (unknown: %t)", in.Verdict, in.Reads, in.ReadsUnknown,
		in.Writes, in.WritesUnknown)
}

// contradiction says what an instance says that was not seen to be so.
func contradiction(in *footprint.Instance, seen *softgpu.Observer) string {
	for _, x := range seen.Ranges(softgpu.Read, 0) {
		if !in.ReadsUnknown && !holds(in.Reads, x) {
			return fmt.Sprintf("reads %#x+%d, which is not foreseen", x.Addr, x.Len)
		}
	}
	for _, x := range seen.Ranges(softgpu.Written, 0) {
		if !in.WritesUnknown && !holds(in.Writes, x) {
			return fmt.Sprintf("writes %#x+%d, which is not foreseen", x.Addr, x.Len)
		}
	}
	again := seen.Ranges(softgpu.Exposed|softgpu.Written, 0)
	switch {
	case in.Verdict == footprint.Idempotent && len(again) > 0:
		return fmt.Sprintf("idempotent, but reads and then writes %#x+%d", again[0].Addr, again[0].Len)
	case in.Verdict == footprint.NotIdempotent && len(again) == 0:
		return "not idempotent, but writes nothing that it has read"
	}
	return ""
}

func holds(list []footprint.Range, x softgpu.Range) bool {
	return slices.ContainsFunc(list, func(r footprint.Range) bool { return r.Lo <= x.Addr && x.Addr+x.Len <= r.Hi })
}

// The same text has the same summary, byte for byte: the order of a map must not show. Kernel 600 loads two addresses
// of each other.
func TestSameBytes(t *testing.T) {
	for _, seed := range []uint64{600, 601, 602} {
		var first []byte
		for range 16 {
			m, err := ptx.Parse("k.ptx", []byte(randomKernel(rand.New(rand.NewPCG(seed, 77)))))
			if err != nil {
				t.Fatal(err)
			}
			list, err := summarise.Module(m)
			if err != nil {
				t.Fatal(err)
			}
			text, err := list[0].MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = text
			}
			if !bytes.Equal(text, first) {
				t.Fatalf("kernel %d has two summaries", seed)
			}
		}
	}
}
