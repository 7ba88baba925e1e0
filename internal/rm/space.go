package rm

import (
	"errors"
	"fmt"
)

// A Space is an address space of a GPU: memory objects are put at device addresses.
type Space interface {
	Handle() Handle
	// Map puts a memory object at a device address. system says that it is system memory.
	Map(base, length uint64, memory Handle, system bool) error
	Unmap(base, length uint64, memory Handle) error
	// Bind gives a channel's own buffers their addresses, BuffersSize from base on, and Unbind takes them away.
	Bind(channel Handle, base uint64) error
	Unbind(channel Handle) error
	Close() error
}

// BuffersSize is how many bytes of addresses Bind takes.
const BuffersSize = 64 << 20

// Limits of an address space.
const (
	spaceBase = 0x1000
	spaceSize = 0x1fffffb000000
)

// managed is an address space of the resource manager's own.
type managed struct {
	c               *Client
	device          Handle
	vaspace, memory Handle
}

// NewSpace makes an address space that the resource manager keeps. Unified memory is not needed.
func (c *Client) NewSpace(device Handle) (Space, error) {
	v, err := c.Alloc(device, FERMI_VASPACE_A, &NV_VASPACE_ALLOCATION_PARAMETERS{})
	if err != nil {
		return nil, fmt.Errorf("address space: %w", err)
	}
	m, err := c.Alloc(device, NV01_MEMORY_VIRTUAL, &NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS{Limit: SpaceLimit,
		HVASpace: uint32(v)})
	if err != nil {
		return nil, fmt.Errorf("address space: %w", err)
	}
	return &managed{c, device, v, m}, nil
}

func (s *managed) Handle() Handle { return s.vaspace }

func (s *managed) Map(base, length uint64, memory Handle, system bool) error {
	flags := uint32(NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE | NVOS46_FLAGS_PAGE_SIZE_HUGE)
	if system {
		flags = NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE | NVOS46_FLAGS_PAGE_SIZE_4KB | NVOS46_FLAGS_CACHE_SNOOP_ENABLE
	}
	at, status, err := s.mapDMA(base, length, memory, flags)
	if err == nil {
		err = check(status)
	}
	if err == nil && at != base {
		err = fmt.Errorf("it came to %#x", at)
	}
	if err != nil {
		return fmt.Errorf("map %#x+%#x: %w", base, length, err)
	}
	return nil
}

// mapDMA makes the request in the form that the driver has.
func (s *managed) mapDMA(base, length uint64, memory Handle, flags uint32) (at uint64, status uint32, err error) {
	if s.c.Version.Major < 580 {
		p := NVOS46_PARAMETERS_570{HClient: uint32(s.c.Root), HDevice: uint32(s.device), HDma: uint32(s.memory),
			HMemory: uint32(memory), Length: length, Flags: flags, DmaOffset: base}
		err = s.c.do(NV_ESC_RM_MAP_MEMORY_DMA, &p)
		return p.DmaOffset, p.Status, err
	}
	p := NVOS46_PARAMETERS{HClient: uint32(s.c.Root), HDevice: uint32(s.device), HDma: uint32(s.memory),
		HMemory: uint32(memory), Length: length, Flags: flags, DmaOffset: base}
	err = s.c.do(NV_ESC_RM_MAP_MEMORY_DMA, &p)
	return p.DmaOffset, p.Status, err
}

func (s *managed) Unmap(base, length uint64, memory Handle) error {
	p := NVOS47_PARAMETERS{HClient: uint32(s.c.Root), HDevice: uint32(s.device), HDma: uint32(s.memory),
		HMemory:   uint32(memory),
		DmaOffset: base}
	err := s.c.do(NV_ESC_RM_UNMAP_MEMORY_DMA, &p)
	if err == nil {
		err = check(p.Status)
	}
	if err != nil {
		return fmt.Errorf("unmap %#x+%#x: %w", base, length, err)
	}
	return nil
}

// Bind has nothing to do: the resource manager maps a channel's buffers itself.
func (s *managed) Bind(Handle, uint64) error { return nil }
func (s *managed) Unbind(Handle) error       { return nil }

// Close ends the address space. Nothing may use it any more.
func (s *managed) Close() error {
	return errors.Join(s.c.Free(s.device, s.memory), s.c.Free(s.device, s.vaspace))
}
