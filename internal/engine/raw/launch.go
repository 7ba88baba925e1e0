package raw

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"holdfast/internal/cubin"
	"holdfast/internal/engine"
	"holdfast/internal/qmd"
)

// A block is a launch and its place in a program's data.
type block struct {
	launch     *engine.Launch
	k          *kernel
	q          *qmd.Launch // what its descriptor says, once its data has an address
	place      engine.Place
	cluster    [3]uint32 // zero: none
	descriptor uint64    // offsets in the data
	bank       uint64
	barrier    uint64 // of a cooperative launch
	bankSize   uint32
	shared     uint32 // bytes of shared memory, with what the system keeps
}

const (
	descriptorAlign = 256
	barrierSize     = 256
	systemShared    = cubin.ReservedShared
	leastRegisters  = 16 // libcuda's too
	registersSM     = 64 << 10
	blocksSM        = 32
)

// block checks a launch.
func (b *Backend) block(l *engine.Launch) (block, error) {
	k, ok := l.Kernel.(*kernel)
	if !ok || k.c.b != b {
		return block{}, errors.New("the kernel is not of this GPU's code")
	}
	fn := k.fn
	switch {
	case k.c.memory == nil:
		return block{}, errors.New("its code was closed")
	case fn.Refused != "":
		return block{}, fmt.Errorf("it cannot run without libcuda: %s", fn.Refused)
	case len(l.Params) != int(fn.ParamSize):
		return block{}, fmt.Errorf("%d bytes of parameters, it takes %d", len(l.Params), fn.ParamSize)
	case l.Grid[0] == 0 || l.Grid[1] == 0 || l.Grid[2] == 0 || l.Grid[0] > math.MaxInt32 || l.Grid[1] > 65535 ||
		l.Grid[2] > 65535:
		return block{}, fmt.Errorf("grid of %v blocks", l.Grid)
	}
	bl := block{launch: l, k: k, cluster: l.Cluster, bankSize: (max(fn.Bank0, fn.ParamBase+fn.ParamSize) + 63) &^ 63}
	if bl.cluster == [3]uint32{} {
		bl.cluster = fn.Cluster
	}
	return bl, bl.check(b)
}

// check compares a launch with what the code and the GPU allow.
func (bl *block) check(b *Backend) error {
	l, fn := bl.launch, bl.k.fn
	threads := uint64(l.Block[0]) * uint64(l.Block[1]) * uint64(l.Block[2])
	limit := uint64(fn.MaxBlock[0]) * max(uint64(fn.MaxBlock[1]), 1) * max(uint64(fn.MaxBlock[2]), 1)
	most := b.gen.carve[len(b.gen.carve)-1] << 10
	shared := uint64(fn.Shared) + uint64(l.Shared) + systemShared
	switch {
	case threads == 0 || l.Block[0] > 1024 || l.Block[1] > 1024 || l.Block[2] > 64 || threads > 1024:
		return fmt.Errorf("block of %v threads", l.Block)
	case limit > 0 && threads > limit:
		return fmt.Errorf("block of %v threads, the kernel takes %d", l.Block, limit)
	case fn.ReqBlock != [3]uint32{} && fn.ReqBlock != l.Block:
		return fmt.Errorf("block of %v threads, the kernel takes %v", l.Block, fn.ReqBlock)
	case shared > uint64(most):
		return fmt.Errorf("%d bytes of shared memory, a block may have %d", shared-systemShared, most-systemShared)
	case uint64(fn.Registers)*((threads+31)&^31) > registersSM:
		return fmt.Errorf("%d threads of %d registers do not fit a multiprocessor", threads, fn.Registers)
	}
	for i, c := range bl.cluster {
		if c != 0 && (c > 16 || l.Grid[i]%c != 0) || c == 0 && bl.cluster != [3]uint32{} {
			return fmt.Errorf("grid %v is not of whole clusters %v", l.Grid, bl.cluster)
		}
	}
	bl.shared = (uint32(shared) + 127) &^ 127
	if l.Cooperative {
		blocks := uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2])
		if room := uint64(bl.perSM(b)) * uint64(b.sms); blocks > room {
			return fmt.Errorf("cooperative grid of %d blocks, %d can run at once", blocks, room)
		}
	}
	return nil
}

// perSM is how many blocks of a launch a multiprocessor runs at once.
func (bl *block) perSM(b *Backend) uint32 {
	l, fn := bl.launch, bl.k.fn
	warps := (l.Block[0]*l.Block[1]*l.Block[2] + 31) / 32
	n := min(blocksSM, b.warps/warps, b.gen.carve[len(b.gen.carve)-1]<<10/bl.shared)
	if fn.Registers > 0 {
		warp := (fn.Registers*32 + 255) &^ 255
		n = min(n, registersSM/warp/4*4/warps)
	}
	return n
}

// carve is how much shared memory a multiprocessor should have: enough for as many blocks as otherwise fit, as
// libcuda does.
func (bl *block) carve(b *Backend) [3]uint32 {
	sizes := b.gen.carve
	last := len(sizes) - 1
	need := bl.perSM(b) * bl.shared
	i := 0
	for i < last && sizes[i]<<10 < need {
		i++
	}
	return [3]uint32{sizes[i] << 10, max(sizes[min(i+1, last)], 32) << 10, sizes[last] << 10}
}

// stack is the bytes of local memory that a thread takes; 0 if it has no stack.
func (bl *block) stack() uint32 {
	if bl.k.fn.Local == 0 && !bl.k.fn.Recursive {
		return 0
	}
	return stackOf(bl.k.fn)
}

// layOut gives a launch its place behind size bytes.
func (bl *block) layOut(size *uint64, descriptor uint64) {
	up := func(n uint64) uint64 { return (n + descriptorAlign - 1) &^ (descriptorAlign - 1) }
	bl.descriptor = *size
	bl.bank = bl.descriptor + up(descriptor)
	*size = bl.bank + up(uint64(bl.bankSize))
	if bl.launch.Cooperative {
		bl.barrier = *size
		*size += barrierSize
	}
}

// Where constant bank 0 of sm_90 has what, as read from libcuda's (driver 580.159.04) by a kernel that looks there.
// What is not listed is zero here: addresses of libcuda's own data, which code without device-side launches does not
// use.
const (
	bankBlock       = 0x00
	bankGrid        = 0x0c
	bankShared      = 0x18 // where generic addresses of shared memory begin
	bankLocal       = 0x20
	bankStack       = 0x28
	bankDynamic     = 0x2c // bytes of dynamic shared memory
	bankNumber      = 0x30 // of the launch
	bankWorkspace   = 0x44 // of a cooperative launch: high word, low word
	bankOne         = 0x58
	bankSelf        = 0xc0 // the bank's own address
	bankSMs         = 0x10c
	bankCooperative = 0x110
	bankReserved    = 0x114 // bytes of shared memory that the system keeps
	bankTotalShared = 0x13c
	bankClustered   = 0x140
	bankCluster     = 0x144
	bankReciprocal  = 0x150 // of the cluster's sizes, as floats
	bankClusters    = 0x15c // the grid's size in clusters
	bankClusterStep = 0x16c // between the shared memories of a cluster's blocks
	bankShared2     = 0x170
	bankClusterSize = 0x188
	bankParams      = 0x198 // addresses of the parameters and of their end
	bank90          = 0x210
)

// fillBank0 makes constant bank 0 of a launch: what the driver puts there, and the parameters.
func (bl *block) fillBank0(b *Backend, base uint64, bank []byte) {
	le := binary.LittleEndian
	l, fn := bl.launch, bl.k.fn
	vector := func(at int, v [3]uint32) {
		for i, x := range v {
			le.PutUint32(bank[at+4*i:], x)
		}
	}
	vector(bankBlock, l.Block)
	vector(bankGrid, l.Grid)
	le.PutUint64(bank[bankShared:], sharedWindow)
	le.PutUint64(bank[bankLocal:], localWindow)
	le.PutUint32(bank[bankStack:], stackTop)
	if fn.ParamBase >= bank90 {
		bl.fillHopper(b, base, bank, vector)
	}
	copy(bank[fn.ParamBase:], l.Params)
}

// fillHopper is what sm_90 has more.
func (bl *block) fillHopper(b *Backend, base uint64, bank []byte, vector func(int, [3]uint32)) {
	le := binary.LittleEndian
	l, fn, self := bl.launch, bl.k.fn, base+bl.bank
	le.PutUint32(bank[bankDynamic:], l.Shared)
	le.PutUint64(bank[bankNumber:], bl.descriptor/descriptorAlign+1)
	if l.Cooperative {
		le.PutUint32(bank[bankWorkspace:], hi(base+bl.barrier))
		le.PutUint32(bank[bankWorkspace+4:], lo(base+bl.barrier))
		le.PutUint32(bank[bankCooperative:], 1)
	}
	le.PutUint32(bank[bankOne:], 1)
	le.PutUint64(bank[bankSelf:], self)
	le.PutUint32(bank[bankSMs:], b.sms)
	le.PutUint32(bank[bankReserved:], systemShared)
	le.PutUint32(bank[bankTotalShared:], fn.Shared+l.Shared+systemShared)
	cluster := bl.cluster
	if cluster == [3]uint32{} {
		cluster = [3]uint32{1, 1, 1}
	} else {
		le.PutUint32(bank[bankClustered:], 1)
	}
	vector(bankCluster, cluster)
	var clusters, reciprocal [3]uint32
	for i, c := range cluster {
		clusters[i], reciprocal[i] = l.Grid[i]/c, math.Float32bits(1/float32(c))
	}
	vector(bankClusters, clusters)
	vector(bankReciprocal, reciprocal)
	le.PutUint32(bank[bankClusterStep:], 1<<24)
	le.PutUint64(bank[bankShared2:], sharedWindow)
	le.PutUint32(bank[bankClusterSize:], cluster[0]*cluster[1]*cluster[2])
	le.PutUint64(bank[bankParams:], self+uint64(fn.ParamBase))
	le.PutUint64(bank[bankParams+8:], self+uint64(fn.ParamBase+fn.ParamSize))
}

// describe is what the descriptor of a launch says; its data stands at base.
func (bl *block) describe(b *Backend, base uint64) *qmd.Launch {
	fn, l, code := bl.k.fn, bl.launch, bl.k.c.memory.addr
	q := &qmd.Launch{Grid: l.Grid, Block: l.Block, Cluster: bl.cluster, Program: code + fn.Code, Code: fn.CodeSize,
		Registers: max(fn.Registers, leastRegisters), Barriers: max(fn.Barriers, 1), Sass: uint32(b.gen.arch/10<<4 |
			b.gen.arch%10),
		Shared: bl.shared, Carve: bl.carve(b), Local: b.local.thread, Fetch: true}
	q.Bank[0] = qmd.Bank{Addr: base + bl.bank, Size: bl.bankSize}
	for i, s := range fn.Bank {
		if s.Size > 0 {
			q.Bank[i] = qmd.Bank{Addr: code + s.Offset, Size: (s.Size + 15) &^ 15}
		}
	}
	return q
}

// stackOf is the bytes of local memory that a thread of a function takes.
func stackOf(f *cubin.Function) uint32 {
	stack := f.Local
	if f.Recursive {
		stack = max(stack, stackDefault)
	}
	return (stack + stackReserve + 31) &^ 31
}
