package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"holdfast/internal/cuda/api"
)

// stubVersion is the CUDA version that the stub claims: newer symbols it does not have.
const stubVersion = 13000

// prototypes is a header that declares every symbol, for C programs of our own.
func prototypes(fns []api.Function) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s\n * The functions of the CUDA driver API. Callers name symbols (cuMemAlloc_v2), not base "+
		"names: no macros here. */\n", header)
	b.WriteString("#ifndef HOLDFAST_ZCUDA_H\n#define HOLDFAST_ZCUDA_H\n\n#include \"cudaabi.h\"\n\n")
	each(fns, func(_ *api.Function, s *api.Symbol) {
		if s.Legacy {
			return
		}
		for _, suffix := range suffixes(s) {
			fmt.Fprintf(&b, "CUresult %s%s(%s);\n", s.Name, suffix, s.C())
		}
	})
	b.WriteString("\n#endif\n")
	return b.Bytes()
}

// each calls f for every symbol that the stub exports.
func each(fns []api.Function, f func(*api.Function, *api.Symbol)) {
	for i := range fns {
		for j := range fns[i].Symbols {
			if s := &fns[i].Symbols[j]; s.Since <= stubVersion {
				f(&fns[i], s)
			}
		}
	}
}

func suffixes(s *api.Symbol) []string {
	if s.PerThread == "" {
		return []string{""}
	}
	return []string{"", s.PerThread}
}

// stubHeader is what the hand-written files of the stub need of the table.
func stubHeader(fns []api.Function) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n#ifndef HOLDFAST_ZSTUB_H\n#define HOLDFAST_ZSTUB_H\n\n#include \"zcuda.h\"\n\n", header)
	b.WriteString("enum {\n")
	for _, f := range fns {
		fmt.Fprintf(&b, "\tOP_%s = %d,\n", f.Name, f.Op)
	}
	b.WriteString("};\n\n/* Written by hand: calls without a stream, told which default stream is theirs. */\n")
	each(fns, func(f *api.Function, s *api.Symbol) {
		if f.Hand && s.PerThread == "_ptds" {
			fmt.Fprintf(&b, "CUresult hand_%s(%s, CUstream default_stream);\n", s.Name, s.C())
		}
	})
	b.WriteString("\nextern const struct result {\n\tint code;\n\tconst char *name, *text;\n} results[];\nextern " +
		"const unsigned result_count;\n\n")
	b.WriteString("/* base null ends the table. per_thread is null where there is no such twin. */\n")
	b.WriteString("extern const struct symbol {\n\tconst char *base, *name;\n\tint since;\n\tvoid *address, " +
		"*per_thread;\n} symbols[];\n\n#endif\n")
	return b.Bytes()
}

// stubSource is the regular functions, the twins of the irregular ones and the tables.
func stubSource(fns []api.Function, results []api.Result) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n#include \"stub.h\"\n\n", header)
	var err error
	each(fns, func(f *api.Function, s *api.Symbol) {
		if e := stubSymbol(&b, f, s); e != nil && err == nil {
			err = fmt.Errorf("%s: %w", s.Name, e)
		}
	})
	if err != nil {
		return nil, err
	}
	b.WriteString("const struct result results[] = {\n")
	for _, r := range results {
		fmt.Fprintf(&b, "\t{%d, %q, %q},\n", r.Code, r.Name, r.Text)
	}
	fmt.Fprintf(&b, "};\nconst unsigned result_count = %d;\n\nconst struct symbol symbols[] = {\n", len(results))
	for _, f := range fns {
		for _, s := range f.Symbols {
			if s.Since > stubVersion {
				continue
			}
			per := "NULL"
			if s.PerThread != "" {
				per = s.Name + s.PerThread
			}
			fmt.Fprintf(&b, "\t{%q, %q, %d, %s, %s},\n", f.Name, s.Name, s.Since, s.Name, per)
		}
	}
	b.WriteString("\t{NULL, NULL, 0, NULL, NULL},\n};\n")
	return b.Bytes(), nil
}

func stubSymbol(b *bytes.Buffer, f *api.Function, s *api.Symbol) error {
	if s.Legacy {
		fmt.Fprintf(b, "EXPORT CUresult %s(void);\nEXPORT CUresult %[1]s(void) { return SIMPLE(OP_%[2]s, 0); }\n\n",
			s.Name, f.Name)
		return nil
	}
	canonical := f.Canonical()
	switch {
	case f.None:
		fmt.Fprintf(b, "EXPORT CUresult %s(%s)\n{\n", s.Name, s.C())
		for _, p := range s.Params {
			fmt.Fprintf(b, "\t(void)%s;\n", p.Name)
		}
		fmt.Fprintf(b, "\treturn SIMPLE(OP_%s, 0);\n}\n", f.Name)
	case f.Hand && s.PerThread == "_ptds":
		fmt.Fprintf(b, "EXPORT CUresult %s(%s) { return hand_%[1]s(%[3]s, 0); }\n", s.Name, s.C(), names(s, ""))
		fmt.Fprintf(b, "EXPORT CUresult %s_ptds(%s) { return hand_%[1]s(%[3]s, CU_STREAM_PER_THREAD); }\n\n", s.Name,
			s.C(), names(s, ""))
		return nil
	case f.Hand, f.Local:
	case s.Name == canonical.Name:
		if err := regular(b, f, s); err != nil {
			return err
		}
	case s.C() == canonical.C():
		fmt.Fprintf(b, "EXPORT CUresult %s(%s) { return %s(%s); }\n", s.Name, s.C(), canonical.Name, names(s, ""))
	default: // an older form with other parameters: by hand
	}
	if s.PerThread != "" && s.Name != "cuLaunchKernelEx" { // its stream is in a structure
		fmt.Fprintf(b, "EXPORT CUresult %s%s(%s) { return %[1]s(%[4]s); }\n", s.Name, s.PerThread, s.C(),
			names(s, "CU_STREAM_PER_THREAD"))
	}
	b.WriteByte('\n')
	return nil
}

// names is the argument list that hands a symbol's parameters on, null streams replaced by perThread if that is given.
func names(s *api.Symbol, perThread string) string {
	var w []string
	for _, p := range s.Params {
		if p.Type == "CUstream" && perThread != "" {
			w = append(w, fmt.Sprintf("%s ? %[1]s : %s", p.Name, perThread))
		} else {
			w = append(w, p.Name)
		}
	}
	return strings.Join(w, ", ")
}

// regular writes a function by the convention of gpuwire.
func regular(b *bytes.Buffer, f *api.Function, s *api.Symbol) error {
	var send, take []string
	outs := 0
	var out []string // parameters that are written
	for _, p := range s.Params {
		elem := p.Elem()
		size := "sizeof(" + elem + ")"
		switch p.Pass {
		case api.In:
			switch {
			case structs[elem]:
				send = append(send, fmt.Sprintf("blob_piece(&c, &%s, sizeof %[1]s);", p.Name))
			default:
				send = append(send, "arg(&c, "+widen(p.Type, p.Name)+");")
			}
		case api.Raw:
			send = append(send, "arg(&c, PTR("+p.Name+"));")
		case api.InString:
			send = append(send, "string_piece(&c, "+p.Name+");")
		case api.InOne:
			send = append(send, fmt.Sprintf("blob_piece(&c, %s, %s);", p.Name, size))
		case api.InArray:
			send = append(send, fmt.Sprintf("blob_piece(&c, %s, %s * %s);", p.Name, count(p), size))
		case api.InOut:
			if structs[elem] {
				send = append(send, fmt.Sprintf("blob_piece(&c, %s, %s);", p.Name, size))
				take = append(take, fmt.Sprintf("take_blob(&c, %s, %s);", p.Name, size))
			} else {
				send = append(send, fmt.Sprintf("arg(&c, %s ? %s : 0);", p.Name, widen(elem, "*"+p.Name)))
				take = append(take, takeScalar(p, elem, outs))
				outs++
			}
		case api.Out:
			out = append(out, p.Name)
			if structs[elem] {
				take = append(take, fmt.Sprintf("take_blob(&c, %s, %s);", p.Name, size))
			} else {
				take = append(take, takeScalar(p, elem, outs))
				outs++
			}
		case api.OutStr:
			take = append(take, fmt.Sprintf("take_string(&c, %s, (int64_t)%s);", p.Name, p.Count))
		case api.OutArray:
			take = append(take, fmt.Sprintf("take_blob(&c, %s, %s * %s);", p.Name, count(p), size))
		case api.OutList:
			return fmt.Errorf("lists of nodes are written by hand")
		default:
			return fmt.Errorf("parameter %s: no rule", p.Name)
		}
	}
	fmt.Fprintf(b, "EXPORT CUresult %s(%s)\n{\n", s.Name, s.C())
	if len(out) == 1 { // the only result has to go somewhere; of several, each is optional
		fmt.Fprintf(b, "\tif (!%s)\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", out[0])
	}
	fmt.Fprintf(b, "\tstruct call c;\n\tcall_begin(&c, OP_%s);\n", f.Name)
	for _, l := range send {
		b.WriteString("\t" + l + "\n")
	}
	b.WriteString("\tCUresult r = call_send(&c);\n")
	if len(take) > 0 {
		b.WriteString("\tif (r == CUDA_SUCCESS) {\n")
		for _, l := range take {
			b.WriteString("\t\t" + l + "\n")
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("\tcall_end(&c);\n\treturn r;\n}\n")
	return nil
}

func count(p api.Param) string {
	if _, err := strconv.Atoi(p.Count); err == nil {
		return p.Count
	}
	return "(uint64_t)" + p.Count
}

func takeScalar(p api.Param, elem string, i int) string {
	v := fmt.Sprintf("(%s)out(&c, %d)", elem, i)
	switch {
	case elem == "float":
		v = fmt.Sprintf("bits_float(out(&c, %d))", i)
	case isHandle(elem):
		v = fmt.Sprintf("(%s)(uintptr_t)out(&c, %d)", elem, i)
	}
	return fmt.Sprintf("if (%s)\n\t\t\t*%[1]s = %s;", p.Name, v)
}

// widen is a value as a 64-bit argument.
func widen(typ, v string) string {
	switch {
	case typ == "int", typ == "CUdevice":
		return "SIGNED(" + v + ")"
	case typ == "float":
		return "float_bits(" + v + ")"
	case isHandle(typ), strings.HasSuffix(typ, "*"):
		return "PTR(" + v + ")"
	}
	return v
}
