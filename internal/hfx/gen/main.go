// Command gen writes replay/tiny/zabi.h: the structures and numbers of the resource manager (package rm) and of linked
// recordings (package hfx), for the player in C. What versions of the driver have otherwise comes along as sizes. Run
// it with make generate.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"reflect"
	"strings"

	"holdfast/internal/hfx"
	"holdfast/internal/rm"
)

//go:generate go run .

const (
	root = "../../.."
	out  = "replay/tiny/zabi.h"
)

// structures are those that the player has a use for; one inside another comes before it.
var structures = []any{rm.Nv_ioctl_card_info_t{}, rm.Nv_ioctl_register_fd_t{}, rm.Nv_ioctl_rm_api_version_t{},
	rm.Nv_ioctl_nvos02_parameters_with_fd{}, rm.NVOS21_PARAMETERS{}, rm.Nv_ioctl_nvos33_parameters_with_fd{},
	rm.NVOS46_PARAMETERS{}, rm.NVOS46_PARAMETERS_570{}, rm.NVOS54_PARAMETERS{}, rm.NV0080_ALLOC_PARAMETERS{},
	rm.NV2080_ALLOC_PARAMETERS{}, rm.NV_MEMORY_ALLOCATION_PARAMS{}, rm.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS{},
	rm.NV_VASPACE_ALLOCATION_PARAMETERS{}, rm.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS{},
	rm.NV_CTXSHARE_ALLOCATION_PARAMETERS{}, rm.NV_MEMORY_DESC_PARAMS{}, rm.NV_CHANNEL_ALLOC_PARAMS{},
	rm.NvNotification{}, rm.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS{}, rm.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS{},
	rm.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS{}, rm.NV2080_CTRL_FB_INFO{}, rm.NV2080_CTRL_FB_GET_INFO_V2_PARAMS{},
	rm.NV2080_CTRL_GR_INFO{}, rm.NV2080_CTRL_GR_GET_INFO_PARAMS{},
	rm.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS{}, rm.NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS{},
	rm.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS{},
	hfx.Header{}, hfx.Memory{}, hfx.Group{}, hfx.Op{}, hfx.Port{}}

func main() {
	b, err := generate()
	if err == nil {
		err = os.WriteFile(root+"/"+out, b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// generate is the header.
func generate() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprint(&b, "/* Code generated from internal/rm and internal/hfx by internal/hfx/gen (make generate); "+
		"DO NOT EDIT. */\n#ifndef HF_ZABI_H\n#define HF_ZABI_H\n#include <stddef.h>\n#include <stdint.h>\n")
	if err := constants(&b, "", "internal/rm/numbers.go", "internal/rm/structs.go"); err != nil {
		return nil, err
	}
	if err := constants(&b, "HFX_", "internal/hfx/numbers.go"); err != nil {
		return nil, err
	}
	for _, s := range structures {
		structure(&b, reflect.TypeOf(s))
	}
	if err := versions(&b); err != nil {
		return nil, err
	}
	b.WriteString("\n#endif\n")
	return b.Bytes(), nil
}

// constants writes the exported constants of files that are integers or text.
func constants(b *bytes.Buffer, prefix string, paths ...string) error {
	set := token.NewFileSet()
	var files []*ast.File
	for _, p := range paths {
		f, err := parser.ParseFile(set, root+"/"+p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	var config types.Config // these files import nothing
	info := types.Info{Defs: map[*ast.Ident]types.Object{}}
	if _, err := config.Check("x", set, files, &info); err != nil {
		return err
	}
	b.WriteByte('\n')
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				for _, id := range s.(*ast.ValueSpec).Names {
					define(b, prefix, id, info.Defs[id].(*types.Const))
				}
			}
		}
	}
	return nil
}

func define(b *bytes.Buffer, prefix string, id *ast.Ident, c *types.Const) {
	if !id.IsExported() {
		return
	}
	switch v := c.Val(); v.Kind() {
	case constant.Int:
		n, _ := constant.Uint64Val(v)
		suffix := "u"
		if n >= 1<<32 {
			suffix = "ull"
		}
		fmt.Fprintf(b, "#define %s%s %#x%s\n", prefix, id.Name, n, suffix)
	case constant.String:
		fmt.Fprintf(b, "#define %s%s %s\n", prefix, id.Name, v.ExactString())
	}
}

var cTypes = map[reflect.Kind]string{reflect.Uint8: "uint8_t", reflect.Uint16: "uint16_t", reflect.Uint32: "uint32_t",
	reflect.Uint64: "uint64_t", reflect.Int32: "int32_t"}

// name is a structure's in C.
func name(t reflect.Type) string {
	if strings.HasSuffix(t.PkgPath(), "/hfx") {
		return "hfx_" + strings.ToLower(t.Name())
	}
	return t.Name()
}

func structure(b *bytes.Buffer, t reflect.Type) {
	fmt.Fprintf(b, "\ntypedef struct %s {\n", name(t))
	var asserts strings.Builder
	for i := range t.NumField() {
		f := t.Field(i)
		element, dims := f.Type, ""
		for element.Kind() == reflect.Array {
			dims += fmt.Sprintf("[%d]", element.Len())
			element = element.Elem()
		}
		spelled, ok := cTypes[element.Kind()]
		if !ok {
			spelled = name(element)
		}
		field := f.Name
		if field == "_" {
			field = fmt.Sprintf("_%d", i)
		}
		fmt.Fprintf(b, "\t%s %s%s;\n", spelled, field, dims)
		fmt.Fprintf(&asserts, "_Static_assert(offsetof(%s, %s) == %d, \"%s\");\n", name(t), field, f.Offset, field)
	}
	fmt.Fprintf(b, "} %s;\n%s_Static_assert(sizeof(%s) == %d, \"size\");\n", name(t), asserts.String(), name(t),
		t.Size())
}

// versions writes which versions are known, and the size of each structure by version.
func versions(b *bytes.Buffer) error {
	var majors []int
	var abis []*rm.ABI
	for major := 1; major < 2000; major++ {
		if abi, err := rm.ABIOf(rm.Version{Major: major}); err == nil {
			majors, abis = append(majors, major), append(abis, abi)
		}
	}
	if len(majors) == 0 {
		return fmt.Errorf("no version of the driver is known")
	}
	b.WriteString("\n#define ABI_KNOWN(major) (")
	for i, m := range majors {
		if i > 0 {
			b.WriteString(" || ")
		}
		fmt.Fprintf(b, "(major) == %d", m)
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(majors), " ", ", "), "[]")
	fmt.Fprintf(b, ")\n#define ABI_VERSIONS \"%s\"\n", list)
	for _, s := range structures {
		t := reflect.TypeOf(s)
		if strings.HasPrefix(name(t), "hfx_") {
			continue
		}
		fmt.Fprintf(b, "#define SIZE_%s(major) (", t.Name())
		for i, m := range majors[:len(majors)-1] {
			if n := len(abis[i].Encode(s)); uintptr(n) != t.Size() {
				fmt.Fprintf(b, "(major) == %d ? %du : ", m, n)
			}
		}
		fmt.Fprintf(b, "%du)\n", len(abis[len(abis)-1].Encode(s)))
	}
	return nil
}
