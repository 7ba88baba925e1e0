package device

import (
	"math"

	"holdfast/internal/softgpu"
)

// tensorFill is how elements outside of a tensor are read (CUtensorMapFloatOOBfill).
const tensorFillNaN = 1

// tensorMap reads what all forms of cuTensorMapEncode take: type, rank, address, interleave, swizzle, L2 promotion,
// fill; dimensions, strides.
func (c *call) tensorMap() *softgpu.TensorMap {
	a := c.args
	if a[1] == 0 || a[1] > 5 || a[6] > tensorFillNaN {
		panic(InvalidValue)
	}
	m := &softgpu.TensorMap{Type: softgpu.TensorType(min(a[0], 255)), Rank: int(a[1]), Address: a[2],
		Interleave: uint8(min(a[3], 255)), Swizzle: uint8(min(a[4], 255)), FillNaN: a[6] == tensorFillNaN}
	copy(m.Dim[:m.Rank], c.words())
	copy(m.Stride[:m.Rank-1], c.words())
	return m
}

// retTensorMap answers with the encoded map.
func (c *call) retTensorMap(m *softgpu.TensorMap) Status {
	if err := m.Check(); err != nil {
		c.p.srv.log.Warn("tensor map refused", "pid", c.p.key.pid, "err", err)
		return InvalidValue
	}
	b := m.Encode()
	c.retBlob(b[:])
	return Success
}

func tensorMapTiled(c *call) Status {
	m := c.tensorMap()
	copy(m.Box[:m.Rank], c.words32())
	copy(m.Step[:m.Rank], c.words32())
	return c.retTensorMap(m)
}

func tensorMapIm2col(c *call) Status {
	m := c.tensorMap()
	if m.Rank < 3 || c.args[7] > math.MaxUint16 || c.args[8] > math.MaxUint16 {
		return InvalidValue
	}
	m.Im2col, m.Channels, m.Pixels = true, uint16(c.args[7]), uint16(c.args[8])
	for _, corner := range []*[3]int16{&m.Lower, &m.Upper} {
		for i, v := range c.words32() {
			if i >= m.Rank-2 || int32(v) != int32(int16(v)) {
				return InvalidValue
			}
			corner[i] = int16(v)
		}
	}
	copy(m.Step[:m.Rank], c.words32())
	return c.retTensorMap(m)
}

func tensorMapReplace(c *call) Status {
	m, err := softgpu.DecodeTensorMap(c.blob())
	if err != nil {
		return InvalidValue
	}
	m.Address = c.args[0]
	return c.retTensorMap(m)
}
