package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// Sparse matrices: PTX ISA 9.7.14.6. Of each four elements of a row of A two are there (of two elements of tf32 one,
// of four pairs of 4-bit elements two); metadata say which. A product takes those elements of B that stand
// opposite, and no others: an infinity that meets an element that is not there does no harm.
//
// The metadata of a row of A are spread over the lanes of its quad, 4·(row mod 8) and up. Elements of 16 bits and more:
// the low half of a word is that of row g, the high half that of row g+8; a word covers 16 bits of metadata of each,
// and one or two lanes from the selector on hold a row. Narrower elements: a word covers 32 bits of metadata of one
// row; the lanes of a pair are row g and row g+8, the second pair, if the row needs it, goes on.
type sparsity struct {
	meta     uint32 // register
	selector int
	words    int // registers that hold a row
	narrow   bool
	index    func(meta uint64, e int) int // where element e of a row that is there stands in the row
}

func (mx matrices) sparsity(meta, selector ptx.Operand, t ptx.Type, k int) *sparsity {
	s := &sparsity{meta: mx.read(meta, ptx.B32)}
	imm, ok := selector.(*ptx.Imm)
	if !ok {
		mx.fail(mx.in.Src.Pos, "the sparsity selector must be a constant")
	}
	bits := k // of metadata in a row
	s.index = func(meta uint64, e int) int { return e/2*4 + int(meta>>(2*e)&3) }
	switch isa.Bits(t) {
	case 4:
		bits = k / 2
		s.index = func(meta uint64, e int) int { return e/4*8 + int(meta>>(2*(e/2))&3)*2 + e%2 }
	case 32:
		bits = 2 * k
		s.index = func(meta uint64, e int) int { return 2*e + int(meta>>(4*e)&3)>>1 }
	}
	s.narrow = isa.Bits(t) < 16
	limit := 0
	if s.narrow {
		s.words = bits / 32
		limit = 2 / s.words
	} else {
		s.words = bits / 16
		limit = 4 / s.words
	}
	if imm.Bits >= uint64(limit) {
		mx.fail(mx.in.Src.Pos, "sparsity selector %d, want less than %d", imm.Bits, limit)
	}
	s.selector = int(imm.Bits)
	return s
}

// row gives the metadata of a row of 16.
func (s *sparsity) row(w *warp, row int) uint64 {
	v := w.r.v32(s.meta)
	var x uint64
	for c := range s.words {
		if s.narrow {
			x |= uint64(v[row%8*4+2*s.selector+row/8+2*c]) << (32 * c)
		} else {
			x |= uint64(v[row%8*4+s.selector*s.words+c]>>(row/8*16)&0xffff) << (16 * c)
		}
	}
	return x
}

// rowsOfB calls f for each of m rows of A with those elements of B, of n columns of k, that meet it.
func rowsOfB[T any](s *sparsity, w *warp, b, sel []T, m, n, k int, f func(i int, b []T)) {
	for i := range m {
		meta := s.row(w, i)
		for e := range k / 2 {
			x := s.index(meta, e)
			for j := range n {
				sel[j*k/2+e] = b[j*k+x]
			}
		}
		f(i, sel)
	}
}
