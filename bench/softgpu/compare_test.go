package main

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/softgpu/probe"
)

func words(x ...uint32) []byte {
	var b []byte
	for _, w := range x {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func TestCompareProbe(t *testing.T) {
	f := math.Float32bits
	exact := &probe.Probe{Spelling: "x", OutStride: 8, Result: "f32"}
	near := &probe.Probe{Spelling: "x", OutStride: 8, Rule: probe.Rule{Elem: "f32", Elems: 1, Rel: 0x1p-20}}
	matrix := &probe.Probe{Spelling: "x", OutStride: 8, Rule: probe.Rule{Elem: "f32", Elems: 2, Scale: 0x1p-20,
		ExactRounds: 1}}
	for _, c := range []struct {
		name      string
		p         *probe.Probe
		round     int
		soft, gpu []byte
		mag       []byte
		status    string
		nan       bool
		at        int
	}{
		{"equal", exact, 0, words(1, 2, 3, 4), words(1, 2, 3, 4), nil, equal, false, 0},
		{"one bit", exact, 0, words(1, 2, 3, 4), words(1, 2, 3, 5), nil, differs, false, 12},
		{"NaN payloads", exact, 0, words(0x7fffffff, 2), words(0x7fc00000, 2), nil, differs, true, 0},
		{"NaN and number", exact, 0, words(0x7fffffff, 2), words(0, 2), nil, differs, false, 0},
		{"within", near, 0, words(f(1), 7), words(f(1)+1, 7), nil, within, false, 0},
		{"beyond", near, 0, words(f(1), 7), words(f(1.001), 7), nil, differs, false, 0},
		{"behind the elements", near, 0, words(f(1), 7), words(f(1), 8), nil, differs, false, 4},
		{"infinite and largest", near, 0, words(0x7f800000, 7), words(0x7f7fffff, 7), nil, within, false, 0},
		{"infinite and not", near, 0, words(0x7f800000, 7), words(f(1), 7), nil, differs, false, 0},
		{"signs", near, 0, words(f(1), 7), words(f(-1), 7), nil, differs, false, 0},
		{"small sum of large products", matrix, 1, words(f(0x1p-20), f(1)), words(f(0), f(1)), words(f(8), f(1)),
			within, false, 0},
		{"small sum of small products", matrix, 1, words(f(0x1p-20), f(1)), words(f(0), f(1)), words(f(0x1p-20), f(1)),
			differs, false, 0},
		{"exact round", matrix, 0, words(f(1), f(1)), words(f(1)+1, f(1)), words(f(8), f(1)), differs, false, 0},
		{"NaN went in", matrix, 1, words(0x7fffffff, f(1)), words(0x7fc00001, f(1)), words(0x7fffffff, f(1)),
			within, false, 0},
	} {
		r := compareProbe(c.p, c.round, c.soft, c.gpu, c.mag)
		if r.Status != c.status || r.NaNOnly != c.nan || r.At != c.at {
			t.Errorf("%s: %s, NaN only %v, at %d; want %s, %v, %d", c.name, r.Status, r.NaNOnly, r.At, c.status,
				c.nan, c.at)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		elem string
		bits uint64
		want float64
	}{{"f16", 0x3c00, 1}, {"f16", 0x8001, -0x1p-24}, {"f16", 0x7bff, 65504}, {"f16", 0x7c00, 65536},
		{"bf16", 0x3f80, 1}, {"f32", 0xff800000, -0x1p128}, {"f64", 0x3ff0000000000000, 1}} {
		if got, nan := number(c.elem, c.bits); got != c.want || nan {
			t.Errorf("%s %#x: %v", c.elem, c.bits, got)
		}
	}
	if _, nan := number("f16", 0x7c01); !nan {
		t.Error("a NaN is a number")
	}
}

// Every probe that ptxas 12.4 knows is in one unit, with others of its target; carry chains come first.
func TestPlan(t *testing.T) {
	us, err := options{}.plan()
	if err != nil {
		t.Fatal(err)
	}
	if f := us[0].family(); !strings.HasPrefix(f, "carry chains") {
		t.Errorf("the first unit is of %s", f)
	}
	seen := map[string]bool{}
	for _, u := range us {
		for _, p := range u.probes {
			if seen[p.ID()] {
				t.Errorf("%s is in two units", p.ID())
			}
			seen[p.ID()] = true
			if p.Target != u.probes[0].Target || p.Version != u.probes[0].Version {
				t.Errorf("%s: target %s in a unit of %s", p.ID(), p.Target, u.probes[0].Target)
			}
		}
	}
	refused := probe.Refused()
	for _, p := range probe.All() {
		if !seen[p.ID()] && refused[p.ID()] == "" {
			t.Errorf("%s is in no unit", p.ID())
		}
	}
	if few := slices.IndexFunc(us, func(u unit) bool { return len(u.probes) > perModule }); few >= 0 {
		t.Errorf("unit %d has %d probes", few, len(us[few].probes))
	}
}

// What a run sums up, and that a difference in the self-check's place is told.
func TestReport(t *testing.T) {
	c := &comparison{units: make([]unit, 2), done: 1, results: []Result{
		{ID: "add", Family: "integer", Status: equal}, {ID: "add", Family: "integer", Round: 1, Status: differs,
			NaNOnly: true, Soft: "00", GPU: "01"},
		{ID: "ex2", Family: "approximate", Status: within, Worst: 0.5},
		{ID: "ex3", Family: "approximate", Status: refusedGPU},
		{ID: "ex4", Family: "approximate", Status: failed, Detail: "why"},
	}}
	r := c.result(false)
	if r.Complete || r.Totals.Pairs != 3 || r.Totals.Names != 4 || r.Totals.NaNOnly != 1 || len(r.Results) != 4 ||
		r.Rows[0].Family != "approximate" || r.Rows[0].Worst != 0.5 {
		t.Errorf("%+v", r)
	}
	var b strings.Builder
	r.markdown(&b)
	for _, want := range []string{"**Not complete**: 1 of 2", "| integer | 1 | 2 | 1 | 0 |  | 1 | 1 |",
		"- `add`, input 1:", "- `ex4`, input 0: why"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
