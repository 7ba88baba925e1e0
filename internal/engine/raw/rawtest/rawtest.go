// Package rawtest plays the kernels that a descriptor of the raw backend starts: those that move memory, and a test's
// own. Package rmtest plays the driver and the channel.
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

// A Launch is what a descriptor starts.
type Launch struct {
	qmd.Descriptor
	Name   string // of the kernel
	Params []byte // from its first parameter on
}

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
	program := d.Get(qmd.ProgramUpper, 0)<<32 | d.Get(qmd.ProgramLower, 0)
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
