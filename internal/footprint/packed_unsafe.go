package footprint

import (
	"unsafe"
)

// A packer moves the tables of a program into one block of memory, one behind the other, in the order in which a launch
// comes to them: the first launch of a kernel finds none of them in a cache, and what lies together comes together.
//
// Nothing in the block is a pointer (entries lists all types), so the garbage collector need not know what it holds;
// the tables, which point into it, keep it. It begins at a multiple of 8, which is all that any entry asks for.
type packer struct {
	block []uint64 // nil while the tables are measured
	n     int      // words
}

// entries are the types of what tables hold.
type entries interface {
	int32 | int64 | keyWord | planPointer | planOp | Instr | planAction | Var | Arg | Form | Term | Guard | Check |
		Exit | planCandidate | Congruence |
		planSet | planSite | planNeed | planPlace | Access | vblock | vitem
}

// pack moves the tables of a program and its plan. What only making plans and explaining them needs stays where it is.
func (p *Program) pack() {
	var k packer
	k.tables(p)
	k.block, k.n = make([]uint64, k.n), 0
	k.tables(p)
}

func (k *packer) tables(p *Program) {
	l, v := &p.plan, &p.plan.view
	move(k, &l.key)
	move(k, &l.bases)
	move(k, &l.template)
	move(k, &l.pointers)
	move(k, &l.ops)
	move(k, &l.leaves)
	move(k, &l.counters)
	move(k, &l.code)
	move(k, &p.Vars)
	move(k, &p.Args)
	move(k, &p.Forms)
	move(k, &p.Terms)
	move(k, &p.Lists)
	move(k, &p.Guards)
	move(k, &p.Checks)
	move(k, &l.cands)
	move(k, &p.Exits)
	move(k, &l.sets)
	move(k, &l.sites)
	move(k, &l.needs)
	move(k, &l.places)
	move(k, &l.readers)
	move(k, &l.writers)
	move(k, &l.baseOf)
	move(k, &l.writes)
	move(k, &l.updates)
	move(k, &l.reads)
	move(k, &p.Accs)
	move(k, &l.siteOf)
	move(k, &p.Congs)
	move(k, &v.blocks)
	move(k, &v.items)
	move(k, &v.ops)
}

// move gives a table its place in the block.
func move[T entries](k *packer, table *[]T) {
	var x T
	n := len(*table)
	at := k.n
	k.n += (n*int(unsafe.Sizeof(x)) + 7) / 8
	if k.block == nil || n == 0 {
		return
	}
	to := unsafe.Slice((*T)(unsafe.Pointer(&k.block[at])), n)
	copy(to, *table)
	*table = to
}
