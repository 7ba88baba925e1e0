package ir

import "fmt"

// A Builder makes a function, block by block. It checks each instruction as it comes, so that a mistake of a front end
// is found where it is made; the first one stays.
type Builder struct {
	f   *Func
	cur *Block
	err error
}

// NewBuilder begins f with its entry. Vals must be there before what refers to them.
func NewBuilder(f *Func) *Builder {
	b := &Builder{f: f}
	b.begin(&Block{})
	return b
}

func (b *Builder) begin(s *Block) {
	s.Index = len(b.f.Blocks)
	b.f.Blocks = append(b.f.Blocks, s)
	b.cur = s
}

// Here is the block in hand; nil behind the end of one.
func (b *Builder) Here() *Block { return b.cur }

// Enter goes on in block s, to which an arc leads from the block in hand, if there is one.
func (b *Builder) Enter(s *Block) {
	if b.cur != nil {
		Connect(b.cur, s)
	}
	b.begin(s)
}

// Add appends an instruction to the block in hand. Behind the end of a block it begins one that nothing reaches.
func (b *Builder) Add(in *Inst) {
	if b.cur == nil {
		b.begin(&Block{})
	}
	b.cur.Insts = append(b.cur.Insts, in)
	k := len(b.cur.Insts) - 1
	if k > 0 && b.cur.Insts[k-1].Op.Ends() {
		b.fail("b%d: %s behind the end of its block", b.cur.Index, in.Op)
	}
	if err := b.f.checkInst(b.cur, k, in); err != nil {
		b.fail("%s %s: %w", in.Op, in.Name, err)
	}
}

// Arc leads from the block in hand to s, behind the arcs that it has.
func (b *Builder) Arc(s *Block) { Connect(b.cur, s) }

// End ends the block in hand: nothing follows until another one is entered.
func (b *Builder) End() { b.cur = nil }

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// Err is the first thing that was wrong.
func (b *Builder) Err() error { return b.err }

// Done is the function, once its arcs have been checked.
func (b *Builder) Done() (*Func, error) {
	for _, x := range b.f.Blocks {
		if err := checkArcs(b.f, x); err != nil {
			b.fail("b%d: %w", x.Index, err)
		}
	}
	return b.f, b.err
}
