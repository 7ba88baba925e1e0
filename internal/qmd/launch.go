package qmd

import "fmt"

// Banks is how many constant banks a descriptor has.
const Banks = 8

// A Bank is a constant bank: its device address, 64-byte aligned, and its size.
type Bank struct {
	Addr uint64
	Size uint32
}

// What a descriptor does to another one when its grid is complete (DEPENDENT_QMD_ACTION).
const (
	ActionSchedule  = 1
	ActionDecrement = 4
)

// A Dependent is a descriptor that follows this one.
type Dependent struct {
	Addr   uint64 // 256-byte aligned, below 2^40
	Action uint8
}

// A Release is a semaphore that is written when the grid is complete.
type Release struct {
	Addr    uint64
	Payload uint32
	Add     bool // add the payload to what stands there
}

// A Launch is what a descriptor says.
type Launch struct {
	Grid, Block [3]uint32
	Cluster     [3]uint32 // blocks of a cluster; zero: none
	Program     uint64    // device address of the code, 128-byte aligned
	Code        uint32    // bytes of code, of which some are fetched ahead
	Registers   uint32    // of a thread
	Barriers    uint32
	Shared      uint32    // bytes of shared memory, static and dynamic and what the system keeps
	Carve       [3]uint32 // bytes of shared memory of a multiprocessor: at least, wished for, at most
	Local       uint32    // bytes of local memory of a thread
	Sass        uint32    // 0x90 for sm_90
	Bank        [Banks]Bank
	Invalidate  bool   // forget what was read before: the grid begins without a word to the caches
	Whole       bool   // PREEXIT does nothing: dependents begin when the grid is complete, not when it says so
	Counter     uint32 // grids that must decrement it before this one begins, once it was scheduled, too
	Counted     bool   // some grid of the same run has a counter
	Dependents  []Dependent
	Releases    []Release
	Fetch       bool  // constant bank 0 is fetched before the grid begins
	Next        *Next // a grid that follows
}

// A Next is what the grid that follows begins with. It is fetched while this one runs, and the barrier at this one's
// end is that of the GPU: who else reads what the grid has written must come after a grid without Next.
type Next struct {
	Program uint64
	Code    uint32
	Bank    Bank // its constant bank 0
}

// nextBank is the constant bank of a descriptor that fetches the next one's. Code of the compilers of CUDA does not
// use it; libcuda's graphs (driver 580) do so too.
const nextBank = 5

// Build makes the descriptor of a launch.
func (v *Version) Build(l *Launch) ([]byte, error) {
	w := writer{d: Descriptor{v, make([]byte, v.Size)}}
	w.fixed(l)
	w.geometry(l)
	w.memory(l)
	w.chain(l)
	if w.err != nil {
		return nil, w.err
	}
	return w.d.B, nil
}

// A writer keeps the first error.
type writer struct {
	d   Descriptor
	err error
}

func (w *writer) set(f Field, value uint64) { w.setAt(f, 0, value) }

func (w *writer) setAt(f Field, i int, value uint64) {
	if w.err == nil {
		w.err = w.d.Set(f, i, value)
	}
}

// may sets a field that not every version has.
func (w *writer) may(f Field, value uint64) {
	if w.d.V.Has(f) {
		w.set(f, value)
	}
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

const (
	typeGridCTA    = 2
	typeGridGPCCGA = 3
	membarSys      = 1 // CWD_MEMBAR_TYPE_L1_SYSMEMBAR
	membarGPU      = 3 // CWD_MEMBAR_TYPE_L1_MEMBAR
	fetchBefore    = 1 // CONSTANT_BUFFER_PREFETCH_PREFETCH_PRE
	fetchAfter     = 2 // CONSTANT_BUFFER_PREFETCH_PREFETCH_POST
	fetchPost      = 1 // PROGRAM_PREFETCH_TYPE_PREFTECH_POST
	multicast      = 1 // CGA_CTA_DISTRIBUTION_MODE_MULTI_CAST
	oneWord        = 1 // SEMAPHORE_ONE_WORD
)

// fixed sets what is the same in all launches.
func (w *writer) fixed(l *Launch) {
	major := uint64(w.d.V.Name[0] - '0')
	w.set(MajorVersion, major)
	w.set(GroupID, 0x3f)
	w.may(SMGlobalCaching, 1)
	w.set(APIVisibleCallLimit, 1)
	w.set(SamplerIndex, 1)
	if l.Invalidate {
		w.set(InvalidateTextureHeader, 1)
		w.set(InvalidateTextureSampler, 1)
		w.set(InvalidateTextureData, 1)
		w.set(InvalidateShaderData, 1)
		w.set(InvalidateShaderConstant, 1)
	}
	if !l.Whole {
		w.may(EnableProgramPreExit, 1)
	}
	if l.Next != nil && w.d.V.Has(TaskChasing) {
		w.set(CWDMembarType, membarGPU)
		w.set(TaskChasing, 1)
	} else {
		w.set(CWDMembarType, membarSys)
	}
	w.set(SassVersion, uint64(l.Sass))
}

func (w *writer) geometry(l *Launch) {
	for i := range 3 {
		if l.Grid[i] == 0 || l.Block[i] == 0 {
			w.fail("grid %v of blocks %v is empty", l.Grid, l.Block)
			return
		}
	}
	w.set(ThreadsX, uint64(l.Block[0]))
	w.set(ThreadsY, uint64(l.Block[1]))
	w.set(ThreadsZ, uint64(l.Block[2]))
	w.set(Registers, uint64(l.Registers))
	w.set(Barriers, uint64(l.Barriers))
	grid := l.Grid
	if l.Cluster == [3]uint32{} {
		w.may(Type, typeGridCTA)
	} else {
		w.cluster(l.Cluster, &grid)
	}
	w.set(GridWidth, uint64(grid[0]))
	w.set(GridHeight, uint64(grid[1]))
	w.set(GridDepth, uint64(grid[2]))
}

// cluster makes the grid one of clusters: its size is in those.
func (w *writer) cluster(cluster [3]uint32, grid *[3]uint32) {
	if !w.d.V.Has(ClusterWidth) {
		w.fail("descriptor %s has no clusters", w.d.V.Name)
		return
	}
	for i, f := range [3]Field{ClusterWidth, ClusterHeight, ClusterDepth} {
		if cluster[i] == 0 || grid[i]%cluster[i] != 0 {
			w.fail("grid %v is not of whole clusters %v", *grid, cluster)
			return
		}
		w.set(f, uint64(cluster[i]))
		grid[i] /= cluster[i]
	}
	w.set(Type, typeGridGPCCGA)
	w.set(ClusterDistribution, multicast)
}

// memory sets code, constants, shared and local memory.
func (w *writer) memory(l *Launch) {
	w.set(ProgramLower, l.Program&0xffffffff)
	w.set(ProgramUpper, l.Program>>32)
	w.fetch(l)
	w.set(SharedSize, uint64(l.Shared))
	w.set(LocalHighSize, uint64(l.Local))
	carve := func(bytes uint32) uint64 { return uint64(bytes>>12) + 1 } // 4 KiB each, and one
	w.set(MinSMConfig, carve(l.Carve[0]))
	w.set(TargetSMConfig, carve(l.Carve[1]))
	w.set(MaxSMConfig, carve(l.Carve[2]))
	for i, b := range l.Bank {
		if b.Size > 0 {
			w.bank(i, b, l.Invalidate)
		}
	}
}

func (w *writer) bank(i int, b Bank, invalidate bool) {
	if b.Addr%64 != 0 || b.Size%16 != 0 {
		w.fail("constant bank %d, %d bytes at %#x, is not aligned", i, b.Size, b.Addr)
	}
	shift := 0
	if w.d.V == &V4 {
		shift = 6
	}
	a := b.Addr >> shift
	w.setAt(BankValid, i, 1)
	if invalidate {
		w.setAt(BankInvalidate, i, 1)
	}
	w.setAt(BankAddrLower, i, a&0xffffffff)
	w.setAt(BankAddrUpper, i, a>>32)
	w.setAt(BankSize, i, uint64(b.Size>>4))
}

// fetch says what is fetched ahead: the grid's own code and constants, or those of the next one.
func (w *writer) fetch(l *Launch) {
	program, code := l.Program, l.Code
	if l.Fetch && w.d.V.Has(BankPrefetch) {
		w.setAt(BankPrefetch, 0, fetchBefore)
	}
	if n := l.Next; n != nil && w.d.V.Has(BankPrefetch) && l.Bank[nextBank].Size == 0 {
		program, code = n.Program, n.Code
		w.set(PrefetchType, fetchPost)
		w.bank(nextBank, n.Bank, false)
		w.setAt(BankPrefetch, nextBank, fetchAfter)
	}
	w.set(PrefetchAddrLower, program>>8&0xffffffff)
	w.set(PrefetchAddrUpper, program>>40)
	w.set(PrefetchSize, uint64(min(code>>8, 0x1ff)))
}

// chain sets what comes before and after.
func (w *writer) chain(l *Launch) {
	w.set(DependenceCounter, uint64(l.Counter))
	if l.Counted { // as libcuda's graphs
		w.set(RequireSchedulingPCAS, 1)
		w.set(SelfCopy, 1)
	}
	if len(l.Dependents) > 2 || len(l.Releases) > 2 {
		w.fail("%d dependents and %d releases: there is room for two of each", len(l.Dependents), len(l.Releases))
		return
	}
	for i, d := range l.Dependents {
		if d.Addr%256 != 0 || d.Addr>>40 != 0 {
			w.fail("dependent descriptor at %#x cannot be reached", d.Addr)
		}
		w.setAt(DependentPointer, i, d.Addr>>8)
		w.setAt(DependentEnable, i, 1)
		w.setAt(DependentAction, i, uint64(d.Action))
		w.setAt(DependentPrefetch, i, 1)
	}
	for i, r := range l.Releases {
		w.setAt(ReleaseEnable, i, 1)
		w.setAt(ReleaseStructureSize, i, oneWord)
		w.setAt(ReleaseAddrLower, i, r.Addr&0xffffffff)
		w.setAt(ReleaseAddrUpper, i, r.Addr>>32)
		w.setAt(ReleasePayloadLower, i, uint64(r.Payload))
		if r.Add {
			w.setAt(ReleaseReduction, i, 1)
		}
	}
}
