package isa

import (
	"strings"
	"sync"

	"holdfast/ptx"
)

// specials are the predefined special registers (PTX ISA 9.0, section 10). One line is one register, or several of one
// kind:
//
//	names | type | same in | changes | depends on | largest
//
// A name with .xyz has three components. "same in" says which threads surely have the same value: grid, block, warp or
// thread; what changes (no: it does not while the thread runs); what it depends on: the launch alone, the machine (so
// that the same launch may see another value the next time), or the driver, who keeps there what grids wait with. The
// largest value is - if nothing useful is known.
const specials = `
tid.xy | u32 | thread | no | launch | 1023
tid.z | u32 | thread | no | launch | 63
ntid.xy | u32 | grid | no | launch | 1024
ntid.z | u32 | grid | no | launch | 64
ctaid.xyz | u32 | block | no | launch | -
nctaid.xyz | u32 | grid | no | launch | -
laneid | u32 | thread | no | launch | 31
clusterid.xyz | u32 | block | no | launch | -
nclusterid.xyz | u32 | grid | no | launch | -
cluster_ctaid.xyz | u32 | block | no | launch | -
cluster_nctaid.xyz | u32 | grid | no | launch | -
cluster_ctarank | u32 | block | no | launch | -
cluster_nctarank | u32 | grid | no | launch | -
is_explicit_cluster | pred | grid | no | launch | -
lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge | u32 | thread | no | launch | -
dynamic_smem_size total_smem_size aggr_smem_size | u32 | grid | no | launch | -
reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap | u32 | thread | yes | launch | -
reserved_smem_offset_0 reserved_smem_offset_1 | u32 | thread | yes | launch | -
current_graph_exec | u64 | thread | yes | launch | -
gridid | u64 | grid | no | machine | -
warpid nwarpid smid nsmid | u32 | thread | yes | machine | -
clock clock_hi globaltimer_lo globaltimer_hi | u32 | thread | yes | machine | -
clock64 globaltimer | u64 | thread | yes | machine | -
pm0 pm1 pm2 pm3 pm4 pm5 pm6 pm7 | u32 | thread | yes | machine | -
pm0_64 pm1_64 pm2_64 pm3_64 pm4_64 pm5_64 pm6_64 pm7_64 | u64 | thread | yes | machine | -
envreg | u32 | thread | yes | driver | -
`

// Sameness says which threads surely have the same value.
type Sameness uint8

// The threads that have the same value, most first.
const (
	InGrid Sameness = iota
	InBlock
	InWarp
	InThread // each its own
)

// A Source says what the value of a special register depends on.
type Source uint8

// What values depend on.
const (
	TheLaunch  Source = iota // and the place of the thread in it
	TheMachine               // clocks, counters, where a block happens to run
	TheDriver                // what the driver puts there
)

// A SpecialRegister is one of the predefined registers, or a component of one.
type SpecialRegister struct {
	Name  string // "tid.x", without %
	Type  ptx.Type
	Same  Sameness
	Fixed bool // it does not change while the thread runs
	From  Source
	Max   uint64 // 0 = not known
}

var specialTable = sync.OnceValue(func() map[string]*SpecialRegister {
	m := map[string]*SpecialRegister{}
	for line := range strings.Lines(specials) {
		col := strings.Split(strings.TrimSpace(line), " | ")
		if len(col) != 6 {
			continue
		}
		r := SpecialRegister{Type: typeOf[col[1]], Fixed: col[3] == "no", Same: sameness[col[2]], From: sources[col[4]]}
		for _, c := range strings.TrimPrefix(col[5], "-") {
			r.Max = 10*r.Max + uint64(c-'0')
		}
		for _, name := range strings.Fields(col[0]) {
			base, parts, vector := strings.Cut(name, ".")
			if !vector {
				x := r
				x.Name = base
				m[base] = &x
				continue
			}
			for _, p := range strings.Split(parts, "") {
				x := r
				x.Name = base + "." + p
				m[x.Name] = &x
			}
		}
	}
	return m
})

var sameness = map[string]Sameness{"grid": InGrid, "block": InBlock, "warp": InWarp, "thread": InThread}

var sources = map[string]Source{"launch": TheLaunch, "machine": TheMachine, "driver": TheDriver}

// SpecialNamed finds a special register by its name without %, with its component: "tid.x", "envreg3". It is nil if
// there is none, or the register is a vector and the name has no component.
func SpecialNamed(name string) *SpecialRegister {
	if strings.HasPrefix(name, "envreg") {
		name = "envreg"
	}
	return specialTable()[name]
}
