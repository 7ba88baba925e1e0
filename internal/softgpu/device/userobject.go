package device

import "holdfast/internal/softgpu/gpuwire"

// A userObject is a CUuserObject: something of the program's that graphs keep until none of them, nor the program,
// wants it any more. Then the program's destructor runs, behind the work submitted so far.
type userObject struct {
	handle, fn, user uint64
	refs             uint64
}

// owned counts the references that a graph holds.
type owned map[*userObject]uint64

const (
	objectNoDestructorSync = 1 // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, which has to be given
	graphObjectMove        = 1 // CU_GRAPH_USER_OBJECT_MOVE: the references are the caller's
	maxObjectRefs          = 1<<31 - 1
)

func objectCreate(c *call) Status {
	user, fn, refs := c.args[0], c.args[1], c.args[2]
	if fn == 0 || refs == 0 || refs > maxObjectRefs || c.args[3] != objectNoDestructorSync {
		return InvalidValue
	}
	o := &userObject{fn: fn, user: user, refs: refs}
	o.handle = c.p.add(o)
	return c.ret(o.handle)
}

func objectRetain(c *call) Status {
	return must[*userObject](c, c.args[0]).retain(c.args[1])
}

func objectRelease(c *call) Status {
	return c.p.releaseObject(must[*userObject](c, c.args[0]), c.args[1])
}

func (o *userObject) retain(n uint64) Status {
	if n == 0 || n > maxObjectRefs || o.refs > maxObjectRefs-n {
		return InvalidValue
	}
	o.refs += n
	return Success
}

// releaseObject takes references away; with the last one goes the object.
func (gs graphs) releaseObject(o *userObject, n uint64) Status {
	if n == 0 || n > o.refs {
		return InvalidValue
	}
	if o.refs -= n; o.refs > 0 {
		return Success
	}
	delete(gs.objects, o.handle)
	before := gs.lasts(nil)
	go func() {
		for _, t := range before {
			select {
			case <-t.done:
			case <-gs.dead:
				return
			}
		}
		_, _ = gs.control.call(gpuwire.OpCallback, []uint64{0, o.fn, o.user, 0, 0}, nil)
	}()
	return Success
}

func graphRetainObject(c *call) Status {
	g, o, n := must[*graph](c, c.args[0]), must[*userObject](c, c.args[1]), c.args[2]
	switch c.args[3] {
	case graphObjectMove:
		if n == 0 || n > o.refs-c.p.graphRefs(o) {
			return InvalidValue
		}
	case 0:
		if st := o.retain(n); st != Success {
			return st
		}
	default:
		return InvalidValue
	}
	if g.owned == nil {
		g.owned = make(owned)
	}
	g.owned[o] += n
	return Success
}

// graphRefs is how many references to an object graphs hold.
func (gs graphs) graphRefs(o *userObject) (n uint64) {
	for _, v := range gs.objects {
		switch v := v.(type) {
		case *graph:
			n += v.owned[o]
		case *graphExec:
			n += v.owned[o]
		}
	}
	return n
}

func graphReleaseObject(c *call) Status {
	g, o, n := must[*graph](c, c.args[0]), must[*userObject](c, c.args[1]), c.args[2]
	if n == 0 || n > g.owned[o] {
		return InvalidValue
	}
	if g.owned[o] -= n; g.owned[o] == 0 {
		delete(g.owned, o)
	}
	return c.p.releaseObject(o, n)
}

// share is the references of a graph that is made from another one.
func (w owned) share() owned {
	if len(w) == 0 {
		return nil
	}
	to := make(owned, len(w))
	for o := range w {
		if o.retain(1) == Success {
			to[o] = 1
		}
	}
	return to
}

// dropOwned gives a graph's references back.
func (gs graphs) dropOwned(w owned) {
	for o, n := range w {
		gs.releaseObject(o, n)
	}
}
