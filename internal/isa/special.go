package isa

import (
	"slices"
	"strings"
	"sync"

	"holdfast/ptx"
)

// specials are the predefined special registers (PTX ISA 9.0, section 10). One line is one register, or several of one
// kind:
//
//	names | coordinate | type | same in | changes | depends on | largest
//
// A name with .xyz has three components. The coordinate is one of coordinateNames. "same in" says which threads surely
// have the same value: grid, block, warp or thread; what changes (no: it does not while the thread runs); what it
// depends on: the launch alone, the machine (so that the same launch may see another value the next time), or the
// driver, who keeps there what grids wait with. The largest value is - if nothing useful is known.
const specials = `
tid.xy | threadindex | u32 | thread | no | launch | 1023
tid.z | threadindex | u32 | thread | no | launch | 63
ntid.xy | blocksize | u32 | grid | no | launch | 1024
ntid.z | blocksize | u32 | grid | no | launch | 64
ctaid.xyz | blockindex | u32 | block | no | launch | -
nctaid.xyz | gridsize | u32 | grid | no | launch | -
laneid | lane | u32 | thread | no | launch | 31
clusterid.xyz | clusterindex | u32 | block | no | launch | -
nclusterid.xyz | gridclusters | u32 | grid | no | launch | -
cluster_ctaid.xyz | indexincluster | u32 | block | no | launch | -
cluster_nctaid.xyz | clustersize | u32 | grid | no | launch | -
cluster_ctarank | rankincluster | u32 | block | no | launch | -
cluster_nctarank | clusterblocks | u32 | grid | no | launch | -
is_explicit_cluster | - | pred | grid | no | launch | -
lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge | - | u32 | thread | no | launch | -
dynamic_smem_size | dynamicshared | u32 | grid | no | launch | -
total_smem_size aggr_smem_size | - | u32 | grid | no | launch | -
reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap | - | u32 | thread | yes | launch | -
reserved_smem_offset_0 reserved_smem_offset_1 | - | u32 | thread | yes | launch | -
current_graph_exec | - | u64 | thread | yes | launch | -
gridid | - | u64 | grid | no | machine | -
warpid nwarpid smid nsmid | - | u32 | thread | yes | machine | -
clock clock_hi globaltimer_lo globaltimer_hi | - | u32 | thread | yes | machine | -
clock64 globaltimer | - | u64 | thread | yes | machine | -
pm0 pm1 pm2 pm3 pm4 pm5 pm6 pm7 | - | u32 | thread | yes | machine | -
pm0_64 pm1_64 pm2_64 pm3_64 pm4_64 pm5_64 pm6_64 pm7_64 | - | u64 | thread | yes | machine | -
envreg | - | u32 | thread | yes | driver | -
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

// A Coordinate says where a thread is, or how much was launched.
type Coordinate int

// The coordinates. Those above Lane have three dimensions.
const (
	NoCoordinate   Coordinate = iota
	ThreadIndex               // in its block
	BlockSize                 // in threads
	BlockIndex                // in the grid
	GridSize                  // in blocks
	ClusterIndex              // in the grid
	GridClusters              // in clusters
	IndexInCluster            // of the block
	ClusterSize               // in blocks
	Lane                      // of the thread in its warp
	RankInCluster             // of the block
	ClusterBlocks             // how many there are
	DynamicShared             // bytes
)

var coordinateNames = [...]string{"-", "threadindex", "blocksize", "blockindex", "gridsize", "clusterindex",
	"gridclusters",
	"indexincluster", "clustersize", "lane", "rankincluster", "clusterblocks", "dynamicshared"}

// A SpecialRegister is one of the predefined registers, or a component of one.
type SpecialRegister struct {
	Name  string // "tid.x", without %
	Is    Coordinate
	Dim   int // of Is: 0 to 2
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
		if len(col) != 7 {
			continue
		}
		r := SpecialRegister{
			Is: Coordinate(slices.Index(coordinateNames[:], col[1])), Type: typeOf[col[2]],
			Same: sameness[col[3]], Fixed: col[4] == "no", From: sources[col[5]],
		}
		for _, c := range strings.TrimPrefix(col[6], "-") {
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
				x.Name, x.Dim = base+"."+p, strings.Index("xyz", p)
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

// RegisterOf finds the special register that holds a coordinate, in dimension dim of those that have three.
func RegisterOf(c Coordinate, dim int) *SpecialRegister {
	for _, r := range specialTable() {
		if r.Is == c && r.Dim == dim {
			return r
		}
	}
	return nil
}
