package device

import "slices"

// handles are the objects of a process that have a name.
type handles struct {
	objects map[uint64]any
	next    uint64
	serial  uint64 // buffer and capture ids
}

// table is for get and all, which take whatever holds handles.
func (hs *handles) table() *handles { return hs }

// add gives v a handle.
func (hs *handles) add(v any) uint64 {
	if len(hs.objects) >= maxObjects {
		panic(OutOfMemory)
	}
	h := hs.next
	hs.next += handleStep
	hs.objects[h] = v
	return h
}

// get finds the object with handle h; one of another kind is not found.
func get[T any](p interface{ table() *handles }, h uint64) (T, bool) {
	v, ok := p.table().objects[h].(T)
	return v, ok
}

// must is get for handles whose absence ends the operation with InvalidHandle.
func must[T any](c *call, h uint64) T {
	v, ok := c.p.objects[h].(T)
	if !ok {
		panic(InvalidHandle)
	}
	return v
}

// all lists the objects of one kind by handle.
func all[T any](p interface{ table() *handles }) []handled[T] {
	var out []handled[T]
	for h, v := range p.table().objects {
		if t, ok := v.(T); ok {
			out = append(out, handled[T]{h, t})
		}
	}
	slices.SortFunc(out, func(a, b handled[T]) int {
		if a.handle < b.handle {
			return -1
		}
		return 1
	})
	return out
}

type handled[T any] struct {
	handle uint64
	v      T
}
