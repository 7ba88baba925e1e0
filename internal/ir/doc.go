// Package ir is the form in which kernels are analysed and changed: basic blocks of
// instructions, brought into SSA form, with dominator and post-dominator trees, the loop
// nest with induction variables and trip counts, liveness, and uniformity.
//
// It assumes nothing of the language that a kernel is written in. A front end makes a Func;
// the file ptx.go is the one for PTX, and only it knows that language. An
// instruction says in a closed set of operations (Op) what analyses may rely on;
// everything else is in its Name, which they do not read.
//
// Predicates are guards: an instruction with a guard has no effect in threads for which it
// is false. In SSA form such an instruction lists in Else the values that its
// results have then, so that it is an ordinary definition to everything that does not care.
//
// Analyse runs the passes of one table, whose order is constrained by a second one and
// checked before the first pass; Check says what is wrong with a function. Format and
// Read are the text form. docs/ir.md explains all of it with one worked kernel.
//
// Every pass is deterministic. Passes are linear or nearly so; those whose result may be larger
// than the function stop with a TooLargeError. Nothing recurses over the input but
// the nesting of blocks in PTX, which its parser bounds.
//
// The package imports ptx, internal/isa and the standard library: it must not know
// what uses it.
package ir
