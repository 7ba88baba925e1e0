package device

import (
	"bytes"
	"errors"
	"fmt"

	"holdfast/internal/softgpu"
	"holdfast/internal/softgpu/gpuwire"
)

// launches runs kernels.
type launches struct {
	*work
	*output
}

// A kernelLaunch is one launch as submitted.
type kernelLaunch struct {
	Func        uint64
	Grid, Block [3]uint32
	Shared      uint32
	Cooperative bool
	Cluster     [3]uint32 // as asked for; zero: as the function says
	RunCluster  [3]uint32 // as it runs; zero: none
	Params      []byte
	fn          *function
}

func dims(a []uint64) ([3]uint32, bool) {
	var d [3]uint32
	for i := range d {
		if a[i] == 0 || a[i] > 1<<31-1 {
			return d, false
		}
		d[i] = uint32(a[i])
	}
	return d, true
}

// kernelLaunch reads function, grid, block and shared bytes.
func (c *call) kernelLaunch(a []uint64, params []byte, o launchOptions) (*kernelLaunch, Status) {
	f := c.function(a[0])
	k := &kernelLaunch{Func: f.handle, fn: f, Cooperative: o.Cooperative, Cluster: o.Cluster}
	var ok1, ok2 bool
	k.Grid, ok1 = dims(a[1:])
	k.Block, ok2 = dims(a[4:])
	if !ok1 || !ok2 || a[7] > sharedPerBlockMax || len(params) > maxParameterBytes {
		return nil, InvalidValue
	}
	k.Shared = uint32(a[7])
	k.Params = bytes.Clone(params)
	return k, c.p.checkLaunch(k)
}

func (ls launches) checkLaunch(k *kernelLaunch) Status {
	f := k.fn
	threads := uint64(k.Block[0]) * uint64(k.Block[1]) * uint64(k.Block[2])
	if k.Block[0] > 1024 || k.Block[1] > 1024 || k.Block[2] > 64 || threads > maxThreadsPerBlock || k.Grid[1] > 65535 ||
		k.Grid[2] > 65535 {
		return InvalidValue
	}
	if threads > uint64(maxThreads(&f.info)) {
		return LaunchOutOfResources
	}
	if len(k.Params) < int(f.info.ParamBytes) {
		return InvalidValue
	}
	dynamic, _ := functionAttribute(funcMaxDynamic, f.info, f.attributes())
	if int64(k.Shared) > int64(dynamic) {
		return InvalidValue
	}
	k.RunCluster = clusterOf(k.Cluster, &f.info, f.attributes())
	if st := checkCluster(k.RunCluster, k.Grid, &f.info, f.attributes()); st != Success {
		return st
	}
	if f.info.Unsupported != "" {
		ls.srv.log.Warn("kernel not served", "pid", ls.key.pid, "kernel", f.name, "reason", f.info.Unsupported)
		ls.srv.counts.refused(fmt.Errorf("kernel %s: %s", f.name, f.info.Unsupported))
		return NotSupported
	}
	if f.mod.code.mallocs && ls.heap == nil {
		if err := ls.makeHeap(f.mod.cx); err != nil {
			ls.srv.log.Info("no heap for device code", "pid", ls.key.pid, "err", err)
			return OutOfMemory
		}
	}
	if k.Cooperative {
		blocks := uint64(k.Grid[0]) * uint64(k.Grid[1]) * uint64(k.Grid[2])
		if blocks > uint64(occupancy(f.info, int(threads), uint64(k.Shared)))*multiprocessors {
			return CooperativeTooLarge
		}
	}
	return Success
}

// Launch attributes (CUlaunchAttributeID).
const (
	attrCooperative       = 2
	attrCluster           = 4
	attrProgrammaticEvent = 7
	attrCompletionEvent   = 12
	attrDeviceUpdatable   = 13
)

// ignoredAttributes are those that change no result.
var ignoredAttributes = map[uint32]bool{
	0: true,           // ignore
	1: true,           // access policy window
	3: true,           // synchronisation policy
	5: true,           // cluster scheduling preference
	6: true,           // programmatic stream serialisation: running later is allowed
	8: true,           // priority
	9: true, 10: true, // memory synchronisation domains
	11: true, // preferred cluster: the regular one is always allowed
	14: true, // shared memory carve-out
	16: true, // NVLink-centric scheduling
}

const (
	sizeofLaunchAttribute = 72
	launchAttributeValue  = 8 // where its value begins
)

// launchOptions are what launch attributes say.
type launchOptions struct {
	Cooperative bool
	Cluster     [3]uint32
	events      []uint64 // recorded when the kernel has run, which is late but allowed
}

// set takes the value of one attribute.
func (o *launchOptions) set(id uint32, v []byte) Status {
	switch {
	case id == attrCooperative:
		o.Cooperative = u32(v, 0) != 0
	case id == attrCluster:
		o.Cluster = [3]uint32{u32(v, 0), u32(v, 4), u32(v, 8)}
		if o.Cluster != [3]uint32{} && (o.Cluster[0] == 0 || o.Cluster[1] == 0 || o.Cluster[2] == 0) {
			return InvalidClusterSize
		}
	case id == attrProgrammaticEvent, id == attrCompletionEvent:
		if e := u64(v, 0); e != 0 {
			o.events = append(o.events, e)
		}
	case id == attrDeviceUpdatable && u32(v, 0) == 0:
	case !ignoredAttributes[id]:
		return NotSupported
	}
	return Success
}

func launchAttributes(b []byte) (o launchOptions, st Status) {
	if len(b)%sizeofLaunchAttribute != 0 || len(b) > 64*sizeofLaunchAttribute {
		return o, InvalidValue
	}
	for ; len(b) > 0 && st == Success; b = b[sizeofLaunchAttribute:] {
		st = o.set(u32(b, 0), b[launchAttributeValue:])
	}
	return o, st
}

func launchKernel(c *call) Status {
	params := c.blob()
	o, st := launchAttributes(c.blob())
	if st != Success {
		return st
	}
	o.Cooperative = o.Cooperative || c.args[9]&gpuwire.FlagCooperative != 0
	s := c.stream(c.args[8])
	k, st := c.kernelLaunch(c.args, params, o)
	if st != Success {
		return st
	}
	var events []*event
	for _, h := range o.events {
		e := must[*event](c, h)
		if e.cx != s.cx {
			return InvalidHandle
		}
		events = append(events, e)
	}
	if s.capture != nil {
		if len(events) > 0 {
			return NotSupported
		}
		return s.addNode(&node{Kind: nodeKernel, Kernel: k})
	}
	if st := c.p.refuseIfImplicit(s); st != Success {
		return st
	}
	if k.fn.mod.cx != s.cx {
		return InvalidHandle
	}
	p := c.p
	p.submit(s, &task{run: func() Status { return p.runKernel(k) }})
	for _, e := range events {
		e.captured, e.leaves = nil, nil
		p.record(e, s)
	}
	return Success
}

// makeHeap gives device code the heap that the context's limit asks for.
func (ls launches) makeHeap(cx *deviceContext) error {
	size, ok := cx.limits[limitMallocHeap]
	if !ok {
		size = limitDefaults[limitMallocHeap]
	}
	size = (max(size, 1) + granularity - 1) &^ (granularity - 1)
	a, err := ls.allocate(cx, size, allocHeap)
	if err != nil {
		return err
	}
	if err := ls.space.SetHeap(a.va, a.size); err != nil {
		ls.quiesce(func() { ls.dropAllocation(a) })
		return err
	}
	ls.heap = a
	return nil
}

func (ls launches) runKernel(k *kernelLaunch) Status {
	if k.fn == nil {
		return InvalidHandle // of a module that was gone when the process was restored
	}
	ls.srv.counts.launches.Add(1)
	stats, err := k.fn.mod.inst.Launch(k.fn.name, softgpu.LaunchConfig{
		Grid: k.Grid, Block: k.Block, Cluster: k.RunCluster, SharedDynamic: k.Shared, Params: k.Params,
		Workers: ls.srv.cfg.Workers, Deterministic: ls.srv.cfg.Deterministic,
		Printf: ls.output, Cancel: ls.dead,
	})
	ls.srv.counts.threadInstructions.Add(uint64(stats.ThreadInstructions))
	if err == nil {
		return Success
	}
	var f *softgpu.Fault
	if !errors.As(err, &f) {
		ls.srv.log.Error("launch failed", "pid", ls.key.pid, "kernel", k.fn.name, "err", err)
		return LaunchFailed
	}
	if f.Kind == softgpu.FaultCancelled {
		return LaunchFailed
	}
	ls.srv.log.Error("kernel fault", "pid", ls.key.pid, "fault", err.Error())
	switch f.Kind {
	case softgpu.FaultUnmapped:
		return IllegalAddress
	case softgpu.FaultMisaligned:
		return MisalignedAddress
	case softgpu.FaultAssert:
		return Assert
	case softgpu.FaultUnsupported:
		return IllegalInstruction
	case softgpu.FaultCall:
		return InvalidPC
	}
	return LaunchFailed
}

// hostFunction submits a callback: kind 0 is fn(user), kind 1 fn(stream, status, user).
func (c *call) hostFunction(s *stream, kind, fn, user uint64, handle uint64) {
	p := c.p
	cx := s.cx
	p.submit(s, &task{always: kind == 1, run: func() Status {
		p.mu.Lock()
		status := cx.sticky
		p.mu.Unlock()
		_, _ = p.control.call(gpuwire.OpCallback, []uint64{kind, fn, user, handle, uint64(status)}, nil)
		return Success
	}})
}

func launchHostFunc(c *call) Status {
	s := c.stream(c.args[0])
	if c.args[1] == 0 {
		return InvalidValue
	}
	if s.capture != nil {
		return s.addNode(&node{Kind: nodeHost, Fn: c.args[1], User: c.args[2]})
	}
	c.hostFunction(s, 0, c.args[1], c.args[2], c.args[0])
	return Success
}

func addCallback(c *call) Status {
	s := c.stream(c.args[0])
	if c.args[1] == 0 {
		return InvalidValue
	}
	if s.capture != nil {
		s.capture.invalidate()
		return CaptureUnsupported
	}
	c.hostFunction(s, 1, c.args[1], c.args[2], c.args[0])
	return Success
}

// occupancy is how many blocks of a kernel one multiprocessor of an sm_90 holds.
func occupancy(info softgpu.KernelInfo, threads int, dynamic uint64) int {
	if threads <= 0 || threads > maxThreads(&info) {
		return 0
	}
	warps := (threads + warpSize - 1) / warpSize
	n := min(maxBlocksPerSM, maxThreadsPerSM/(warps*warpSize))
	const registerUnit = 256 // a warp's registers are given out in such units
	perWarp := (registers(&info)*warpSize + registerUnit - 1) &^ (registerUnit - 1)
	n = min(n, registersPerSM/(perWarp*warps))
	shared := uint64(info.SharedStatic) + dynamic
	if shared > sharedPerBlockMax {
		return 0
	}
	const sharedUnit = 128
	return int(min(uint64(n), sharedPerSM/((shared+sharedReserved+sharedUnit-1)&^(sharedUnit-1))))
}

func occupancyBlocks(c *call) Status {
	info, _ := c.kernelInfo(c.args[0])
	if int64(c.args[1]) <= 0 {
		return InvalidValue
	}
	return c.ret(uint64(occupancy(info, int(min(c.args[1], 1<<20)), min(c.args[2], 1<<30))))
}

func occupancyBlockSize(c *call) Status {
	info, _ := c.kernelInfo(c.args[0])
	dynamic, limit := min(c.args[1], 1<<30), int(int32(c.args[2]))
	most := maxThreads(&info)
	if limit > 0 {
		most = min(most, limit)
	}
	best, blocks, occupied := 0, 0, 0
	for t := (most + warpSize - 1) &^ (warpSize - 1); t > 0; t -= warpSize {
		size := min(t, most)
		if n := occupancy(info, size, dynamic); n*size > occupied {
			best, blocks, occupied = size, n, n*size
		}
	}
	if best == 0 {
		return InvalidValue
	}
	return c.ret(uint64(blocks*multiprocessors), uint64(best))
}

func occupancyShared(c *call) Status {
	info, _ := c.kernelInfo(c.args[0])
	blocks, threads := int64(int32(c.args[1])), int64(int32(c.args[2]))
	if blocks <= 0 || threads <= 0 || occupancy(info, int(threads), 0) < int(blocks) {
		return InvalidValue
	}
	per := int64(sharedPerSM)/blocks&^127 - sharedReserved - int64(info.SharedStatic)
	return c.ret(uint64(max(min(per, sharedPerBlockMax-int64(info.SharedStatic)), 0)))
}
