package raw

import (
	"fmt"

	"holdfast/internal/engine"
)

// Copies and sets that are not launches (mover.go) are the copy engine's. One method takes 2^32-1 bytes a line; lines
// longer than lineMax are cut.

func checkCopy(c *engine.Copy) error {
	if c.Width == 0 || c.Height == 0 || c.Height > 1<<31 || c.Width > 1<<40 {
		return fmt.Errorf("copy of %d rows of %d bytes", c.Height, c.Width)
	}
	if c.Height > 1 && (c.Width > lineMax || c.DstPitch >= 1<<32 || c.SrcPitch >= 1<<32 || c.DstPitch < c.Width ||
		c.SrcPitch < c.Width) {
		return fmt.Errorf("copy of %d rows of %d bytes, %d and %d apart", c.Height, c.Width, c.DstPitch, c.SrcPitch)
	}
	return nil
}

func checkSet(s *engine.Set) error {
	if s.Size != 1 && s.Size != 2 && s.Size != 4 || s.Dst%uint64(s.Size) != 0 {
		return fmt.Errorf("set of elements of %d bytes at %#x", s.Size, s.Dst)
	}
	if s.Width == 0 || s.Height == 0 || s.Height > 1<<31 || s.Width > 1<<40 {
		return fmt.Errorf("set of %d rows of %d elements", s.Height, s.Width)
	}
	if s.Height > 1 && (s.Width*uint64(s.Size) > lineMax || s.Pitch >= 1<<32 || s.Pitch < s.Width*uint64(s.Size)) {
		return fmt.Errorf("set of %d rows of %d elements, %d bytes apart", s.Height, s.Width, s.Pitch)
	}
	return nil
}

// moves starts what the copy engine does of a word: which is what has no block in it.
func (p *program) moves(out *pushbuffer, word engine.Word, of []*block) {
	if len(of) == len(word.Ops) {
		return
	}
	launched := map[int]bool{}
	for _, bl := range of {
		launched[bl.place.Op] = true
	}
	for i := range word.Ops {
		if launched[i] {
			continue
		}
		if c := word.Ops[i].Copy; c != nil {
			for at := uint64(0); at < c.Width; at += lineMax {
				n := min(c.Width-at, lineMax)
				out.copy(c.Dst+at, c.Src+at, uint32(c.DstPitch), uint32(c.SrcPitch), uint32(n), uint32(c.Height))
			}
		}
		if s := word.Ops[i].Set; s != nil {
			most := uint64(lineMax / s.Size)
			for at := uint64(0); at < s.Width; at += most {
				n := min(s.Width-at, most)
				out.fill(s.Dst+at*uint64(s.Size), uint32(s.Pitch), uint32(n), uint32(s.Height), s.Value, s.Size)
			}
		}
	}
}

// joinMoves makes the channel wait for the copies before it. The copy engine writes a word of its own, which is zero
// before.
func (b *Backend) joinMoves(out *pushbuffer) {
	at := b.ch.host.addr + movesAt
	out.word(at, 0)
	out.method(subCopy, copySemaphoreA, hi(at), lo(at), 1)
	out.method(subCopy, copyLaunch, copyFlush|copySemOne)
	out.acquire(at, 1)
}
