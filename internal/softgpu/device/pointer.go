package device

// pointerAttribute is the value of one CUpointer_attribute; known says whether the
// address is of any memory of the driver's.
func (me *memory) pointerAttribute(attr uint32, ptr uint64) (value []byte, known bool, st Status) {
	const (
		memoryHost   = 1
		memoryDevice = 2
	)
	a, m := me.allocs.find(ptr), me.mappingAt(ptr)
	size := 4
	switch attr {
	case 1, 3, 4, 7, 11, 12, 14, 17, 18, 19, 20:
		size = 8
	case 2, 6, 8, 9, 10, 13, 15, 16:
	default:
		return nil, false, NotSupported
	}
	var v uint64
	switch {
	case a != nil:
		host := a.host != nil
		switch attr {
		case 1: // context
			v = a.cx.handle
		case 2:
			if v = memoryDevice; host && a.kind != allocManaged {
				v = memoryHost
			}
		case 3:
			v = ptr
		case 4:
			if !host {
				return make([]byte, 8), true, InvalidValue
			}
			v = ptr
		case 6, 13: // synchronous memory operations; mapped
			v = truth(attr == 13)
		case 7:
			v = a.id
		case 8:
			v = truth(a.kind == allocManaged)
		case 9:
			v = uint64(a.dev)
		case 11, 19:
			v = a.va
		case 12, 18:
			v = a.size
		case 16:
			v = accessReadWrite
		case 17:
			if a.pool != nil {
				v = a.pool.handle
			}
		case 20:
			v = a.id
		}
	case m != nil:
		switch attr {
		case 1:
			v = 0 // no context owns memory of the VMM
		case 2:
			v = memoryDevice
		case 3:
			v = ptr
		case 4:
			return make([]byte, 8), true, InvalidValue
		case 7, 20:
			v = m.id
		case 9:
			v = uint64(m.phys.dev)
		case 11, 19:
			v = m.va
		case 12, 18:
			v = m.size
		case 13:
			v = 1
		case 14:
			v = uint64(m.handle.types)
		case 16:
			v = uint64(m.access)
		}
	case me.registration(ptr) != nil:
		r := me.registration(ptr)
		switch attr {
		case 2:
			v = memoryHost
		case 3, 4:
			v = ptr
		case 11, 19:
			v = r.Lo
		case 12, 18:
			v = r.Hi - r.Lo
		case 13:
			v = 1
		}
	default:
		if attr == 9 {
			return le32(^uint32(0) - 1), false, InvalidValue // CU_DEVICE_INVALID
		}
		return make([]byte, size), false, InvalidValue
	}
	if size == 4 {
		return le32(uint32(v)), true, Success
	}
	return le64(v), true, Success
}

func pointerGetAttribute(c *call) Status {
	b, _, st := c.p.pointerAttribute(uint32(c.args[0]), c.args[1])
	if st != Success {
		return st
	}
	c.retBlob(b)
	return Success
}

func pointerGetAttributes(c *call) Status {
	attrs := c.words32()
	if len(attrs) == 0 || len(attrs) > 64 {
		return InvalidValue
	}
	for _, attr := range attrs {
		b, _, st := c.p.pointerAttribute(attr, c.args[len(c.args)-1])
		if st == NotSupported {
			return InvalidValue
		}
		c.retBlob(b)
	}
	return Success
}

func pointerSetAttribute(c *call) Status {
	if c.args[0] != 6 { // only synchronous memory operations can be set
		return InvalidValue
	}
	return Success
}
