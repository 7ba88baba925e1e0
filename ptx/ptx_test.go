package ptx

import (
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden parts of testdata")

// An archive is a parsed txtar file: a comment and named files.
type archive struct {
	path    string
	comment string
	names   []string
	files   map[string]string
}

func readArchive(t testing.TB, path string) *archive {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a := &archive{path: path, files: map[string]string{}}
	name := ""
	for line := range strings.Lines(string(b)) {
		if s, ok := strings.CutPrefix(line, "-- "); ok {
			if s, ok := strings.CutSuffix(strings.TrimRight(s, "\n"), " --"); ok {
				name = s
				a.names = append(a.names, name)
				a.files[name] = ""
				continue
			}
		}
		if name == "" {
			a.comment += line
		} else {
			a.files[name] += line
		}
	}
	return a
}

// golden compares got with a file of the archive, or rewrites it under -update.
func (a *archive) golden(t *testing.T, name, got string) {
	t.Helper()
	if a.files[name] == got {
		return
	}
	if !*update {
		t.Errorf("%s: %s differs\n--- got\n%s--- want\n%s", a.path, name, got, a.files[name])
		return
	}
	if _, ok := a.files[name]; !ok {
		a.names = append(a.names, name)
	}
	a.files[name] = got
	var b strings.Builder
	b.WriteString(a.comment)
	for _, n := range a.names {
		fmt.Fprintf(&b, "-- %s --\n%s", n, a.files[n])
	}
	if err := os.WriteFile(a.path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

// corpus is every PTX source under testdata, by name.
func corpus(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"testdata/syntax/*.txtar", "testdata/compiled/*.txtar"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			a := readArchive(t, path)
			for _, n := range a.names {
				if strings.HasSuffix(n, ".ptx") && n != "printed.ptx" {
					all[filepath.Base(path)+"/"+n] = a.files[n]
				}
			}
		}
	}
	return all
}

// same compares two trees and ignores positions. It says where they differ.
func same(path string, a, b reflect.Value) error {
	if a.Kind() != b.Kind() || a.IsValid() && a.Type() != b.Type() {
		return fmt.Errorf("%s: %v and %v", path, a, b)
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return fmt.Errorf("%s: only one is nil", path)
			}
			return nil
		}
		return same(path, a.Elem(), b.Elem())
	case reflect.Struct:
		if a.Type() == reflect.TypeFor[Pos]() {
			return nil
		}
		for i := range a.NumField() {
			if err := same(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); err != nil {
				return err
			}
		}
	case reflect.Slice:
		if a.Len() != b.Len() {
			return fmt.Errorf("%s: %d and %d elements", path, a.Len(), b.Len())
		}
		for i := range a.Len() {
			if err := same(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); err != nil {
				return err
			}
		}
	default:
		if !a.Equal(b) {
			return fmt.Errorf("%s: %v and %v", path, a, b)
		}
	}
	return nil
}

// roundTrip prints and reparses m: the tree and the text must come back.
func roundTrip(m *Module) error {
	text := Format(m)
	again, err := Parse(m.File, text)
	if err != nil {
		return fmt.Errorf("printed text does not parse: %+v\n%s", err, text)
	}
	if err := same("module", reflect.ValueOf(m), reflect.ValueOf(again)); err != nil {
		return fmt.Errorf("printed text has another tree: %w", err)
	}
	if b := Format(again); !bytes.Equal(text, b) {
		return fmt.Errorf("printing is no fixpoint:\n%s\nand\n%s", text, b)
	}
	return nil
}

func TestRoundTrip(t *testing.T) {
	for name, src := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(name, []byte(src))
			if err != nil {
				t.Fatalf("%+v", err)
			}
			if err := roundTrip(m); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPrinted holds the printed form of the syntax files.
func TestPrinted(t *testing.T) {
	paths, _ := filepath.Glob("testdata/syntax/*.txtar")
	for _, path := range paths {
		a := readArchive(t, path)
		m, err := Parse("in.ptx", []byte(a.files["in.ptx"]))
		if err != nil {
			t.Errorf("%s: %+v", path, err)
			continue
		}
		a.golden(t, "printed.ptx", string(Format(m)))
	}
}

// TestErrors holds what Parse says about each wrong source: every file of the
// archive but its *.err is a body for a small module, or a whole module when it
// starts with .version.
func TestErrors(t *testing.T) {
	a := readArchive(t, "testdata/errors.txtar")
	for _, name := range a.names {
		if strings.HasSuffix(name, ".err") {
			continue
		}
		src := a.files[name]
		if !strings.HasPrefix(src, ".version") && !strings.HasPrefix(name, "raw") {
			src = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() {\n" + src + "}\n"
		}
		m, err := Parse(name, []byte(src))
		if err == nil {
			t.Errorf("%s: accepted:\n%s", name, Format(m))
			continue
		}
		a.golden(t, name+".err", fmt.Sprintf("%+v\n", err))
	}
}

// TestConstants compares folded constants with what ptxas 12.4 put into a cubin.
func TestConstants(t *testing.T) {
	a := readArchive(t, "testdata/constants.txtar")
	n := 0
	for line := range strings.Lines(a.files["ptxas"]) {
		expr, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		src := ".version 8.0\n.target sm_90\n.global .u64 x = " + expr + ";\n"
		got := "error"
		if m, err := Parse("x", []byte(src)); err == nil {
			got = fmt.Sprintf("%#x", m.Decls[0].(*Var).Init.Value.(*Imm).Bits)
		}
		if got != want {
			t.Errorf("%s: %s, ptxas says %s", expr, got, want)
		}
		n++
	}
	if n < 40 {
		t.Errorf("only %d constants", n)
	}
}

// TestAssembles gives every source and its printed form to ptxas, where there is
// one in PATH or in $PTXAS: both must assemble, to the same code.
func TestAssembles(t *testing.T) {
	ptxas := os.Getenv("PTXAS")
	if ptxas == "" {
		ptxas, _ = exec.LookPath("ptxas")
	}
	if ptxas == "" {
		t.Skip("no ptxas: set PTXAS or install a CUDA toolkit")
	}
	for name, src := range corpus(t) {
		args, ok := assembleFor(src)
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := Parse(name, []byte(src))
			if err != nil {
				t.Fatal(err)
			}
			one, err := assemble(t, ptxas, args, []byte(src))
			if err != nil {
				t.Fatalf("source: %v", err)
			}
			two, err := assemble(t, ptxas, args, Format(m))
			if err != nil {
				t.Fatalf("printed: %v\n%s", err, Format(m))
			}
			if !bytes.Equal(one, two) {
				t.Errorf("printed text assembles to other code")
			}
		})
	}
}

// assembleFor reads architecture and flags from a comment: `// ptxas: sm_90a -c`.
// A file where no ptxas of CUDA 12.4 can serve says `// ptxas: none`.
func assembleFor(src string) (args []string, ok bool) {
	_, rest, _ := strings.Cut(src, "// ptxas: ")
	line, _, _ := strings.Cut(rest, "\n")
	args = strings.Fields(line)
	if len(args) == 0 || args[0] == "none" {
		return nil, false
	}
	args[0] = "-arch=" + args[0]
	return args, true
}

// assemble gives the sections of a cubin that hold code and data, one after the other.
func assemble(t *testing.T, ptxas string, args []string, src []byte) ([]byte, error) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "m.ptx"), filepath.Join(dir, "m.cubin")
	if err := os.WriteFile(in, src, 0o666); err != nil {
		return nil, err
	}
	cmd := exec.Command(ptxas, append(args, "-o", "m.cubin", "m.ptx")...)
	cmd.Dir = dir
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, msg)
	}
	image, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	if len(image) > 24 {
		image[20], image[21], image[22], image[23] = 1, 0, 0, 0 // cubins have a version of their own
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".text") || strings.HasPrefix(s.Name, ".nv.constant") ||
			strings.HasPrefix(s.Name, ".nv.global.init") {
			b, err := s.Data()
			if err != nil {
				return nil, err
			}
			all = append(append(all, s.Name...), b...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the cubin holds no code")
	}
	return all, nil
}

// TestRegisterSets: a register set costs one node, whatever its size.
func TestRegisterSets(t *testing.T) {
	src := ".version 8.0\n.target sm_90\n.entry k() {\n.reg .b32 %r<16000000>;\nret;\n}\n"
	m, err := Parse("x", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	vs := m.Decls[0].(*Func).Body.Stmts[0].(*VarStmt)
	if v := vs.Vars[0]; len(vs.Vars) != 1 || v.Name != "%r" || v.Count != 16000000 {
		t.Errorf("got %+v", v)
	}
}

// TestPositions: an instruction knows where it stands, comments and tabs counted.
func TestPositions(t *testing.T) {
	src := ".version 8.0\n.target sm_90\n.entry k() {\n/* a\n b */ ret; // c\n\t@%p1 bra L;\n}\n"
	m, err := Parse("x", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	body := m.Decls[0].(*Func).Body
	for i, want := range []Pos{{51, 5, 7}, {62, 6, 2}} {
		if got := body.Stmts[i].(*Inst).Pos; got != want {
			t.Errorf("statement %d at %+v, want %+v", i, got, want)
		}
	}
}

// TestSharedSlices: appending to one node's slice must not reach its neighbour.
func TestSharedSlices(t *testing.T) {
	src := ".version 8.0\n.target sm_90\n.entry k() {\nadd.u32 a, b, c; sub.u32 d, e, f;\n}\n"
	m, err := Parse("x", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	body := m.Decls[0].(*Func).Body
	first := body.Stmts[0].(*Inst)
	_ = append(first.Mods, "sat")
	_ = append(first.Args, &Sink{})
	if got := body.Stmts[1].(*Inst).String(); got != "sub.u32 d, e, f" {
		t.Errorf("second instruction became %q", got)
	}
}

// TestLimits: hostile sources fail, and none of them overflows the stack.
func TestLimits(t *testing.T) {
	head := ".version 8.0\n.target sm_90\n"
	many := func(s string) string { return strings.Repeat(s, 1_000_000) }
	for name, src := range map[string]string{
		"blocks":      head + ".entry k() " + many("{"),
		"parentheses": head + ".global .u32 x = " + many("("),
		"signs":       head + ".global .u32 x = " + many("-"),
		"casts":       head + ".global .u32 x = " + many("(.u64)"),
		"conditions":  head + ".global .u32 x = " + many("1?"),
		"initializer": head + ".global .u32 x[1] = " + many("{"),
		"vectors":     head + ".entry k() { mov.b32 " + many("{"),
		"addresses":   head + ".entry k() { ld.b32 x, " + many("[a,"),
		"pairs":       head + ".entry k() { setp " + many("a|"),
		"dimensions":  head + ".global .u32 x" + many("[2]") + ";",
		"elements":    head + ".global .u32 x[0x7fffffffffff][0x7fffffffffff];",
		"registers":   head + ".entry k() { .reg .b32 %r<4000000000>; }",
		"comment":     head + "/*" + many("*"),
		"string":      head + ".pragma \"" + many("x"),
		"name":        head + ".entry k() { " + many("x"),
		"garbage":     head + many("\x01\xff"),
		"semicolons":  head + ".entry k() { " + many(") ;"),
		"nothing":     "",
		"zeros":       many("\x00"),
	} {
		if m, err := Parse(name, []byte(src)); err == nil {
			t.Errorf("%s: accepted as %d declarations", name, len(m.Decls))
		} else if n := len(err.(ErrorList)); n > MaxErrors {
			t.Errorf("%s: %d errors", name, n)
		} else if len(err.Error()) > 400 {
			t.Errorf("%s: error of %d bytes", name, len(err.Error()))
		}
	}
	big := make([]byte, MaxSource+1)
	if _, err := Parse("big", big); err == nil {
		t.Error("a source above MaxSource was accepted")
	}
}

// TestNodeLimit: dense sources are bounded by nodes, not by bytes.
func TestNodeLimit(t *testing.T) {
	p := &parser{file: "x", nodes: maxNodes - 100}
	p.scan = scanner{src: ".version 8.0\n.target sm_90\n.entry k() {" + strings.Repeat("a:", 200) + "}", line: 1}
	if m := p.module(); len(p.errs) == 0 {
		t.Errorf("accepted %d statements", len(m.Decls[0].(*Func).Body.Stmts))
	}
}

// FuzzParse: no input makes Parse panic, and what it accepts survives a round
// trip through the printer.
func FuzzParse(f *testing.F) {
	for _, src := range corpus(f) {
		f.Add([]byte(src))
	}
	a := readArchive(f, "testdata/errors.txtar")
	for _, name := range a.names {
		f.Add([]byte(a.files[name]))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := Parse("fuzz", src)
		if err != nil {
			return
		}
		if err := roundTrip(m); err != nil {
			t.Fatal(err)
		}
		Check(m)
		if _, err := AppendJSON(nil, m); err != nil {
			t.Fatal(err)
		}
	})
}

func benchmarkSource(b *testing.B) []byte {
	src := corpus(b)["nvcc.txtar/kernels.ptx"]
	head, body, ok := strings.Cut(src, ".address_size 64\n")
	if !ok {
		b.Fatal("no source to parse")
	}
	return []byte(head + ".address_size 64\n" + strings.Repeat(body, 1+(1<<20)/len(body)))
}

// BenchmarkParse reports MB/s of one core; the target is 50.
func BenchmarkParse(b *testing.B) {
	src := benchmarkSource(b)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("bench", src); err != nil {
			b.Fatalf("%+v", err)
		}
	}
}

func BenchmarkFormat(b *testing.B) {
	m, err := Parse("bench", benchmarkSource(b))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(Format(m))))
	for b.Loop() {
		Format(m)
	}
}
