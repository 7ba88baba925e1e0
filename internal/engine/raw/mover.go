package raw

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"holdfast/internal/engine"
	"holdfast/internal/engine/raw/move"
)

// Copies and sets are launches of kernels of our own wherever those can do them: the next launch is chained to them,
// and they begin at once. The copy engine takes some 5 us for any, since work before and after has to be waited for.

const (
	moveThreads = 256 // of a block
	moveBlocks  = 8   // of a multiprocessor
	moveUnit    = 16  // bytes that a thread moves at once, at most
)

// mover loads the kernels that move memory, once.
func (b *Backend) mover() (*code, error) {
	if b.moves != nil {
		return b.moves, nil
	}
	image, err := move.Code(b.gen.arch)
	if err != nil {
		return nil, err
	}
	c, err := b.Load(image)
	if err != nil {
		return nil, err
	}
	b.moves = c.(*code)
	return b.moves, nil
}

// asLaunch is a copy or a set as a launch; nil if it is for the copy engine.
func (b *Backend) asLaunch(op *engine.Op) (*engine.Launch, error) {
	var name string
	var params []uint64
	var width, height, unit uint64
	if c := op.Copy; c != nil {
		if overlap(c) {
			return nil, nil
		}
		width, height = c.Width, c.Height
		unit = unitOf(c.Dst|c.Src|width, c.DstPitch|c.SrcPitch, height)
		name = fmt.Sprintf("hf_copy%d", unit)
		params = []uint64{c.Dst, c.Src, c.DstPitch, c.SrcPitch, width / unit, height}
	} else {
		s := op.Set
		width, height = s.Width*uint64(s.Size), s.Height
		unit = unitOf(s.Dst|width, s.Pitch, height)
		if unit < uint64(s.Size) {
			return nil, nil
		}
		name = fmt.Sprintf("hf_set%d", unit)
		params = []uint64{s.Dst, s.Pitch, width / unit, height}
	}
	c, err := b.mover()
	if err != nil {
		return nil, err
	}
	k, err := c.Kernel(name)
	if err != nil {
		return nil, err
	}
	l := &engine.Launch{Kernel: k, Grid: b.moveGrid(width/unit, height), Block: [3]uint32{moveThreads, 1, 1}}
	for _, p := range params {
		l.Params = binary.LittleEndian.AppendUint64(l.Params, p)
	}
	if s := op.Set; s != nil {
		l.Params = binary.LittleEndian.AppendUint32(l.Params, repeated(s.Value, s.Size))
	}
	return l, nil
}

// moveGrid has a block for every so many units of a row, and for every row, up to what runs at once.
func (b *Backend) moveGrid(width, height uint64) [3]uint32 {
	most := uint64(b.sms) * moveBlocks
	x := min((width+moveThreads-1)/moveThreads, most)
	y := min(height, (most+x-1)/x)
	return [3]uint32{uint32(x), uint32(y), 1}
}

// unitOf is how many bytes at once everything is aligned to: 1, 2, 4, 8 or 16. Pitches count if there is more than one
// row.
func unitOf(all, pitches, height uint64) uint64 {
	if height > 1 {
		all |= pitches
	}
	return 1 << bits.TrailingZeros64(all|moveUnit)
}

// overlap says that a copy may write what it reads.
func overlap(c *engine.Copy) bool {
	end := func(at, pitch uint64) uint64 { return at + (c.Height-1)*pitch + c.Width }
	return c.Dst < end(c.Src, c.SrcPitch) && c.Src < end(c.Dst, c.DstPitch)
}

// repeated fills four bytes with the low size bytes of a value.
func repeated(value uint32, size int) uint32 {
	switch size {
	case 1:
		return value & 0xff * 0x01010101
	case 2:
		return value & 0xffff * 0x00010001
	}
	return value
}
