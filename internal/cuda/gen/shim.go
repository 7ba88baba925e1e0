package main

// The regular part of libholdfast.so: one wrapper for every exported symbol that passes the gate or that the shim
// answers itself, the pointers to the real functions, and the tables for dlsym and cuGetProcAddress. The rest of the
// shim is hand-written C in shim/.

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/cuda/api"
)

// launches are the records of launches, by how they are given; %s is the stream.
var launches = map[string]string{
	"":            "hf_work_launch(f, " + dims + ", sharedMemBytes, %s, kernelParams, extra, 0)",
	"cooperative": "hf_work_launch(f, " + dims + ", sharedMemBytes, %s, kernelParams, NULL, HF_REC_COOPERATIVE_FLAG)",
	"config":      "hf_work_launch_ex(config, f, kernelParams, extra, %s)",
}

const dims = "&(struct hf_dims){ { gridDimX, gridDimY, gridDimZ }, { blockDimX, blockDimY, blockDimZ }, { 1, 1, 1 } }"

// record is the C call that makes a record of a symbol's work before it is made.
func record(s shimSymbol, stream string) string {
	r := s.s.Record
	list := strings.Join(r.Args, ", ")
	switch r.Kind {
	case "launch":
		return fmt.Sprintf(launches[list], stream)
	case "graph":
		return fmt.Sprintf("hf_work_graph(%s, %s)", list, stream)
	case "host":
		return fmt.Sprintf("hf_work_host(%d, %s)", s.f.Op, stream)
	case "other":
		return fmt.Sprintf("hf_work_other(%d, %s)", s.f.Op, stream)
	case "copy":
		to, toFlag := place(r.Args[0], "HF_REC_DST")
		from, fromFlag := place(r.Args[1], "HF_REC_SRC")
		flags := slices.DeleteFunc([]string{toFlag, fromFlag}, func(f string) bool { return f == "" })
		return fmt.Sprintf("hf_work_copy(%d, %s, %s, %s, %s, %s)", s.f.Op,
			cmp.Or(strings.Join(flags, " | "), "0"), to, from,
			r.Args[2], stream)
	}
	return fmt.Sprintf("hf_work_%s(%d, %s, %s)", r.Kind, s.f.Op, list, stream)
}

// place is one end of a copy: the address in C, and the flag that says where it is.
func place(arg, prefix string) (address, flag string) {
	where, name, found := strings.Cut(arg, ":")
	switch {
	case where == "host":
		flag = prefix + "HOST_FLAG"
	case where == "array":
		flag = prefix + "ARRAY_FLAG"
	default:
		name, found = arg, true
	}
	if !found {
		return "0", flag
	}
	return "(uint64_t)(uintptr_t)" + name, flag
}

// noteMemory is the C call that tells a tap what memory came, after a call, or goes, before it.
func noteMemory(s *api.Symbol) (before, after string) {
	if s.Memory == nil {
		return "", ""
	}
	a := s.Memory.Args
	switch s.Memory.Kind {
	case "takes":
		size := "0"
		if len(a) > 1 {
			size = a[1]
		}
		return fmt.Sprintf("hf_note_free(%s, %s)", pointed(s, a[0], "CUdeviceptr"), size), ""
	case "maps":
		return "", fmt.Sprintf("hf_note_map(%s)", strings.Join(a, ", "))
	}
	size := pointed(s, a[2], "size_t")
	if len(a) > 3 {
		size += " * " + a[3]
	}
	return "", fmt.Sprintf("hf_note_alloc(HF_MEM_%s, %s, %s)", strings.ToUpper(a[0]),
		pointed(s, a[1], "CUdeviceptr"), size)
}

// pointed is the value of a parameter, or with a star of what it points to, as a number of C type t.
func pointed(s *api.Symbol, arg, t string) string {
	if name, ok := strings.CutPrefix(arg, "*"); ok {
		return fmt.Sprintf("*(%s *)%s", t, name)
	}
	i := slices.IndexFunc(s.Params, func(p api.Param) bool { return p.Name == arg })
	if i >= 0 && s.Params[i].Pointer() {
		return fmt.Sprintf("(%s)(uintptr_t)%s", t, arg)
	}
	return arg
}

// A shimSymbol is one exported name: a declared symbol or its per-thread twin.
type shimSymbol struct {
	f         *api.Function
	s         *api.Symbol
	name      string // with the suffix
	perThread bool
	hand      bool
	hooked    bool
}

func shimSymbols(fns []api.Function) []shimSymbol {
	var out []shimSymbol
	for i := range fns {
		f := &fns[i]
		for j := range f.Symbols {
			s := &f.Symbols[j]
			if s.Legacy {
				continue
			}
			sym := shimSymbol{f: f, s: s, name: s.Name, hand: s.Shim}
			sym.hooked = sym.hand || f.Gated || f.Calm
			out = append(out, sym)
			if s.PerThread != "" {
				sym.name += s.PerThread
				sym.perThread = true
				out = append(out, sym)
			}
		}
	}
	slices.SortFunc(out, func(a, b shimSymbol) int { return strings.Compare(a.name, b.name) })
	return out
}

func params(s *api.Symbol) (decl, args string) {
	if len(s.Params) == 0 {
		return "void", ""
	}
	var d, a []string
	for _, p := range s.Params {
		t := ctype(p.Type)
		if !strings.HasSuffix(t, "*") {
			t += " "
		}
		d = append(d, t+p.Name)
		a = append(a, p.Name)
	}
	return strings.Join(d, ", "), strings.Join(a, ", ")
}

// shimHeader is zshim.h: the numbers of the symbols and typed calls of the real functions.
func shimHeader(fns []api.Function) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	syms := shimSymbols(fns)
	p("/* " + header + " */\n#ifndef HF_ZSHIM_H\n#define HF_ZSHIM_H\n\nenum {\n")
	for _, s := range syms {
		p("\tHF_SYM_%s,\n", s.name)
	}
	p("\tHF_SYMBOLS\n};\n\n/* the real functions, 0 until first used */\nextern void *hf_real[HF_SYMBOLS];\n\n")
	for _, s := range syms {
		decl, args := params(s.s)
		p("static inline CUresult real_%s(%s)\n{\n\treturn ((CUresult (*)(%s))hf_fn(HF_SYM_%s))(%s);\n}\n", s.name,
			decl, decl, s.name, args)
	}
	p("\n/* answered by hand-written code */\n")
	for _, s := range syms {
		if s.hand && !s.perThread {
			decl, _ := params(s.s)
			p("CUresult hf_%s(%s);\n", s.s.Name, decl)
		}
	}
	p("\n#endif\n")
	return b.Bytes()
}

// shimSource is zshim.c: the wrappers and the tables.
func shimSource(fns []api.Function) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	syms := shimSymbols(fns)
	p("/* " + header + " */\n#include \"shim.h\"\n\nvoid *hf_real[HF_SYMBOLS];\n")
	for _, s := range syms {
		if s.hooked {
			wrapper(p, s)
		}
	}
	p("\n/* sorted by name */\nconst struct hf_symbol hf_symbols[HF_SYMBOLS] = {\n")
	for _, s := range syms {
		w := "0"
		if s.hooked {
			w = "(void *)" + s.name
		}
		p("\t{ \"%s\", %s, %d },\n", s.name, w, s.f.Op)
	}
	p("};\n\n/* what cuGetProcAddress gives for a base name, sorted by name, newest first */\nconst struct hf_proc " +
		"hf_procs[] = {\n")
	index := map[string]string{}
	for _, s := range syms {
		index[s.name] = "HF_SYM_" + s.name
	}
	n := 0
	byName := slices.Clone(fns)
	slices.SortFunc(byName, func(a, b api.Function) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range byName {
		for i := len(f.Symbols) - 1; i >= 0; i-- {
			s := f.Symbols[i]
			if s.Legacy {
				continue
			}
			name := s.Name
			thread := index[name]
			for _, suffix := range []string{"_ptsz", "_ptds"} {
				if t, ok := index[name+suffix]; ok {
					thread = t
				}
			}
			p("\t{ \"%s\", %d, %s, %s },\n", f.Name, s.Since, index[name], thread)
			n++
		}
	}
	p("};\nconst unsigned hf_nprocs = %d;\n\n/* base names by operation number */\nconst char *const hf_call_names[] "+
		"= {\n", n)
	last := api.Op(0)
	for _, f := range fns {
		p("\t[%d] = \"%s\",\n", f.Op, f.Name)
		last = max(last, f.Op)
	}
	p("};\nconst unsigned hf_ncalls = %d;\n", last+1)
	return b.Bytes()
}

func wrapper(p func(string, ...any), s shimSymbol) {
	decl, args := params(s.s)
	if s.f.Gated && s.s.Record != nil {
		watched(p, s)
	}
	p("\nHF_EXPORT CUresult %s(%s)\n{\n", s.name, decl)
	target := "real_" + s.name
	if s.hand {
		target = "hf_" + s.s.Name
	}
	handArgs := args
	if s.perThread && s.s.Stream() >= 0 {
		handArgs = streamArgs(s.s, "HF_STREAM(%s, CU_STREAM_PER_THREAD)")
	} else if s.s.Stream() >= 0 && s.s.PerThread != "" {
		handArgs = streamArgs(s.s, "HF_STREAM(%s, CU_STREAM_LEGACY)")
	}
	if s.f.Calm {
		p("\thf_wait_begin();\n\tCUresult r = %s(%s);\n\thf_wait_end();\n\thf_range_synced(r);\n\treturn r;\n}\n",
			target, args)
		return
	}
	if !s.f.Gated {
		p("\tif (hf_depth)\n\t\treturn real_%s(%s);\n\treturn %s(%s);\n}\n", s.name, args, target, handArgs)
		return
	}
	if s.s.Record != nil {
		p("\tstruct hf_slot *slot = hf_enter_work(%d);\n\tif (HF_UNLIKELY(!slot))\n\t\treturn watched_%s(%s);\n",
			s.f.Op, s.name, args)
	} else {
		p("\tstruct hf_slot *slot = hf_enter(%d);\n", s.f.Op)
	}
	before, after := noteMemory(s.s)
	if before != "" {
		p("\tif (HF_UNLIKELY(hf_tapped) && hf_depth == 1)\n\t\t%s;\n", before)
	}
	if c := s.f.Counts; c != "" {
		p("\tslot->%s++;\n", c)
	}
	if s.hand {
		p("\tCUresult r = hf_depth > 1 ? real_%s(%s) : %s(%s);\n", s.name, args, target, handArgs)
	} else {
		p("\tCUresult r = %s(%s);\n", target, args)
	}
	if after != "" {
		p("\tif (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)\n\t\t%s;\n", after)
	}
	p("\thf_leave(slot);\n\treturn r;\n}\n")
}

// watched prints what the wrapper of a piece of work becomes while the gate is watched.
func watched(p func(string, ...any), s shimSymbol) {
	decl, args := params(s.s)
	stream := "CU_STREAM_LEGACY"
	if s.perThread {
		stream = "CU_STREAM_PER_THREAD"
	}
	if i := s.s.Stream(); i >= 0 {
		stream = fmt.Sprintf("HF_STREAM(%s, %s)", s.s.Params[i].Name, stream)
	}
	p("\nstatic __attribute__((cold, noinline)) CUresult watched_%s(%s)\n{\n", s.name, decl)
	if c := s.f.Counts; c != "" {
		p("\thf_slot->%s++;\n", c)
	}
	target := "real_" + s.name
	if s.hand {
		target = "hf_" + s.s.Name
	}
	p("\t%s;\n\tCUresult r = %s(%s);\n", record(s, stream), target, args)
	p("\tif (HF_UNLIKELY(r != CUDA_SUCCESS))\n\t\thf_work_failed(r);\n\thf_leave(hf_slot);\n\treturn r;\n}\n")
}

// streamArgs is the argument list with the stream wrapped in format.
func streamArgs(s *api.Symbol, format string) string {
	var a []string
	for i, p := range s.Params {
		if i == s.Stream() {
			a = append(a, fmt.Sprintf(format, p.Name))
		} else {
			a = append(a, p.Name)
		}
	}
	return strings.Join(a, ", ")
}
