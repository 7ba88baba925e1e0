package cudatest

import "unsafe"

// start is the address of mem, by which the driver finds host memory again; also of mem without a byte.
func start(mem []byte) *byte { return unsafe.SliceData(mem) }

// pinned reports whether mem lies in memory of HostAlloc. The caller holds mu. Addresses are compared, nothing is read.
func (d *Driver) pinned(mem []byte) bool {
	p := uintptr(unsafe.Pointer(start(mem)))
	for base, h := range d.host {
		if b := uintptr(unsafe.Pointer(base)); p >= b && p+uintptr(len(mem)) <= b+uintptr(len(h)) {
			return true
		}
	}
	return false
}
