// Package probe makes kernels that show what one PTX instruction does: each
// loads operands from an array, executes one spelling of the instruction table and
// stores what came out. The same kernel runs on the software GPU and on hardware; bench/softgpu compares
// the two, and the tests of package softgpu compare the first with expectations computed another way.
//
// The list is derived from internal/isa, so that a new line of the table is a new probe. Each has
// generated inputs: combinations of edge values first (zeros, denormals, infinities, NaN payloads,
// the smallest and largest integers, shift amounts around the width), then random bits.
//
// The package is pure: the same seed gives the same bytes. It imports isa and ptx, and neither the
// executor nor a driver.
package probe
