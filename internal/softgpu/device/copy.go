package device

import (
	"encoding/binary"

	"holdfast/internal/softgpu/gpuwire"
)

// A copyShape is one copy, with one row and slice if it is linear. Pageable memory
// is packed in messages.
type copyShape struct {
	Dst, Src           uint64
	DstKind, SrcKind   uint64
	Width              uint64 // bytes
	Height, Depth      uint64
	DstPitch, DstLines uint64
	SrcPitch, SrcLines uint64
}

func (s *copyShape) total() uint64 { return s.Width * s.Height * s.Depth }

func (s *copyShape) linear() bool { return s.Height == 1 && s.Depth == 1 }

// valid checks that nothing overflows: a copy stays below what the window can hold.
func (s *copyShape) valid() bool {
	const most = 1 << 40
	if s.Width > most || s.Height > most || s.Depth > most || s.DstPitch > most || s.SrcPitch > most {
		return false
	}
	if s.Width == 0 || s.Height == 0 || s.Depth == 0 {
		return true
	}
	for _, side := range [][2]uint64{{s.DstPitch, s.DstLines}, {s.SrcPitch, s.SrcLines}} {
		pitch, lines := side[0], side[1]
		if s.Height > 1 || s.Depth > 1 {
			if pitch < s.Width || pitch > most/s.Height {
				return false
			}
		}
		if s.Depth > 1 && (lines < s.Height || lines > most || pitch*lines > most || lines > 0 && pitch > most/lines ||
			s.Depth > most/(pitch*lines)) {
			return false
		}
	}
	return s.Height <= most/s.Width && s.Depth <= most/(s.Width*s.Height)
}

func copyArgs(a []uint64) copyShape {
	return copyShape{Dst: a[0], Src: a[1], DstKind: a[2], SrcKind: a[3], Width: a[4], Height: a[5], Depth: a[6],
		DstPitch: a[7], DstLines: a[8], SrcPitch: a[9], SrcLines: a[10]}
}

func (s *copyShape) args() []uint64 {
	return []uint64{s.Dst, s.Src, s.DstKind, s.SrcKind, s.Width, s.Height, s.Depth, s.DstPitch, s.DstLines, s.SrcPitch,
		s.SrcLines}
}

func memcpyLinear(c *call) Status {
	a := c.args
	n := a[4]
	return c.copy(copyShape{Dst: a[0], Src: a[1], DstKind: a[2], SrcKind: a[3], Width: n, Height: 1, Depth: 1,
		DstPitch: n, DstLines: 1, SrcPitch: n, SrcLines: 1}, a[5], a[6])
}

func memcpy3D(c *call) Status {
	return c.copy(copyArgs(c.args), c.args[11], c.args[12])
}

func (c *call) copy(s copyShape, streamArg, flags uint64) Status {
	if !s.valid() || s.DstKind > 1 || s.SrcKind > 1 {
		return InvalidValue
	}
	st := c.stream(streamArg)
	p := c.p
	n := s.total()
	if st.capture == nil {
		if r := p.refuseIfImplicit(st); r != Success {
			return r
		}
	}
	if n == 0 {
		return Success
	}
	if st.capture != nil {
		if flags&gpuwire.FlagAsync == 0 {
			st.capture.invalidate()
			return CaptureUnsupported
		}
		return st.addNode(&node{Kind: nodeMemcpy, Copy: s})
	}
	if !p.shapeMapped(&s) {
		return InvalidValue
	}
	if s.SrcKind == gpuwire.KindPageable && uint64(len(c.in)) < n ||
		n > gpuwire.MaxPayload && s.DstKind == gpuwire.KindPageable {
		return InvalidValue
	}
	p.srv.counts.bytes.Add(n)
	var packedSrc, packedDst []byte
	if s.SrcKind == gpuwire.KindPageable {
		packedSrc = c.in[:n]
		if flags&gpuwire.FlagAsync != 0 && s.DstKind != gpuwire.KindPageable {
			packedSrc = append([]byte(nil), packedSrc...) // the message's buffer is used again
		}
	}
	if s.DstKind == gpuwire.KindPageable {
		packedDst = make([]byte, n)
	}
	t := p.submit(st, &task{run: func() Status { return p.copyNow(&s, packedDst, packedSrc) }})
	// A copy to pageable memory is done when the call returns; so is any synchronous one
	// (the driver lets device-to-device ones run on, which no program can tell from this).
	if flags&gpuwire.FlagAsync == 0 || packedDst != nil {
		if r := c.wait(t); r != Success {
			return r
		}
		if st.cx.sticky != Success {
			return st.cx.sticky
		}
		c.out = packedDst
	}
	return Success
}

// shapeMapped checks the corners of a copy's known sides when it is submitted.
func (me *memory) shapeMapped(s *copyShape) bool {
	sides := [][4]uint64{{s.DstKind, s.Dst, s.DstPitch, s.DstLines}, {s.SrcKind, s.Src, s.SrcPitch, s.SrcLines}}
	for _, side := range sides {
		if side[0] == gpuwire.KindKnown {
			last := side[1] + (s.Depth-1)*side[2]*side[3] + (s.Height-1)*side[2]
			if !me.mapped(side[1], 1) || !me.mapped(last, s.Width) {
				return false
			}
		}
	}
	return true
}

// copyNow moves the bytes. Packed sides are given; a nil one is in device or pinned memory.
func (me *memory) copyNow(s *copyShape, packedDst, packedSrc []byte) Status {
	if s.linear() {
		return me.copyRow(s, 0, 0, 0, packedDst, packedSrc)
	}
	at := uint64(0)
	for z := range s.Depth {
		for y := range s.Height {
			d := (z*s.DstLines + y) * s.DstPitch
			r := (z*s.SrcLines + y) * s.SrcPitch
			if st := me.copyRow(s, d, r, at, packedDst, packedSrc); st != Success {
				return st
			}
			at += s.Width
		}
	}
	return Success
}

func (me *memory) copyRow(s *copyShape, dstOff, srcOff, at uint64, packedDst, packedSrc []byte) (st Status) {
	var dst, src []byte
	if packedDst != nil {
		dst = packedDst[at : at+s.Width]
	} else if dst, st = me.bytes(s.Dst+dstOff, s.Width); st != Success {
		return st
	}
	if packedSrc != nil {
		src = packedSrc[at : at+s.Width]
	} else if src, st = me.bytes(s.Src+srcOff, s.Width); st != Success {
		return st
	}
	copy(dst, src)
	return Success
}

// A fill is a memset.
type fill struct {
	Dst, Pitch    uint64
	Value         uint32
	Element       uint32 // bytes: 1, 2 or 4
	Width, Height uint64 // elements, rows
}

func (f *fill) valid() bool {
	const most = 1 << 40
	if f.Element != 1 && f.Element != 2 && f.Element != 4 || f.Dst%uint64(f.Element) != 0 || f.Width > most ||
		f.Height > most {
		return false
	}
	return f.Height <= 1 || f.Pitch >= f.Width*uint64(f.Element) && f.Pitch <= most/f.Height &&
		f.Pitch%uint64(f.Element) == 0
}

func memset(c *call) Status {
	a := c.args
	f := fill{Dst: a[0], Pitch: a[1], Value: uint32(a[2]), Element: uint32(a[3]), Width: a[4], Height: a[5]}
	if a[3] > 4 || !f.valid() {
		return InvalidValue
	}
	s := c.stream(a[6])
	if s.capture != nil {
		if a[7]&gpuwire.FlagAsync == 0 {
			s.capture.invalidate()
			return CaptureUnsupported
		}
		return s.addNode(&node{Kind: nodeMemset, Fill: f})
	}
	if r := c.p.refuseIfImplicit(s); r != Success {
		return r
	}
	if f.Width == 0 || f.Height == 0 {
		return Success
	}
	p := c.p
	if !p.mapped(f.Dst, 1) || !p.mapped(f.Dst+(f.Height-1)*f.Pitch, f.Width*uint64(f.Element)) {
		return InvalidValue
	}
	t := p.submit(s, &task{run: func() Status { return p.fillNow(&f) }})
	// The driver's memset of device memory does not wait; that of pinned memory does.
	if al := p.allocs.find(f.Dst); a[7]&gpuwire.FlagAsync == 0 && al != nil && al.host != nil {
		return c.wait(t)
	}
	return Success
}

func (me *memory) fillNow(f *fill) Status {
	for y := range f.Height {
		b, st := me.bytes(f.Dst+y*f.Pitch, f.Width*uint64(f.Element))
		if st != Success {
			return st
		}
		var pattern [4]byte
		binary.LittleEndian.PutUint32(pattern[:], f.Value)
		if f.Element == 1 && f.Value&0xff == 0 || f.Value == 0 {
			clear(b)
			continue
		}
		n := copy(b, pattern[:f.Element])
		for n < len(b) {
			n += copy(b[n:], b[:n])
		}
	}
	return Success
}
