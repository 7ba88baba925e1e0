package rm

import (
	"errors"
	"fmt"
)

// A unified is an address space that unified memory keeps.
type unified struct {
	c       *Client
	file    File
	mm      File
	uuid    [16]byte
	vaspace Handle
}

// NewUnifiedSpace makes an address space that unified memory keeps. uuid is the GPU's. It takes longer to make than
// NewSpace, 0.17 s on an H200 whose unified memory nobody else uses.
func (c *Client) NewUnifiedSpace(device Handle, uuid [16]byte) (Space, error) {
	v, err := c.Alloc(device, FERMI_VASPACE_A, &NV_VASPACE_ALLOCATION_PARAMETERS{VaBase: spaceBase, VaSize: spaceSize,
		Flags: NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED | NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING})
	if err != nil {
		return nil, fmt.Errorf("address space: %w", err)
	}
	u, err := openUnified(c)
	if err != nil {
		return nil, err
	}
	u.vaspace, u.uuid = v, uuid
	if err := u.register(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// openUnified opens unified memory. HMM is off: device addresses here are not the process's own.
func openUnified(c *Client) (u *unified, err error) {
	f, err := c.files.Open("/dev/nvidia-uvm")
	if err != nil {
		return nil, err
	}
	u = &unified{c: c, file: f}
	p := UVM_INITIALIZE_PARAMS{Flags: UVM_INIT_FLAGS_DISABLE_HMM}
	if err := u.do("initialize", UVM_INITIALIZE, &p, &p.RmStatus); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if u.mm, err = c.files.Open("/dev/nvidia-uvm"); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// Keeps the process's memory known to the driver; kernels that need none of it say so, and libcuda goes on too.
	m := UVM_MM_INITIALIZE_PARAMS{UvmFd: f.Fd()}
	if err := u.doOn(u.mm, "tie process memory", UVM_MM_INITIALIZE, &m, &m.RmStatus); err != nil {
		err := u.mm.Close()
		if u.mm = nil; err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return u, nil
}

func (u *unified) do(what string, cmd uint32, p any, status *uint32) error {
	return u.doOn(u.file, what, cmd, p, status)
}

func (u *unified) doOn(f File, what string, cmd uint32, p any, status *uint32) error {
	b := u.c.ABI.Encode(p)
	err := f.Ioctl(cmd, b)
	if err == nil {
		u.c.ABI.Decode(b, p)
		err = check(*status)
	}
	if err != nil {
		return fmt.Errorf("unified memory: %s: %w", what, err)
	}
	return nil
}

// Close ends all ranges.
func (u *unified) Close() error {
	var err error
	if u.mm != nil {
		err = u.mm.Close()
	}
	return errors.Join(err, u.file.Close())
}

func (u *unified) Handle() Handle { return u.vaspace }

// register hands the GPU and its address space over.
func (u *unified) register() error {
	p := UVM_REGISTER_GPU_PARAMS{Gpu_uuid: u.uuid, RmCtrlFd: -1}
	if err := u.do("register the GPU", UVM_REGISTER_GPU, &p, &p.RmStatus); err != nil {
		return err
	}
	v := UVM_REGISTER_GPU_VASPACE_PARAMS{GpuUuid: u.uuid, RmCtrlFd: u.c.ctl.Fd(), HClient: uint32(u.c.Root),
		HVaSpace: uint32(u.vaspace)}
	return u.do("register the address space", UVM_REGISTER_GPU_VASPACE, &v, &v.RmStatus)
}

func (u *unified) Bind(channel Handle, base uint64) error {
	p := UVM_REGISTER_CHANNEL_PARAMS{GpuUuid: u.uuid, RmCtrlFd: u.c.ctl.Fd(), HClient: uint32(u.c.Root),
		HChannel: uint32(channel),
		Base:     base, Length: BuffersSize}
	return u.do("register the channel", UVM_REGISTER_CHANNEL, &p, &p.RmStatus)
}

func (u *unified) Unbind(channel Handle) error {
	p := UVM_UNREGISTER_CHANNEL_PARAMS{GpuUuid: u.uuid, HClient: uint32(u.c.Root), HChannel: uint32(channel)}
	return u.do("unregister the channel", UVM_UNREGISTER_CHANNEL, &p, &p.RmStatus)
}

func (u *unified) Map(base, length uint64, memory Handle, _ bool) error {
	r := UVM_CREATE_EXTERNAL_RANGE_PARAMS{Base: base, Length: length}
	if err := u.do(fmt.Sprintf("range %#x+%#x", base, length), UVM_CREATE_EXTERNAL_RANGE, &r, &r.RmStatus); err != nil {
		return err
	}
	p := UVM_MAP_EXTERNAL_ALLOCATION_PARAMS{Base: base, Length: length, GpuAttributesCount: 1, RmCtrlFd: u.c.ctl.Fd(),
		HClient: uint32(u.c.Root), HMemory: uint32(memory)}
	p.PerGpuAttributes[0] = UvmGpuMappingAttributes{GpuUuid: u.uuid, GpuMappingType: UvmGpuMappingTypeReadWriteAtomic}
	if err := u.do(fmt.Sprintf("map %#x+%#x", base, length), UVM_MAP_EXTERNAL_ALLOCATION, &p, &p.RmStatus); err != nil {
		return errors.Join(err, u.Unmap(base, length, memory))
	}
	return nil
}

func (u *unified) Unmap(base, length uint64, _ Handle) error {
	p := UVM_FREE_PARAMS{Base: base, Length: length}
	return u.do(fmt.Sprintf("free range %#x+%#x", base, length), UVM_FREE, &p, &p.RmStatus)
}
