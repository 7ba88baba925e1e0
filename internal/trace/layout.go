package trace

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
)

// Type numbers the records. Those below 32 come from the program, the others are added by the recorder.
type Type uint16

// The types.
const (
	TypeModule      Type = 1
	TypeCode        Type = 2
	TypeUnload      Type = 3
	TypeKernel      Type = 4
	TypeAlloc       Type = 5
	TypeFree        Type = 6
	TypeLaunch      Type = 7
	TypeCopy        Type = 8
	TypeGraph       Type = 9
	TypeGraphEnd    Type = 10
	TypeGraphLaunch Type = 11
	TypeGraphFree   Type = 12
	TypeOther       Type = 13
	TypeFailed      Type = 14
	TypeReady       Type = 15

	TypeGraphVersion Type = 16
	TypeData         Type = 17
	TypeRange        Type = 18
	TypeRangeEnd     Type = 19
	TypeVariable     Type = 20
	TypeFunction     Type = 21
	TypeOrder        Type = 22
	TypeGraphEdges   Type = 23

	TypeProgram Type = 32
	TypeText    Type = 33
	TypeImage   Type = 34
	TypeFound   Type = 35
	TypeExit    Type = 36
	TypeEnd     Type = 37
	TypeAfter   Type = 38
)

// Limits.
const (
	MaxRecord = 64 << 10  // bytes of one record, header included
	MaxParams = 4096      // parameters of one kernel
	MaxTexts  = 256       // PTX texts of one image
	MaxText   = 256 << 20 // bytes of one text
)

// Flags of records, in the header; those from 8 on mean different things in different records.
const (
	Asks     uint16 = 1 << 0 // the thread waits for an answer in Cell
	Node     uint16 = 1 << 1 // a node of graph Cell, not work of its own
	Captured uint16 = 1 << 2 // went into a graph that is being captured: does not run now

	Cooperative  uint16 = 1 << 3 // Launch
	NoParams     uint16 = 1 << 4 // Launch: what the parameters are is not known
	Programmatic uint16 = 1 << 5 // Launch: may begin before the one before it ends, or its successor so
	Set          uint16 = 1 << 3 // Copy: a memset
	DstHost      uint16 = 1 << 4 // Copy: Dst is host memory
	SrcHost      uint16 = 1 << 5 // Copy: Src is host memory
	DstArray     uint16 = 1 << 6 // Copy: Dst is a CUDA array, its address is not known
	SrcArray     uint16 = 1 << 7 // Copy
	NoLayout     uint16 = 1 << 3 // Kernel: the driver does not say where the parameters are
	Incomplete   uint16 = 1 << 3 // Graph: it may do more than its nodes say
	Joint        uint16 = 1 << 3 // Other: a node that does nothing, but others come before and after it
	Outline      uint16 = 1 << 3 // Module: CODE is not the image, only what tells it from others
	Assembled    uint16 = 1 << 4 // Module: of a cubin, CODE is the PTX that its assembler left in it
	Clean        uint16 = 1 << 3 // Exit: the program ended by itself
	Whole        uint16 = 1 << 5 // Module: CODE is the whole image, of whatever kind
	HostData     uint16 = 1 << 3 // Data: what the next copy of the thread reads on the host, not what the device has
)

// A record begins with a header: u32 size (of the record, header included, a multiple of 8), u16 type, u16 flags. These
// are the fixed parts that follow it; what comes behind them is said at the field that counts it. Fields are ordered
// such that C puts them at the same places.
type (
	rawModule struct {
		ID     uint64
		Handle uint64
		Bytes  uint64 // of the image
		Code   uint64 // bytes that follow in CODE records
		Kind   uint32
		Call   uint32
		Digest [32]byte
	}
	rawCode struct {
		Module uint64
		Offset uint64
		Bytes  uint32 // then: the bytes
		Spare  uint32
	}
	rawUnload struct {
		Module uint64
	}
	rawKernel struct {
		ID     uint32
		Params uint32 // then: pairs of u32 offset, u32 size
		Module uint64
		Handle uint64
		Name   uint32 // bytes, after the parameters
		Spare  uint32
	}
	rawAlloc struct {
		Addr   uint64
		Bytes  uint64
		Block  uint64
		Offset uint64
		Kind   uint32
		Device uint32
	}
	rawFree struct {
		Addr  uint64
		Bytes uint64
	}
	rawLaunch struct {
		Kernel  uint32
		Thread  uint32
		Cell    uint32
		Shared  uint32
		Grid    [3]uint32
		Block   [3]uint32
		Cluster [3]uint32
		Bytes   uint32 // then: the parameters
		Stream  uint64
	}
	rawCopy struct {
		Call     uint32
		Thread   uint32
		Cell     uint32
		Spare    uint32
		Stream   uint64
		Dst      uint64
		DstPitch uint64
		DstSlice uint64
		Src      uint64
		SrcPitch uint64
		SrcSlice uint64
		Width    uint64
		Height   uint64
		Depth    uint64
	}
	rawGraph struct {
		ID     uint32
		Nodes  uint32
		Handle uint64
	}
	rawGraphVersion struct {
		ID     uint32
		Base   uint32
		Handle uint64
	}
	rawGraphEnd struct {
		ID    uint32
		Spare uint32
	}
	rawGraphLaunch struct {
		Graph  uint32
		Thread uint32
		Cell   uint32
		Spare  uint32
		Stream uint64
	}
	rawGraphFree struct {
		ID    uint32
		Spare uint32
	}
	rawOther struct {
		Call   uint32
		Thread uint32
		Cell   uint32
		Spare  uint32
		Stream uint64
	}
	rawFailed struct {
		Thread uint32
		Result uint32
	}
	rawReady struct {
		Spare uint64
	}
	rawData struct {
		Addr   uint64
		Thread uint32
		Bytes  uint32 // then: the bytes
	}
	rawRange struct {
		Thread uint32
		Nth    uint32
		Name   uint32 // bytes; then: name, reason
		Reason uint32 // bytes
	}
	rawRangeEnd struct {
		Thread uint32
		Spare  uint32
	}
	rawVariable struct {
		Module uint64
		Addr   uint64
		Bytes  uint64
		Name   uint32 // bytes, which follow
		Spare  uint32
	}
	rawFunction struct {
		Kernel     uint32
		Attributes uint32 // then: u32 each
	}
	rawOrder struct {
		Thread uint32
		Kind   uint32
		Stream uint64
		Event  uint64
	}
	rawGraphEdges struct {
		ID    uint32
		Edges uint32 // then: pairs of u32 from, u32 to
	}
	rawProgram struct {
		Start  uint64
		PID    uint32
		PPID   uint32
		GPU    uint32
		Driver uint32
		Name   uint32 // bytes; then: name, executable, command line, 16 bytes a device
		Exe    uint32 // bytes
		Argv   uint32 // bytes, each argument with a NUL behind it
		UUIDs  uint32 // devices
	}
	rawText struct {
		Digest [32]byte
		Total  uint64
		Offset uint64
		Bytes  uint32 // then: the bytes
		Spare  uint32
	}
	rawImage struct {
		ID     uint64
		Handle uint64
		Bytes  uint64
		Kind   uint32
		Call   uint32
		Digest [32]byte
		Texts  uint32 // then: u32 architecture, u32 0, digest, for each
		Spare  uint32
	}
	rawFound struct {
		Digest [32]byte
		Text   [32]byte
		Arch   uint32
		Spare  uint32
	}
	rawExit struct {
		Launches  uint64
		Graphs    uint64
		Copies    uint64
		Waits     uint64
		WaitNanos uint64
	}
	rawEnd struct {
		Spare uint64
	}
	rawAfter struct {
		Works uint32 // then: u32 each
		Spare uint32
	}
)

func layouts() []any {
	return []any{rawModule{}, rawCode{}, rawUnload{}, rawKernel{}, rawAlloc{}, rawFree{}, rawLaunch{}, rawCopy{},
		rawGraph{}, rawGraphEnd{}, rawGraphLaunch{}, rawGraphFree{}, rawOther{}, rawFailed{}, rawReady{},
		rawGraphVersion{}, rawData{}, rawRange{}, rawRangeEnd{}, rawVariable{}, rawFunction{}, rawOrder{},
		rawGraphEdges{}, rawProgram{}, rawText{}, rawImage{}, rawFound{}, rawExit{}, rawEnd{}, rawAfter{}}
}

// typeNames are what Type.String says.
var typeNames = []string{
	TypeModule: "module", TypeCode: "code", TypeUnload: "unload", TypeKernel: "kernel", TypeAlloc: "alloc",
	TypeFree: "free", TypeLaunch: "launch", TypeCopy: "copy", TypeGraph: "graph", TypeGraphEnd: "graph end",
	TypeGraphLaunch: "graph launch", TypeGraphFree: "graph free", TypeOther: "other", TypeFailed: "failed",
	TypeReady: "ready", TypeGraphVersion: "graph version", TypeData: "data", TypeRange: "range",
	TypeRangeEnd: "range end", TypeVariable: "variable", TypeFunction: "function", TypeOrder: "order",
	TypeGraphEdges: "graph edges", TypeProgram: "program", TypeText: "text", TypeImage: "image", TypeFound: "found",
	TypeExit: "exit", TypeEnd: "end", TypeAfter: "after",
}

// String is the record's name, as in "launch".
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint16(t))
}

const headerSize = 8

// CHeader prints shim/ztrace.h: the records that a program writes, and the constants in them.
func CHeader() []byte {
	var b strings.Builder
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	p("/* Code generated from internal/trace by internal/cuda/gen (make generate); DO NOT EDIT. */\n")
	p("#ifndef HF_ZTRACE_H\n#define HF_ZTRACE_H\n#include <stdint.h>\n\n")
	p("#define HF_MAX_RECORD %du\n#define HF_MAX_PARAMS %du\n", MaxRecord, MaxParams)
	for _, l := range layouts() {
		if t, name := typeOf(l); t < TypeProgram {
			p("#define HF_REC_%s %du\n", strings.ToUpper(name), t)
		}
	}
	for _, f := range []struct {
		name string
		bit  uint16
	}{{"ASKS", Asks}, {"NODE", Node}, {"CAPTURED", Captured}, {"COOPERATIVE", Cooperative}, {"NOPARAMS", NoParams},
		{"PROGRAMMATIC", Programmatic}, {"SET", Set}, {"DSTHOST", DstHost}, {"SRCHOST", SrcHost},
		{"DSTARRAY", DstArray}, {"SRCARRAY", SrcArray}, {"NOLAYOUT", NoLayout}, {"INCOMPLETE", Incomplete},
		{"JOINT", Joint}, {"OUTLINE", Outline}, {"ASSEMBLED", Assembled}, {"WHOLE", Whole}, {"HOSTDATA", HostData}} {
		p("#define HF_REC_%s_FLAG %du\n", f.name, f.bit)
	}
	for _, k := range []struct {
		name string
		kind uint32
	}{{"LINEAR", MemLinear}, {"ASYNC", MemAsync}, {"MAPPED", MemMapped}, {"MANAGED", MemManaged}, {"HOST", MemHost},
		{"GLOBAL", MemGlobal}} {
		p("#define HF_MEM_%s %du\n", k.name, k.kind)
	}
	for _, o := range []struct {
		name string
		kind uint32
	}{{"RECORDED", EventRecorded}, {"WAITS", StreamWaits}, {"SYNCED", HostSynced}} {
		p("#define HF_ORDER_%s %du\n", o.name, o.kind)
	}
	for _, l := range layouts() {
		t, name := typeOf(l)
		if t >= TypeProgram {
			continue
		}
		p("\nstruct hf_rec_%s {\n\tuint32_t size;\n\tuint16_t type, flags;\n", name)
		rt := reflect.TypeOf(l)
		for i := range rt.NumField() {
			f := rt.Field(i)
			switch f.Type.Kind() {
			case reflect.Uint64:
				p("\tuint64_t %s;\n", lower(f.Name))
			case reflect.Uint32:
				p("\tuint32_t %s;\n", lower(f.Name))
			case reflect.Array:
				t := "uint32_t"
				if f.Type.Elem().Kind() == reflect.Uint8 {
					t = "uint8_t"
				}
				p("\t%s %s[%d];\n", t, lower(f.Name), f.Type.Len())
			}
		}
		p("};\n_Static_assert(sizeof(struct hf_rec_%s) == %d, \"layout\");\n", name, headerSize+binary.Size(l))
	}
	p("\n#endif\n")
	return []byte(b.String())
}

// typeOf is the type of a layout, and its name in C.
func typeOf(l any) (Type, string) {
	name := lower(strings.TrimPrefix(reflect.TypeOf(l).Name(), "raw"))
	for t, n := range typeNames {
		if n != "" && strings.ReplaceAll(n, " ", "_") == name {
			return Type(t), name
		}
	}
	return 0, name
}

// lower turns GraphEnd into graph_end, and ID into id.
func lower(s string) string {
	var b strings.Builder
	for i, r := range s {
		if 'A' <= r && r <= 'Z' {
			if i > 0 && s[i-1] >= 'a' {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
