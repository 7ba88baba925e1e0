// Package rawtest plays what descriptors of the raw backend do: they start each other, and kernels, those that move
// memory and a test's own. Package rmtest plays the driver and the channel.
//
// It must not be imported by anything but tests.
package rawtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"holdfast/internal/cubin"
	"holdfast/internal/engine/raw/move"
	"holdfast/internal/qmd"
	"holdfast/internal/rm/rmtest"
)

// pageSize is what code is placed at a multiple of.
const pageSize = 2 << 20

var le = binary.LittleEndian

// Open is a played machine whose launches start each other as their descriptors say.
func Open(version string) *rmtest.Driver {
	d := rmtest.NewDriver(version)
	d.Next, d.Counter = next, counter
	return d
}

// next is what the hardware reads of a descriptor when its grid is complete.
func next(b []byte) (then rmtest.Completion) {
	d := qmd.Descriptor{V: &qmd.V4, B: b}
	for i := range 2 {
		to := d.Get(qmd.DependentPointer, i) << 8
		switch {
		case d.Get(qmd.DependentEnable, i) == 0:
		case d.Get(qmd.DependentAction, i) == qmd.ActionSchedule:
			then.Start = append(then.Start, to)
		case d.Get(qmd.DependentAction, i) == qmd.ActionDecrement:
			then.Count = append(then.Count, to)
		}
	}
	then.Release = func(m *rmtest.Memory) {
		for i := range 2 {
			if d.Get(qmd.ReleaseEnable, i) == 1 {
				at := d.Get(qmd.ReleaseAddrUpper, i)<<32 | d.Get(qmd.ReleaseAddrLower, i)
				le.PutUint32(m.Bytes(at, 4), uint32(d.Get(qmd.ReleasePayloadLower, i)))
			}
		}
	}
	return then
}

func counter(b []byte) int {
	d := qmd.Descriptor{V: &qmd.V4, B: b}
	if d.Get(qmd.RequireSchedulingPCAS, 0) == 0 {
		return 0
	}
	return int(d.Get(qmd.DependenceCounter, 0))
}

// A Launch is what a descriptor starts.
type Launch struct {
	qmd.Descriptor
	Name   string // of the kernel
	Params []byte // from its first parameter on
}

// Program is where its code begins.
func (l *Launch) Program() uint64 { return l.Get(qmd.ProgramUpper, 0)<<32 | l.Get(qmd.ProgramLower, 0) }

// Play plays the launch of the descriptor at an address: one that moves memory, or else one of a kernel of im, which
// own does. im may be nil.
func Play(m *rmtest.Memory, at uint64, im *cubin.Image, own func(*Launch) error) error {
	d := qmd.Descriptor{V: &qmd.V4, B: m.Bytes(at, uint64(qmd.V4.Size))}
	if d.B == nil {
		return fmt.Errorf("no descriptor at %#x", at)
	}
	bank := m.Bytes((d.Get(qmd.BankAddrUpper, 0)<<32|d.Get(qmd.BankAddrLower, 0))<<6, d.Get(qmd.BankSize, 0)<<4)
	if bank == nil {
		return errors.New("constant bank 0 is not mapped")
	}
	program := (&Launch{Descriptor: d}).Program()
	code, err := move.Code(90)
	if err != nil {
		return err
	}
	moves, err := cubin.Open(code)
	if err != nil {
		return err
	}
	for _, g := range []struct {
		im *cubin.Image
		do func(*Launch) error
	}{{im, own}, {moves, func(l *Launch) error { return l.move(m) }}} {
		fn, err := find(m, g.im, program)
		if err != nil {
			return err
		}
		if fn != nil {
			return g.do(&Launch{d, fn.Name, bank[fn.ParamBase:]})
		}
	}
	return fmt.Errorf("no known code at %#x", program)
}

// find is the function of an image whose code stands at an address; nil if it is none of it.
func find(m *rmtest.Memory, im *cubin.Image, program uint64) (*cubin.Function, error) {
	if im == nil {
		return nil, nil
	}
	for _, name := range im.Kernels {
		fn, err := im.Function(name)
		if err != nil {
			return nil, err
		}
		base := program - fn.Code
		if base%pageSize != 0 {
			continue
		}
		placed, err := im.Place(base)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(placed[fn.Code:][:fn.CodeSize], m.Bytes(program, uint64(fn.CodeSize))) {
			return fn, nil
		}
	}
	return nil, nil
}

// move does what the kernels of move.cu do.
func (l *Launch) move(m *rmtest.Memory) error {
	var unit uint64
	p := l.Params
	if strings.HasPrefix(l.Name, "hf_copy") {
		fmt.Sscanf(l.Name, "hf_copy%d", &unit)
		l.each(le.Uint64(p[32:]), le.Uint64(p[40:]), func(row, i uint64) {
			copy(m.Bytes(le.Uint64(p)+row*le.Uint64(p[16:])+i*unit, unit),
				m.Bytes(le.Uint64(p[8:])+row*le.Uint64(p[24:])+i*unit, unit))
		})
		return nil
	}
	fmt.Sscanf(l.Name, "hf_set%d", &unit)
	l.each(le.Uint64(p[16:]), le.Uint64(p[24:]), func(row, i uint64) {
		to := m.Bytes(le.Uint64(p)+row*le.Uint64(p[8:])+i*unit, unit)
		for j := range to {
			to[j] = p[32+j%4]
		}
	})
	return nil
}

// each is the loops of the kernels.
func (l *Launch) each(width, height uint64, do func(row, i uint64)) {
	gx, gy, block := l.Get(qmd.GridWidth, 0), l.Get(qmd.GridHeight, 0), l.Get(qmd.ThreadsX, 0)
	for by := range gy {
		for thread := range gx * block {
			for row := by; row < height; row += gy {
				for i := thread; i < width; i += gx * block {
					do(row, i)
				}
			}
		}
	}
}
