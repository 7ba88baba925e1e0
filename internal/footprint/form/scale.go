package form

import "math"

// Images are made larger and smaller with indices that are computed as floating-point numbers: i * c, or
// (i + 1/2) * c - 1/2, rounded towards 0. Every step of that is a function that does not fall, so what lies
// between two indices is between what becomes of them.

// maxScaled is the largest index that is looked at: up to it all steps but the last rounding are exact with 64 bits.
const maxScaled = 1 << 22

// Halves, in the number of a scaling, stands for (i + 1/2) * c - 1/2. The lower 32 bits are those of c.
const Halves = int64(1) << 32

// scaled is what becomes of index i: 0 <= i <= maxScaled, and 2^-16 <= c <= 2^8, so that it fits.
func scaled(curve, i int64) int64 {
	c := math.Float32frombits(uint32(curve))
	if !(c >= 1.0/(1<<16) && c <= 1<<8) {
		return 0
	}
	y := float32(float32(i) * c)
	if curve&Halves != 0 {
		// The sum is exact. So is the product, with 48 bits, and the difference: only the last rounding is one.
		y = float32(float64(float32(i)+0.5)*float64(c) - 0.5)
	}
	return int64(y)
}
