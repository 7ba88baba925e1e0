// Package number is the arithmetic of the software GPU: pure functions of bits. It knows the types of PTX and no
// instruction; what an instruction is, package softgpu says.
//
// Raw bits are uint64 with the number in the low bits, whatever its width; what is above it is ignored. Instructions
// with a rounding modifier are exact (see Rounding). NaN and everything that the PTX ISA leaves open follows an H200;
// a comment says so where it was measured.
//
//	ops.go      the operations by name; zops.go is made of the table in ../lanes/table.go
//	int.go      integers: extension, high products, fields, permutation, dot products
//	round.go    directions, and rounding to odd on the way to a narrower format
//	f32.go      single precision: the one NaN, subnormal numbers, minimum and maximum
//	f64.go      double precision in all directions, and its NaN
//	half.go     f16, bf16 and every other format of at most 16 bits, by exponent and fraction
//	small.go    the 8-bit and smaller formats, in pairs
//	convert.go  between formats, and from and to integers
//	compare.go  the comparison operators
//
// The tests compare with exact rationals and integers of any size, rounded once, bit by bit.
package number
