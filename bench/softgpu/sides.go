package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/native"
	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

// hardware is the GPU, through a driver library. It belongs to one OS thread.
type hardware struct {
	k      *native.Kernels
	device cuda.Device
	stream cuda.Stream
	lo     cuda.DevicePtr // the range that kernels work in, aligned to softgpu.PageSize
	size   uint64
}

// openHardware takes size bytes of device memory.
func openHardware(library string, size uint64) (*hardware, error) {
	runtime.LockOSThread()
	k, err := native.OpenKernels(library)
	if err != nil {
		return nil, err
	}
	h := &hardware{k: k, size: size}
	if err := k.Init(); err != nil {
		return nil, err
	}
	if h.device, err = k.DeviceGet(0); err != nil {
		return nil, err
	}
	ctx, err := k.PrimaryContextRetain(h.device)
	if err != nil {
		return nil, err
	}
	if err := k.SetContext(ctx); err != nil {
		return nil, err
	}
	if h.stream, err = k.StreamCreate(); err != nil {
		return nil, err
	}
	if size > 0 {
		p, err := k.Alloc(size + softgpu.PageSize)
		if err != nil {
			return nil, err
		}
		h.lo = (p + softgpu.PageSize - 1) &^ (softgpu.PageSize - 1)
	}
	return h, nil
}

// describe names the device and the driver's CUDA version.
func (h *hardware) describe() (name, version string, err error) {
	if name, err = h.k.DeviceName(h.device); err != nil {
		return "", "", err
	}
	v, err := h.k.DriverVersion()
	return name, v.String(), err
}

func (h *hardware) launch(m cuda.Module, kernel string, shape native.Shape, params []byte, offsets []uint32) error {
	f, err := h.k.ModuleFunction(m, kernel)
	if err != nil {
		return err
	}
	if err := h.k.LaunchShape(f, shape, h.stream, params, offsets); err != nil {
		return err
	}
	return h.k.StreamSynchronize(h.stream)
}

// software is the software GPU with the same range of addresses.
type software struct {
	space *softgpu.Space
	lo    uint64
	mem   []byte
}

// globalsRoom is the part at the end of the range that holds the variables of the software GPU's modules.
const globalsRoom = 64 << 20

func openSoftware(lo, size uint64) (*software, error) {
	space, err := softgpu.NewSpace(lo, size+globalsRoom)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("softgpu-compare", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size+globalsRoom)); err != nil {
		return nil, err
	}
	if err := space.Map(lo, fd, 0, size+globalsRoom, true); err != nil {
		return nil, err
	}
	mem, err := space.Bytes(lo, size)
	if err != nil {
		return nil, err
	}
	return &software{space: space, lo: lo, mem: mem}, nil
}

// load translates a module and places its variables behind the range.
func (s *software) load(name string, text []byte) (*softgpu.Module, *softgpu.Instance, error) {
	m, err := ptx.Parse(name, text)
	if err != nil {
		return nil, nil, err
	}
	mod, err := softgpu.Load(m)
	if err != nil {
		return nil, nil, err
	}
	if mod.DataSize() > globalsRoom {
		return nil, nil, fmt.Errorf("%s: %d bytes of variables", name, mod.DataSize())
	}
	in, err := mod.Instantiate(s.space, s.lo+uint64(len(s.mem)))
	return mod, in, err
}

func unsupported(mod *softgpu.Module, kernel string) string {
	for _, k := range mod.Kernels() {
		if k.Name == kernel {
			return k.Unsupported
		}
	}
	return "no such kernel"
}

// refusal says whether an error of the driver is about the code, and not about the state of the device.
func refusal(err error) bool {
	var e *cuda.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case 200, 209, 218, 222, 300: // invalid image, no binary, invalid PTX, unsupported PTX version, invalid source
		return true
	}
	return false
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
