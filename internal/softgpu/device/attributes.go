package device

import (
	"encoding/binary"
	"fmt"

	"holdfast/internal/softgpu"
)

const deviceName = "holdfast software GPU"

// The compute capability that modules are compiled for.
const (
	capabilityMajor = 9
	capabilityMinor = 0
)

// What one streaming multiprocessor holds on sm_90 (CUDA C++ Programming Guide,
// table of technical specifications per compute capability).
const (
	multiprocessors    = 132
	warpSize           = 32
	maxThreadsPerBlock = 1024
	maxThreadsPerSM    = 2048
	maxBlocksPerSM     = 32
	sharedPerBlock     = 48 << 10
	sharedPerBlockMax  = 227 << 10
	sharedPerSM        = 228 << 10
	sharedReserved     = 1 << 10
	registersPerSM     = 64 << 10
	maxParameterBytes  = 32764
	textureAlignment   = 512 // bytes, of the address of linear memory
	texturePitch       = 32
)

// deviceAttributes are the CUdevice_attribute values of cuda.h 13.0 that are not 0.
var deviceAttributes = map[int32]int32{
	1: maxThreadsPerBlock, 2: 1024, 3: 1024, 4: 64, // block dimensions
	5: 1<<31 - 1, 6: 65535, 7: 65535, // grid dimensions
	8:  sharedPerBlock,
	9:  64 << 10, // constant memory
	10: warpSize,
	11: 1<<31 - 1, // pitch
	12: registersPerSM,
	13: 1980000, // clock, kHz
	14: textureAlignment,
	15: 1, // overlap
	16: multiprocessors,
	19: 1, // can map host memory
	// Largest textures: 1D, 2D, 3D, layered 2D
	21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, 27: 32768, 28: 32768, 29: 2048,
	30: 512,     // surface alignment
	31: 1,       // concurrent kernels
	36: 2619000, // memory clock, kHz
	37: 6144,    // bus width
	38: 60 << 20,
	39: maxThreadsPerSM,
	40: 3, // copy engines
	41: 1, // unified addressing
	// Layered 1D, gathers, alternate 3D
	42: 32768, 43: 2048, 44: 1, 45: 32768, 46: 32768, 47: 8192, 48: 8192, 49: 32768,
	51: texturePitch,
	// Cubemaps, surfaces, linear and mipmapped textures
	52: 32768, 53: 32768, 54: 2046, 55: 32768, 56: 131072, 57: 65536, 58: 16384, 59: 16384,
	60: 16384, 61: 32768, 62: 2048,
	63: 32768, 64: 32768, 65: 2048, 66: 32768, 67: 32768, 68: 2046, 69: softgpu.MaxImageLinear,
	70: 131072, 71: 65000, 72: 2097120,
	73: 32768, 74: 32768, 77: 32768,
	75: capabilityMajor,
	76: capabilityMinor,
	78: 1,        // stream priorities
	79: 1, 80: 1, // L1 caches
	81: sharedPerSM,
	82: registersPerSM,
	83: 1,               // managed memory
	87: 64,              // single to double performance
	90: 1,               // compute preemption
	91: 1,               // host pointer for registered memory
	92: 1, 93: 1, 94: 1, // stream memory operations, v1
	95:  1, // cooperative launch
	97:  sharedPerBlockMax,
	102: 1, // virtual memory management
	103: 1, // descriptors as handles
	106: maxBlocksPerSM,
	111: sharedReserved,
	115: 1,            // memory pools
	119: handleTypeFD, // of pools
	120: 1,            // clusters
	122: 1,            // stream wait values, v2
	123: 1,
	126: 1,  // memory synchronisation domains
	127: 1,  // tensor maps
	131: -1, // no NUMA node
	134: -1,
}

func deviceAttribute(c *call) Status {
	attr, dev := int32(c.args[0]), c.device(c.args[1])
	const last = 160 // beyond any attribute of CUDA 13.0
	if attr < 1 || attr > last {
		return InvalidValue
	}
	switch attr {
	case 33: // bus
		return c.ret32(int32(dev + 1))
	case 50: // domain
		return c.ret32(0)
	}
	return c.ret32(deviceAttributes[attr])
}

func deviceGet(c *call) Status {
	return c.ret(uint64(c.device(c.args[0])))
}

func deviceGetName(c *call) Status {
	c.device(c.args[1])
	c.retBlob([]byte(deviceName))
	return Success
}

// uuid is fixed: images name the device they were taken from.
func uuid(dev int) []byte {
	id := []byte("\x4c\x1f\xd0\x6a\x2b\x97\x4e\x55\x9a\x61\x68\x6f\x6c\x64\x66\x00")
	id[15] = byte(dev)
	return id
}

func deviceUUID(c *call) Status {
	c.retBlob(uuid(c.device(c.args[0])))
	return Success
}

func deviceTotalMem(c *call) Status {
	c.device(c.args[0])
	return c.ret(c.p.srv.cfg.Memory)
}

func busID(dev int) string { return fmt.Sprintf("0000:%02X:00.0", dev+1) }

func devicePCI(c *call) Status {
	c.retBlob([]byte(busID(c.device(c.args[1]))))
	return Success
}

func deviceByPCI(c *call) Status {
	var domain, bus, slot, fn int
	id := string(c.blob())
	if n, _ := fmt.Sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &fn); n < 3 {
		domain = 0
		if n, _ := fmt.Sscanf(id, "%x:%x.%x", &bus, &slot, &fn); n < 2 {
			return InvalidValue
		}
	}
	if domain != 0 || slot != 0 || bus < 1 || bus > c.p.srv.cfg.Devices {
		return InvalidDevice
	}
	return c.ret(uint64(bus - 1))
}

// deviceProperties fills CUdevprop, 11 ints.
func deviceProperties(c *call) Status {
	c.device(c.args[0])
	var b []byte
	for _, attr := range []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14} {
		b = binary.LittleEndian.AppendUint32(b, uint32(deviceAttributes[attr]))
	}
	c.retBlob(b)
	return Success
}

func deviceCapability(c *call) Status {
	c.device(c.args[0])
	return c.ret(capabilityMajor, capabilityMinor)
}

func canAccessPeer(c *call) Status {
	return c.ret(truth(c.device(c.args[0]) != c.device(c.args[1])))
}

// p2pAttribute: performance rank, access, native atomics, arrays.
func p2pAttribute(c *call) Status {
	if c.device(c.args[1]) == c.device(c.args[2]) {
		return InvalidDevice
	}
	switch c.args[0] {
	case 2, 3:
		return c.ret(1)
	}
	return c.ret(0)
}
