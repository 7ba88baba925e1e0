package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// What instructions and special registers are is said by the instruction table. These packages ask it, and know no
// mnemonic; the software GPU, which executes each instruction, is not among them.
var knowNoMnemonic = []string{"../ir", "../footprint", "../foresee", "../recorder", "../trace", "../tap"}

// ownWords are files in which a word of the package's own text form may be the same as an opcode.
var ownWords = []string{"../ir/print.go"}

func TestNoMnemonics(t *testing.T) {
	word := mnemonics()
	for _, dir := range knowNoMnemonic {
		files := 0
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				slices.Contains(ownWords, path) {
				return err
			}
			files++
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, x := range asked(f, strings.Contains(path, "/fromptx/"), word) {
				t.Errorf("%v: %s is a mnemonic: the instruction table says what that is", set.Position(x.Pos()),
					x.Value)
			}
			return nil
		})
		if err != nil || files == 0 {
			t.Errorf("%s: %d files, %v", dir, files, err)
		}
	}
}

// The test sees the ways in which code asks for an instruction by its name.
func TestNoMnemonicsBites(t *testing.T) {
	word := mnemonics()
	for src, want := range map[string]int{
		`func f(in inst) bool { return in.Op == "bar" }`:                                  1,
		`func f(in inst) bool { return strings.HasPrefix(in.Name, "cp.async.bulk") }`:     1,
		`func f(in inst) bool { return strings.HasPrefix(in.Name, "wmma.") }`:             1,
		`func f(in inst) bool { return strings.Contains(in.Name, ".sys") }`:               1,
		`func f(in inst) int { switch in.Op { case "ret", "exit": return 1 }; return 0 }`: 2,
		`var levels = map[string]int{"tid.x": 1, "gridid": 2}`:                            2,
		`var wide = map[string]int{".wide": 2}`:                                           1,
		`func f() { g("cvt.rzi.s32.f32", "a word", "an instruction is not known") }`:      1,
		`func f() error { return errors.New("call without a callee") }`:                   0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := asked(f, false, word); len(got) != want {
			t.Errorf("%s: found %d, want %d", src, len(got), want)
		}
	}
	// A front end names modifiers in its tables, but asks for no opcode.
	const front = "package x\nvar updates = map[string]int{\"add\": 1}\nfunc f(in inst) bool { return in.Op == " +
		"\"add\" }"
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", front, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if got := asked(f, true, word); len(got) != 1 {
		t.Errorf("in a front end: found %d, want 1", len(got))
	}
}

// asked are the literals of a file that name an instruction, a modifier or a special register. An opcode alone, which
// may be a word like another, counts where it is compared, is a key, or is searched for. In a front end the keys of
// its tables do not count: they are modifiers.
func asked(f *ast.File, frontEnd bool, word *regexp.Regexp) []*ast.BasicLit {
	var list []*ast.BasicLit
	compared := map[ast.Expr]bool{}
	mark := func(list ...ast.Expr) {
		for _, x := range list {
			compared[x] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			if x.Op == token.EQL || x.Op == token.NEQ {
				mark(x.X, x.Y)
			}
		case *ast.CaseClause:
			mark(x.List...)
		case *ast.CallExpr:
			if fn, ok := x.Fun.(*ast.SelectorExpr); ok {
				if pkg, ok := fn.X.(*ast.Ident); ok && (pkg.Name == "strings" || pkg.Name == "slices") {
					mark(x.Args...)
				}
			}
		case *ast.IndexExpr:
			mark(x.Index)
		case *ast.KeyValueExpr:
			if !frontEnd {
				mark(x.Key)
			}
		case *ast.BasicLit:
			s, err := strconv.Unquote(x.Value)
			if err != nil || x.Kind != token.STRING || !word.MatchString(s) {
				break
			}
			if strings.Contains(s, ".") || compared[x] {
				list = append(list, x)
			}
		}
		return true
	})
	return list
}

// mnemonics matches an opcode alone or with modifiers, a modifier with its dot, and a special register.
func mnemonics() *regexp.Regexp {
	var ops, registers []string
	for _, f := range isa.Forms() {
		op, _, _ := strings.Cut(f.Op, ".")
		ops = append(ops, op)
	}
	ops = append(ops, isa.Missing()...)
	for _, name := range ptx.SpecialRegisters() {
		registers = append(registers, strings.TrimRight(name[1:], "0"))
	}
	slices.Sort(ops)
	const modifiers = `wide|sys|gpu|ftz|volatile|aligned|sync|global|shared|relaxed|acquire|release|noftz|sat|hi|lo`
	return regexp.MustCompile(`^(?:` + strings.Join(slices.Compact(ops), "|") + `)(?:\.[\w:.]*)?$` +
		`|^\.(?:` + modifiers + `)(?:\.[\w:.]*)?$|^%?(?:` + strings.Join(registers, "|") + `)\d*(?:\.[xyzw])?$`)
}
