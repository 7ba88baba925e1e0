package footprint

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Version changes whenever the analysis, or the form of its summaries, does: summaries of
// other versions are made anew.
const Version = 7

const magic = "holdfast footprint\n"

// maxSummary bounds an encoded summary.
const maxSummary = 64 << 20

// MarshalBinary encodes a summary: magic, version, contents, and a SHA-256 of all that.
func (s *Summary) MarshalBinary() ([]byte, error) {
	c := &codec{out: append([]byte(magic), Version)}
	c.summary(s)
	if len(c.out) > maxSummary {
		return nil, fmt.Errorf("footprint: the summary of %s takes %d bytes", s.Name, len(c.out))
	}
	sum := sha256.Sum256(c.out)
	return append(c.out, sum[:]...), nil
}

// UnmarshalBinary decodes a summary. What it accepts can be evaluated without a fault; the SHA-256
// protects from damage, not from somebody who wants a wrong verdict.
func (s *Summary) UnmarshalBinary(b []byte) error {
	n := len(b) - sha256.Size
	if n < len(magic)+1 || len(b) > maxSummary+sha256.Size || string(b[:len(magic)]) != magic {
		return errors.New("footprint: no summary")
	}
	if b[len(magic)] != Version {
		return fmt.Errorf("footprint: a summary of version %d, not %d", b[len(magic)], Version)
	}
	if sha256.Sum256(b[:n]) != [sha256.Size]byte(b[n:]) {
		return errors.New("footprint: the summary is damaged")
	}
	return s.decode(b[len(magic)+1 : n])
}

func (s *Summary) decode(b []byte) error {
	c := &codec{in: b, reading: true}
	var d Summary
	c.summary(&d)
	if c.err == nil && len(c.in) > 0 {
		c.err = fmt.Errorf("%d bytes too many", len(c.in))
	}
	if c.err == nil {
		c.err = d.check()
	}
	if c.err != nil {
		return fmt.Errorf("footprint: the summary is damaged: %w", c.err)
	}
	d.prog.prepare(&d.path)
	d.tables.prepare(&d.path)
	*s = d
	return nil
}

// A codec writes or reads: the same functions walk a summary for both.
type codec struct {
	reading bool
	in, out []byte
	err     error
}

// integer writes or reads a number of any integer type.
func integer[T ~int | ~int8 | ~int32 | ~int64 | ~uint8 | ~uint32](c *codec, x *T) {
	if !c.reading {
		c.out = binary.AppendVarint(c.out, int64(*x))
		return
	}
	v, n := binary.Varint(c.in)
	if n <= 0 || int64(T(v)) != v {
		c.fail("a number")
		return
	}
	c.in = c.in[n:]
	*x = T(v)
}

func (c *codec) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s is not as it should be", what)
	}
	c.in = nil
}

func (c *codec) flag(x *bool) {
	v := uint8(0)
	if *x {
		v = 1
	}
	integer(c, &v)
	*x = v != 0
}

func (c *codec) text(s *string) {
	n := len(*s)
	integer(c, &n)
	if !c.reading {
		c.out = append(c.out, *s...)
		return
	}
	if n < 0 || n > len(c.in) {
		c.fail("a name")
		return
	}
	*s, c.in = string(c.in[:n]), c.in[n:]
}

// list writes or reads a slice; an element takes at least one byte.
func list[T any](c *codec, s *[]T, each func(*T)) {
	n := len(*s)
	integer(c, &n)
	if c.reading {
		if n < 0 || n > len(c.in) {
			c.fail("a list")
			return
		}
		*s = make([]T, n)
	}
	for i := range *s {
		if c.err != nil {
			return
		}
		each(&(*s)[i])
	}
}

func (c *codec) bounds(b *bounds) { integer(c, &b.lo); integer(c, &b.hi) }

func (c *codec) ints(x ...*int32) {
	for _, p := range x {
		integer(c, p)
	}
}

func (c *codec) instr(x *instr) {
	integer(c, &x.op)
	integer(c, &x.w)
	integer(c, &x.aw)
	c.ints(&x.a, &x.b, &x.c)
	integer(c, &x.imm)
}

func (c *codec) summary(s *Summary) {
	c.text(&s.Name)
	list(c, &s.Params, func(p *Param) { c.text(&p.Name); integer(c, &p.Off); integer(c, &p.Size); integer(c, &p.Align) })
	integer(c, &s.Class)
	integer(c, &s.Cause)
	integer(c, &s.At)
	list(c, &s.Globals, func(g *Global) { c.text(&g.Name); integer(c, &g.Size) })
	integer(c, &s.paramBytes)
	for i := range 3 {
		integer(c, &s.maxTid[i])
		integer(c, &s.cluster[i])
	}
	integer(c, &s.refused)
	integer(c, &s.refusedAt)
	c.flag(&s.opaque)
	c.flag(&s.guessReads)
	c.flag(&s.guessWrites)
	integer(c, &s.loops)
	c.program(&s.prog)
	c.flag(&s.reads)
	if s.reads {
		c.program(&s.tables)
	}
	c.path(&s.path)
}

func (c *codec) program(p *program) {
	list(c, &p.ops, c.instr)
	list(c, &p.vars, func(x *pvar) { integer(c, &x.kind); integer(c, &x.w); integer(c, &x.imm); c.ints(&x.a0, &x.a1) })
	list(c, &p.args, func(x *parg) {
		integer(c, &x.w)
		c.flag(&x.signed)
		c.ints(&x.form, &x.c0, &x.c1)
	})
	list(c, &p.forms, func(x *pform) { c.ints(&x.t0, &x.t1, &x.c, &x.sym, &x.k0, &x.k1, &x.d0, &x.d1) })
	list(c, &p.terms, func(x *pterm) { c.ints(&x.v, &x.coef) })
	list(c, &p.lists, func(x *int32) { integer(c, x) })
	list(c, &p.cands, func(x *cand) { c.ints(&x.guard, &x.pos) })
	list(c, &p.checks, func(x *pcheck) { integer(c, &x.form); c.bounds(&x.in) })
	list(c, &p.guards, func(x *pguard) {
		c.ints(&x.form, &x.top, &x.exit, &x.rest, &x.need, &x.load)
		integer(c, &x.side)
		integer(c, &x.mod)
		integer(c, &x.res)
		c.bounds(&x.in)
		c.flag(&x.not0)
		integer(c, &x.wrap)
	})
	list(c, &p.exits, func(x *pexit) {
		integer(c, &x.wrap)
		c.ints(&x.v, &x.form, &x.rest, &x.step, &x.load, &x.top)
		c.bounds(&x.in)
		c.flag(&x.not0)
	})
	list(c, &p.ctxs, func(x *pctx) { c.ints(&x.c0, &x.c1, &x.s0, &x.s1, &x.a0, &x.a1, &x.rounds, &x.home) })
	list(c, &p.steps, func(x *pstep) { c.flag(&x.guard); integer(c, &x.index) })
	list(c, &p.accs, func(x *pacc) {
		integer(c, &x.kind)
		c.flag(&x.hidden)
		c.ints(&x.atom, &x.form, &x.pos, &x.order, &x.base, &x.cong, &x.cover)
		c.flag(&x.lone)
		for _, n := range []*int64{&x.off, &x.bytes, &x.span, &x.step, &x.count} {
			integer(c, n)
		}
	})
	list(c, &p.congs, func(x *pcong) { c.ints(&x.form, &x.r); integer(c, &x.m); c.flag(&x.not) })
}

func (c *codec) path(p *path) {
	list(c, &p.ops, c.instr)
	list(c, &p.blocks, func(x *pblock) { c.ints(&x.i0, &x.i1, &x.cond, &x.s0, &x.s1, &x.after, &x.header, &x.leave, &x.loop) })
	list(c, &p.items, func(x *pitem) {
		integer(c, &x.kind)
		c.flag(&x.hidden)
		c.ints(&x.addr, &x.guard, &x.pos, &x.order, &x.value)
		integer(c, &x.off)
		integer(c, &x.bytes)
	})
}
