package api

import (
	"strings"
	"testing"
)

func TestFunctions(t *testing.T) {
	fns, err := Functions()
	if err != nil {
		t.Fatal(err)
	}
	symbols := map[string]bool{}
	for _, f := range fns {
		if len(f.Symbols) == 0 || f.Canonical() == nil {
			t.Errorf("%s has no symbol with parameters", f.Name)
		}
		for _, s := range f.Symbols {
			if symbols[s.Name] {
				t.Errorf("%s stands there twice", s.Name)
			}
			symbols[s.Name] = true
			if s.PerThread == "_ptsz" && s.Stream() < 0 && s.Name != "cuLaunchKernelEx" &&
				s.Name != "cuGraphInstantiateWithParams" {
				t.Errorf("%s has a per-thread twin and no stream", s.Name)
			}
			for _, p := range s.Params {
				if p.Count != "" && !strings.ContainsAny(p.Count, "0123456789") && !hasParam(s, p.Count) {
					t.Errorf("%s: %s is counted by %s, which is no parameter", s.Name, p.Name, p.Count)
				}
			}
		}
		if f.Submit && (f.Class == Query || f.Class == Ctx || f.Class == Module) {
			t.Errorf("%s submits work and is of class %s", f.Name, f.Class)
		}
	}
	if len(fns) < 450 {
		t.Errorf("%d functions", len(fns))
	}
}

func hasParam(s Symbol, name string) bool {
	for _, p := range s.Params {
		if p.Name == name {
			return true
		}
	}
	return false
}

// What driver 580.159.04 answered to cuGetProcAddress.
func TestResolve(t *testing.T) {
	fns, err := Functions()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		version int
		want    string
	}{
		{"cuMemAlloc", 2000, "cuMemAlloc"},
		{"cuMemAlloc", 13000, "cuMemAlloc_v2"},
		{"cuCtxCreate", 12040, "cuCtxCreate_v3"},
		{"cuCtxCreate", 12050, "cuCtxCreate_v4"},
		{"cuGraphInstantiate", 12080, "cuGraphInstantiate_v2"},
		{"cuStreamGetCaptureInfo", 12020, "cuStreamGetCaptureInfo_v2"},
		{"cuLaunchKernelEx", 11050, ""},
	} {
		for _, f := range fns {
			if f.Name != c.name {
				continue
			}
			got := ""
			if s := f.Resolve(c.version); s != nil {
				got = s.Name
			}
			if got != c.want {
				t.Errorf("%s at %d: %q, want %q", c.name, c.version, got, c.want)
			}
		}
	}
}

func TestParse(t *testing.T) {
	fns, err := Parse("1 cuF copy submit hand\n 3020 cuF_v2+ptds (const char *name, [out n] CUnode *list, unsigned " +
		"long long *x, [raw] void **p, CUstream s)\n")
	if err != nil {
		t.Fatal(err)
	}
	s := fns[0].Symbols[0]
	if s.PerThread != "_ptds" || s.Stream() != 4 || !fns[0].Submit || fns[0].ID() != "F" {
		t.Errorf("%+v", fns[0])
	}
	if got, want := s.C(), "const char *name, CUnode *list, unsigned long long *x, void **p, CUstream s"; got != want {
		t.Errorf("C: %s, want %s", got, want)
	}
	for i, want := range []Pass{InString, OutArray, Out, Raw, In} {
		if s.Params[i].Pass != want {
			t.Errorf("parameter %d: pass %d, want %d", i, s.Params[i].Pass, want)
		}
	}
	if s.Params[2].Elem() != "unsigned long long" || s.Params[1].Count != "n" {
		t.Errorf("%+v", s.Params)
	}
	for _, bad := range []string{
		" 3020 cuF (void)",
		"x cuF copy",
		"1 cuF",
		"1 cuF nonsense",
		"1 cuF copy loudly",
		"1 cuF copy\n1 cuG copy",
		"1 cuF copy\n2 cuF copy",
		"1 cuF copy\n x cuF (void)",
		"1 cuF copy\n 1 cuF+ptxx (void)",
		"1 cuF copy\n 1 cuF void",
		"1 cuF copy\n 1 cuF ([in int x)",
		"1 cuF copy\n 1 cuF ([sideways] int x)",
		"1 cuF copy\n 20 cuF_v2 (void)\n 10 cuF (void)",
	} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestResults(t *testing.T) {
	rs, err := Results()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if !strings.HasPrefix(r.Name, "CUDA_") || r.Text == "" {
			t.Errorf("%+v", r)
		}
	}
}

func TestOpString(t *testing.T) {
	if s := OpMemAlloc.String(); s != "cuMemAlloc" {
		t.Error(s)
	}
	if s := Op(65535).String(); s != "op(65535)" {
		t.Error(s)
	}
}
