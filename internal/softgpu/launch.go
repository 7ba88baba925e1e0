package softgpu

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A LaunchConfig says how to run a kernel.
type LaunchConfig struct {
	Grid, Block     [3]uint32
	Cluster         [3]uint32 // blocks of a cluster; zero = what the kernel requires, or none
	SharedDynamic   uint32    // bytes of dynamic shared memory
	Params          []byte    // the parameter buffer, laid out as KernelInfo.Params says
	Workers         int       // goroutines; 0 = GOMAXPROCS
	Deterministic   bool      // one goroutine, fixed order
	Prefix          *Prefix   // stop in the middle of a random order, in one goroutine; nil = do not
	MaxInstructions uint64    // thread instructions of the launch; 0 = no limit
	Printf          io.Writer
	Cancel          <-chan struct{}
	Observer        *Observer // records the accesses of global memory; nil = none, at no cost
}

// Stats says what a launch did.
type Stats struct {
	Blocks             uint64
	ThreadInstructions uint64
	WarpInstructions   uint64
	Elapsed            time.Duration
}

// Limits of a launch, those of sm_90.
const (
	MaxBlockThreads = 1024
	MaxGridX        = 1<<31 - 1
	MaxGridYZ       = 65535
	MaxShared       = 227 << 10
	MaxParams       = 32764
	MaxLocal        = 512 << 10 // of a thread
)

// A launch is one run of a kernel.
type launch struct {
	prog             *program
	code             []inst // of prog, or its observed form
	in               *Instance
	cfg              LaunchConfig
	space            *Space
	blocks           uint64
	clusters         uint64
	cluster          [3]uint32 // 1,1,1 = none
	perCluster       int       // blocks
	explicitCluster  bool
	next             atomic.Uint64 // index of the next cluster
	stop             atomic.Bool   // a worker failed
	insts, warpInsts atomic.Uint64
	start            time.Time
	printMu          sync.Mutex
	gridID           uint64
	schedule         *schedule // nil = no Prefix

	sharedBytes uint64
	threads     int // of a block
	params      []uint64

	errOnce sync.Once
	err     error
}

// Launch runs a kernel to its end. The error is a *Fault if the device is to
// blame; memory then holds what was written until the fault.
func (in *Instance) Launch(kernel string, cfg LaunchConfig) (Stats, error) {
	if in.mod.funcs[kernel] == nil {
		return Stats{}, fmt.Errorf("%s: no kernel %q", in.mod.file, kernel)
	}
	prog, err := in.mod.program(kernel)
	if err != nil {
		f := &Fault{Kind: FaultUnsupported, Kernel: kernel, Detail: err.Error()}
		if r, ok := errors.AsType[*refusal](err); ok {
			f.Inst, f.File, f.Pos, f.Detail = r.inst, r.file, r.pos, r.why.Error()
		}
		return Stats{}, f
	}
	l := &launch{prog: prog, in: in, cfg: cfg, space: in.space, start: time.Now(), gridID: in.launches.Add(1),
		code: prog.code}
	if err := l.check(); err != nil {
		return Stats{}, fmt.Errorf("kernel %s: %w", kernel, err)
	}
	if cfg.Observer != nil {
		cfg.Observer.Reset()
		l.code = prog.observed()
	}
	workers := cfg.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if cfg.Deterministic {
		workers = 1
	}
	if cfg.Prefix != nil {
		workers, l.schedule = 1, newSchedule(cfg.Prefix, l.clusters)
		if cfg.Prefix.Instructions == 0 {
			return Stats{}, ErrPrefix
		}
	}
	workers = int(min(uint64(workers), l.clusters))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(l.work)
	}
	wg.Wait()
	st := Stats{Blocks: l.blocks, Elapsed: time.Since(l.start)}
	st.ThreadInstructions, st.WarpInstructions = l.insts.Load(), l.warpInsts.Load()
	return st, l.err
}

func (l *launch) check() error {
	if l.space.base == nil {
		return errors.New("the address space is closed")
	}
	g, b := l.cfg.Grid, l.cfg.Block
	for i := range 3 {
		if g[i] == 0 || b[i] == 0 {
			return fmt.Errorf("grid %v, block %v: a dimension is zero", g, b)
		}
	}
	if g[0] > MaxGridX || g[1] > MaxGridYZ || g[2] > MaxGridYZ {
		return fmt.Errorf("grid %v is too large", g)
	}
	if b[0] > 1024 || b[1] > 1024 || b[2] > 64 || b[0]*b[1]*b[2] > MaxBlockThreads {
		return fmt.Errorf("block %v has more than %d threads", b, MaxBlockThreads)
	}
	l.threads = int(b[0] * b[1] * b[2])
	l.blocks = uint64(g[0]) * uint64(g[1]) * uint64(g[2])
	if err := l.clusterDims(); err != nil {
		return err
	}
	l.clusters = l.blocks / uint64(l.perCluster)
	if len(l.cfg.Params) < int(l.prog.paramBytes) || len(l.cfg.Params) > MaxParams {
		return fmt.Errorf("%d bytes of parameters, want %d", len(l.cfg.Params), l.prog.paramBytes)
	}
	l.params = make([]uint64, (len(l.cfg.Params)+7)/8+1)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&l.params[0])), len(l.params)*8), l.cfg.Params)
	l.sharedBytes = uint64(l.prog.sharedStatic) + uint64(l.cfg.SharedDynamic)
	if l.sharedBytes > MaxShared {
		return fmt.Errorf("%d bytes of shared memory, at most %d", l.sharedBytes, MaxShared)
	}
	if l.prog.localStatic > MaxLocal {
		return fmt.Errorf("%d bytes of local memory for a thread, at most %d", l.prog.localStatic, MaxLocal)
	}
	if m := l.prog.maxThreads; m > 0 && l.threads > m {
		return fmt.Errorf("block of %d threads, the kernel allows %d", l.threads, m)
	}
	return nil
}

func (l *launch) fail(err error) {
	l.errOnce.Do(func() { l.err = err })
	l.stop.Store(true)
}

// What blocks that have not ended may occupy in one worker.
const (
	maxResidentBytes = 512 << 20
	minResident      = 2
)

// work runs clusters until none is left.
func (l *launch) work() {
	var cur *cluster
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if x := recover(); x != nil {
			f, ok := x.(*Fault)
			if !ok {
				if re, isMem := x.(interface{ Addr() uintptr }); isMem {
					// Memory went away under the launch.
					f = &Fault{Kind: FaultUnmapped, Kernel: l.prog.name, Addr: l.space.deviceAddress(re.Addr()),
						Detail: "memory was unmapped during the launch"}
				} else {
					// One program's launch must not end the device for all others.
					f = &Fault{Kind: FaultInternal, Kernel: l.prog.name,
						Detail: fmt.Sprintf("%v\n%s", x, debug.Stack())}
				}
				if cur != nil && cur.running != nil {
					f.Block = cur.running.idx
					if b := cur.running; b.running != nil {
						b.running.locate(f)
					}
				}
			}
			l.fail(f)
		}
	}()
	var resident, free []*cluster
	turn := 0
	limit := 0
	for !l.stop.Load() {
		// One that gave way lets a new one start, as far as there is place.
		cur = nil
		if limit == 0 || len(resident) < limit &&
			(l.schedule == nil || len(resident) == 0 || l.schedule.rand.IntN(2) == 0) {
			if i := l.next.Add(1) - 1; i < l.clusters {
				if n := len(free); n > 0 {
					cur, free = free[n-1], free[:n-1]
				} else {
					cur = l.newCluster()
					limit = max(minResident, maxResidentBytes/max(1, cur.bytes()))
				}
				if l.schedule != nil {
					i = l.schedule.cluster(i)
				}
				cur.begin(i)
				resident = append(resident, cur)
				turn = len(resident) - 1
			} else {
				l.next.Store(l.clusters) // keep it from growing
			}
		}
		if len(resident) == 0 {
			return
		}
		if cur == nil {
			turn = (turn + 1) % len(resident)
			if l.schedule != nil {
				turn = l.schedule.rand.IntN(len(resident))
			}
			cur = resident[turn]
		}
		if cur.run() {
			free = append(free, cur)
			resident[turn] = resident[len(resident)-1]
			resident = resident[:len(resident)-1]
		}
	}
}

// poll is called now and then: it ends the launch at a limit, or when asked to.
func (b *block) poll() {
	l := b.launch
	total := l.insts.Add(b.threadInsts)
	l.warpInsts.Add(b.warpInsts)
	b.threadInsts, b.warpInsts = 0, 0
	if l.cfg.MaxInstructions > 0 && total > l.cfg.MaxInstructions {
		b.stopped(FaultLimit, fmt.Sprintf("%d thread instructions", l.cfg.MaxInstructions))
	}
	select {
	case <-l.cfg.Cancel:
		b.stopped(FaultCancelled, "")
	default:
	}
}

// stopped ends the launch for a reason that is no instruction's fault. It names where a thread of
// the block was: the one that the limit cut off, if the block has not ended.
func (b *block) stopped(k FaultKind, detail string) {
	f := &Fault{Kind: k, Kernel: b.launch.prog.name, Block: b.idx, Detail: detail}
	at := b.warps[0]
	for _, w := range b.warps {
		if w == b.running && len(w.groups) > 0 || len(at.groups) == 0 {
			at = w
		}
	}
	at.locate(f)
	panic(f)
}
