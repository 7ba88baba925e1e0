// Package form is the language in which kernels and launches speak of numbers: operations on values of some bits (Op,
// Compute), kinds of variables and what they are between (Kind, Evaluate), and bounds of both (package interval).
// Package summarise writes it, package footprint evaluates it.
//
//	op.go       operations, and what special registers they read
//	compute.go  what operations compute
//	kind.go     kinds of variables, and their bounds
//	scale.go    indices that are scaled as floating-point numbers
//
// Everything is a pure function of numbers. The package imports package interval and the standard library only.
package form
