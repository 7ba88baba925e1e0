package footprint

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"holdfast/internal/interval"
)

// Version changes whenever the analysis, or the form of its summaries, does: summaries of
// other versions are made anew.
const Version = 7

// Magic is what an encoded summary begins with.
const Magic = "holdfast footprint\n"

// maxSummary bounds an encoded summary.
const maxSummary = 64 << 20

// MarshalBinary encodes a summary: magic, version, contents, and a SHA-256 of all that.
func (s *Summary) MarshalBinary() ([]byte, error) {
	c := &codec{out: append([]byte(Magic), Version)}
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
	if n < len(Magic)+1 || len(b) > maxSummary+sha256.Size || string(b[:len(Magic)]) != Magic {
		return errors.New("footprint: no summary")
	}
	if b[len(Magic)] != Version {
		return fmt.Errorf("footprint: a summary of version %d, not %d", b[len(Magic)], Version)
	}
	if sha256.Sum256(b[:n]) != [sha256.Size]byte(b[n:]) {
		return errors.New("footprint: the summary is damaged")
	}
	return s.Decode(b[len(Magic)+1 : n])
}

// Decode reads what MarshalBinary wrote, between the magic with its version and the digest, and checks it.
func (s *Summary) Decode(b []byte) error {
	c := &codec{in: b, reading: true}
	var d Summary
	c.summary(&d)
	if c.err == nil && len(c.in) > 0 {
		c.err = fmt.Errorf("%d bytes too many", len(c.in))
	}
	if c.err == nil {
		c.err = d.Check()
	}
	if c.err != nil {
		return fmt.Errorf("footprint: the summary is damaged: %w", c.err)
	}
	d.Code.Prepare(&d.Path)
	d.KnowingCode.Prepare(&d.Path)
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

func (c *codec) bounds(b *interval.Bounds) { integer(c, &b.Lo); integer(c, &b.Hi) }

func (c *codec) ints(x ...*int32) {
	for _, p := range x {
		integer(c, p)
	}
}

func (c *codec) instr(x *Instr) {
	integer(c, &x.Op)
	integer(c, &x.W)
	integer(c, &x.Aw)
	c.ints(&x.A, &x.B, &x.C)
	integer(c, &x.Imm)
}

func (c *codec) summary(s *Summary) {
	c.text(&s.Name)
	list(c, &s.Params, func(p *Param) {
		c.text(&p.Name)
		integer(c, &p.Off)
		integer(c, &p.Size)
		integer(c, &p.Align)
	})
	integer(c, &s.Class)
	integer(c, &s.Cause)
	integer(c, &s.At)
	list(c, &s.Globals, func(g *Global) { c.text(&g.Name); integer(c, &g.Size) })
	integer(c, &s.ParamBytes)
	for i := range 3 {
		integer(c, &s.MaxTid[i])
		integer(c, &s.Cluster[i])
	}
	integer(c, &s.Refused)
	integer(c, &s.refusedAt)
	c.flag(&s.IsOpaque)
	c.flag(&s.GuessReads)
	c.flag(&s.GuessWrites)
	integer(c, &s.Loops)
	c.program(&s.Code)
	c.flag(&s.HasTables)
	if s.HasTables {
		c.program(&s.KnowingCode)
	}
	c.path(&s.Path)
}

func (c *codec) program(p *Program) {
	list(c, &p.Ops, c.instr)
	list(c, &p.Vars, func(x *Var) { integer(c, &x.Kind); integer(c, &x.W); integer(c, &x.Imm); c.ints(&x.A0, &x.A1) })
	list(c, &p.Args, func(x *Arg) {
		integer(c, &x.W)
		c.flag(&x.Signed)
		c.ints(&x.Form, &x.C0, &x.C1)
	})
	list(c, &p.Forms, func(x *Form) { c.ints(&x.T0, &x.T1, &x.C, &x.Sym, &x.K0, &x.K1, &x.D0, &x.D1) })
	list(c, &p.Terms, func(x *Term) { c.ints(&x.V, &x.Coef) })
	list(c, &p.Lists, func(x *int32) { integer(c, x) })
	list(c, &p.Cands, func(x *Candidate) { c.ints(&x.Guard, &x.Pos) })
	list(c, &p.Checks, func(x *Check) { integer(c, &x.Form); c.bounds(&x.In) })
	list(c, &p.Guards, func(x *Guard) {
		c.ints(&x.Form, &x.Top, &x.Exit, &x.Rest, &x.Need, &x.Load)
		integer(c, &x.Side)
		integer(c, &x.Mod)
		integer(c, &x.Res)
		c.bounds(&x.In)
		c.flag(&x.Not0)
		integer(c, &x.Wrap)
	})
	list(c, &p.Exits, func(x *Exit) {
		integer(c, &x.Wrap)
		c.ints(&x.V, &x.Form, &x.Rest, &x.Step, &x.Load, &x.Top)
		c.bounds(&x.In)
		c.flag(&x.Not0)
	})
	list(c, &p.Ctxs, func(x *Context) { c.ints(&x.C0, &x.C1, &x.S0, &x.S1, &x.A0, &x.A1, &x.Rounds, &x.Home) })
	list(c, &p.Steps, func(x *Step) { c.flag(&x.Guard); integer(c, &x.Index) })
	list(c, &p.Accs, func(x *Access) {
		integer(c, &x.Kind)
		c.flag(&x.Hidden)
		c.ints(&x.Atom, &x.Form, &x.Pos, &x.Order, &x.Base, &x.Cong, &x.Cover)
		c.flag(&x.Lone)
		for _, n := range []*int64{&x.Off, &x.Bytes, &x.Span, &x.Step, &x.Count} {
			integer(c, n)
		}
	})
	list(c, &p.Congs, func(x *Congruence) { c.ints(&x.Form, &x.R); integer(c, &x.M); c.flag(&x.Not) })
}

func (c *codec) path(p *Path) {
	list(c, &p.Ops, c.instr)
	list(c, &p.Blocks, func(x *PathBlock) {
		c.ints(&x.I0, &x.I1, &x.Cond, &x.S0, &x.S1, &x.After, &x.Header, &x.Leave, &x.Loop)
	})
	list(c, &p.Items, func(x *PathItem) {
		integer(c, &x.Kind)
		c.flag(&x.Hidden)
		c.ints(&x.Addr, &x.Guard, &x.Pos, &x.Order, &x.Value)
		integer(c, &x.Off)
		integer(c, &x.Bytes)
	})
}
