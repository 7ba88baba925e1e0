// Package layout holds the import directions of this module: what may not know of
// what. It has no code, only this test.
package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "holdfast/"

// A rule says what a package, or every package below it ("…/"), must not import, or (with
// only) what alone of this module it may import; directly or through others.
type rule struct {
	of     string
	forbid []string
	only   []string
	why    string
}

var rules = []rule{
	{of: "ptx/", only: []string{"ptx"}, why: "ptx is public: users of it get the standard library and nothing of ours"},
	{of: "internal/isa", only: []string{"ptx"},
		why: "the instruction table stands below everything that is driven by it"},
	{of: "internal/interval", only: nil, why: "arithmetic"},
	{of: "internal/ir", only: []string{"internal/interval"}, why: "passes know neither a language nor what uses them"},
	{of: "internal/ir/fromptx", only: []string{"ptx", "internal/isa", "internal/ir", "internal/interval"},
		why: "a front end knows its language and the form it makes"},
	{of: "internal/fatbin", only: nil, why: "a decoder of hostile bytes; nothing else belongs there"},
	{of: "internal/softgpu/", forbid: []string{"internal/footprint", "internal/footprint/form",
		"internal/footprint/summarise"}, why: "the software GPU is the oracle of footprints: it may not share code " +
		"with them"},
	{of: "internal/softgpu/", forbid: []string{"internal/process", "internal/snapshot", "internal/image",
		"internal/checkpoint", "internal/wire"}, why: "it plays the hardware, and hardware knows nothing of holdfast"},
	{of: "internal/softgpu/gpuwire", only: []string{"internal/cuda/api"},
		why: "a protocol must not depend on its ends"},
	{of: "internal/softgpu/number", only: []string{"ptx", "internal/isa"},
		why: "arithmetic of bits: it knows types and flags of instructions, and nothing that executes them"},
	{of: "internal/softgpu/lanes", only: []string{"internal/softgpu/number", "ptx", "internal/isa"},
		why: "32 lanes are 32 times the same number: it knows neither warps nor memory"},
	{of: "internal/softgpu/observe", only: []string{"ptx", "internal/isa"},
		why: "a record of accesses is no part of what makes them: whoever compares it may use it"},
	{of: "internal/footprint/form", only: []string{"internal/interval"},
		why: "the language of kernels and launches is numbers"},
	{of: "internal/footprint", only: []string{"internal/footprint/form", "internal/interval", "internal/isa", "ptx"},
		why: "a launch asks numbers: it knows neither a kernel nor the form of one"},
	{of: "internal/footprint/summarise", only: []string{"ptx", "internal/isa", "internal/ir", "internal/footprint",
		"internal/interval"},
		why: "what is checked may not use its oracle, nor anything that it is used by"},
	{of: "internal/foresee", only: []string{"internal/interval", "ptx", "internal/isa", "internal/ir",
		"internal/footprint", "internal/trace", "internal/cuda"},
		why: "predictions are made of what was told, not of what is there"},
	{of: "internal/trace", only: []string{"internal/cuda"},
		why: "recordings are read where nothing else of holdfast is"},
	{of: "internal/tap", only: []string{"internal/trace", "internal/wire", "internal/fatbin"},
		why: "what programs tell is read the same way by all"},
	{of: "internal/recorder", only: []string{"internal/tap", "internal/trace", "internal/wire", "internal/fatbin",
		"internal/recording", "internal/newfile", "internal/cuda/api"},
		why: "a recorded program is not held"},
	{of: "internal/newfile", only: nil, why: "everybody may write files"},
	{of: "internal/recording", only: []string{"internal/trace", "internal/newfile"},
		why: "recordings are read where nothing else of holdfast is"},
	{of: "internal/recording/relocate", only: []string{"internal/recording", "internal/trace", "internal/newfile"},
		why: "it compares two files"},
	{of: "internal/recording/signature", only: nil, why: "keys and signatures are bytes, whatever they sign"},
	{of: "internal/replay", only: []string{"internal/recording", "internal/newfile", "internal/trace",
		"internal/engine"},
		why: "a replayer is small"},
	{of: "internal/replay/verify", only: []string{"internal/recording", "internal/newfile", "internal/trace",
		"internal/footprint", "internal/ir", "internal/interval", "internal/isa", "internal/cuda", "ptx"},
		why: "what is looked at before anything runs can run nothing"},
	{of: "cmd/hfreplay", forbid: []string{"internal/replay/verify", "internal/footprint", "ptx"},
		why: "it stays small: who wants a recording verified has holdfast do it"},
	{of: "internal/serve", only: []string{"internal/recording", "internal/newfile", "internal/trace",
		"internal/engine"},
		why: "a server answers for whatever player it is given"},
	{of: "internal/replay", forbid: []string{"internal/engine/driver"},
		why: "recordings run on whatever engine is given"},
	{of: "internal/replay/command", forbid: []string{"internal/engine/driver", "internal/engine/raw",
		"internal/cuda/native"},
		why: "each command brings the backends that it has"},
	{of: "cmd/hfreplay", forbid: []string{"internal/engine/driver", "internal/cuda/native", "internal/softgpu"},
		why: "it is static and small: no CUDA library, no loader"},
	{of: "internal/engine/driver", only: []string{"internal/engine", "internal/cuda"},
		why: "a backend knows its driver, not what runs on it"},
	{of: "internal/pack", only: nil, why: "decisions are made of numbers: clocks and devices are the caller's"},
	{of: "internal/pack/machine", only: []string{"internal/pack", "internal/engine"},
		why: "it runs copies of recordings, and knows none"},
	{of: "internal/pack/panel", only: []string{"internal/pack", "internal/pack/machine", "internal/engine"},
		why: "it shows what the machine says, and asks nothing else"},
	{of: "internal/pack/sim", only: []string{"internal/pack"}, why: "simulated devices are numbers too"},
	{of: "internal/npy", only: nil, why: "a format of files"},
	{of: "internal/cuda", only: nil, why: "types and the Driver interface: everything else may import them"},
	{of: "internal/cuda/native", only: []string{"internal/cuda"}, why: "a driver is a driver, whoever uses it"},
	{of: "internal/rm", only: nil, why: "the resource manager's ABI is bytes and device files, whoever uses them"},
	{of: "internal/rm/rmtest", only: []string{"internal/rm"},
		why: "it plays the driver, and a driver knows nothing of its users"},
	{of: "internal/qmd", only: nil, why: "launch descriptors are bytes"},
	{of: "internal/cubin", only: []string{"internal/fatbin"}, why: "placing code touches no device"},
	{of: "internal/engine", only: nil, why: "an interface: its backends and its users know nothing of each other"},
	{of: "internal/hfx", only: nil, why: "a format of files; another reader of it is in C"},
	{of: "internal/hfx/player", only: []string{"internal/hfx", "internal/newfile"}, why: "two files made one"},
	{of: "internal/replay/link", forbid: []string{"internal/engine/driver", "internal/cuda/native"},
		why: "linking needs no GPU and no library"},
	{of: "internal/engine/raw", only: []string{"internal/engine", "internal/rm", "internal/qmd", "internal/cubin",
		"internal/fatbin", "internal/hfx"},
		why: "the smallest replayer takes it: it needs neither libcuda nor the dynamic loader"},
	{of: "internal/wire", only: nil, why: "a protocol must not depend on its ends"},
	{of: "internal/keeper", only: nil, why: "the keeper outlives every bug of the rest: it has nothing of the rest " +
		"in it"},
	{of: "internal/criu", only: []string{"internal/owned", "internal/procstat"}, why: "the CPU side stands alone"},
	{of: "internal/procstat", only: nil, why: "everybody may ask whether a process is there"},
	{of: "internal/owned", only: nil, why: "everybody may ask whose a path is"},
	{of: "internal/snapshot/digest", only: nil, why: "images are verified without a GPU: the digest is pure"},
	{of: "internal/snapshot", forbid: []string{"internal/image", "internal/store", "internal/criu"},
		why: "the GPU side writes into a sink and does not know images"},
	{of: "internal/image", forbid: []string{"internal/snapshot", "internal/cuda/native", "internal/criu",
		"internal/process"},
		why: "images are read, verified and moved on machines without a GPU"},
	{of: "internal/store", forbid: []string{"internal/snapshot", "internal/cuda/native", "internal/criu",
		"internal/process"},
		why: "images are read, verified and moved on machines without a GPU"},
	{of: "internal/process", forbid: []string{"internal/snapshot", "internal/image", "internal/criu"},
		why: "a held program does not know what is done with it"},
	{of: "internal/daemon/api", only: nil, why: "clients stay small: the interface's types import nothing"},
	{of: "internal/client", only: []string{"internal/daemon/api", "internal/owned", "internal/procstat"},
		why: "a client of the daemon must not contain the daemon"},
	{of: "internal/embedded", only: []string{"internal/owned"}, why: "two files and where they go"},
	{of: "cmd/holdfast", forbid: []string{"internal/corpus", "internal/corpus/measure"},
		why: "what holdfast is tested and measured with is no part of it"},
	{of: "internal/", forbid: []string{"internal/daemon"},
		why: "the daemon wires libraries together; a library that imports it closes a circle"},
}

func TestImports(t *testing.T) {
	imports := moduleImports(t)
	for _, r := range rules {
		for pkg := range imports {
			if matches(r.of, pkg) {
				check(t, r, pkg, reach(imports, pkg))
			}
		}
	}
}

// Every rule can fail: a made-up import that breaks it, by way of another package, is found. It must be one that Go
// would build: what would close a circle of imports needs no rule, and nobody can import a command.
func TestRulesBite(t *testing.T) {
	imports, commands := modulePackages(t)
	for _, bad := range toothless(rules, imports, commands) {
		t.Error(bad)
	}
}

func TestToothless(t *testing.T) {
	imports := map[string][]string{"a": {"b"}, "b": nil, "c": nil, "d": nil, "cmd": {"c"}, "a/x": nil}
	got := toothless([]rule{
		{of: "a", only: []string{"b"}},
		{of: "gone", only: nil},
		{of: "c", only: []string{"a", "b", "d"}},
		{of: "a/", forbid: []string{"c", "a"}},
		{of: "b", forbid: []string{"a", "c", "gone", "cmd"}},
	}, imports, map[string]bool{"cmd": true})
	want := []string{
		`the rule of "gone" cannot fail: no package is meant`,
		`the rule of "c" cannot fail: nothing is left that it refuses`,
		`the rule of "b" cannot fail for "a"`,
		`the rule of "b" cannot fail for "gone"`,
		`the rule of "b" cannot fail for "cmd"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// toothless says which rules, and which names in them, no import could break.
func toothless(rules []rule, imports map[string][]string, commands map[string]bool) (bad []string) {
	all := slices.Sorted(maps.Keys(imports))
	for _, r := range rules {
		of := slices.DeleteFunc(slices.Clone(all), func(p string) bool { return !matches(r.of, p) })
		bites := func(dep string) bool {
			return slices.ContainsFunc(of, func(pkg string) bool { return breaks(r, pkg, dep, imports, commands) })
		}
		switch {
		case len(of) == 0:
			bad = append(bad, fmt.Sprintf("the rule of %q cannot fail: no package is meant", r.of))
		case r.forbid == nil:
			if !slices.ContainsFunc(all, bites) {
				bad = append(bad, fmt.Sprintf("the rule of %q cannot fail: nothing is left that it refuses", r.of))
			}
		}
		for _, f := range r.forbid {
			if len(of) > 0 && !bites(f) {
				bad = append(bad, fmt.Sprintf("the rule of %q cannot fail for %q", r.of, f))
			}
		}
	}
	return bad
}

// breaks reports whether the rule refuses that pkg comes to import dep, where Go does not.
func breaks(r rule, pkg, dep string, imports map[string][]string, commands map[string]bool) bool {
	below := reach(imports, dep)
	if _, ok := imports[dep]; !ok || commands[dep] || dep == pkg || below[pkg] != "" {
		return false
	}
	const third = "made up"
	offended := maps.Clone(imports)
	offended[third] = []string{dep}
	offended[pkg] = append(slices.Clone(imports[pkg]), third)
	return slices.Contains(broken(r, pkg, reach(offended, pkg)), dep)
}

func matches(of, pkg string) bool {
	if below, ok := strings.CutSuffix(of, "/"); ok {
		return pkg == below || strings.HasPrefix(pkg, of)
	}
	return pkg == of
}

func check(t *testing.T, r rule, pkg string, reached map[string]string) {
	t.Helper()
	for _, bad := range broken(r, pkg, reached) {
		via := reached[bad]
		t.Errorf("%s imports %s (by way of %s): %s", pkg, bad, via, r.why)
	}
}

func broken(r rule, pkg string, reached map[string]string) []string {
	var bad []string
	for dep := range reached {
		if dep == pkg {
			continue
		}
		if r.forbid != nil {
			for _, f := range r.forbid {
				if dep == f {
					bad = append(bad, dep)
				}
			}
			continue
		}
		allowed := matches(r.of, dep) && strings.HasSuffix(r.of, "/")
		for _, o := range r.only {
			allowed = allowed || dep == o || strings.HasPrefix(dep, o+"/")
		}
		if !allowed {
			bad = append(bad, dep)
		}
	}
	return bad
}

// reach returns every package of the module that pkg imports, directly or not, with the
// one that imports it.
func reach(imports map[string][]string, pkg string) map[string]string {
	reached := map[string]string{}
	var walk func(p string)
	walk = func(p string) {
		for _, dep := range imports[p] {
			if _, seen := reached[dep]; !seen {
				reached[dep] = p
				walk(dep)
			}
		}
	}
	walk(pkg)
	return reached
}

// moduleImports lists the packages of this module and what each imports of it, tests
// left out.
func moduleImports(t *testing.T) map[string][]string {
	t.Helper()
	imports, _ := modulePackages(t)
	return imports
}

// modulePackages is moduleImports, and says which of them are commands.
func modulePackages(t *testing.T) (imports map[string][]string, commands map[string]bool) {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Name", path.Clean(module)+"/...")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	imports, commands = make(map[string][]string), make(map[string]bool)
	for dec := json.NewDecoder(out); ; {
		var p struct {
			ImportPath, Name string
			Imports          []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		imports[name] = nil
		commands[name] = p.Name == "main"
		for _, i := range p.Imports {
			if dep, ours := strings.CutPrefix(i, module); ours {
				imports[name] = append(imports[name], dep)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(imports) < 5 {
		t.Fatalf("only %d packages found", len(imports))
	}
	return imports, commands
}
