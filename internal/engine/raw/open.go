package raw

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"holdfast/internal/engine"
	"holdfast/internal/hfx"
	"holdfast/internal/qmd"
	"holdfast/internal/rm"
)

// A generation is what GPUs of one compute class have.
type generation struct {
	arch                   int
	compute, fifo, copying uint32
	descriptor             *qmd.Version
	carve                  []uint32 // KiB of shared memory that a multiprocessor can have
}

// Carve-outs by generation (CUDA C++ Programming Guide, compute capabilities).
var (
	carve90 = []uint32{0, 8, 16, 32, 64, 100, 132, 164, 196, 228}
	carve86 = []uint32{0, 8, 16, 32, 64, 100}
	carve80 = []uint32{0, 8, 16, 32, 64, 100, 132, 164}
)

// generations are the known compute classes, with the channel and copy classes beside them. sm_90 alone was ever tried.
var generations = []generation{
	{90, rm.HOPPER_COMPUTE_A, rm.HOPPER_CHANNEL_GPFIFO_A, rm.HOPPER_DMA_COPY_A, &qmd.V4, carve90},
	{89, rm.ADA_COMPUTE_A, rm.AMPERE_CHANNEL_GPFIFO_A, rm.AMPERE_DMA_COPY_B, &qmd.V3, carve86},
	{86, rm.AMPERE_COMPUTE_B, rm.AMPERE_CHANNEL_GPFIFO_A, rm.AMPERE_DMA_COPY_B, &qmd.V3, carve86},
	{80, rm.AMPERE_COMPUTE_A, rm.AMPERE_CHANNEL_GPFIFO_A, rm.AMPERE_DMA_COPY_A, &qmd.V3, carve80},
}

// A Backend is one GPU.
type Backend struct {
	rm       *rm.Client
	space    rm.Space
	files    rm.Files
	dev      rm.File // /dev/nvidiaN
	minor    uint32
	device   rm.Handle
	sub      rm.Handle
	gen      generation
	info     engine.Info
	GPU                  // what code is made for
	tpcs     uint32      // multiprocessor pairs that the chip can have
	perTPC   uint32      // multiprocessors of each
	warps    uint32      // of each multiprocessor
	sms      uint32      // multiprocessors that there are
	sheet    *hfx.Writer // takes down what would be done; nil: there is a GPU
	options  Options
	user     *rm.Mapping
	beside   *Backend   // whose group the channel is in; nil: it has its own
	listing  sync.Mutex // of others: they are made and closed beside work
	others   []*Backend // that are beside this one
	own      addresses  // device addresses of our own
	mapped   map[uint64]*memory
	programs map[*program]bool // that were prepared and not closed
	placed   []*memory         // all that is mapped, by address
	ch       *channel
	local    localMemory
	moves    *code // kernels of copies and sets, once they are needed
	dead     error // why nothing can run any more
	undo     []func() error
	loading  sync.Mutex // what Load does on the GPU
}

// Options say which GPU.
type Options struct {
	Files rm.Files // nil: the machine's
	Index int      // among the machine's GPUs, in the driver's order
	// Unified has the address space kept by unified memory, not by the resource manager. It starts more slowly.
	Unified bool
	// Boost asks the driver for the GPU's highest clocks until the GPU is closed. A CUDA context has them always; a
	// channel alone leaves the GPU at those that it has when idle. Never tried on a GPU.
	Boost bool
}

var _ engine.Backend = (*Backend)(nil)

// Open brings up a GPU. A driver whose interface is not known is a *rm.VersionError.
func Open(o Options) (b *Backend, err error) {
	if o.Files == nil {
		if runtime.GOARCH != "amd64" {
			return nil, errors.New("raw: the order of writes to a GPU is known for x86-64 alone")
		}
		o.Files = rm.OS{}
	}
	b = &Backend{files: o.Files, mapped: map[uint64]*memory{}, programs: map[*program]bool{},
		own: addresses{next: ownBase, end: ownEnd}, options: o}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("raw: %w", err), b.Close())
			b = nil
		}
	}()
	for _, step := range []func(Options) error{b.openDevice, b.identify, b.addressSpace, b.openChannel, b.boost} {
		if err := step(o); err != nil {
			return b, err
		}
	}
	return b, nil
}

// Probe says what a GPU is, and leaves it as it was.
func Probe(o Options) (GPU, error) {
	if o.Files == nil {
		o.Files = rm.OS{}
	}
	b := &Backend{files: o.Files}
	for _, step := range []func(Options) error{b.openDevice, b.identify} {
		if err := step(o); err != nil {
			return GPU{}, errors.Join(fmt.Errorf("raw: %w", err), b.Close())
		}
	}
	return b.GPU, b.Close()
}

// later puts off what Close does, last first.
func (b *Backend) later(f func() error) { b.undo = append(b.undo, f) }

// Close frees everything.
func (b *Backend) Close() error {
	var errs []error
	if b.beside == nil {
		for _, o := range b.spaces()[1:] {
			errs = append(errs, o.Close())
		}
	}
	b.leave()
	for _, m := range b.mapped {
		errs = append(errs, b.freeMemory(m))
	}
	b.mapped = nil
	if b.moves != nil && b.moves.memory != nil {
		errs = append(errs, b.freeMemory(b.moves.memory))
		b.moves = nil
	}
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i]())
	}
	b.undo = nil
	if b.dead == nil {
		b.dead = errors.New("raw: the GPU is closed")
	}
	return errors.Join(errs...)
}

// openDevice makes the client, the device and the subdevice.
func (b *Backend) openDevice(o Options) (err error) {
	if b.rm, err = rm.NewClient(b.files); err != nil {
		return err
	}
	b.later(b.rm.Close)
	cards, err := b.rm.Cards()
	if err != nil {
		return err
	}
	if o.Index < 0 || o.Index >= len(cards) {
		return fmt.Errorf("no GPU %d: the machine has %d", o.Index, len(cards))
	}
	card := cards[o.Index]
	b.minor = card.Minor_number
	if b.dev, err = b.rm.OpenDevice(b.minor); err != nil {
		return err
	}
	b.later(b.dev.Close)
	id := rm.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS{GpuId: card.Gpu_id}
	if err := b.rm.Control(b.rm.Root, rm.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, &id); err != nil {
		return err
	}
	b.device, err = b.rm.Alloc(b.rm.Root, rm.NV01_DEVICE_0,
		&rm.NV0080_ALLOC_PARAMETERS{DeviceId: id.DeviceInstance, HClientShare: uint32(b.rm.Root)})
	if err != nil {
		return err
	}
	b.sub, err = b.rm.Alloc(b.device, rm.NV20_SUBDEVICE_0,
		&rm.NV2080_ALLOC_PARAMETERS{SubDeviceId: id.SubDeviceInstance})
	return err
}

// identify asks what GPU it is and refuses one that is not known.
func (b *Backend) identify(Options) error {
	var classes rm.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS
	if err := b.rm.Control(b.device, rm.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, &classes); err != nil {
		return err
	}
	has := map[uint32]bool{}
	for _, c := range classes.ClassList[:min(int(classes.NumClasses), len(classes.ClassList))] {
		has[c] = true
	}
	for _, g := range generations {
		if has[g.compute] && has[g.fifo] && has[g.copying] {
			b.gen = g
			break
		}
	}
	name := rm.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS{}
	if err := b.rm.Control(b.sub, rm.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, &name); err != nil {
		return err
	}
	b.info = engine.Info{Name: text(name.GpuNameString[:]), Arch: b.gen.arch, Driver: b.rm.Version.Text, Cubin: true,
		LoadsAtOnce: true}
	if b.gen.arch == 0 {
		return fmt.Errorf("%s: its compute class is not known here", b.info.Name)
	}
	fb := rm.NV2080_CTRL_FB_GET_INFO_V2_PARAMS{FbInfoListSize: 1}
	fb.FbInfoList[0].Index = rm.NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE
	if err := b.rm.Control(b.sub, rm.NV2080_CTRL_CMD_FB_GET_INFO_V2, &fb); err != nil {
		return err
	}
	b.info.Memory = uint64(fb.FbInfoList[0].Data) << 10
	gr, err := b.rm.GRInfo(b.sub, rm.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS,
		rm.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC,
		rm.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC, rm.NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM,
		rm.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT)
	if err != nil {
		return err
	}
	b.setGPU(GPU{Name: b.info.Name, Arch: b.gen.arch, GPCs: gr[0], TPCsPerGPC: gr[1], SMsPerTPC: gr[2], Warps: gr[3],
		TPCs: gr[4]})
	return nil
}

// A GPU is what launches and their memory depend on.
type GPU struct {
	Name                   string
	Arch                   int    // 90 for sm_90
	GPCs, TPCsPerGPC, TPCs uint32 // that the chip can have, and how many multiprocessor pairs there are
	SMsPerTPC              uint32
	Warps                  uint32 // of a multiprocessor
}

func (b *Backend) setGPU(g GPU) {
	b.GPU = g
	b.perTPC, b.warps, b.sms = g.SMsPerTPC, g.Warps, g.TPCs*g.SMsPerTPC
	b.tpcs = min(g.GPCs*g.TPCsPerGPC, g.TPCs)
}

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// addressSpace makes one.
func (b *Backend) addressSpace(o Options) (err error) {
	if o.Unified {
		var uuid [16]byte
		if uuid, err = b.rm.UUID(b.sub); err == nil {
			b.space, err = b.rm.NewUnifiedSpace(b.device, uuid)
		}
	} else {
		b.space, err = b.rm.NewSpace(b.device)
	}
	if err != nil {
		return err
	}
	b.later(b.space.Close)
	return nil
}

// boost asks for high clocks, and for what they were at the end. A boost ends by itself if the process does not.
func (b *Backend) boost(o Options) error {
	if !o.Boost {
		return nil
	}
	ask := func(flags uint32) error {
		return b.rm.Control(b.sub, rm.NV2080_CTRL_CMD_PERF_BOOST, &rm.NV2080_CTRL_PERF_BOOST_PARAMS{
			Flags: flags | rm.NV2080_CTRL_PERF_BOOST_FLAGS_CUDA_YES, Duration: rm.NV2080_CTRL_PERF_BOOST_DURATION_MAX})
	}
	if err := ask(rm.NV2080_CTRL_PERF_BOOST_FLAGS_CMD_BOOST_TO_MAX); err != nil {
		return fmt.Errorf("clocks: %w", err)
	}
	b.later(func() error { return ask(rm.NV2080_CTRL_PERF_BOOST_FLAGS_CMD_CLEAR) })
	return nil
}

// Info says what GPU this is.
func (b *Backend) Info() engine.Info { return b.info }
