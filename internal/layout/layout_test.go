// Package layout holds the import directions of this module: what may not know of
// what. It has no code, only this test.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
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
	{of: "internal/isa", only: []string{"ptx"}, why: "the instruction table stands below everything that is driven by it"},
	{of: "internal/interval", only: nil, why: "arithmetic"},
	{of: "internal/ir", only: []string{"internal/interval"}, why: "passes know neither a language nor what uses them"},
	{of: "internal/ir/fromptx", only: []string{"ptx", "internal/isa", "internal/ir", "internal/interval"},
		why: "a front end knows its language and the form it makes"},
	{of: "internal/fatbin", only: nil, why: "a decoder of hostile bytes; nothing else belongs there"},
	{of: "internal/softgpu/", forbid: []string{"internal/footprint", "internal/footprint/form", "internal/footprint/summarise"}, why: "the software GPU is the oracle of footprints: it may not share code with them"},
	{of: "internal/softgpu/", forbid: []string{"internal/process", "internal/snapshot", "internal/image", "internal/checkpoint", "internal/wire"}, why: "it plays the hardware, and hardware knows nothing of holdfast"},
	{of: "internal/softgpu/gpuwire", only: []string{"internal/cuda/api"}, why: "a protocol must not depend on its ends"},
	{of: "internal/footprint/form", only: []string{"internal/interval"}, why: "the language of kernels and launches is numbers"},
	{of: "internal/footprint", only: []string{"internal/footprint/form", "internal/interval", "internal/isa", "ptx"}, why: "a launch asks numbers: it knows neither a kernel nor the form of one"},
	{of: "internal/footprint/summarise", only: []string{"ptx", "internal/isa", "internal/ir", "internal/footprint", "internal/interval"},
		why: "what is checked may not use its oracle, nor anything that it is used by"},
	{of: "internal/foresee", only: []string{"internal/interval", "ptx", "internal/isa", "internal/ir", "internal/footprint", "internal/trace", "internal/cuda"}, why: "predictions are made of what was told, not of what is there"},
	{of: "internal/replay", only: []string{"internal/trace", "internal/cuda"}, why: "the replayer stays small enough to be read whole, and static"},
	{of: "internal/trace", only: []string{"internal/cuda"}, why: "recordings are read where nothing else of holdfast is"},
	{of: "internal/tap", only: []string{"internal/trace", "internal/wire", "internal/fatbin"}, why: "what programs tell is read the same way by all"},
	{of: "internal/recorder", only: []string{"internal/tap", "internal/trace", "internal/wire", "internal/fatbin"}, why: "a recorded program is not held"},
	{of: "internal/cuda", only: nil, why: "types and the Driver interface: everything else may import them"},
	{of: "internal/cuda/native", only: []string{"internal/cuda"}, why: "a driver is a driver, whoever uses it"},
	{of: "internal/wire", only: nil, why: "a protocol must not depend on its ends"},
	{of: "internal/keeper", only: nil, why: "the keeper outlives every bug of the rest: it has nothing of the rest in it"},
	{of: "internal/criu", only: []string{"internal/owned"}, why: "the CPU side stands alone"},
	{of: "internal/owned", only: nil, why: "everybody may ask whose a path is"},
	{of: "internal/snapshot/digest", only: nil, why: "images are verified without a GPU: the digest is pure"},
	{of: "internal/snapshot", forbid: []string{"internal/image", "internal/store", "internal/criu", "internal/checkpoint"}, why: "the GPU side writes into a sink and does not know images"},
	{of: "internal/image", forbid: []string{"internal/snapshot", "internal/cuda/native", "internal/criu", "internal/process", "internal/checkpoint"}, why: "images are read, verified and moved on machines without a GPU"},
	{of: "internal/store", forbid: []string{"internal/snapshot", "internal/cuda/native", "internal/criu", "internal/process", "internal/checkpoint"}, why: "images are read, verified and moved on machines without a GPU"},
	{of: "internal/process", forbid: []string{"internal/snapshot", "internal/image", "internal/criu", "internal/checkpoint"}, why: "a held program does not know what is done with it"},
	{of: "internal/daemon/api", only: nil, why: "clients stay small: the interface's types import nothing"},
	{of: "internal/client", only: []string{"internal/daemon/api", "internal/owned"},
		why: "a client of the daemon must not contain the daemon"},
	{of: "internal/embedded", only: []string{"internal/owned"}, why: "two files and where they go"},
	{of: "internal/", forbid: []string{"cmd/holdfast"}, why: "a library does not know its command"},
}

// notBelowDaemon: every library package is below the daemon, but for the daemon's own.
var notBelowDaemon = rule{forbid: []string{"internal/daemon"}, why: "the daemon wires libraries together; a library that imports it closes a circle"}

func TestImports(t *testing.T) {
	imports := moduleImports(t)
	for _, r := range rules {
		for pkg := range imports {
			if matches(r.of, pkg) {
				check(t, r, pkg, reach(imports, pkg))
			}
		}
	}
	for pkg := range imports {
		if strings.HasPrefix(pkg, "internal/") && !strings.HasPrefix(pkg, "internal/daemon") || strings.HasPrefix(pkg, "ptx") {
			check(t, notBelowDaemon, pkg, reach(imports, pkg))
		}
	}
}

// The rules can fail: an import that one of them forbids is found, also through a third package.
func TestRulesBite(t *testing.T) {
	imports := map[string][]string{
		"internal/softgpu":   {"internal/ir"},
		"internal/ir":        {"internal/footprint"},
		"internal/footprint": nil,
	}
	for _, r := range rules {
		if r.of == "internal/softgpu/" && r.forbid[0] == "internal/footprint" {
			if bad := broken(r, "internal/softgpu", reach(imports, "internal/softgpu")); len(bad) != 1 {
				t.Errorf("softgpu → ir → footprint: found %v", bad)
			}
			return
		}
	}
	t.Error("the rule that keeps the oracle apart from footprints is gone")
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
		if dep == pkg || matches(r.of, dep) && strings.HasSuffix(r.of, "/") {
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
		allowed := false
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
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", path.Clean(module)+"/...")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	imports := make(map[string][]string)
	for dec := json.NewDecoder(out); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		imports[name] = nil
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
	return imports
}
