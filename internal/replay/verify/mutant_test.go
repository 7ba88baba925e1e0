package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/replay/verify"
	"holdfast/internal/trace"
)

// Parts are a recording taken apart, to be put together again with digests that are right.
type parts struct {
	m        recording.Manifest
	work     []trace.Record
	code     [][]byte // of each image of each module
	contents [][]byte // of each region, nil for scratch memory
	patches  []recording.Patch
	table    []byte // instead of patches
}

func takeApart(t testing.TB, b []byte) *parts {
	t.Helper()
	f, err := recording.NewFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // not at the end of the test: it takes thousands apart
	read := func(b recording.Blob) []byte {
		out, err := f.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	p := &parts{}
	text, err := json.Marshal(f.Manifest)
	if err == nil {
		err = json.Unmarshal(text, &p.m)
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.patches, err = f.Patches(); err != nil {
		t.Fatal(err)
	}
	for work := read(p.m.Entries[0].Work); len(work) > 0; {
		n, err := trace.Size(work)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := trace.Decode(work[:n])
		if err != nil {
			t.Fatal(err)
		}
		p.work, work = append(p.work, rec), work[n:]
	}
	for _, c := range p.m.Code {
		for _, g := range c.Images {
			p.code = append(p.code, read(g.Contents))
		}
	}
	for _, g := range p.m.Memory {
		if g.Contents == nil {
			p.contents = append(p.contents, nil)
		} else {
			p.contents = append(p.contents, read(*g.Contents))
		}
	}
	return p
}

// together makes the file. It checks nothing.
func (p *parts) together() []byte {
	file := make([]byte, 64)
	m := &p.m
	m.Chunks, m.Version = []recording.Chunk{}, 1
	if slices.ContainsFunc(m.Memory, func(g recording.Region) bool { return g.Class == recording.Constant }) {
		m.Version = 2
	}
	if m.Relocations != nil {
		m.Version = 3
	}
	put := func(b []byte) recording.Blob {
		out := recording.Blob{Bytes: int64(len(b)), Chunks: []int{}}
		for part := range slices.Chunk(b, recording.ChunkSize) {
			out.Chunks = append(out.Chunks, len(m.Chunks))
			m.Chunks = append(m.Chunks, recording.Chunk{Offset: int64(len(file)), SHA256: sha256.Sum256(part),
				Size: int64(len(part)), Stored: int64(len(part))})
			file = append(file, part...)
		}
		return out
	}
	n := 0
	for i := range m.Code {
		for k := range m.Code[i].Images {
			m.Code[i].Images[k].Contents = put(p.code[n])
			n++
		}
	}
	for i := range m.Memory {
		if p.contents[i] != nil {
			b := put(p.contents[i])
			m.Memory[i].Contents = &b
		}
	}
	if m.Relocations != nil {
		if p.table == nil {
			p.table = recording.AppendPatches(nil, p.patches)
		}
		b := put(p.table)
		m.Relocations = &b
	}
	e := &m.Entries[0]
	for i := range e.Inputs {
		b := put(make([]byte, e.Inputs[i].Bytes))
		e.Inputs[i].Recorded = &b
	}
	e.Launches, e.Copies, e.Sets = 0, 0, 0
	var work []byte
	for _, rec := range p.work {
		count(e, rec)
		if again, err := trace.Append(work, rec); err == nil {
			work = again
		}
	}
	e.Work = put(work)
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		panic(err)
	}
	return seal(file, text.Bytes())
}

// seal puts a manifest behind chunks, and the header before them.
func seal(front, text []byte) []byte {
	out := append(bytes.Clone(front), text...)
	copy(out, "HFRECRD\n")
	version := 1
	for v := 2; v <= recording.Version; v++ {
		if bytes.Contains(text, fmt.Appendf(nil, `"version":%d`, v)) {
			version = v
		}
	}
	binary.LittleEndian.PutUint32(out[8:], uint32(version))
	binary.LittleEndian.PutUint64(out[16:], uint64(len(front)))
	binary.LittleEndian.PutUint64(out[24:], uint64(len(text)))
	sum := sha256.Sum256(text)
	copy(out[32:], sum[:])
	return out
}

// A mutation changes a recording. All but the first mend digests and counts.
type mutation struct {
	name   string
	change func(t testing.TB, r *rand.Rand, b []byte) []byte
}

func onParts(change func(r *rand.Rand, p *parts)) func(testing.TB, *rand.Rand, []byte) []byte {
	return func(t testing.TB, r *rand.Rand, b []byte) []byte {
		p := takeApart(t, b)
		for range 1 + r.IntN(2) {
			change(r, p)
		}
		return p.together()
	}
}

var mutations = []mutation{
	{"bytes of the file", func(_ testing.TB, r *rand.Rand, b []byte) []byte { return scramble(r, b) }},
	{"text of the manifest", func(_ testing.TB, r *rand.Rand, b []byte) []byte {
		at := binary.LittleEndian.Uint64(b[16:])
		return seal(b[:at], scramble(r, b[at:]))
	}},
	{"numbers of the manifest", func(_ testing.TB, r *rand.Rand, b []byte) []byte {
		at := binary.LittleEndian.Uint64(b[16:])
		return seal(b[:at], []byte(renumber(r, string(b[at:]))))
	}},
	{"regions", onParts(mutateRegions)},
	{"parameters", onParts(mutateParams)},
	{"grids and kernels", onParts(mutateShape)},
	{"copies and sets", onParts(mutateCopy)},
	{"order", onParts(mutateOrder)},
	{"code", onParts(mutateCode)},
	{"contents of memory", onParts(mutateContents)},
	{"relocations", onParts(mutatePatches)},
}

// scramble changes, removes, inserts or repeats bytes.
func scramble(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = b[r.IntN(len(b))]
		case 2:
			b = slices.Delete(b, at, min(len(b), at+1+r.IntN(8)))
		case 3:
			b = slices.Insert(b, at, b[at:min(len(b), at+1+r.IntN(8))]...)
		case 4:
			b = b[:at]
		}
	}
	return b
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|-?\b[0-9]+\b`)

// renumber puts another number in place of one.
func renumber(r *rand.Rand, text string) string {
	all := numbers.FindAllStringIndex(text, -1)
	at := all[r.IntN(len(all))]
	old := text[at[0]:at[1]]
	digits, hex := strings.CutPrefix(old, "0x")
	var fresh string
	if hex {
		v, _ := strconv.ParseUint(digits, 16, 64)
		fresh = fmt.Sprintf("0x%x", another(r, v))
	} else {
		v, _ := strconv.ParseInt(old, 10, 64)
		fresh = strconv.FormatInt(int64(another(r, uint64(v))), 10)
	}
	return text[:at[0]] + fresh + text[at[1]:]
}

// another is a number near v, or one that is often taken for granted not to come.
func another(r *rand.Rand, v uint64) uint64 {
	switch r.IntN(8) {
	case 0:
		return v + 1
	case 1:
		return v - 1
	case 2:
		return v + uint64(r.IntN(1<<16)) - 1<<15
	case 3:
		return v ^ 1<<r.IntN(64)
	case 4:
		return v * 2
	case 5:
		return []uint64{0, 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 47, 1 << 63, 1<<64 - 1}[r.IntN(8)]
	case 6:
		return base + uint64(r.IntN(66<<20))
	}
	return v + 4*uint64(r.IntN(4096))
}

func mutateRegions(r *rand.Rand, p *parts) {
	i := r.IntN(len(p.m.Memory))
	g := &p.m.Memory[i]
	switch r.IntN(6) {
	case 5: // it is said to be constant, or not to be
		if p.contents[i] != nil {
			g.Class = map[string]string{recording.Live: recording.Constant, recording.Constant: recording.Live}[g.Class]
		}
	case 0: // shorter
		n := 1 + r.Int64N(g.Bytes)
		if g.Bytes = n; p.contents[i] != nil {
			p.contents[i] = p.contents[i][:n]
		}
	case 1: // elsewhere
		g.Addr = recording.Addr(another(r, uint64(g.Addr)))
	case 2:
		if len(p.m.Memory) > 1 {
			p.m.Memory, p.contents = slices.Delete(p.m.Memory, i, i+1), slices.Delete(p.contents, i, i+1)
		}
	case 3: // longer, of no contents
		if p.contents[i] == nil {
			g.Bytes = int64(another(r, uint64(g.Bytes)))
		} else {
			p.contents[i], g.Contents, g.Class = nil, nil, recording.Scratch
		}
	case 4:
		p.m.Staging.Bytes = int64(another(r, uint64(p.m.Staging.Bytes)))
	}
}

func pick[T trace.Record](r *rand.Rand, p *parts) (out T, ok bool) {
	var list []T
	for _, rec := range p.work {
		if x, ok := rec.(T); ok {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return out, false
	}
	return list[r.IntN(len(list))], true
}

// mutateParams changes a word of a launch: an address by a little, to that of another region, to anything; a number.
func mutateParams(r *rand.Rand, p *parts) {
	l, ok := pick[*trace.Launch](r, p)
	if !ok {
		return
	}
	params := p.m.Kernels[l.Kernel].Params
	if len(params) == 0 {
		return
	}
	q := params[r.IntN(len(params))]
	b := l.Params[q.Offset:][:q.Size]
	if len(b) < 8 {
		v := another(r, uint64(binary.LittleEndian.Uint32(b)))
		binary.LittleEndian.PutUint32(b, uint32(v))
		return
	}
	v := binary.LittleEndian.Uint64(b)
	switch r.IntN(3) {
	case 0:
		v = another(r, v)
	case 1:
		g := p.m.Memory[r.IntN(len(p.m.Memory))]
		v = uint64(g.Addr)
		if r.IntN(2) == 0 {
			v += 4 * uint64(r.Int64N(g.Bytes/4+1))
		}
	case 2:
		v += 4*uint64(r.IntN(1<<12)) - 1<<13
	}
	binary.LittleEndian.PutUint64(b, v)
}

func mutateShape(r *rand.Rand, p *parts) {
	l, ok := pick[*trace.Launch](r, p)
	if !ok {
		return
	}
	i := r.IntN(3)
	switch r.IntN(6) {
	case 0:
		l.Grid[i] = uint32(another(r, uint64(l.Grid[i])))
	case 1:
		l.Block[i] = uint32(another(r, uint64(l.Block[i])))
	case 2:
		l.Cluster[i] = uint32(another(r, uint64(l.Cluster[i])))
	case 3:
		l.Shared = uint32(another(r, uint64(l.Shared)))
	case 4:
		l.Kernel = uint32(r.IntN(len(p.m.Kernels) + 1))
	case 5: // a grid that may well run
		l.Grid[i] = 1 + uint32(r.IntN(16))
	}
}

func mutateCopy(r *rand.Rand, p *parts) {
	c, ok := pick[*trace.Copy](r, p)
	if !ok {
		return
	}
	field := []*uint64{&c.Dst, &c.Src, &c.DstPitch, &c.SrcPitch, &c.Width, &c.Height, &c.Depth}[r.IntN(7)]
	if r.IntN(8) == 0 {
		c.Flags ^= trace.Set
		return
	}
	*field = another(r, *field)
}

func mutateOrder(r *rand.Rand, p *parts) {
	i, k := r.IntN(len(p.work)), r.IntN(len(p.work))
	switch r.IntN(4) {
	case 0:
		p.work = slices.Delete(p.work, i, i+1)
	case 1:
		p.work[i], p.work[k] = p.work[k], p.work[i]
	case 2:
		p.work = slices.Insert(p.work, i, p.work[k])
	case 3:
		if a, ok := pick[*trace.After](r, p); ok {
			a.Works[r.IntN(len(a.Works))] = uint32(r.IntN(len(p.work)))
		}
	}
}

var tokens = regexp.MustCompile(`%[a-z]+[0-9]+|\b0x[0-9a-f]+\b|\b[0-9]+\b|\.[a-z][a-z0-9]*`)

// mutateCode changes PTX: tokens for others of the text, numbers, whole lines.
func mutateCode(r *rand.Rand, p *parts) {
	i := r.IntN(len(p.code))
	text := string(p.code[i])
	switch r.IntN(6) {
	case 0:
		p.code[i] = scramble(r, p.code[i])
	case 1:
		p.code[i] = []byte(renumber(r, text))
	case 2, 3:
		all := tokens.FindAllString(text, -1)
		at := tokens.FindAllStringIndex(text, -1)[r.IntN(len(all))]
		p.code[i] = []byte(text[:at[0]] + all[r.IntN(len(all))] + text[at[1]:])
	default:
		lines := strings.SplitAfter(text, "\n")
		a, b := r.IntN(len(lines)), r.IntN(len(lines))
		switch r.IntN(3) {
		case 0:
			lines = slices.Delete(lines, a, a+1)
		case 1:
			lines[a], lines[b] = lines[b], lines[a]
		case 2:
			lines = slices.Insert(lines, a, lines[b])
		}
		p.code[i] = []byte(strings.Join(lines, ""))
	}
}

func mutateContents(r *rand.Rand, p *parts) {
	i := r.IntN(len(p.contents))
	b := p.contents[i]
	if len(b) < 8 {
		return
	}
	at := r.IntN(len(b)/4) * 4
	if at+8 <= len(b) && r.IntN(2) == 0 {
		binary.LittleEndian.PutUint64(b[at:], another(r, binary.LittleEndian.Uint64(b[at:])))
		return
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(another(r, uint64(binary.LittleEndian.Uint32(b[at:])))))
}

// mutatePatches changes which words are said to be addresses.
func mutatePatches(r *rand.Rand, p *parts) {
	if len(p.patches) == 0 {
		return
	}
	i := r.IntN(len(p.patches))
	q := &p.patches[i]
	if len(q.Offsets) == 0 {
		return
	}
	k := r.IntN(len(q.Offsets))
	switch r.IntN(7) {
	case 0: // one is forgotten
		q.Offsets = slices.Delete(slices.Clone(q.Offsets), k, k+1)
	case 1: // all of one thing
		p.patches = slices.Delete(p.patches, i, i+1)
	case 2: // one more
		q.Offsets = slices.Sorted(slices.Values(append(slices.Clone(q.Offsets), int64(r.IntN(64)))))
	case 3: // another one
		q.Offsets[k] = int64(another(r, uint64(q.Offsets[k])))
	case 4: // of something else
		q.Index = int(another(r, uint64(q.Index)) % 16)
	case 5:
		q.In = recording.Where(r.IntN(6))
	case 6:
		p.table = scramble(r, recording.AppendPatches(nil, p.patches))
	}
}

// What may become of a mutant.
const (
	byReader    = "refused: the file"
	byVerifier  = "refused: its work"
	byReplayer  = "refused by the replayer"
	ranProven   = "proven, ran"
	endedProven = "proven, ended by a fault or the limit"
	ranArgs     = "by arguments, stayed inside"
	strayedArgs = "by arguments, went outside"
)

var fates = []string{byReader, byVerifier, byReplayer, ranProven, endedProven, ranArgs, strayedArgs}

// fate verifies a mutant and, if nothing speaks against it, replays it. The error is a defect of the verifier.
func fate(t testing.TB, b []byte) (string, error) {
	f, err := recording.NewFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return byReader, nil
	}
	defer f.Close()
	r, err := verify.Verify(f)
	if err != nil {
		return byReader, nil
	}
	if r.Err(false) != nil {
		return byVerifier, nil
	}
	lo := uint64(base - window/2)
	if f.Manifest.Relocations != nil { // it is replayed elsewhere, where nothing of it was before
		lo += 5 << 36
		if f, err = f.At(f.Manifest.Base() + 5<<36); err != nil {
			return byReader, nil
		}
		// What is proven holds for the place that was looked at.
		if r, err = verify.Verify(f); err != nil {
			return byReader, nil
		}
		if r.Err(false) != nil {
			return "", fmt.Errorf("it was verified in two places, and is refused in a third: %w", r.Err(false))
		}
	}
	out := played(t, f, lo, window)
	strict := r.Err(true) == nil
	switch {
	case out.loaded != nil:
		return byReplayer, nil
	case strict && len(out.strays) > 0:
		return "", fmt.Errorf("it was proven, and %s", out.strays[0])
	case strict && out.ended != nil:
		return endedProven, nil
	case strict:
		return ranProven, nil
	case len(out.strays) > 0:
		return strayedArgs, nil
	}
	return ranArgs, nil
}

// Mutants of recordings are refused, or what is proven of them holds on the software GPU. HOLDFAST_MUTANTS says how
// many; with -v there is a table.
func TestMutants(t *testing.T) {
	n := 330
	if s := os.Getenv("HOLDFAST_MUTANTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	models := []struct {
		name string
		file []byte
	}{{"perceptron", perceptron(t).write(t)}, {"tables", tables(t).write(t)}, {"scatter", scatter(t).write(t)},
		{"movable perceptron", perceptron(t).relocatable().write(t)},
		{"movable tables", tables(t).relocatable().write(t)}}
	var mu sync.Mutex
	counts := map[string]map[string]int{}
	todo := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range todo {
				model, how := models[i%len(models)], mutations[i/len(models)%len(mutations)]
				b := how.change(t, rand.New(rand.NewPCG(7, uint64(i))), model.file)
				end, err := fate(t, b)
				mu.Lock()
				if err != nil {
					t.Errorf("mutant %d (%s, %s): %v", i, model.name, how.name, err)
					if dir := os.Getenv("HOLDFAST_MUTANTS_DIR"); dir != "" {
						os.WriteFile(fmt.Sprintf("%s/%d.hfr", dir, i), b, 0o600)
					}
				}
				if counts[how.name] == nil {
					counts[how.name] = map[string]int{}
				}
				counts[how.name][end]++
				mu.Unlock()
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	wg.Wait()
	total := map[string]int{}
	table := "| mutants of | " + strings.Join(fates, " | ") + " |\n"
	row := func(name string, by map[string]int) {
		table += "| " + name + " |"
		for _, f := range fates {
			table += fmt.Sprintf(" %d |", by[f])
			total[f] += by[f]
		}
		table += "\n"
	}
	for _, how := range mutations {
		row(how.name, counts[how.name])
	}
	all := map[string]int{}
	for k, v := range total {
		all[k] = v
	}
	row("all", all)
	t.Logf("%d mutants\n%s", n, table)
	for _, f := range []string{byReader, byVerifier, ranProven, ranArgs} {
		if all[f] == 0 {
			t.Errorf("no mutant was %q: the sample shows nothing", f)
		}
	}
}
