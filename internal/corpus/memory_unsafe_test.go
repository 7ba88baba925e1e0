package corpus

import "unsafe"

// newCall copies the buffers into memory of their own, aligned as the widest type that a kernel reads them as.
func newCall(a *Application, l *Launch) *call {
	c := &call{a, l, map[string][]byte{}}
	for _, name := range a.Reached(l) {
		words := make([]uint64, (a.Buffers[name].Bytes+7)/8) // aligned
		b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), a.Buffers[name].Bytes)
		copy(b, a.Contents(name))
		c.memory[name] = b
	}
	return c
}

// deref is what p points to, as values of T. What a slice of T cannot hold of the last bytes is left out.
func deref[T any](c *call, p Pointer) []T {
	b := c.memory[p.Buf][p.Offset:]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}
